"""Allowed differences between Redis and Tavern, one named rule each. Everything else is compared byte for byte.

A rule maps the frames that one connection received in one step to the value that is compared.
"""
import re

from support.resp import CLOSED, ErrorReply, parse


def counters(frames):
    """[anyorder] Unsubscribing from everything confirms in hash order: names are compared as a set, counters in order."""
    names, shapes = [], []
    for frame in frames:
        value = None if frame == CLOSED else parse(frame)[0]
        if isinstance(value, list) and len(value) == 3 and isinstance(value[2], int):
            names.append((value[0], value[1]))
            shapes.append(frame[:1] + b" %d" % value[2])
        else:
            shapes.append(frame)
    return [sorted(names, key=repr), shapes]


def frames_in_any_order(frames):
    """[anyframes] Messages by several patterns arrive in hash order."""
    return sorted(frames)


def members(frames):
    """[anymembers] The elements of a list in any order (PUBSUB CHANNELS)."""
    return [sorted(_value(frame), key=repr) if isinstance(_value(frame), list) else frame for frame in frames]


def pairs(frames):
    """[anypairs] A flat list or a map of names and values, in any order (CONFIG GET)."""
    def one(frame):
        value = _value(frame)
        if isinstance(value, dict):
            return "map", sorted(value)
        return "list", sorted(value[0::2]) if isinstance(value, list) else frame
    return [one(frame) for frame in frames]


def numbers(frames):
    """[anynumber] Any integer (CLIENT ID, COMMAND COUNT, the count inside CLIENT LIST)."""
    return [re.sub(rb"^:\d+", b":N", frame) for frame in frames]


def hello(frames):
    """[hello] Server name, version, id and modules may differ; keys and order must match."""
    def one(frame):
        frame = re.sub(rb"(\$7\r\nversion\r\n)\$\d+\r\n[^\r]*\r\n", rb"\1V\r\n", frame)
        frame = re.sub(rb"(\$2\r\nid\r\n):\d+", rb"\1:N", frame)
        return frame
    return [one(frame) for frame in frames]


def clients(frames):
    """[clients] CLIENT LIST and INFO: the field names of Redis 7.0 in order, line by line."""
    return [_fields(frame) if frame[:1] in b"$=" else frame for frame in frames]


# Fields added after 7.0.
SINCE_70 = {"lib-name", "lib-ver", "watch", "tot-net-in", "tot-net-out", "tot-cmds", "io-thread"}


def _fields(frame):
    lines = parse(frame)[0].decode().strip().split("\n")
    named = [[field.split("=", 1)[0] for field in line.split(" ")] for line in lines]
    return frame[:1], [[name for name in line if name not in SINCE_70] for line in named]


def info(frames):
    """[info] INFO: the type of reply, and the keys that clients read."""
    def one(frame):
        if frame[:1] not in b"$=":
            return frame
        text = parse(frame)[0].decode()
        wanted = ["redis_version:", "connected_clients:", "pubsub_channels:", "role:master", "cluster_enabled:0"]
        return frame[:1], sorted(w for w in wanted if w in text), text.startswith("# ") if text else "empty"
    return [one(frame) for frame in frames]


def shape(frames):
    """[shape] Only the type of each frame (COMMAND, COMMAND DOCS, DEBUG)."""
    return [frame[:1] for frame in frames]


def closure(frames):
    """[closure] Only that the connection was closed."""
    return [frames[-1] if frames else None]


def error_codes(frames):
    """[errorcode] Only the first word of an error."""
    return [value.split(" ")[0] if isinstance(value := _value(f), ErrorReply) else f for f in frames]


RULES = {
    "anyorder": counters, "anyframes": frames_in_any_order, "anymembers": members, "anypairs": pairs, "anynumber": numbers,
    "hello": hello, "clients": clients, "info": info, "shape": shape, "closure": closure, "errorcode": error_codes,
}


def _value(frame):
    return frame if frame == CLOSED else parse(frame)[0]


def normal(frames, names):
    for name in names:
        if name not in RULES:
            raise KeyError(f"no normalisation named {name}")
    if len(names) > 1:
        raise ValueError("use at most one normalisation per conversation")
    return RULES[names[0]](frames) if names else frames
