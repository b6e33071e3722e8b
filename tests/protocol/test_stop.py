"""Graceful stop: clients are notified; the program exits with 0 and in time."""
import signal
import socket as sockets
import threading
import time

import httpx
import pytest

from events.endpoint import Answer, Endpoint
from support.json_client import Poller, Socket, Stream
from support.process import until
from support.resp import CLOSED, RespConnection
from support.tavern import Tavern

CONFIG = "[sessions]\ndrain_ms = 5000\n"


@pytest.fixture
def server():
    with Tavern.dev(CONFIG) as server:
        yield server


def test_all_clients_are_notified_and_the_exit_code_is_zero(server):
    socket = Socket(server, user="ann")
    stream = Stream(server, user="bob")
    session = stream.greeting()["session"]
    redis = RespConnection(server.resp_port)
    redis.call("SUBSCRIBE", "x")
    poller = Poller(server, user="cid")
    poller.ok("hello")
    answers = []
    parked = threading.Thread(target=lambda: answers.append(poller.poll_response(timeout_ms=20_000)), daemon=True)
    parked.start()
    until(lambda: server.metric("tavern_polls_parked") == 1, "the poll to wait")
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)

    frames, code = socket.closing(timeout=6)
    closing = frames[-1]
    assert closing["event"] == "closing" and closing["reconnect_after_ms"] >= 0 and "seq" not in closing
    assert code is not None, "closed with a code"
    _, frame = stream.event()
    assert frame["event"] == "closing" and frame["reconnect_after_ms"] >= 0
    assert stream.event() is None
    assert redis.frame(timeout=6) == CLOSED
    parked.join(6)
    assert answers and answers[0].status_code in (200, 503), "a parked poll returns"

    assert server.process.wait(6) == 0
    assert time.monotonic() - began < 6
    assert session
    for client in (socket, stream, redis, poller):
        client.close()


def test_without_clients_the_stop_is_immediate(server):
    began = time.monotonic()
    assert server.terminate() == 0
    assert time.monotonic() - began < 3


def test_a_stalled_client_does_not_delay_the_stop(server):
    stuck = sockets.create_connection(("127.0.0.1", server.port))
    stuck.sendall(b"GET /v1/con")
    silent = RespConnection(server.resp_port)
    silent.call("SUBSCRIBE", "x")
    with Socket(server, user="ann"):
        assert server.terminate(timeout=8) == 0
    stuck.close()
    silent.close()


def test_sigint_stops_gracefully(server):
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(8) == 0


def test_what_services_ask_of_a_stopping_server_is_done_or_not_accepted(server):
    """A proxy passes a request on to another server if the connection is refused. It cannot if the answer is an error."""
    gate, headers = threading.Event(), {"authorization": f"Bearer {server.key}"}

    def client():
        return httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=10)

    def publish(api):
        try:
            return api.post("/v1/channels/game:1/messages", json={"data": 1}).status_code
        except httpx.ConnectError:
            return "refused"

    def publish_anew():
        with client() as api:
            return publish(api)

    with Endpoint(Answer(gate=gate)) as slow, client() as kept:
        assert kept.put("/v1/subscriptions/slow", json={"topics": ["t"], "callback": slow.url, "timeout_ms": 0}).status_code == 201
        assert kept.post("/v1/topics/t/events", json={"type": "x"}).status_code == 202
        # The server stays until the webhook has answered.
        slow.posted(1)
        server.process.send_signal(signal.SIGTERM)
        answers = []
        while answers[-2:] != ["refused"] * 2:
            answers += [publish(kept), publish_anew()]
        assert server.process.poll() is None, "it is still stopping"
        gate.set()
        assert server.process.wait(10) == 0
    assert set(answers) <= {200, "refused"}, answers
