"""Opens a page of `midair flame --diff` in headless Chromium, works with it, and prints as JSON what was there.

    difference_page.py CHROMIUM PAGE"""

import json
import sys
import tempfile

sys.dont_write_bytecode = True

from chromium import Browser  # noqa: E402

# Name, width in percent, and colour of each box.
BOXES = """[...document.querySelectorAll('.box')].map((box) =>
  [box.textContent, Math.round(parseFloat(box.style.width)), box.style.background, box.title])"""
CHOOSE = """(() => { const it = document.getElementById('measure'); it.value = 'share';
  it.dispatchEvent(new Event('change')); return it.value; })()"""
SEARCH = """(() => { const it = document.getElementById('search'); it.value = 'RELU';
  it.dispatchEvent(new Event('input')); return document.querySelectorAll('.hit').length; })()"""
ZOOM = "(() => { [...document.querySelectorAll('.box')].find((it) => it.textContent === 'gemm').click(); return 0; })()"


def main(program, page):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            browser.open(page)
            found = {"times": browser.value(BOXES), "hits": browser.value(SEARCH)}
            browser.value(CHOOSE)
            found["shares"] = browser.value(BOXES)
            browser.value(ZOOM)
            found["zoomed"] = browser.value(BOXES)
            browser.value("document.getElementById('invert').click()")
            found["inverted"] = browser.value(BOXES)
            found["about"] = browser.value("document.getElementById('about').textContent")
            found["asked_for"] = browser.asked_for()
            found["errors"] = browser.errors()
        finally:
            browser.end()
    json.dump(found, sys.stdout)


main(*sys.argv[1:])
