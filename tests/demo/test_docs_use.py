"""Reading the docs: search with typing mistakes, the place on the page and in the menu, tables, Markdown twins, keyboard, phones."""
import json
import re

import httpx
import pytest

from .test_docs import violations

FOUND = "[...document.querySelectorAll('#found a')].map((link) => link.getAttribute('href'))"
# Desktop and phone.
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture
def page(demo, serve):
    return demo.page(f"{serve.url}/docs", width=1280, height=900)


def search(page, text):
    """The addresses that the search finds, best first."""
    page.fill(".search input", "")
    page.wait("document.querySelector('#found').hidden")
    page.fill(".search input", text)
    page.wait("!document.querySelector('#found').hidden")
    return page.eval(FOUND)


@pytest.mark.parametrize("typed, first", [
    ("presence", "/docs/guides/presence"),
    ("presnece", "/docs/guides/presence"),
    ("presens", "/docs/guides/presence"),
    ("authentcation", "/docs/guides/authentication"),
    ("quikstart", "/docs/get-started/quickstart"),
    ("chanel histroy", "/docs/guides/history"),
    ("authen", "/docs/guides/authentication"),
    ("kuberentes", "/docs/deploy/kubernetes"),
])
def test_the_search_forgives_typing_mistakes(demo, page, typed, first):
    assert search(page, typed)[0] == first
    demo.quiet()


def test_the_search_does_not_guess_short_or_strange_words(page):
    assert search(page, "qzxv") == [] and search(page, "xyzzyplugh") == []
    cases = [("presnece", "presence", 1), ("presenc", "presence", 0), ("chanel", "channel", 1), ("abc", "abc", 0), ("kitten", "sitting", 2), ("abcdef", "uvwxyz", 3)]
    for word, known, wrong in cases:
        assert page.eval(f"distance({json.dumps(word)}, {json.dumps(known)}, 2)") == wrong, (word, known)
    assert page.eval("[mistakes('abc'), mistakes('abcd'), mistakes('abcdefgh')].join()") == "0,1,2"


def test_the_search_works_by_keyboard_alone(demo, page):
    page.press("Tab")
    assert page.eval("document.activeElement.className") == "skip"
    page.press("/")
    page.type("webhok")
    page.wait("document.querySelectorAll('#found a').length > 2")
    page.press("ArrowDown", "ArrowDown", "ArrowUp")
    chosen = page.eval("document.querySelector('#found [aria-selected=true]').getAttribute('href')")
    assert page.eval("document.activeElement.getAttribute('aria-activedescendant')") == "found-0"
    page.press("Enter")
    page.wait(f"location.pathname + location.hash === {json.dumps(chosen)}")
    demo.quiet()


@pytest.mark.parametrize("size", SIZES)
def test_the_search_stays_in_view(demo, serve, size):
    width, height = SIZES[size]
    page = demo.page(f"{serve.url}/docs/reference/configuration", width=width, height=height)
    page.eval("scrollTo(0, 3000)")
    page.wait("scrollY > 2000")
    box = page.eval("(() => { const { top, bottom } = document.querySelector('.search input').getBoundingClientRect(); return [top, bottom]; })()")
    assert 0 <= box[0] < box[1] < 120, box
    # A heading that is jumped to is not behind the header.
    page.eval("location.hash = document.querySelectorAll('main h2')[5].id")
    page.wait("Math.abs(document.querySelectorAll('main h2')[5].getBoundingClientRect().top - 90) < 60")
    assert page.eval("document.querySelectorAll('main h2')[5].getBoundingClientRect().top >= document.querySelector('.top').getBoundingClientRect().bottom")
    demo.quiet()


def test_the_contents_list_marks_what_is_read(demo, serve):
    page = demo.page(f"{serve.url}/docs/guides/presence", width=1440, height=700)
    marked = "[...document.querySelectorAll('aside a[aria-current=location]')].map((link) => link.hash).join()"
    page.wait("document.querySelectorAll('aside a').length > 3")
    assert page.eval(marked) == ""
    for number in (0, 2, 1):
        page.eval(f"document.querySelectorAll('main h2')[{number}].scrollIntoView()")
        page.wait(f"{marked} === '#' + document.querySelectorAll('main h2')[{number}].id")
    page.eval("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait(f"{marked} === document.querySelector('aside li:last-child a').hash")
    demo.quiet()


def test_the_active_page_is_in_view_in_the_menu(demo, serve):
    for path in ("/docs/about/versioning", "/docs/reference/glossary", "/docs/get-started/quickstart"):
        page = demo.page(f"{serve.url}{path}", width=1280, height=600)
        page.wait("""(() => {
          const box = document.querySelector('nav.pages').getBoundingClientRect();
          const link = document.querySelector('nav.pages a[aria-current]').getBoundingClientRect();
          return link.top >= box.top && link.bottom <= Math.min(box.bottom, innerHeight);
        })()""")
        assert page.eval("scrollY") == 0, path
    demo.quiet()


WIDE_TABLES = ("/docs/reference/metrics", "/docs/reference/configuration", "/docs/reference/rest", "/docs/reference/rest/subscriptions", "/docs/reference/errors")


@pytest.mark.parametrize("size", SIZES)
def test_tables_do_not_break_names(demo, serve, size):
    width, height = SIZES[size]
    page = demo.page(f"{serve.url}/docs", width=width, height=height)
    for path in WIDE_TABLES:
        page.do("goto", url=f"{serve.url}{path}")
        broken = page.eval("[...document.querySelectorAll('td code')].filter((one) => one.getClientRects().length > 1).map((one) => one.textContent)")
        assert broken == [], path
        assert page.eval("document.documentElement.scrollWidth <= innerWidth"), path
        narrow = page.eval("[...document.querySelectorAll('td')].filter((one) => one.textContent.length > 60 && one.clientWidth < 120).length")
        assert narrow == 0, f"{path}: text needs room beside names"
    demo.quiet()


def test_every_page_has_a_twin_in_markdown(serve):
    with httpx.Client(base_url=serve.url, trust_env=False) as client:
        index = client.get("/llms.txt").text
        assert index.startswith("# Tavern\n\n> ") and "](/docs/get-started/quickstart.md): " in index
        twins = re.findall(r"\]\((/docs/[^)]+\.md)\): \S", index)
        assert len(twins) > 50 and len(twins) == index.count("\n- ["), "every page is listed with a sentence"
        for twin in ["/docs.md", "/docs/contributing.md", *twins]:
            answer = client.get(twin)
            assert answer.status_code == 200 and answer.text.startswith(("# ", "<!--", "![")), twin
            assert answer.headers["content-type"].startswith("text/plain"), twin
            for link in set(re.findall(r"\]\((/docs[^)#\s]*)", answer.text)):
                assert client.get(link).status_code == 200, f"{twin}: {link}"
            assert f'href="{twin}"' in client.get(twin.removesuffix(".md")).text


def test_cards_say_what_a_page_is_for(serve):
    text = httpx.get(f"{serve.url}/docs", trust_env=False).text
    cards = re.findall(r'<li><a href="([^"]+)">[^<]+</a><p>([^<]*)</p></li>', text)
    assert len(cards) > 40
    for address, sentence in cards:
        assert len(sentence) >= 45 and len(sentence.split()) >= 8, f"{address}: {sentence}"
        assert sentence.endswith((".", "?")), f"{address}: {sentence}"
    sentences = [sentence for _, sentence in cards]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize("locale", ["en-US", "de-DE"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_pages_pass_axe_in_every_look(demo, serve, size, scheme, locale):
    width, height = SIZES[size]
    page = demo.page(f"{serve.url}/docs", width=width, height=height, scheme=scheme, locale=locale)
    for path in ("/docs", "/docs/guides/presence", "/docs/reference/rest/channels"):
        page.do("goto", url=f"{serve.url}{path}")
        page.wait("document.documentElement.classList.contains('js')")
        page.eval("scrollTo(0, 900)")
        assert violations(page) == [], path
        assert page.eval("document.documentElement.scrollWidth <= innerWidth"), path
    assert search(page, "presnece")
    assert violations(page) == [], "search"
    demo.quiet()
