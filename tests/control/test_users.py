"""Acting on users of one server: every transport, bans, erasing."""
import time

import pytest

from support import tokens
from support.json_client import Poller, Socket, Stream
from support.process import until
from support.resp import CLOSED, ErrorReply, RespConnection, parse


def test_sessions_are_listed_with_their_transports(serve, service, user):
    token = tokens.token(user)
    with Socket(serve, token=token) as socket, Stream(serve, token=token) as stream, Poller(serve, token=token) as poller:
        socket.ok("subscribe", channel="game#1")
        stream.greeting()
        poller.ok("hello")
        found = service.sessions(user)
        assert sorted(str(session["transport"]) for session in found) == ["None", "sse", "websocket"]
        assert {session["client"] for session in found} >= {socket.hello["client"]}
        assert [session["channels"] for session in found if session["transport"] == "websocket"] == [1]


def test_disconnect_ends_every_transport_at_once(serve, service, user):
    token = tokens.token(user)
    with Socket(serve, token=token) as socket, Stream(serve, token=token) as stream, Poller(serve, token=token) as poller:
        stream.greeting()
        poller.ok("hello")
        socket.ok("join", channel="game#1")
        began = time.monotonic()
        done = service.call("POST", f"/users/{user}/disconnect", code=4123, reason="signed out")
        assert done == {"sessions": 3, "missing_nodes": []}
        assert socket.closing()[1] == 4123
        assert stream.event()[1]["error"] == {"code": "gone", "message": "signed out"}
        assert stream.event() is None
        assert poller.poll_response(timeout_ms=100).status_code == 410
        assert time.monotonic() - began < 1.5
    until(lambda: not service.is_online(user), "the presence to end without a grace period", 3)
    assert service.sessions(user) == []


def test_a_session_that_was_ended_is_not_resumed(serve, service, user):
    token = tokens.token(user)
    with Socket(serve, token=token) as socket:
        session = socket.hello["session"]
        service.call("POST", f"/users/{user}/disconnect")
        assert socket.closing()[1] == 4006
    with Socket(serve) as again:
        hello = again.ok("hello", token=token, session=session)
        assert hello["resumed"] is False


def test_disconnect_may_keep_a_client_and_allow_resume(serve, service, user):
    token = tokens.token(user)
    with Socket(serve, token=token) as one, Socket(serve, token=token) as two:
        done = service.call("POST", f"/users/{user}/disconnect", allow_resume=True, **{"except": [two.hello["client"]]})
        assert done["sessions"] == 1
        assert one.closing()[1] == 4504
        two.ok("ping")
        with Socket(serve) as again:
            assert again.ok("hello", token=token, session=one.hello["session"])["resumed"] is True


def test_a_redis_connection_of_the_user_is_closed(serve, service, user):
    connection = RespConnection(serve.resp_port)
    assert connection.call("AUTH", tokens.token(user)) == "OK"
    service.call("POST", f"/users/{user}/disconnect", reason="signed out")
    values = []
    while (frame := connection.frame(5)) != CLOSED:
        values.append(parse(frame)[0])
    assert values == [ErrorReply("ERR signed out")]
    again = RespConnection(serve.resp_port)
    assert again.call("AUTH", tokens.token(user)) == "OK"
    time.sleep(1.5)
    assert again.call("PING") == "PONG", "a connection that began later stays"


@pytest.mark.parametrize("body, field", [
    ({"code": 3000}, "code"), ({"code": 4000, "allow_resume": True}, "code"), ({"except": ["?"]}, "except"),
    ({"reason": "x" * 124}, "reason"),
])
def test_a_wrong_field_is_named(service, user, body, field):
    answer = service.call("POST", f"/users/{user}/disconnect", 400, **body)
    assert f"`{field}`" in answer["error"]["message"]


def test_the_app_subscribes_and_unsubscribes_a_user(serve, service, user):
    with Socket(serve, token=tokens.token(user, allow={})) as socket:
        assert "error" in socket.call("subscribe", channel="news#1"), "they have no right to it themselves"
        assert service.call("POST", f"/users/{user}/subscribe", channel="news#1")["sessions"] == 1
        assert socket.event()["event"] == "subscribed"
        service.call("POST", "/channels/news:1/messages", data={"n": 1})
        assert socket.event()["data"] == {"n": 1}
        assert service.call("POST", f"/users/{user}/unsubscribe", channel="news#1")["sessions"] == 1
        assert socket.event()["event"] == "unsubscribed"
        service.call("POST", "/channels/news:1/messages", data={"n": 2})
        assert socket.events_so_far() == []
    assert service.refused("POST", f"/users/{user}/subscribe", 403, channel="user#ann") == "not_allowed"


def test_a_banned_user_is_blocked_on_every_transport(serve, service, user):
    token = tokens.token(user)
    with Socket(serve, token=token) as socket:
        assert service.call("PUT", f"/users/{user}/ban", reason="spam")["sessions"] == 1
        assert socket.closing()[1] == 4005
    assert service.call("GET", f"/users/{user}/ban")["reason"] == "spam"
    assert service.call("GET", f"/users/{user}")["banned"] is True
    assert f"tavern users unban {user}" in serve.run("user", user, "--url", serve.url, "--key", serve.key).stdout
    with Socket(serve) as again:
        reply = again.call("hello", token=token)
        assert (reply["error"]["code"], reply["error"]["message"]) == ("blocked", "this user is banned: spam")
    with Stream(serve, token=token) as stream:
        assert stream.status == 403
    with Poller(serve, token=token) as poller:
        assert poller.poll_response(timeout_ms=100).json()["error"]["code"] == "blocked"
        assert poller.command("hello")["error"]["code"] == "blocked"
    connection = RespConnection(serve.resp_port)
    assert connection.call("AUTH", token) == ErrorReply("BLOCKED this user is banned: spam")
    serve.terminate()
    serve.start()
    with Socket(serve) as again:
        assert again.call("hello", token=token)["error"]["code"] == "blocked", "the ban survives a restart"
    service.call("DELETE", f"/users/{user}/ban")
    assert service.refused("DELETE", f"/users/{user}/ban", 404) == "not_found"
    with Socket(serve, token=token) as socket:
        socket.ok("ping")


def test_a_ban_ends_at_its_time(serve, service, user):
    until_ms = int(time.time() * 1000) + 1500
    service.call("PUT", f"/users/{user}/ban", until=until_ms, reason="calm down")
    with Socket(serve) as socket:
        reply = socket.call("hello", token=tokens.token(user))
        assert reply["error"]["code"] == "blocked" and 0 < reply["error"]["retry_after_ms"] <= 1500

    def gets_in():
        with Socket(serve) as socket:
            return "ok" in socket.call("hello", token=tokens.token(user))
    until(gets_in, "the ban to end", 10)
    assert int(time.time() * 1000) >= until_ms
    assert service.refused("GET", f"/users/{user}/ban", 404) == "not_found"
    assert service.refused("PUT", f"/users/{user}/ban", 400, until=1) == "bad_request"


def test_erasing_a_user_leaves_nothing(serve, service, user):
    friend = f"{user}-friend"
    with Socket(serve, token=tokens.token(user)) as socket, Socket(serve, token=tokens.token(friend)) as other:
        socket.ok("follow", user=friend)
        other.ok("follow", user=user)
        socket.ok("join", channel="game#9")
        socket.ok("party.invite", user=friend)
        socket.ok("visibility", value="nobody")
        service.call("DELETE", f"/users/{user}")
        assert socket.closing()[1] == 4006
        assert other.ok("following")["users"] == []
    found = service.call("GET", f"/users/{user}")
    assert (found["online"], found["last_seen"], found["channels"], found["party"], found["visibility"]) == (False, None, [], None, "everyone")
    service.call("POST", f"/users/{user}/messages", data=1)
    assert len(service.call("GET", f"/users/{user}/inbox")["messages"]) == 1
    service.call("DELETE", f"/users/{user}")
    assert service.call("GET", f"/users/{user}/inbox")["messages"] == []
    assert service.call("GET", f"/users/{user}/followers")["users"] == []


def test_the_numbers_are_those_of_now(serve, service, user):
    before = service.stats()
    with Socket(serve, token=tokens.token(user)) as socket, Socket(serve, token=tokens.token(user)):
        socket.ok("subscribe", channel=f"game#{user}")
        socket.ok("join", channel=f"game#{user}")
        now = service.stats()
        assert now["node"]["users"] == before["node"]["users"] + 1
        assert now["node"]["sessions"] == before["node"]["sessions"] + 2
        assert now["node"]["channels"] == before["node"]["channels"] + 1
        assert now["cluster"]["users_online"] == before["cluster"]["users_online"] + 1
        assert now["cluster"]["presences"] == before["cluster"]["presences"] + 1
        assert now["node"]["connections"]["websocket"] >= 2
        until(lambda: serve.metric("tavern_users_online") == now["cluster"]["users_online"], "the metric to follow")
    service.call("POST", f"/users/{user}/disconnect")
    service.until_online(before["cluster"]["users_online"])


def test_the_command_line_acts_on_users(serve, service, user):
    url = ["--url", serve.url, "--key", serve.key]
    with Socket(serve, token=tokens.token(user)) as socket:
        listed = serve.run("users", "sessions", user, *url)
        assert socket.hello["client"] in listed.stdout, listed.stderr
        assert "users online" in serve.run("stats", *url).stdout
        done = serve.run("users", "disconnect", user, "--reason", "maintenance", *url)
        assert done.stdout == "disconnected 1 sessions\n", done.stderr
        assert socket.closing()[1] == 4006
    assert serve.run("users", "ban", user, "--until", "2099-01-01T00:00:00Z", *url).returncode == 0
    assert service.call("GET", f"/users/{user}/ban")["until"] == 4070908800000
    assert serve.run("users", "unban", user, *url).returncode == 0
    assert serve.run("users", "erase", user, *url).returncode == 0
    refused = serve.run("users", "unban", user, *url)
    assert refused.returncode == 1 and "not banned" in refused.stderr


def test_the_last_sign_of_life_moves_while_a_client_is_connected(serve, service, user):
    with Socket(serve, token=tokens.token(user)) as socket, Stream(serve, token=tokens.token(user)) as stream:
        stream.greeting()

        def heard():
            return {session["transport"]: session["heard_at"] - session["since"] for session in service.sessions(user)}

        def are_alive():
            socket.ok("ping")
            service.call("POST", f"/users/{user}/messages", data="hello")
            found = heard()
            return all(found[transport] > 200 for transport in ("websocket", "sse"))

        until(are_alive, "both to be heard after they connected")
        client = socket.hello["client"]
        report = service.call("GET", f"/sessions/{client}")
        assert report["heard_at"] > report["since"]


def test_a_session_elsewhere_is_not_found_and_it_says_where_to_look(service):
    error = service.call("GET", "/sessions/0000000000000000000000", 404)["error"]
    assert "names the node to ask" in error["message"]


def test_polling_an_inbox_is_recorded_once(service, user):
    def recorded():
        return [event for event in service.audit() if (event["action"], event["target"]) == ("user.read_inbox", user)]

    for _ in range(5):
        service.call("GET", f"/users/{user}/inbox")
    # A later action is in the trail: nothing that came before it is still on its way.
    service.call("POST", f"/users/{user}/disconnect", reason="x")
    assert len(recorded()) == 1
