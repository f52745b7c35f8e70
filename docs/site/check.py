# SPDX-License-Identifier: Apache-2.0
"""Checks the site: links and anchors, nothing from the network, and, where there is a browser, that pages fit a phone and that
the search finds things.

    check.py SITE [--browser] [--screenshots FOLDER]
"""
import argparse
import asyncio
import base64
import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

PHONE, DESKTOP = 390, 1280
# What a reader looks for, and the page that must be among the results.
SEARCHES = {"coalescing sectors": "tiling", "proxy fence": "checkers", "cuBLASLt": "performance", "mbarrier": "glossary"}
# The first element that reaches beyond the window and does not lie in a table or code that scrolls by itself. (The width of the
# document tells nothing: on a phone the theme lets the whole text scroll sideways, or hides the rest.)
TOO_WIDE = """(() => {
  const scrolls = e => e && e.tagName != "ARTICLE" && (/auto|scroll/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  for (const e of document.querySelectorAll("article *"))
    if (e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e.parentElement) && !scrolls(e))
      return e.tagName + " '" + e.textContent.trim().slice(0, 40) + "'";
})()"""


class Page(html.parser.HTMLParser):
    """A page's anchors, what it links to, and what it loads."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loads = {""}, [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.update(values[name] for name in ("id", "name") if values.get(name))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif values.get("src"):
            self.loads.append(values["src"])
        elif tag == "link" and values.get("href"):
            self.loads.append(values["href"])


def check_links(site):
    problems = []
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for target in page.loads:
            if re.match(r"(https?:)?//", target):
                problems.append(f"{name} loads {target} from the network")
        for target in page.links + page.loads:
            if re.match(r"[a-z]+:|//", target):
                continue
            file, _, anchor = urllib.parse.unquote(target).partition("#")
            to = (path.parent / file.split("?")[0]).resolve() if file else path
            if not to.exists():
                problems.append(f"{name}: {target} does not exist")
            elif anchor and to in pages and "explain" not in to.parts and anchor not in pages[to].anchors:
                problems.append(f"{name}: {target}: no such section")
    for path in [*site.rglob("*.css"), *site.rglob("*.html")]:
        for url in re.findall(r"url\(\s*['\"]?((?:https?:)?//[^)'\"]+)|@import\s+['\"](https?:[^'\"]+)", path.read_text()):
            problems.append(f"{path.relative_to(site)} loads {url} from the network")
    print(f"{len(pages)} pages, {sum(len(p.links) for p in pages.values())} links")
    return problems


class Browser:
    """A headless Chromium, driven over its debugging protocol."""

    def __init__(self, program):
        self.program = program

    async def __aenter__(self):
        import websockets

        self.profile = tempfile.mkdtemp()
        self.process = subprocess.Popen(
            [self.program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0",
             f"--user-data-dir={self.profile}", "about:blank"], stderr=subprocess.DEVNULL)
        port_file = pathlib.Path(self.profile) / "DevToolsActivePort"
        for _ in range(300):
            if port_file.exists() and len(port_file.read_text().split()) == 2:
                break
            await asyncio.sleep(0.1)
        port, path = port_file.read_text().split()
        self.socket = await websockets.connect(f"ws://127.0.0.1:{port}{path}", max_size=None)
        self.count, self.session = 0, None
        target = await self.call("Target.createTarget", url="about:blank")
        self.session = (await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True))["sessionId"]
        await self.call("Page.enable")
        return self

    async def __aexit__(self, *_):
        await self.socket.close()
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    async def call(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        await self.socket.send(json.dumps(message))
        while True:
            reply = json.loads(await asyncio.wait_for(self.socket.recv(), 60))
            if reply.get("id") == self.count:
                return reply.get("result", {})

    async def width(self, pixels):
        await self.call("Emulation.setDeviceMetricsOverride", width=pixels, height=900, deviceScaleFactor=1, mobile=False)

    async def open(self, path, query=""):
        await self.call("Page.navigate", url=path.as_uri() + query)
        for _ in range(300):
            if await self.value(f"document.readyState == 'complete' && location.pathname.endsWith('{path.name}')"):
                return
            await asyncio.sleep(0.02)

    async def value(self, expression):
        reply = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return reply.get("result", {}).get("value")

    async def screenshot(self, file):
        file.write_bytes(base64.b64decode((await self.call("Page.captureScreenshot"))["data"]))


async def check_browser(site, program, screenshots):
    problems = []
    pages = [p for p in sorted(site.rglob("*.html")) if not {"explain", "source"} & set(p.relative_to(site).parts)]
    async with Browser(program) as browser:
        for pixels in (PHONE, DESKTOP):
            await browser.width(pixels)
            for page in pages:
                await browser.open(page)
                wide = await browser.value(TOO_WIDE)
                if wide:
                    problems.append(f"{page.relative_to(site)} does not fit {pixels} pixels: {wide}")
                if screenshots:
                    await browser.screenshot(screenshots / f"{page.relative_to(site).with_suffix('')}-{pixels}.png".replace("/", "-"))
        for words, page in SEARCHES.items():
            await browser.open(site / "search.html", "?q=" + urllib.parse.quote_plus(words))
            found = []
            for _ in range(100):
                found = await browser.value("[...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href'))")
                if any(page in link for link in found or []):
                    break
                await asyncio.sleep(0.05)
            else:
                problems.append(f"the search for '{words}' does not find {page}: {found}")
    print(f"{len(pages)} pages at {PHONE} and {DESKTOP} pixels, {len(SEARCHES)} searches")
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--screenshots", type=pathlib.Path)
    arguments = parser.parse_args()
    site = arguments.site.resolve()
    problems = check_links(site)
    if arguments.browser or arguments.screenshots:
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if program:
            if arguments.screenshots:
                arguments.screenshots.mkdir(parents=True, exist_ok=True)
            problems += asyncio.run(check_browser(site, program, arguments.screenshots))
        else:
            print("no browser on PATH: not tried in one (apt-get install chromium)")
    for problem in problems[:20]:
        print(f"error: {problem}", file=sys.stderr)
    if len(problems) > 20:
        print(f"error: and {len(problems) - 20} more", file=sys.stderr)
    sys.exit(1 if problems else 0)


main()
