"""Parties over HTTP: the REST API for services, the legacy form API, and the command line."""
import itertools
import json
import threading
import time

import httpx
import pytest

from support.json_client import Poller, Socket, connect_online
from support.process import until
from support.tavern import Tavern

COUNT = itertools.count(1)


@pytest.fixture(scope="module")
def server():
    with Tavern.dev() as server:
        yield server


@pytest.fixture
def pair(server):
    number = next(COUNT)
    with connect_online(server, f"ann-{number}") as ann, connect_online(server, f"bob-{number}") as bob:
        yield ann, bob


@pytest.fixture(scope="module")
def api(server):
    headers = {"authorization": f"Bearer {server.api_key('parties')}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=20, trust_env=False) as api:
        yield api


def name(socket):
    return socket.hello["user"]


def together(ann, bob):
    party = ann.ok("party.invite", user=name(bob))["party_id"]
    assert bob.event()["cmd"] == "invite"
    bob.ok("party.accept", party_id=party)
    assert ann.event()["cmd"] == "accept"
    return party


def test_a_service_reads_parties_and_sends_commands_for_users(server, api, pair):
    ann, bob = pair
    invited = api.post(f"/v1/users/{name(ann)}/party", json={"cmd": "invite", "user": name(bob)}).json()
    event = bob.event()
    assert (event["cmd"], event["party_id"], event["uid"]) == ("invite", invited["party_id"], name(ann))
    joined = api.post(f"/v1/users/{name(bob)}/party", json={"cmd": "accept", "party_id": event["party_id"]}).json()
    assert [member["user"] for member in joined["party"]["members"]] == [name(ann), name(bob)]
    party = api.get(f"/v1/parties/{event['party_id']}").json()["party"]
    assert party == api.get(f"/v1/users/{name(bob)}/party").json()["party"]
    assert party in api.get("/v1/parties").json()["parties"]
    refused = api.post(f"/v1/users/{name(bob)}/party", json={"cmd": "invite", "user": name(ann)})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_leader")
    assert refused.json()["error"]["party"] == party


def test_the_list_of_parties_is_paged(server, api):
    with Socket(server, user="host-1") as one, Socket(server, user="host-2") as two, connect_online(server, "member-x") as member:
        own = {socket.ok("party.invite", user=name(member))["party_id"] for socket in (one, two)}
        found, after = [], None
        while True:
            page = api.get("/v1/parties", params={"limit": 1} | ({"after": after} if after else {})).json()
            found += [party["party_id"] for party in page["parties"]]
            if (after := page["next"]) is None:
                break
        assert own <= set(found) and len(found) == len(set(found))


def test_a_key_without_the_scope_is_refused(server):
    key = server.api_key("publish")
    for method, path in [("GET", "/v1/parties"), ("GET", "/v1/parties/1"), ("POST", "/v1/parties/1/go/1"), ("GET", "/v1/users/a/party")]:
        answer = httpx.request(method, server.url + path, headers={"authorization": f"Bearer {key}"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_allowed"), path


def test_invalid_requests_are_refused(api):
    for method, path, body, status, code in [
        ("GET", "/v1/parties/1", None, 404, "no_such_party"),
        ("GET", "/v1/parties/x", None, 400, "bad_request"),
        ("POST", "/v1/parties/1/go/1", {"result": "perhaps"}, 400, "bad_request"),
        ("POST", "/v1/parties/1/go/1", {"result": "matched"}, 404, "no_such_party"),
        ("POST", "/v1/users/zed/party", {"cmd": "dance"}, 400, "bad_request"),
        ("POST", "/v1/users/zed/party", {"cmd": "say", "data": 1}, 400, "bad_request"),
        ("POST", "/v1/users/zed/party", {"cmd": "leave"}, 403, "not_member"),
        ("DELETE", "/v1/parties/1", None, 405, "method_not_allowed"),
    ]:
        answer = api.request(method, path, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), (method, path, answer.text)


def form(server, caller, **fields):
    return httpx.post(f"{server.url}/party", params={"user": caller}, data={"action": "party"} | fields, timeout=20)


def test_the_legacy_form_api_works(server, pair):
    ann, bob = pair
    invited = form(server, name(ann), cmd="invite", invite_login=name(bob)).json()
    assert list(invited) == ["party_id"]
    joined = form(server, name(bob), cmd="accept", party_id=invited["party_id"]).json()["party"]
    assert [member["user"] for member in joined["members"]] == [name(ann), name(bob)]
    assert form(server, name(ann), cmd="kick", target_uid=name(bob), user_msg="bye bob").json() == {}
    assert (bob.event()["cmd"], bob.event()["message"]) == ("invite", "bye bob")
    absent = form(server, name(ann), cmd="invite", invite_login="unknown-user")
    assert (absent.status_code, absent.json()["code"]) == (404, "no_such_user")
    with connect_online(server, "gone-1"):
        pass
    time.sleep(0.2)
    refused = form(server, name(ann), cmd="invite", invite_login="gone-1")
    assert (refused.status_code, refused.json()["error"]) == (409, "user not logged")
    assert httpx.post(f"{server.url}/party", data={"cmd": "get"}).status_code == 401


def test_a_ping_waits_for_events_and_acknowledges_those_of_the_previous_one(server, pair):
    ann, bob = pair
    ping = lambda: httpx.get(f"{server.url}/party/ping", params={"user": name(bob)}, timeout=20).json()
    assert ping() == {"party": None, "party_events": []}
    began = time.monotonic()
    threading.Timer(0.3, lambda: ann.ok("party.invite", user=name(bob))).start()
    pinged = ping()
    assert 0.2 < time.monotonic() - began < 3
    assert [event["cmd"] for event in pinged["party_events"]] == ["invite"]
    form(server, name(bob), cmd="accept", party_id=pinged["party_events"][0]["party_id"])
    ann.ok("party.set_data", data={"map": "north"})
    pinged = ping()
    assert [event["cmd"] for event in pinged["party_events"]] == ["data"], "the invite was acknowledged"
    assert pinged["party"]["data"] == {"map": "north"}


def test_the_cli_sends_party_commands(server, pair):
    ann, bob = pair
    run = lambda user, *arguments: server.run("party", "--url", server.url, "--user", user, *arguments)
    party = json.loads(run(name(ann), "invite", name(bob)).stdout)["party_id"]
    joined = json.loads(run(name(bob), "accept", str(party)).stdout)
    assert [member["user"] for member in joined["party"]["members"]] == [name(ann), name(bob)]
    assert json.loads(run(name(ann), "set-data", '{"a":1}').stdout) == {}
    assert json.loads(run(name(bob), "get").stdout)["party"]["data"] == {"a": 1}
    refused = run(name(bob), "kick", name(ann))
    assert refused.returncode == 1 and refused.stderr.startswith("error: not_leader: ")
    assert run(name(ann), "go", "--params", "{").stderr.startswith("error: --params is not JSON")
    watched = run(name(ann), "watch", "--count", "1")
    first, event = map(json.loads, watched.stdout.splitlines())
    assert first["party"]["party_id"] == party and event["event"] == "party"
    assert json.loads(run(name(bob), "leave", "--message", "later").stdout) == {}


def test_party_messages_reach_members_only(server, pair):
    ann, bob = pair
    party = together(ann, bob)
    with Socket(server, user="outsider") as outsider:
        assert outsider.call("subscribe", channel=f"party#{party}")["error"]["code"] == "not_allowed"
        outsider.ok("subscribe", pattern="*")
        assert outsider.call("party.say", data="hi")["error"]["code"] == "not_member"
        assert ann.ok("party.say", data={"hi": 1}) == {"receivers": 2}
        event = bob.event()
        assert (event["event"], event["channel"], event["data"]) == ("message", f"party#{party}", {"hi": 1})
        assert event["from"]["user"] == name(ann)
        assert outsider.events_so_far() == [], "no pattern matches party channels"
        bob.ok("party.leave")
        while ann.event().get("cmd") != "disband":
            pass
        until(lambda: "error" in ann.call("party.say", data=1), "the party to end")
        assert ann.call("party.say", data=1)["error"]["code"] == "not_member", "the party ended when the other member left"


def test_the_party_is_in_hello_and_in_every_poll(server, pair):
    ann, bob = pair
    party = together(ann, bob)
    with Socket(server, user=name(bob)) as tab, Poller(server, user=name(bob)) as poller:
        assert tab.hello["party"]["party_id"] == party
        assert poller.poll(0)["party"]["party_id"] == party
        assert poller.poll(0)["party"]["members"][0]["user"] == name(ann)


def test_followers_see_who_is_in_a_party(server, pair):
    ann, bob = pair
    party = together(ann, bob)
    status = lambda: ann.ok("status", users=[name(bob)])["statuses"][0]
    until(lambda: [one["activity"] for one in status()["activities"]] == ["in_party"], "the activity")
    assert status()["channels"] == [f"party#{party}"]
    bob.ok("party.leave")
    until(lambda: status()["activities"] == [], "the activity to end")


MALFORMED = [
    ({"cmd": "dance"}, "party command"),
    ({"cmd": "invite"}, "`user`"),
    ({"cmd": "invite", "user": "x" * 129}, "`user` must be a user id: a user id has 1 to 128 bytes"),
    ({"cmd": "leave", "message": "x" * 257}, "`message` must have at most 256 bytes"),
    ({"cmd": "leave", "message": "a\nb"}, "`message` must have at most 256 bytes and no control characters"),
    ({"cmd": "accept", "party_id": "x"}, "`party_id` must be an integer"),
    ({"cmd": "get", "rid": "r" * 65}, "`rid` must have 1 to 64 bytes"),
    ({"cmd": "set_data", "data": "7"}, "`data` must be an object"),
    ({"cmd": "set_data", "data": json.dumps({"a": "x" * 4096})}, "`data` must be JSON of at most 4096 bytes"),
]


@pytest.mark.parametrize("fields, where", MALFORMED)
def test_bad_request_names_the_member_and_carries_the_party(server, api, pair, fields, where):
    ann, bob = pair
    party = together(ann, bob)
    refused = form(server, name(ann), **fields)
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")
    assert where in refused.json()["error"] and refused.json()["party"]["party_id"] == party
    body = fields | ({"data": json.loads(fields["data"])} if "data" in fields else {})
    refused = api.post(f"/v1/users/{name(bob)}/party", json=body)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["party"]["party_id"]) == (400, "bad_request", party)
    assert where in error["message"]
    error = ann.call("party." + body["cmd"], **{key: body[key] for key in body if key != "cmd"})["error"]
    assert error["code"] == "bad_request" and where in error["message"] and error["party"]["party_id"] == party


def test_details_of_a_match_have_a_limit(api):
    refused = api.post("/v1/parties/1/go/1", json={"result": "matched", "address": "x" * 4096})
    assert refused.status_code == 400 and "`result`" in refused.json()["error"]["message"]


def test_reason_of_the_old_form_is_the_users_message(server, pair):
    ann, bob = pair
    party = ann.ok("party.invite", user=name(bob))["party_id"]
    form(server, name(bob), cmd="decline", party_id=party, user_msg="not today")
    ping = lambda: httpx.get(f"{server.url}/party/ping", params={"user": name(ann)}, timeout=20).json()["party_events"]
    declined = until(lambda: next((event for event in ping() if event["cmd"] == "decline"), None), "the decline")
    assert (declined["reason"], declined["message"]) == ("not today", "not today")
