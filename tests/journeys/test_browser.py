"""A page on another origin talks to `tavern serve`, with tokens signed by PyJWT, jsonwebtoken and golang-jwt, as the documentation
shows them; and the chat room of the tutorial works for two users."""
import contextlib
import http.server
import os
import pathlib
import subprocess
import sys
import threading

import pytest

from demo.demo_browser import DemoBrowser
from install.files import ROOT
from support import tokens
from support.blocks import blocks
from support.process import free_port, until
from support.tavern import Tavern

pytestmark = [pytest.mark.alone, pytest.mark.timing]
GUIDE = (ROOT / "docs/guides/authentication.md").read_text()
TUTORIAL = (ROOT / "docs/get-started/tutorial.md").read_text()
RUN = {
    "python": [[sys.executable, "token_for.py", "ann"]],
    "node": [["node", "token.mjs", "ann"]],
    "go": [["go", "mod", "init", "example"], ["go", "get", "github.com/golang-jwt/jwt/v5@v5.2.3"], ["go", "run", "token.go", "ann"]],
}
PAGE = b"<!doctype html><meta charset=utf-8><title>app</title><h1>app</h1>"


def saved(document, folder):
    """The files that the reader of a document has saved."""
    for block in blocks(document):
        if block.file:
            (folder / block.file).write_text(block.text)
    (folder / "node_modules").symlink_to(ROOT / "target/node/node_modules")


@contextlib.contextmanager
def site():
    """An app on an origin of its own."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with DemoBrowser() as browser:
        yield browser


@pytest.fixture(scope="module")
def app():
    with site() as origin:
        yield origin


@pytest.fixture(scope="module")
def server(app):
    with Tavern.serve(f'origins = ["{app}"]\n') as server:
        yield server


def token_of(language, folder):
    saved(GUIDE, folder)
    variables = os.environ | {"TAVERN_SECRET": tokens.SECRET, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    for command in RUN[language]:
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def in_page(server, token):
    """Connects, subscribes, publishes, and returns the message as the page received it."""
    return f"""(async () => {{
        const {{ Tavern }} = await import('{server.url}/client.js');
        const tavern = new Tavern('{server.url}', {{ token: '{token}', transports: ['websocket'] }});
        try {{
            await tavern.connect();
            const room = tavern.channel('room#1');
            const received = room.once('message');
            await room.subscribe();
            await room.publish('hello');
            const {{ from, data }} = await received;
            await tavern.close();
            return `${{from.user}}: ${{data}}`;
        }} catch (error) {{
            return `refused: ${{error.code}}`;
        }}
    }})()"""


@pytest.mark.parametrize("language", RUN)
def test_a_page_on_another_origin_connects_with_a_token(language, browser, server, app, tmp_path):
    page = browser.page(app, tab=language)
    assert page.eval(in_page(server, token_of(language, tmp_path))) == "ann: hello"
    browser.do("leave", who=language)


def test_without_origins_the_page_is_refused(browser, app):
    with Tavern.serve() as server:
        page = browser.page(app, tab="refused")
        # The client cannot be loaded from there, and neither can a socket be opened.
        opened = page.eval(f"new Promise((done) => {{ const s = new WebSocket('{server.ws_url}?token={server.token}'); s.onopen = () => done('open'); s.onerror = () => done('refused') }})")
        assert opened == "refused"
        browser.do("leave", who="refused")
        browser.do("complaints")


def test_the_chat_room_of_the_tutorial_works(browser, tmp_path):
    saved(TUTORIAL, tmp_path)
    port = free_port()
    config = (tmp_path / "tavern.toml").read_text().replace("8080", str(port))
    with Tavern.serve(config) as server:
        for name in ("backend.mjs", "index.html"):
            file: pathlib.Path = tmp_path / name
            file.write_text(file.read_text().replace("8080", str(port)).replace("7400", str(server.port)))
        backend = subprocess.Popen(["node", "backend.mjs"], cwd=tmp_path, env=os.environ | {"TAVERN_SECRET": tokens.SECRET}, stdout=subprocess.PIPE, text=True)
        try:
            assert backend.stdout.readline().startswith("http://localhost")
            pages = {}
            for name in ("ann", "bob"):
                pages[name] = browser.page(f"http://localhost:{port}/", tab=f"chat-{name}")
                pages[name].fill("#name", name)
                pages[name].click("#login button")
                pages[name].wait("!document.querySelector('#send').hidden")
            for page in pages.values():
                page.wait("document.querySelector('#people').textContent === 'ann, bob'")
            pages["ann"].fill("#text", "good evening")
            pages["ann"].click("#send button")
            for page in pages.values():
                page.wait("document.querySelector('#messages').textContent === 'ann: good evening'")
            # The grace period of the tutorial: the name stays for a while, then goes.
            browser.do("leave", who="chat-bob")
            assert pages["ann"].text("#people") == "ann, bob"
            pages["ann"].wait("document.querySelector('#people').textContent === 'ann'")
            # A restart of the server loses nothing.
            assert server.terminate() == 0
            server.start()
            pages["ann"].fill("#text", "still here")
            pages["ann"].click("#send button")
            pages["ann"].wait("document.querySelector('#messages').textContent.endsWith('ann: still here')")
        finally:
            backend.terminate()
            until(lambda: backend.poll() is not None, "the backend to end")
            browser.do("empty")
