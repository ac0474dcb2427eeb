"""Opens a page in headless Chromium, clicks through it, and prints as JSON what was there.

    browser.py CHROMIUM PAGE

The protocol is that of Chromium's developer tools, over its two pipes (descriptors 3 and 4)."""

import json
import os
import select
import subprocess
import sys
import tempfile
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
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
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


SHOWN = (
    "[...document.querySelectorAll('table.kernels tbody tr')]"
    ".filter((row) => row.getBoundingClientRect().height > 0)"
    ".map((row) => row.firstElementChild.textContent)"
)


def main(program, page):
    found = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            target = browser.call("Target.createTarget", url="about:blank")["targetId"]
            browser.session = browser.call(
                "Target.attachToTarget", targetId=target, flatten=True
            )["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                browser.call(f"{domain}.enable")
            browser.events.clear()
            browser.call("Page.navigate", url=f"file://{os.path.abspath(page)}")
            browser.wait_for("Page.loadEventFired")

            count = lambda selector: browser.value(  # noqa: E731
                f"document.querySelectorAll({json.dumps(selector)}).length"
            )
            found["title"] = browser.value("document.title")
            found["bars"] = count("svg.bars rect.part")
            found["intervals"] = count("svg.bars path.error")
            found["roofs"] = count("svg.roofline path.roof")
            found["points"] = count("svg.roofline circle")
            found["roofline"] = browser.value(
                "document.querySelector('svg.roofline')?.textContent ?? ''"
            )
            found["chart"] = browser.value(
                "document.querySelector('svg.chart, pre.chart')?.textContent ?? ''"
            )
            # Drawn, not only there.
            found["drawn"] = browser.value(
                "[...document.querySelectorAll('svg')].every((svg) => svg.getBoundingClientRect().height > 20)"
            )
            found["kernels"] = browser.value(SHOWN)
            browser.click("input.filter")
            browser.type("scale")
            found["filtered"] = browser.value(SHOWN)
            browser.type(" nothing of the kind")
            found["none"] = browser.value(SHOWN)
            browser.value(
                "(() => { const field = document.querySelector('input.filter'); field.select(); })()"
            )
            browser.type("GEMM")
            found["other_case"] = browser.value(SHOWN)
            # Tables fold.
            folded = "document.querySelector('details:not([open]) > summary')?.textContent ?? ''"
            found["folded"] = browser.value(folded)
            browser.value(
                "document.querySelector('details:not([open])')?.setAttribute('id', 'clicked')"
            )
            height = "document.querySelector('#clicked table').getBoundingClientRect().height"
            before = browser.value("document.querySelector('#clicked').open")
            browser.click("#clicked > summary")
            found["unfolds"] = [
                before,
                browser.value("document.querySelector('#clicked').open"),
                browser.value(height) > 0,
            ]
            found["wide"] = browser.value(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            found["asked_for"] = [
                event["params"]["request"]["url"]
                for event in browser.events
                if event.get("method") == "Network.requestWillBeSent"
            ]
            found["errors"] = [
                event["params"]
                for event in browser.events
                if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")
            ]
        finally:
            browser.process.kill()
            browser.process.wait()
    print(json.dumps(found))


main(*sys.argv[1:])
