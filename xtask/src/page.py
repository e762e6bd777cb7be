"""Opens pages in Chromium as a phone, a desk and a printer do, and reports what is there to be seen.

One JSON request as argument, one JSON line for each page on stdout. What is a fault is the caller's business.
"""

import json
import os
import pathlib
import re
import sys

from playwright.sync_api import sync_playwright

# Width and height in CSS pixels; a sheet of A4 without the margins of the page's own style.
WINDOWS = {"phone": (390, 844), "desk": (1280, 720)}
SHEET = 703

# Letters of a chart shrink with it, others do not.
READ = """() => {
    const shown = element => element.getClientRects().length > 0;
    const size = text => {
        const chart = text.ownerSVGElement;
        const scale = chart ? chart.getBoundingClientRect().width / chart.viewBox.baseVal.width : 1;
        return parseFloat(getComputedStyle(text).fontSize) * scale;
    };
    const texts = [...document.querySelectorAll('svg text, p, td, th, span, h1, h2, h3')].filter(shown);
    const root = document.documentElement;
    return {
        wide: root.scrollWidth > root.clientWidth,
        smallest: Math.min(...texts.map(size)),
        charts: document.querySelectorAll('svg').length,
    };
}"""

# On paper nothing can be scrolled: what sticks out is cut.
CUT = """() => [...document.querySelectorAll('body *')]
    .filter(element => element.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(element => element.tagName.toLowerCase()).slice(0, 3)"""


def read(browser, path, window, scheme):
    width, height = WINDOWS[window]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    address, elsewhere, complaints = path.as_uri(), [], []
    page.on("request", lambda request: request.url == address or elsewhere.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(address)
    shown = page.evaluate(READ)
    context.close()
    return {"window": window, "scheme": scheme, "elsewhere": elsewhere, "complaints": complaints, **shown}


def printed(browser, path):
    context = browser.new_context(viewport={"width": SHEET, "height": 1000})
    page = context.new_page()
    page.goto(path.as_uri())
    page.emulate_media(media="print")
    cut = page.evaluate(CUT)
    pdf = page.pdf(format="A4", prefer_css_page_size=True)
    context.close()
    return {"sheets": len(re.findall(rb"/Type\s*/Page\b", pdf)), "cut": cut}


def main():
    request = json.loads(sys.argv[1])
    with sync_playwright() as playwright:
        # Chromium's sandbox refuses to start for root.
        sandbox = os.getuid() != 0
        flags = ["--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
        browser = playwright.chromium.launch(
            executable_path=request["chromium"], chromium_sandbox=sandbox, args=flags
        )
        for path in map(pathlib.Path, request["pages"]):
            views = [read(browser, path, window, scheme) for window in WINDOWS for scheme in ("light", "dark")]
            print(json.dumps({"views": views, "print": printed(browser, path)}))
        browser.close()


main()
