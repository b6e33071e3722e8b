"""The example app in examples/pusher-chat, with its own Node process: it signs, sends, and gets webhooks."""
import pathlib
import subprocess

import httpx
import pytest

from pusher.world import POSTING, App, Webhook
from support.browser import MODULES
from support.process import free_port, until
from support.tavern import Tavern

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Chat(Webhook):
    """The app as an endpoint of webhooks."""

    def __init__(self):
        super().__init__()
        self.port = free_port()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/webhooks"


@pytest.fixture
def chat(tmp_path):
    chat = Chat()
    app = App(1, webhooks=[chat])
    with Tavern.serve(app.config + POSTING) as server, open(tmp_path / "log", "w+") as log:
        variables = {"TAVERN_URL": server.url, "PUSHER_KEY": app.key, "PUSHER_SECRET": app.secret, "PORT": str(chat.port), "MODULES": str(MODULES)}
        process = subprocess.Popen(["node", str(ROOT / "examples/pusher-chat/chat.cjs")], env={"PATH": "/usr/bin:/bin:/usr/local/bin"} | variables, stdout=log, stderr=log)
        try:
            until(lambda: "http://" in (tmp_path / "log").read_text(), "the app to listen")
            yield app, server, f"http://127.0.0.1:{chat.port}", lambda: (tmp_path / "log").read_text()
        finally:
            process.kill()
            process.wait()


def test_the_example_app_works(clients, chat):
    app, server, url, log = chat
    clients.server(app, server)
    assert "pusher.subscribe" in httpx.get(url, trust_env=False).text
    assert "Pusher JavaScript Library" in httpx.get(f"{url}/pusher.js", trust_env=False).text
    join = lambda name: clients.client(app, server, options={
        "channelAuthorization": {"endpoint": f"{url}/auth", "transport": "ajax", "params": {"name": name}},
    }).connected().subscribe("presence-chat")
    ann, bob = join("ann"), join("bob")
    ann.has_members("presence-chat", "ann", "bob")
    assert httpx.post(f"{url}/messages", data={"from": "ann", "text": "hi"}, trust_env=False).text == "sent"
    assert bob.waits("message", "presence-chat") == {"from": "ann", "text": "hi"}
    for line in ("channel_occupied presence-chat", "member_added presence-chat ann", "member_added presence-chat bob"):
        until(lambda: line in log(), f"{line}: {log()}")
    assert httpx.post(f"{url}/webhooks", content=b"{}", trust_env=False).status_code == 400
