"""Drives headless Chromium in tests, by the protocol of its developer tools over its two pipes
(descriptors 3 and 4)."""

import json
import os
import select
import subprocess
import time

PATIENCE = 120


class Browser:
    def __init__(self, program, profile):
        ours_out, theirs_in = os.pipe()
        theirs_out, ours_in = os.pipe()
        # The browser reads from 3 and writes to 4. Beyond those first: one may be the other.
        high = [os.dup(theirs_out), os.dup(theirs_in)]
        high = [fd if fd > 4 else os.dup(fd) for fd in high]

        def arrange():
            import fcntl

            spare = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in high]
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        self.process = subprocess.Popen(
            [
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--window-size=1200,2400",
                f"--user-data-dir={profile}",
                "--remote-debugging-pipe",
            ],
            preexec_fn=arrange,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (theirs_out, theirs_in, *high):
            os.close(fd)
        os.set_inheritable(ours_in, False)
        self.to, self.back = ours_in, ours_out
        self.waiting = b""
        self.number = 0
        self.session = None
        self.events = []
        self.deadline = time.monotonic() + PATIENCE

    def message(self):
        while b"\0" not in self.waiting:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.back], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.back, 1 << 16)
            if not piece:
                raise EOFError(f"the browser has ended: {self.process.poll()}")
            self.waiting += piece
        text, self.waiting = self.waiting.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def wait_for(self, event):
        while not any(seen.get("method") == event for seen in self.events):
            self.events.append(self.message())

    def value(self, expression):
        """What an expression is, or what its promise becomes."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def click(self, selector):
        """With the mouse, in the middle of what is seen."""
        x, y = self.value(
            f"(() => {{ const it = document.querySelector({json.dumps(selector)});"
            " it.scrollIntoView({block: 'center'}); const box = it.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, key):
        """Presses and releases a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def open(self, page):
        """Opens a file or an address, in a tab of its own, and waits until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.events.clear()
        url = page if "://" in page else f"file://{os.path.abspath(page)}"
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def count(self, selector):
        return self.value(f"document.querySelectorAll({json.dumps(selector)}).length")

    def asked_for(self):
        """What the page loaded, itself included."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def errors(self):
        """What the page complained of."""
        said = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening")
        return [event["params"] for event in self.events if event.get("method") in said]

    def end(self):
        self.process.kill()
        self.process.wait()
