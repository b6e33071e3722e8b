"""Malformed frames: an error on that connection only, and the connection stays usable."""
import json

import httpx
import pytest

from support.json_client import Poller, Socket
from support.resp import RespConnection

DEEP = "[" * 64 + "]" * 64

# (frame, id that can be read)
MALFORMED = {
    "empty": ("", None),
    "blank": ("   ", None),
    "no JSON": ("nonsense", None),
    "a list": ("[]", None),
    "a number": ("7", None),
    "null": ("null", None),
    "a string": ('"hello"', None),
    "truncated": ('{"id":1,"op":"pi', 1),
    "no value": ('{"id":1,"op":}', 1),
    "a trailing comma": ('{"id":1,"op":"ping",}', 1),
    "single quotes": ("{'id':1}", None),
    "two objects on a line": ('{"id":1,"op":"ping"}{"id":2,"op":"ping"}', 1),
    "no op": ('{"id":1}', 1),
    "an unknown op": ('{"id":1,"op":"nosuch"}', 1),
    "an op that is a number": ('{"id":1,"op":7}', 1),
    "an op in capitals": ('{"id":1,"op":"PING"}', 1),
    "a text id": ('{"id":"x","op":"nosuch"}', "x"),
    "subscribe without a target": ('{"id":1,"op":"subscribe"}', 1),
    "subscribe with two targets": ('{"id":1,"op":"subscribe","channel":"a","pattern":"a*"}', 1),
    "a channel that is a number": ('{"id":1,"op":"subscribe","channel":7}', 1),
    "an empty channel": ('{"id":1,"op":"subscribe","channel":""}', 1),
    "a channel outside the grammar": ('{"id":1,"op":"subscribe","channel":"Game#1"}', 1),
    "a channel with a control character": ('{"id":1,"op":"subscribe","channel":"game#a\\u0007"}', 1),
    "a channel that is too long": (json.dumps({"id": 1, "op": "subscribe", "channel": "g#" + "x" * 254}), 1),
    "an unpaired surrogate": ('{"id":1,"op":"subscribe","channel":"game#\\ud800"}', 1),
    "publish without data": ('{"id":1,"op":"publish","channel":"game#1"}', 1),
    "publish without a channel": ('{"id":1,"op":"publish","data":1}', 1),
    "publish outside the grammar": ('{"id":1,"op":"publish","channel":"9","data":1}', 1),
    "ack without seq": ('{"id":1,"op":"ack"}', 1),
    "a negative ack": ('{"id":1,"op":"ack","seq":-1}', 1),
    "a fractional ack": ('{"id":1,"op":"ack","seq":1.5}', 1),
    "presence that is a number": ('{"id":1,"op":"subscribe","channel":"game#1","presence":1}', 1),
    "a duplicate member": ('{"id":1,"op":"ping","op":"bye"}', 1),
    "nested 65 deep": ('{"id":1,"op":"publish","channel":"game#1","data":' + DEEP + "}", 1),
    "nested 10,000 deep": ('{"id":1,"op":"publish","channel":"game#1","data":' + "[" * 10_000 + "]" * 10_000 + "}", 1),
    "never closed, deep": ("[" * 10_000, None),
    "an unpaired surrogate in data": ('{"id":1,"op":"publish","channel":"game#1","data":["\\udc00"]}', 1),
    "an infinite number in data": ('{"id":1,"op":"publish","channel":"game#1","data":{"a":1e999}}', 1),
    "an infinite number in a state": ('{"id":1,"op":"join","channel":"game#1","state":[-1e999]}', 1),
    "an unpaired surrogate in a state": ('{"id":1,"op":"join","channel":"game#1","state":"\\ud800"}', 1),
}


@pytest.fixture(scope="module")
def victim(dev):
    with Socket(dev, user="victim") as socket:
        yield socket


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_frame_gets_an_error_and_the_connection_stays_usable(dev, victim, name):
    frame, number = MALFORMED[name]
    with Socket(dev, user="clumsy") as socket:
        socket.send(frame)
        answer = socket.frame()
        assert answer["error"]["code"] in ("bad_request", "too_large"), answer
        assert answer["error"]["message"]
        assert answer.get("id") == number
        assert "ok" in socket.call("ping")
    assert "ok" in victim.call("ping")


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_command_over_http_is_a_400(dev, name):
    frame, number = MALFORMED[name]
    with Poller(dev, user="clumsy") as poller:
        session = poller.ok("hello")["session"]
        if frame.startswith('{"id"') and frame.endswith("}"):
            frame = frame[:-1] + f',"session":"{session}"' + "}"
        response = poller.http.post("/v1/command?user=clumsy", content=frame.encode())
        assert response.status_code in (400, 413), response.text
        assert response.json()["error"]["code"] in ("bad_request", "too_large")


def test_64_levels_of_nesting_are_accepted(dev, user, channel):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        # The frame itself is one level.
        deep = "[" * 63 + "]" * 63
        socket.send('{"id":1,"op":"publish","channel":"%s","data":%s}' % (channel, deep))
        frames = [socket.frame(), socket.frame()]
        assert any("ok" in frame for frame in frames)
        assert any(frame.get("data") == json.loads(deep) for frame in frames)


def test_one_frame_may_hold_several_lines_of_commands(dev, user, channel):
    with Socket(dev, user=user) as socket:
        socket.send(
            '{"id":1,"op":"subscribe","channel":"%s"}\n\n{"id":2,"op":"nosuch"}\nnonsense\n{"id":3,"op":"ping"}\n' % channel
        )
        answers = [socket.frame() for _ in range(4)]
        assert [answer.get("id") for answer in answers] == [1, 2, None, 3]
        assert ["ok" in answer for answer in answers] == [True, False, False, True]


def test_a_pretty_printed_object_is_one_command(dev, user):
    with Socket(dev, user=user) as socket:
        socket.send('{\n  "id": 1,\n  "op": "ping"\n}\n')
        assert socket.frame()["id"] == 1


def test_an_unknown_member_is_refused_with_the_one_that_was_meant(dev, user):
    for call in (Socket(dev, user=user).call, Poller(dev, user=user).command):
        error = call("subscribe", channel="game#1", presense=True)["error"]
        assert (error["code"], error["message"]) == ("bad_request", "unknown field `presense`; did you mean `presence`?")
        assert call("ping", colour="blue")["error"]["message"] == "unknown field `colour`"
        assert "ok" in call("ping")


@pytest.mark.parametrize("number", [0, 7, -1, 18446744073709551615, "a", "", "ü☃", "x" * 40])
def test_the_id_is_returned_unchanged(dev, user, number):
    with Socket(dev, user=user) as socket:
        socket.send(json.dumps({"id": number, "op": "ping"}))
        assert socket.frame()["id"] == number


def test_a_command_without_an_id_gets_a_reply_without_one(dev, user):
    with Socket(dev, user=user) as socket:
        socket.send('{"op":"ping"}')
        answer = socket.frame()
        assert "ok" in answer and "id" not in answer


def test_data_is_delivered_byte_for_byte(dev, user, channel):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        data = '{ "a" : 1.0e3 , "b":"\\u00fc","c":[ ] , "a": 12345678901234567890 }'
        socket.send('{"op":"publish","channel":"%s","data":%s}' % (channel, data))
        texts = [socket.socket.recv(5), socket.socket.recv(5)]
        assert any(f'"data":{data}' in text for text in texts), texts


def test_seq_is_the_first_member(dev, user, channel):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        socket.send('{"op":"publish","channel":"%s","data":1}' % channel)
        texts = [socket.socket.recv(5), socket.socket.recv(5)]
        event = next(text for text in texts if '"event"' in text)
        assert event.startswith('{"seq":1,"event":"message",')
        assert json.loads(event)["from"]["user"] == user


@pytest.mark.parametrize("payload", [b'{"a":1e999}', b'"\\ud800"', b'[1e400,"\\udfff"]'])
def test_a_redis_payload_that_not_every_parser_reads_arrives_as_a_string(dev, user, channel, payload):
    redis = RespConnection(dev.resp_port)
    redis.call("SUBSCRIBE", channel)
    publisher = RespConnection(dev.resp_port)
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        assert publisher.call("PUBLISH", channel, payload) == 2
        assert socket.event()["data"] == payload.decode()
        assert redis.read() == [b"message", channel.encode(), payload], "byte for byte"
    redis.close()
    publisher.close()


@pytest.mark.parametrize("data", ["1e999", '"\\ud800"', '{"a":["\\udc00"]}'])
def test_rest_refuses_data_that_not_every_parser_reads(dev, user, channel, data):
    key = {"Authorization": f"Bearer {dev.key}"}
    for method, path, body in [
        ("POST", f"/v1/channels/{channel.replace('#', '%23')}/messages", f'{{"data":{data}}}'),
        ("POST", f"/v1/users/{user}/messages", f'{{"data":{data}}}'),
        ("POST", "/v1/topics/strict/events", f'{{"type":"a","data":{data}}}'),
        ("POST", "/v1/topics/strict/events", f'[{{"type":"a","data":{data}}}]'),
        ("PUT", f"/v1/channels/{channel.replace('#', '%23')}/presence/{user}", f'{{"with":{data}}}'),
    ]:
        answer = httpx.request(method, dev.url + path, content=body, headers=key, trust_env=False)
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "bad_request", (path, answer.text)


def test_text_that_is_not_utf8_closes_with_1007(dev, victim):
    for frames in [[(True, 1, b'{"op":"\xff"}')], [(False, 1, b'{"op":"'), (True, 0, b'\xff"}')]]:
        with Socket(dev, user="clumsy") as socket:
            for fin, opcode, payload in frames:
                first = (0x80 if fin else 0) | opcode
                socket.socket.socket.sendall(bytes([first, 0x80 | len(payload)]) + b"\0\0\0\0" + payload)
            assert socket.closing()[1] == 1007
    assert "ok" in victim.call("ping")


@pytest.mark.parametrize("parts", [1, 3])
def test_a_message_that_is_too_large_is_refused_under_its_id_and_the_connection_stays(dev, user, channel, parts):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        text = json.dumps({"id": "big", "op": "publish", "channel": channel, "data": "x" * 500_000})
        size = len(text) // parts + 1
        socket.send([text[at:at + size] for at in range(0, len(text), size)] if parts > 1 else text)
        answer = socket.frame()
        assert answer["id"] == "big" and answer["error"]["code"] == "too_large", answer
        assert "ok" in socket.call("publish", channel=channel, data="small")
        assert socket.event()["data"] == "small"


def test_a_message_of_more_than_16_times_the_limit_closes_with_1009(dev, user):
    with Socket(dev, user=user) as socket:
        size = 17 * (65_536 + 4_096)
        socket.socket.socket.sendall(bytes([0x81, 0x80 | 127]) + size.to_bytes(8, "big") + b"\0\0\0\0")
        assert socket.closing()[1] == 1009
    with Socket(dev, user=user) as socket:
        piece = bytes([0x01, 0x80 | 127]) + (600_000).to_bytes(8, "big") + b"\0\0\0\0" + b"x" * 600_000
        socket.socket.socket.sendall(piece)
        assert socket.frame()["error"]["code"] == "too_large"
        socket.socket.socket.sendall(b"\x00" + piece[1:14])
        assert socket.closing()[1] == 1009


def test_binary_frames_affect_no_other_connection(dev, victim):
    with Socket(dev, user="clumsy") as socket:
        socket.socket.send(b"\xff\xfe\x00")
        try:
            assert "error" in socket.frame()
        except Exception:
            pass  # The server may close a connection that sends invalid text.
    assert "ok" in victim.call("ping")


def test_only_repeated_malformed_frames_close_the_connection(dev, victim):
    with Socket(dev, user="clumsy") as socket:
        for _ in range(50):
            socket.send("nonsense")
        assert all("error" in socket.frame() for _ in range(50))
        assert "ok" in socket.call("ping")
