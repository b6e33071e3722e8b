"""Connections with several requests, some of them polls: a shard serves the polls, the HTTP server everything else."""
import json
import time

import pytest

from support import tokens
from support.http_connection import Connection, request
from support.json_client import Socket
from support.tavern import Tavern


def now(session, **more):
    return {"session": session, "timeout_ms": 0} | more


@pytest.fixture(scope="module")
def dev():
    """A server of its own: the tests count its polls, and nobody else has left messages for their user."""
    with Tavern.dev() as server:
        yield server


@pytest.fixture
def connection(dev):
    with Connection(dev) as connection:
        yield connection


@pytest.fixture
def session(connection):
    status, _, answer = connection.poll({"timeout_ms": 0})
    assert status == 200
    return answer["session"]


def waits_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


def test_one_connection_serves_many_polls(connection, session):
    for _ in range(20):
        status, headers, answer = connection.poll(now(session))
        assert (status, answer["session"]) == (200, session)
        assert headers["cache-control"] == "no-store" and "date" in headers and "connection" not in headers


def test_polls_and_other_requests_take_turns_on_one_connection(connection, session, channel):
    for number in range(5):
        status, _, reply = connection.command({"op": "subscribe", "channel": f"{channel}{number}", "session": session})
        assert status == 200 and "ok" in reply
        connection.send(request("GET", "/livez"))
        assert connection.answer()[2] == "ok\n"
        assert connection.poll(now(session))[0] == 200
        assert connection.poll(now(session))[0] == 200


def test_pipelined_requests_are_answered_in_order(connection, session):
    poll = request("POST", "/v1/poll?user=ann", now(session))
    parked = request("POST", "/v1/poll?user=ann", {"session": session, "timeout_ms": 300})
    connection.send(poll + parked + request("GET", "/livez") + poll + poll)
    answers = [connection.answer() for _ in range(5)]
    assert [status for status, _, _ in answers] == [200] * 5
    assert [answer == "ok\n" for _, _, answer in answers] == [False, False, True, False, False]


def test_a_poll_does_not_cut_off_the_answers_before_it(dev, session):
    """They are larger than the buffers of the socket, and the client reads them late."""
    with Connection(dev, receive_buffer=4096) as connection:
        page, poll = request("GET", "/openapi.json"), request("POST", "/v1/poll?user=ann", now(session))
        for pages in (1, 2, 20):
            connection.send(page * pages + poll)
            time.sleep(0.3)
            answers = [connection.answer() for _ in range(pages + 1)]
            assert [status for status, _, _ in answers] == [200] * (pages + 1)
            assert all(answer["openapi"] for _, _, answer in answers[:-1]) and answers[-1][2]["session"] == session


def test_a_poll_may_arrive_in_pieces(connection, session):
    for byte in request("POST", "/v1/poll?user=ann", now(session)):
        connection.send(bytes([byte]))
    assert connection.answer()[0] == 200


def test_an_event_wakes_the_second_poll_of_a_connection(dev, connection, session, channel):
    connection.command({"op": "subscribe", "channel": channel, "session": session})
    connection.poll(now(session))
    connection.send(request("POST", "/v1/poll?user=ann", {"session": session, "timeout_ms": 20_000}))
    waits_for(lambda: 'tavern_transport_connections{transport="poll"} 0' not in dev.metrics())
    with Socket(dev, user="bob") as publisher:
        publisher.ok("publish", channel=channel, data="late")
    status, _, answer = connection.answer()
    assert status == 200 and [event["data"] for event in answer["events"]] == ["late"]


@pytest.mark.timing
def test_a_parked_poll_gets_an_invite_at_once(dev):
    """The answer shows the user's party, which is read from the store. On an idle server nothing else wakes the shard."""
    with Connection(dev) as guest, Connection(dev) as host:
        guest_name, host_name = f"guest-{time.time_ns()}", f"host-{time.time_ns()}"
        poll_path, command_path = f"/v1/poll?user={guest_name}", f"/v1/command?user={host_name}"
        answer = guest.poll({"timeout_ms": 0}, path=poll_path)[2]
        host_session = host.command({"op": "hello"}, path=command_path)[2]["ok"]["session"]
        delays = []
        for op in ["party.invite", "party.cancel_invite"] * 5:
            guest.send(request("POST", poll_path, {"session": answer["session"], "cursor": answer["cursor"], "timeout_ms": 5000}))
            time.sleep(0.05)
            reply = host.command({"op": op, "session": host_session, "user": guest_name}, path=command_path)[2]
            assert "ok" in reply, reply
            begun = time.monotonic()
            answer = guest.answer()[2]
            delays.append(time.monotonic() - begun)
            assert len(answer["events"]) == 1 and answer["party"] is None
        assert sorted(delays)[len(delays) // 2] < 0.05, delays


@pytest.mark.parametrize("headers", ["Connection: close\r\n", "Connection: close, x\r\n"])
def test_a_connection_ends_after_the_poll_that_asks_for_it(connection, session, headers):
    status, answered, _ = connection.poll(now(session), headers)
    assert (status, answered["connection"]) == (200, "close")
    assert connection.answer() is None


def test_bodies_that_are_framed_in_another_way_are_understood(connection, session):
    text = json.dumps(now(session)).encode()
    head = b"POST /v1/poll?user=ann HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    connection.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text))
    assert connection.answer()[0] == 200
    connection.poll(now(session))
    connection.send(head + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(text))
    while b"100 Continue\r\n\r\n" not in connection.pending:
        assert connection.more()
    connection.pending = b""
    connection.send(text)
    assert connection.answer()[0] == 200


@pytest.mark.parametrize(("bad", "status"), [
    (b"POST /v1/poll HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    (b"POST /v1/poll HTTP/1.1\r\nHost: 127.0.0.1\r\nno colon\r\n\r\n", 400),
    (b"POST /v1/poll HTTP/1.1\r\nHost: 127.0.0.1\r\nA: " + b"a" * 20_000 + b"\r\n\r\n", 431),
    (b"\x00\x01\x02\r\n\r\n", 400),
])
def test_a_malformed_request_after_a_poll_is_refused_and_ends_the_connection(connection, session, bad, status):
    connection.poll(now(session))
    connection.send(bad)
    head = b""
    while data := connection.socket.recv(65536):
        head += data
    assert head.startswith(b"HTTP/1.1 %d " % status)


def test_a_refused_poll_does_not_end_its_connection(connection, session):
    assert connection.poll({"session": 7})[0] == 400
    status, headers, answer = connection.poll(now(session), path="/v1/poll?token=x.y.z")
    assert (status, answer["error"]["code"]) == (401, "unauthenticated") and "www-authenticate" in headers
    assert connection.poll(now("no such session"), path="/v1/poll")[0] in (401, 410)
    assert connection.poll(now(session))[0] == 200


def test_requests_behind_refused_polls_are_answered(connection, session):
    connection.poll(now(session))
    refused = request("POST", "/v1/poll?user=ann", {"session": 7})
    connection.send(refused * 200 + request("POST", "/v1/poll?user=ann", now(session)) + request("GET", "/livez"))
    assert [connection.answer()[0] for _ in range(202)] == [400] * 200 + [200, 200]


def test_pages_get_cors_headers_with_every_poll(connection, session):
    for _ in range(2):
        _, headers, _ = connection.poll(now(session), "Origin: http://localhost:3000\r\n")
        assert headers["access-control-allow-origin"] == "http://localhost:3000"
    status, headers, _ = connection.poll(now(session), "Origin: https://evil.example\r\n")
    assert status == 403 and "access-control-allow-origin" not in headers
    assert connection.poll(now(session), "Sec-Fetch-Site: cross-site\r\n")[0] == 403
    assert "access-control-allow-origin" not in connection.poll(now(session))[1]


def test_a_poll_whose_client_leaves_is_not_counted_any_more(dev, connection, session):
    connection.send(request("POST", "/v1/poll?user=ann", {"session": session, "timeout_ms": 20_000}))
    waits_for(lambda: 'tavern_transport_connections{transport="poll"} 1' in dev.metrics())
    connection.socket.close()
    waits_for(lambda: 'tavern_transport_connections{transport="poll"} 0' in dev.metrics())


def test_sessions_of_all_shards_are_polled_on_one_connection():
    with Tavern.dev(options=("--threads", "3")) as server, Connection(server) as connection:
        sessions = [connection.command({"op": "hello"})[2]["ok"]["session"] for _ in range(9)]
        for _ in range(3):
            for session in sessions:
                status, _, answer = connection.poll(now(session))
                assert (status, answer["session"]) == (200, session)


def test_an_api_key_that_is_not_cached_is_looked_up():
    with Tavern.serve() as server, Connection(server) as connection:
        token = tokens.token("ann")
        session = connection.poll({"timeout_ms": 0, "token": token}, path="/v1/poll")[2]["session"]
        assert connection.poll(now(session, token=token), path="/v1/poll")[0] == 200
        key = server.api_key("admin")
        status, _, answer = connection.poll(now(session), f"Authorization: Bearer {key}\r\n", path="/v1/poll")
        assert status == 200, answer
        assert connection.poll(now(session, token=token), path="/v1/poll")[0] == 200
        assert connection.poll(now(session, token=tokens.token("ann", ttl=-60)), path="/v1/poll")[0] == 401


def test_a_connection_without_a_next_request_is_closed():
    with Tavern.dev("[limits]\nhttp_header_ms = 1000\n") as server:
        for begun in (b"", b"POST /v1/po"):
            with Connection(server) as connection:
                session = connection.poll({"timeout_ms": 0})[2]["session"]
                assert connection.poll({"session": session, "timeout_ms": 2500})[0] == 200, "a parked poll is not idle"
                began = time.monotonic()
                connection.send(begun)
                connection.pending = b""
                while connection.more():
                    pass
                assert 0.9 < time.monotonic() - began < 6


def test_a_slow_request_does_not_extend_its_time():
    with Tavern.dev("[limits]\nhttp_header_ms = 1500\n") as server, Connection(server) as connection:
        session = connection.poll({"timeout_ms": 0})[2]["session"]
        data = request("POST", "/v1/poll?user=ann", now(session))
        began = time.monotonic()
        with pytest.raises(OSError):
            for byte in data:
                connection.send(bytes([byte]))
                time.sleep(0.1)
        assert time.monotonic() - began < 8


def test_a_parked_poll_is_answered_when_the_server_stops():
    with Tavern.dev() as server, Connection(server) as connection, Connection(server) as idle:
        session = connection.poll({"timeout_ms": 0})[2]["session"]
        idle.poll({"timeout_ms": 0})
        connection.send(request("POST", "/v1/poll?user=ann", {"session": session, "timeout_ms": 20_000}))
        waits_for(lambda: 'tavern_transport_connections{transport="poll"} 1' in server.metrics())
        server.process.terminate()
        status, headers, answer = connection.answer()
        assert (status, answer["error"]["code"], headers["connection"]) == (503, "unavailable", "close")
        assert connection.answer() is None and idle.answer() is None
        assert server.process.wait(10) == 0


def test_parked_polls_count_as_logged_in():
    with Tavern.dev("[limits]\nunauthenticated_total_bytes = 65536\n") as server:
        connections = [Connection(server) for _ in range(150)]
        for connection in connections:
            # The first poll of each connection parks: an answered one would already show who it is.
            session = connection.command({"op": "hello"})[2]["ok"]["session"]
            connection.send(request("POST", "/v1/poll?user=ann", {"session": session, "timeout_ms": 2000}))
        assert [connection.answer()[0] for connection in connections] == [200] * 150
        for connection in connections:
            connection.socket.close()
