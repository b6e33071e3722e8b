"""How clients reach an app: over TLS, from pages of other sites, with what `tavern dev` prints, with apps of the environment."""
import re

import pytest

from pusher.raw_client import RawClient
from pusher.test_apps import event, send, signed
from pusher.test_bad_input import echoes, ends_with
from pusher.world import App
from support.tavern import Tavern
from support.tls_server import TlsServer


def publish(server, app, body):
    path = f"/apps/{app.id}/events"
    answer = send(server, "POST", path, signed(app, "POST", path, body), body)
    assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def printed():
    """A server with TLS in dev mode, and its app as it is printed."""
    with TlsServer() as server:
        found = re.search(r"Pusher .*\n +id (\S+), key (\S+), secret (\S+)\n", server.log(20_000))
        assert found, server.log(20_000)
        app = App(found[1])
        app.key, app.secret = found[2], found[3]
        yield server, app


def test_the_app_that_dev_mode_prints_works_over_tls(printed):
    server, app = printed
    assert app.secret == (server.data / "dev-pusher-secret").read_text().strip()
    with RawClient(server, app) as client, RawClient(server, app) as other:
        socket = client.established()
        for each in (client, other):
            each.subscribe("private-room", auth=each.signature(f"{socket if each is client else other.established()}:private-room"))
            each.waits("pusher_internal:subscription_succeeded")
        for number in range(20):
            publish(server, app, event("private-room", data=str(number)))
        assert [client.waits("a")["data"] for _ in range(20)] == [str(number) for number in range(20)]
        # Client events are on in dev mode.
        other.send("client-typing", {"on": 1}, channel="private-room")
        assert client.waits("client-typing")["data"] == '{"on": 1}'


@pytest.mark.parametrize("origin, code", [("https://other.example", 4009), ("https://app.example", None), ("http://127.0.0.1:{}", None)])
def test_a_page_of_another_site_is_told_why_it_may_not_connect(app, origin, code):
    with Tavern.serve('origins = ["https://app.example"]\n' + app.config) as server:
        with RawClient(server, app, headers=[f"origin: {origin.format(server.port)}"]) as client:
            if code:
                assert "`origins`" in ends_with(client, code)[-1]["data"]["message"]
            else:
                client.established()
                echoes(client)


class FromEnvironment(Tavern):
    """A server whose only app is in its environment."""

    app = App(5)

    def environment(self):
        fields = {"ID": self.app.id, "KEY": self.app.key, "SECRET": self.app.secret, "CLIENT_EVENTS": "true"}
        return super().environment() | {f"TAVERN_PUSHER_APPS_0_{name}": value for name, value in fields.items()}


def test_an_app_may_be_in_the_environment():
    app = FromEnvironment.app
    with FromEnvironment("serve") as server, RawClient(server, app) as client:
        client.established()
        client.subscribe("room")
        client.waits("pusher_internal:subscription_succeeded")
        publish(server, app, event("room", name="moved"))
        assert client.waits("moved")["data"] == "x"
