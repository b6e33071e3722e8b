"""The docs as served: every link from /docs works in both modes, and every page fits a phone."""
import functools
import html.parser
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import urllib.parse

import httpx
import pytest

from install.files import ROOT
from support.browser import MODULES
from support.tavern import program


class Links(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.ids = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.add(given.get("id"))
        self.links.update(given[name] for name in ("href", "src") if name in given)


def test_every_link_works(serve):
    with httpx.Client(base_url=serve.url, trust_env=False) as client:
        pages, wanted = {}, ["/docs"]
        while wanted:
            path = wanted.pop()
            answer = client.get(path)
            assert answer.status_code == 200, path
            assert "script-src 'self'" in answer.headers.get("content-security-policy", "script-src 'self'"), path
            is_page = path.startswith("/docs") and answer.headers["content-type"].startswith("text/html")
            pages[path] = Links(answer.text) if is_page else None
            for link in pages[path].links if is_page else ():
                address = urllib.parse.urldefrag(link)[0]
                if address.startswith("/") and address not in pages and address not in wanted:
                    wanted.append(address)
    assert len([page for page in pages.values() if page]) > 30, sorted(pages)
    for path, page in pages.items():
        for link in page.links if page else ():
            address, part = urllib.parse.urldefrag(link)
            target = pages.get(address or path)
            if part and target:
                assert urllib.parse.unquote(part) in target.ids, f"{path}: {link}"


def test_pages_fit_a_phone_without_console_errors(demo, serve):
    page = demo.page(f"{serve.url}/docs", width=360, height=720)
    for path in ("/docs", "/docs/reference/protocol", "/docs/guides/migrating", "/docs/bench/results", "/docs/get-started/quickstart", "/docs/reference/rest", "/docs/guides/authentication", "/docs/contributing", "/demo"):
        page.do("goto", url=f"{serve.url}{path}")
        assert page.eval("document.documentElement.scrollWidth <= innerWidth"), path
        assert page.eval("[...document.querySelectorAll('h1')].filter((one) => one.offsetParent).length") == 1, path
    demo.quiet()


AXE = (MODULES / "node_modules/axe-core/axe.min.js").read_text()
# One page of every shape: front pages, tabs and output, long tables, code, images.
SHAPES = ("/docs", "/docs/contributing", "/docs/guides/authentication", "/docs/reference/configuration", "/docs/reference/cli",
          "/docs/operate/dashboard", "/docs/get-started/tutorial", "/docs/adr/0008-sessions-move-through-the-store")


def violations(page):
    """What axe-core finds, by rule."""
    page.eval(AXE + "; 0")
    found = page.eval("axe.run().then(({ violations }) => JSON.stringify(violations.map((one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html)])))")
    return json.loads(found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_pass_the_rules_of_axe(demo, serve, scheme):
    page = demo.page(f"{serve.url}/docs", width=1280, height=900, scheme=scheme)
    for path in SHAPES:
        page.do("goto", url=f"{serve.url}{path}")
        page.wait("document.documentElement.classList.contains('js')")
        assert violations(page) == [], path
    page.fill(".search input", "origins")
    page.wait("document.querySelectorAll('#found a').length > 2")
    assert violations(page) == [], "search"


def test_the_search_finds_headings_and_text(demo, serve):
    page = demo.page(f"{serve.url}/docs", width=1280, height=900)
    page.press("/")
    page.type("trusted_proxies")
    page.wait("[...document.querySelectorAll('#found a')].some((link) => link.getAttribute('href') === '/docs/deploy/proxies#two-settings-in-tavern')")
    page.fill(".search input", "no such words anywhere")
    page.wait("document.querySelector('#found').innerText === 'Nothing found'")
    page.fill(".search input", "kernel limits")
    page.wait("document.querySelector('#found a')?.getAttribute('href') === '/docs/deploy/limits'")
    page.press("ArrowDown", "Enter")
    page.wait("location.pathname === '/docs/deploy/limits'")
    demo.quiet()


def test_tabs_show_one_language_and_remember_it(demo, serve):
    page = demo.page(f"{serve.url}/docs/guides/authentication", width=1280, height=900)
    shown = "[...document.querySelectorAll('[role=tabpanel]')].filter((panel) => !panel.hidden).map((panel) => panel.dataset.tab).join()"
    page.wait(f"{shown} === 'Node'")
    page.click("[role=tab]:has-text('Python')")
    page.wait(f"{shown} === 'Python'")
    page.press("ArrowRight")
    page.wait(f"{shown} === 'Go'")
    page.do("reload")
    page.wait(f"{shown} === 'Go'")
    # A link to a heading in another tab shows it.
    page.eval("location.hash = '#php'")
    page.wait(f"{shown} === 'PHP'")
    demo.quiet()


def test_the_menu_of_a_phone_is_at_the_top(demo, serve):
    page = demo.page(f"{serve.url}/docs/guides/presence", width=390, height=800)
    page.wait("document.documentElement.classList.contains('js')")
    assert page.eval("document.querySelector('nav.pages').getBoundingClientRect().bottom <= document.querySelector('main').getBoundingClientRect().top")
    assert page.eval("document.querySelector('#pages').offsetHeight") == 0
    page.click("nav.pages button")
    assert page.eval("document.querySelector('#pages').offsetHeight") > 300
    demo.quiet()


def test_every_page_for_users_leads_to_the_next(serve):
    with httpx.Client(base_url=serve.url, trust_env=False) as client:
        path, seen = "/docs/get-started/quickstart", []
        while path:
            seen.append(path)
            text = client.get(path).text
            following = [part for part in text.split("<a ") if 'rel="next"' in part]
            path = following[0].split('href="')[1].split('"')[0] if following else None
    assert len(seen) == len(set(seen)) > 25 and not any("/adr/" in path for path in seen)
    assert {path.split("/")[2] for path in seen} >= {"get-started", "guides", "deploy", "operate", "reference", "clients", "about"}


def test_code_can_be_copied(demo, serve):
    page = demo.page(f"{serve.url}/docs/get-started/tutorial", width=1280, height=900)
    page.wait("document.querySelectorAll('.copy').length > 5")
    assert page.eval("document.querySelectorAll('pre.output ~ .copy').length") == 0
    page.eval("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    page.eval("document.querySelector('.copy').click()")
    page.wait("window.copied?.length > 10 && document.querySelector('.copy').textContent === 'Copied'")
    demo.quiet()


def test_the_exported_site_works_from_a_folder(demo, tmp_path):
    folder = tmp_path / "site"
    done = subprocess.run([sys.executable, ROOT / "scripts/docs-export", folder], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"TAVERN_BIN": str(program())})
    assert done.returncode == 0, done.stderr
    pages = sorted(folder.rglob("*.html"))
    assert len(pages) > 40
    found = {page: Links(page.read_text()) for page in pages}
    for page, links in found.items():
        for link in links.links:
            target, part = urllib.parse.urldefrag(link)
            if "://" in target:
                continue
            assert not target.startswith("/"), f"{page}: {link}"
            there = (page.parent / urllib.parse.unquote(target)).resolve() if target else page
            assert there.is_file(), f"{page}: {link}"
            assert not part or there not in found or urllib.parse.unquote(part) in found[there].ids, f"{page}: {link}"
    twins = sorted(folder.rglob("*.md"))
    assert len(twins) > 40
    for twin in [folder / "llms.txt", *twins]:
        for target in re.findall(r"\]\(((?!https?:)[^)#\s]+\.md)", twin.read_text()):
            assert (twin.parent / target).is_file(), f"{twin}: {target}"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietFiles, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page = demo.page(f"http://127.0.0.1:{server.server_port}/site/guides/presence.html", width=1280, height=900)
        page.fill(".search input", "kernel limits")
        page.wait("document.querySelector('#found a')")
        page.press("Enter")
        page.wait("location.pathname === '/site/deploy/limits.html' && document.querySelector('h1').textContent.startsWith('Kernel')")
        demo.quiet()
    finally:
        server.shutdown()
    again = subprocess.run([sys.executable, ROOT / "scripts/docs-export", tmp_path], capture_output=True, text=True, timeout=120,
                           env=os.environ | {"TAVERN_BIN": str(program())})
    assert again.returncode == 1 and "not empty" in again.stderr and folder.exists(), "a folder with other files is kept"


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
