"""A request that changes something completes although its client goes away before the answer."""
import json
import socket

import httpx

from support.process import until

TRIES = 40


def send_and_leave(server, method, path, body=None, **headers):
    """Sends a request and closes the connection without waiting for the answer."""
    body = json.dumps(body).encode() if body is not None else b""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {server.key}",
             f"Content-Length: {len(body)}", *(f"{name}: {value}" for name, value in headers.items())]
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def api(server):
    headers = {"authorization": f"Bearer {server.key}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=10, trust_env=False)


def retried(client, path, body, key):
    """The answer to a retry with the same key, once the first request has completed."""
    def attempt():
        answer = client.post(path, json=body, headers={"idempotency-key": key})
        return answer if answer.status_code != 409 else None
    return until(attempt, f"{key} not to be in progress")


def test_a_retry_gets_the_answer_of_a_request_whose_client_went_away(serve):
    with api(serve) as client:
        for n in range(TRIES):
            send_and_leave(serve, "POST", "/v1/topics/cut/events", {"type": "t", "data": n}, **{"Idempotency-Key": f"cut-{n}"})
            answer = retried(client, "/v1/topics/cut/events", {"type": "t", "data": n}, f"cut-{n}")
            assert answer.status_code == 202, answer.text
            assert answer.json()["first_seq"] == answer.json()["last_seq"]
        topic = client.get("/v1/topics/cut").json()
        assert topic["events"] == TRIES, "each event is there once"


def test_an_inbox_message_is_stored_once(serve, user):
    with api(serve) as client:
        for n in range(TRIES):
            path = f"/v1/users/{user}/messages"
            send_and_leave(serve, "POST", path, {"data": n}, **{"Idempotency-Key": f"inbox-{n}"})
            assert retried(client, path, {"data": n}, f"inbox-{n}").status_code == 200
        assert len(client.get(f"/v1/users/{user}/inbox", params={"limit": 1000}).json()["messages"]) == TRIES


def test_a_topic_is_deleted_although_its_caller_went_away(serve):
    with api(serve) as client:
        for n in range(10):
            topic = f"gone-{n}"
            client.put(f"/v1/subscriptions/{topic}", json={"topics": [topic], "pull": True}).raise_for_status()
            client.post(f"/v1/topics/{topic}/events", json={"type": "t", "data": n}).raise_for_status()
            client.delete(f"/v1/subscriptions/{topic}").raise_for_status()

            def deleted():
                # A request that the server had not read when the connection ended did not begin.
                send_and_leave(serve, "DELETE", f"/v1/topics/{topic}")
                return client.get(f"/v1/topics/{topic}").status_code == 404

            until(deleted, f"{topic} to be deleted")
