"""Opens a page in headless Chromium, clicks through it, and prints as JSON what was there.

    browser.py CHROMIUM PAGE"""

import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../../tests/python"))

from chromium import Browser  # noqa: E402

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
            browser.open(page)
            count = browser.count
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
            found["asked_for"] = browser.asked_for()
            found["errors"] = browser.errors()
        finally:
            browser.end()
    print(json.dumps(found))


main(*sys.argv[1:])
