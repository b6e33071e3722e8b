"""The docs as served: every link from /docs works in both modes, and every page fits a phone."""
import html.parser
import urllib.parse

import httpx


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
    for path in ("/docs", "/docs/reference/protocol", "/docs/guides/migrating", "/docs/bench/results", "/docs/get-started/quickstart", "/demo"):
        page.do("goto", url=f"{serve.url}{path}")
        assert page.eval("document.documentElement.scrollWidth <= innerWidth"), path
        assert page.eval("document.querySelectorAll('h1').length") == 1, path
    demo.quiet()
