"""Runs the Python client as an actor of the shared scenarios: JSON lines in, JSON lines out. Contains no checks.

    python clients/python/tests/driver.py < commands
"""
from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import pathlib
import sys
from typing import Any, Awaitable, Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tavern_client import Message, Position, Tavern, TavernError  # noqa: E402

Command = dict[str, Any]
STATES = ["open", "reconnecting", "resumed", "reset", "gap", "revoked", "closing", "superseded", "closed"]
AT_ONCE = 64


def write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def emit(kind: str, **members: Any) -> None:
    write({"event": {**members, "type": kind}})


class Driver:
    def __init__(self) -> None:
        self.client: Tavern | None = None
        self.asked: dict[int, asyncio.Future[str]] = {}
        self.watched: set[str] = set()
        self.echo: bool | None = None

    @property
    def tavern(self) -> Tavern:
        if self.client is None:
            raise TavernError("closed", "not connected")
        return self.client

    async def token(self) -> str:
        number = len(self.asked) + 1
        self.asked[number] = asyncio.get_running_loop().create_future()
        write({"ask": "token", "n": number})
        return await self.asked[number]

    def begin(self, command: Command) -> None:
        given, options = command.get("options") or {}, dict[str, Any]()
        self.echo = given.get("echo")
        if "command_timeout_ms" in given:
            options["command_timeout"] = given["command_timeout_ms"] / 1000
        if "connect_timeout_ms" in given:
            options["connect_timeout"] = given["connect_timeout_ms"] / 1000
        if os.environ.get("TAVERN_DEBUG"):
            logging.basicConfig(level=logging.INFO)
            logging.getLogger("tavern_client").setLevel(logging.DEBUG)
        for name in ("user", "transports"):
            if command.get(name) is not None:
                options[name] = command[name]
        if command.get("tokens"):
            options["get_token"] = self.token
        if resume := command.get("resume"):
            options["resume"] = (resume["session"], resume["seq"])
        self.client = Tavern(command["url"], **options)
        for state in STATES:
            self.client.on(state, functools.partial(self.state_changed, state))
        self.client.on("error", lambda refused: emit("error", code=refused.code))
        self.client.on("event", self.event)
        self.client.party.on("say", lambda message: emit("party", cmd="say", data=message.data, uid=message.user, **{"from": {"user": message.user}}))

    def state_changed(self, state: str, frame: dict[str, Any]) -> None:
        emit(state, **self.members(state, frame))

    @staticmethod
    def members(state: str, frame: dict[str, Any]) -> dict[str, Any]:
        if state in ("gap", "revoked"):
            return {name: frame[name] for name in ("verb", "channel", "pattern", "from", "to") if name in frame}
        if state == "closed" and frame["code"] != "closed":
            return {"code": frame["code"]}
        return {}

    @staticmethod
    def event(frame: dict[str, Any]) -> None:
        if frame["event"] in ("status", "inbox", "party"):
            emit(frame["event"], **{name: value for name, value in frame.items() if name not in ("event", "seq")})

    def message(self, message: Message) -> None:
        emit("message", channel=message.channel, data=message.data, **{"from": {"user": message.user, "client": message.client}})

    # ---- commands

    async def connect(self, command: Command) -> dict[str, Any]:
        if "url" in command:
            self.begin(command)
        await self.tavern.connect()
        return {}

    async def suspend(self, command: Command) -> dict[str, Any]:
        await self.tavern.suspend()
        return {}

    async def close(self, command: Command) -> dict[str, Any]:
        await self.tavern.close()
        return {}

    async def ticket(self, command: Command) -> dict[str, Any]:
        session, seq = self.tavern.ticket or (None, 0)
        return {"session": session, "seq": seq}

    async def state(self, command: Command) -> dict[str, Any]:
        tavern = self.tavern
        return {
            "state": tavern.state, "transport": tavern.transport, "user": tavern.me.user, "client": tavern.me.client, "node": tavern.node,
        }

    async def subscribe(self, command: Command) -> dict[str, Any]:
        if "pattern" in command:
            await self.tavern.pattern(command["pattern"]).subscribe(self.message, echo=self.echo)
            return {}
        name = command["channel"]
        channel = self.tavern.channel(name)
        if name not in self.watched:
            self.watched.add(name)
            channel.on("message", self.message)
            channel.on("presence", lambda event: emit("presence", channel=name))
            channel.on("recovered", lambda recovered: emit("recovered", channel=name, recovered=recovered))
        since = Position.from_wire(command.get("since") or {})
        if command.get("presence"):
            await channel.presence()
        else:
            await channel.subscribe(last=command.get("last"), since=since, echo=self.echo)
        return {}

    async def unsubscribe(self, command: Command) -> dict[str, Any]:
        tavern = self.tavern
        await (tavern.pattern(command["pattern"]) if "pattern" in command else tavern.channel(command["channel"])).unsubscribe()
        return {}

    async def publish(self, command: Command) -> dict[str, Any]:
        channel, options = self.tavern.channel(command["channel"]), {"id": command.get("message_id"), "retain": bool(command.get("retain"))}
        published = await channel.publish(command["data"], **options)
        place = {} if published.position is None else published.position.to_wire()
        return {"receivers": published.receivers, "duplicate": published.duplicate, **place}

    async def history(self, command: Command) -> dict[str, Any]:
        part = {name: command[name] for name in ("after", "before", "limit") if name in command}
        return await self.tavern.channel(command["channel"]).history(**part)

    async def position(self, command: Command) -> dict[str, Any]:
        position = self.tavern.channel(command["channel"]).position
        return {} if position is None else position.to_wire()

    async def burst(self, command: Command) -> dict[str, Any]:
        channel = self.tavern.channel(command["channel"])
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            try:
                await channel.publish(number)
            finally:
                slots.release()

        # Tasks start in order, so the numbers are published in order.
        async with asyncio.TaskGroup() as group:
            for number in range(command["from"], command["from"] + command["count"]):
                await slots.acquire()
                group.create_task(one(number))
        return {}

    async def join(self, command: Command) -> dict[str, Any]:
        await self.tavern.channel(command["channel"]).join(command["state"])
        return {}

    async def update(self, command: Command) -> dict[str, Any]:
        await self.tavern.channel(command["channel"]).update(command["state"])
        return {}

    async def leave(self, command: Command) -> dict[str, Any]:
        await self.tavern.channel(command["channel"]).leave()
        return {}

    async def who(self, command: Command) -> dict[str, Any]:
        return await self.tavern.channel(command["channel"]).who()

    async def presence(self, command: Command) -> dict[str, Any]:
        room = await self.tavern.channel(command["channel"]).presence()
        users = {
            user.user: {"name": user.name, "clients": {client.client: client.state for client in user.clients.values()}}
            for user in room.users.values()
        }
        return {"users": users, "count": room.count, "mode": room.mode}

    async def status(self, command: Command) -> dict[str, Any]:
        return {"statuses": await self.tavern.me.status(command["users"])}

    async def follow(self, command: Command) -> dict[str, Any]:
        await self.tavern.me.follow(command["user"])
        return {}

    async def unfollow(self, command: Command) -> dict[str, Any]:
        await self.tavern.me.unfollow(command["user"])
        return {}

    async def following(self, command: Command) -> dict[str, Any]:
        return {"users": await self.tavern.me.following()}

    async def followers(self, command: Command) -> dict[str, Any]:
        return {"users": await self.tavern.me.followers()}

    async def visibility(self, command: Command) -> dict[str, Any]:
        await self.tavern.me.visibility(command["value"])
        return {}

    async def party(self, command: Command) -> dict[str, Any]:
        members = {name: value for name, value in command.items() if name not in ("id", "do", "cmd")}
        return await self.tavern.party.command(command["cmd"], **members)

    async def party_current(self, command: Command) -> dict[str, Any]:
        return {"party": self.tavern.party.current}

    # ---- lines

    async def answer(self, command: Command, work: Awaitable[dict[str, Any]]) -> None:
        try:
            write({"id": command["id"], "ok": await work})
        except TavernError as error:
            write({"id": command["id"], "error": {"code": error.code, "message": error.message}})
        except Exception as failure:
            write({"id": command["id"], "error": {"code": "driver", "message": repr(failure)}})

    async def run(self) -> None:
        reader = asyncio.StreamReader(limit=1 << 24)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        running: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            command = json.loads(line)
            if "answer" in command:
                asked = self.asked[command["answer"]]
                if "error" in command:
                    asked.set_exception(OSError(command["error"]))
                else:
                    asked.set_result(command["token"])
                continue
            method: Callable[[Command], Awaitable[dict[str, Any]]] = getattr(self, command["do"])
            # Tasks start in the order of creation.
            task = asyncio.create_task(self.answer(command, method(command)))
            running.add(task)
            task.add_done_callback(running.discard)


if __name__ == "__main__":
    asyncio.new_event_loop().run_until_complete(Driver().run())
    sys.stdout.flush()
    # Exit at once, without ending the session.
    os._exit(0)
