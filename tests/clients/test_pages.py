"""The pages of the clients: the same chapters, and a chat of at most 25 lines in each language, which the tests of documents run
(that of Rust: test_rust_client.py)."""
import re

import pytest

from .toolchains import ROOT

PAGES = {path.stem: path.read_text() for path in sorted((ROOT / "docs/clients").glob("*.md"))}
CHAPTERS = ["Install", "A chat", "Connecting", "Reference", "Reconnecting", "Errors", "For backends"]


def chat(language):
    """The first code of the chapter about it."""
    chapter = PAGES[language].split("\n## A chat\n")[1].split("\n## ")[0]
    return re.search(r"^```\w[^\n]*\n(.*?)^```$", chapter, flags=re.MULTILINE | re.DOTALL)[1]


def test_each_client_has_a_page():
    assert set(PAGES) == {"javascript", "python", "rust", "go", "csharp"}


@pytest.mark.parametrize("language", PAGES)
def test_the_pages_have_the_same_chapters(language):
    chapters = re.findall(r"^## (.+)$", PAGES[language], flags=re.MULTILINE)
    # The page that others link to for all clients names them at its end.
    assert chapters == CHAPTERS + ["Other languages"] * (language == "javascript")


@pytest.mark.parametrize("language", PAGES)
def test_a_chat_is_short_and_complete(language):
    code = chat(language)
    assert len(code.splitlines()) <= 25
    for call in ("presence", "join", "publish", "room#chat"):
        assert call in code.lower(), call


@pytest.mark.parametrize("language", sorted(set(PAGES) - {"rust"}))
def test_a_chat_is_run_with_the_documents(language):
    assert "<!-- save: chat." in PAGES[language].lower() and "<!-- run: expect ann: hello; retry -->" in PAGES[language]
