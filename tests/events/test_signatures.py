"""Posts are signed according to Standard Webhooks and verified by its Python and JavaScript libraries, also during a rotation of
the secret; the routemaster format uses basic auth."""
import base64
import json
import pathlib
import subprocess

import pytest
import standardwebhooks

from events.conftest import client
from events.endpoint import Endpoint, script
from events.topics_api import publish, put
from support.process import until
from support.tavern import Tavern

HERE = pathlib.Path(__file__).resolve().parent
MODULES = HERE.parents[1] / "target" / "node"


def python_verifies(messages):
    def verifies(message):
        try:
            standardwebhooks.Webhook(message["secret"]).verify(message["body"], message["headers"])
            return True
        except standardwebhooks.WebhookVerificationError:
            return False

    return [verifies(message) for message in messages]


def node_verifies(messages):
    command = ["node", HERE / "node" / "verify.mjs", MODULES]
    done = subprocess.run(command, input=json.dumps(messages), capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def message(post, secret, **changed):
    return {"secret": secret, "headers": {**post.headers, **changed}, "body": post.raw.decode()}


def secret_of(byte):
    return "whsec_" + base64.b64encode(bytes([byte]) * 32).decode()


def signed(api, topic, endpoint, signatures):
    """The first post with this many signatures."""
    def post():
        seen = len(endpoint.posts)
        publish(api, topic, {"type": "x"})
        last = endpoint.posted(seen + 1)[-1]
        return last if len(last.headers["webhook-signature"].split()) == signatures else None

    return until(post, f"{signatures} signatures")


@pytest.fixture(params=[python_verifies, node_verifies], ids=["python", "javascript"])
def verifies(request):
    return request.param


def test_the_library_verifies_a_post_and_rejects_changed_ones(ann, topic, name, verifies):
    with Endpoint(script(500)) as endpoint:
        secret = put(ann, name, topics=[topic], callback=endpoint.url, timeout_ms=0)["secret"]
        publish(ann, topic, {"type": "create", "data": "größer & <größer>"})
        first, second = endpoint.posted(2)
        assert first.raw == second.raw and first.id == second.id
        wrong = {**message(first, secret), "body": first.raw.decode().replace("create", "delete")}
        other = message(first, secret_of(9))
        renamed = message(first, secret, **{"webhook-id": "msg_other"})
        assert verifies([message(first, secret), message(second, secret), wrong, other, renamed]) == [True, True, False, False, False]


def test_both_secrets_sign_during_rotation(topic, name, verifies):
    old, new, newest = secret_of(1), secret_of(2), secret_of(3)
    with Tavern.dev("[events]\nrotation_ms = 1500\n") as server, client(server, server.key) as api, Endpoint() as endpoint:
        put(api, name, topics=[topic], callback=endpoint.url, timeout_ms=0, secret=old)
        before = signed(api, topic, endpoint, 1)
        put(api, name, secret=new)
        during = signed(api, topic, endpoint, 2)
        after = signed(api, topic, endpoint, 1)
        put(api, name, secret=newest)
        put(api, name, secret=newest)
        last = signed(api, topic, endpoint, 2)
        asked = [(before, old), (before, new), (during, old), (during, new), (after, old), (after, new), (last, old), (last, new), (last, newest)]
        expected = [True, False, True, True, False, True, False, True, True]
        assert verifies([message(*pair) for pair in asked]) == expected


def test_the_routemaster_format_is_a_signed_list_with_a_basic_password(ann, topic, name, verifies):
    with Endpoint(script(500)) as endpoint:
        wanted = {"topics": [topic], "callback": endpoint.url, "timeout_ms": 0, "format": "routemaster", "uuid": "3f-uuid"}
        secret = put(ann, name, **wanted)["secret"]
        publish(ann, topic, [{"type": "create", "url": "https://x/1", "time": 1234, "data": {"a": 1}}, {"type": "noop", "url": "https://x/2"}])
        first, second = endpoint.posted(2)
        assert first.raw == second.raw
        assert first.headers["authorization"] == "Basic " + base64.b64encode(b"3f-uuid:x").decode()
        create, noop = first.body
        assert create == {"topic": topic, "type": "create", "url": "https://x/1", "t": 1234, "data": {"a": 1}}
        assert {key: noop[key] for key in ("topic", "type", "url")} == {"topic": topic, "type": "noop", "url": "https://x/2"}
        assert noop["t"] > 1_700_000_000_000 and "data" not in noop
        assert verifies([message(first, secret), message(second, secret), message(first, secret_of(9))]) == [True, True, False]
