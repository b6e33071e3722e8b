"""Histories written by hand, and what the judge says about them."""
from judge import judge
from judge.history import History

ALL, CHAT, ROOM = "shared#all", "chat#c0", "game#r0"
RUN = {"what": "run", "format": 1, "lease": 3.0, "back_within": 6.0, "slack": 1.5, "unwritten": 2.5}


def of(who, *lines):
    """The lines of one client."""
    return [line | {"who": who} for line in lines]


def session(client="c1", server="n1", process=1, fresh=True):
    return {"what": "session", "client": client, "server": server, "process": process, "fresh": fresh}


def subscribed(channel=ALL, members=None):
    return {"what": "subscribed", "channel": channel, "members": members}


def message(seq, number, of="s.0", channel=ALL):
    return {"what": "message", "seq": seq, "channel": channel, "of": of, "number": number}


def stored(offset, number=None, epoch=7, seq=None):
    return {"what": "message", "seq": seq, "channel": CHAT, "of": "h.0", "number": offset if number is None else number,
            "position": [epoch, offset]}


def position(now, since=None, recovered=None):
    return {"what": "position", "channel": CHAT, "since": since, "position": now, "recovered": recovered}


def gap(seq=None, channel=ALL, pattern=None, first=None):
    return {"what": "gap", "seq": seq, "channel": channel, "pattern": pattern, "from": first}


def publish(number, of="s.0", at=100.0, acknowledged=True, channel=ALL, server="n1", process=1, position=None):
    return {"what": "publish", "at": at, "of": of, "channel": channel, "server": server, "process": process, "number": number,
            "acknowledged": at if acknowledged is True else acknowledged, "position": position}


def members(version, **users):
    return {"version": version, "users": users}


def change(what, version, **more):
    return {"what": what, "channel": ROOM, "version": version, **more}


def history(*lines):
    """One line per second, unless it says when."""
    return History([RUN, *({"at": float(at), **line} for at, line in enumerate(lines))])


def verdict(name, *lines):
    return next(one for one in judge(history(*lines)) if one.name == name)


def broken(name, *lines):
    return len(verdict(name, *lines).violations)
