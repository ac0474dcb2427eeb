"""Opens a page of the format html in headless Chromium, works with it, and prints as JSON what was there.

    html_page.py CHROMIUM PAGE"""

import json
import sys
import tempfile

sys.dont_write_bytecode = True

from chromium import Browser  # noqa: E402

ROWS = """[...document.querySelectorAll('#tables section')].map((section) => ({
  title: section.querySelector('h2').textContent,
  rows: [...section.querySelectorAll('tbody tr')].map((row) => [row.firstElementChild.textContent, row.firstElementChild.title,
    ...[...row.children].slice(1).map((cell) => Number(cell.dataset.value))]),
}))"""
# The number of pixels that are drawn, and of colours.
DRAWN = """(() => {
  const canvas = document.getElementById('canvas');
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  let drawn = 0;
  for (let at = 0; at < pixels.length; at += 4) {
    if (pixels[at + 3] === 255) { drawn += 1; colours.add(pixels[at] << 16 | pixels[at + 1] << 8 | pixels[at + 2]); }
  }
  return [drawn, colours.size];
})()"""


def main(program, page):
    found = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            browser.open(page)
            text = lambda selector: browser.value(  # noqa: E731
                f"document.querySelector({json.dumps(selector)}).textContent"
            )
            hidden = lambda selector: browser.value(  # noqa: E731
                f"document.querySelector({json.dumps(selector)}).hidden"
            )
            for key, selector in {"heading": "header", "merged": "#merged", "range": "#range"}.items():
                found[key] = text(selector)
            found["title"] = browser.value("document.title")
            found["empty"] = not hidden("#empty")
            found["tables"] = browser.value(ROWS)
            found["images"] = browser.count("img")
            found["has_timeline"] = not hidden("#timeline")
            if found["has_timeline"]:
                timeline(browser, found, text)
            if found["tables"]:
                table(browser, found)
            if not hidden("#code"):
                flame(browser, found)
            found["wide"] = narrow(browser, 400)
            found["asked_for"] = browser.asked_for()
            found["errors"] = browser.errors()
        finally:
            browser.end()
    print(json.dumps(found))


def narrow(browser, width):
    """By how many pixels the page is wider than a window of this width."""
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    wider = browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    browser.call("Emulation.clearDeviceMetricsOverride")
    return wider


def timeline(browser, found, text):
    """The range that is shown, after each way of changing it, and what the pointer finds."""
    found["drawn"] = browser.value(DRAWN)
    shown = found["shown"] = {}
    for name, act in {
        "button in": lambda: browser.click("#in"),
        "button left": lambda: browser.click("#left"),
        "button all": lambda: browser.click("#all"),
        "key w": lambda: browser.key("w"),
        "key d": lambda: browser.key("d"),
        "key ArrowLeft": lambda: browser.key("ArrowLeft"),
        "key s": lambda: browser.key("s"),
        "key 0": lambda: browser.key("0"),
    }.items():
        act()
        shown[name] = text("#range")
    # Each row at many places, until the pointer has found a span on it.
    found["tips"] = browser.value(
        """(() => {
          const view = document.getElementById('view'), tip = document.getElementById('tip');
          view.scrollIntoView();
          const tips = [];
          for (let y = 24; y < view.clientHeight; y += 7) {
            for (let x = 0; x < view.clientWidth; x += 3) {
              const box = view.getBoundingClientRect();
              view.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + x, clientY: box.top + y}));
              if (!tip.hidden && tip.textContent.includes('\\n') && !tips.includes(tip.textContent)) tips.push(tip.textContent);
            }
          }
          return tips.slice(0, 2000);
        })()"""
    )


BOXES = """[...document.querySelectorAll('#flame .box')].map((box) => ({
  name: box.textContent, title: box.title, width: parseFloat(box.style.width), top: parseFloat(box.style.top), hit: box.classList.contains('hit'),
}))"""
MEASURE = """(() => {
  const choice = document.getElementById('flame-measure');
  choice.selectedIndex = %d;
  choice.dispatchEvent(new Event('change'));
  return choice.options[%d].textContent;
})()"""
BY = MEASURE.replace("flame-measure", "flame-by")


def flame(browser, found):
    """The flame graph's boxes by each measure, inverted, upwards, zoomed and searched."""
    flames = found["flames"] = {}
    for at in range(browser.count("#flame-measure option")):
        name = browser.value(MEASURE % (at, at))
        flames[name] = browser.value(BOXES)
    browser.value(MEASURE % (0, 0))
    start = browser.value("document.getElementById('flame-by').selectedIndex")
    for at in range(browser.count("#flame-by option")):
        name = browser.value(BY % (at, at))
        flames[name] = browser.value(BOXES)
    browser.value(BY % (start, start))
    browser.click("#flame-invert")
    flames["inverted"] = browser.value(BOXES)
    browser.click("#flame-invert")
    browser.click("#flame-up")
    flames["upwards"] = browser.value(BOXES)
    browser.click("#flame-up")
    browser.value("document.querySelectorAll('#flame .box')[1].click()")
    flames["zoomed"] = browser.value(BOXES)
    browser.click("#flame-all")
    browser.click("#flame-search")
    browser.type("FORWARD")
    flames["searched"] = browser.value(BOXES)
    flames["found"] = browser.value("document.getElementById('flame-found').textContent")


def table(browser, found):
    """The first table, searched and sorted."""
    names = "[...document.querySelectorAll('#table-0 tbody tr')].map((row) => row.firstElementChild.textContent)"
    found["sorted"] = {}
    for number, key in [(1, "name"), (2, "calls"), (2, "calls again")]:
        browser.click(f"#table-0 th:nth-child({number}) button")
        found["sorted"][key] = browser.value(ROWS)[0]["rows"]
    browser.click("#table-0 input")
    browser.type(found["tables"][0]["rows"][0][0][:12].upper())
    found["searched"] = browser.value(names)
    browser.type(" nothing of the kind")
    found["none"] = browser.value(names)


main(*sys.argv[1:])
