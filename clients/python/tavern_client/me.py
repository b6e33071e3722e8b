"""The user of this session: follows, statuses, visibility, inbox.

Emits `status` when the status of a followed user changes, `statuses` when a session starts (if requested), and `inbox` for each inbox message.
"""
from __future__ import annotations

from typing import Any, AsyncIterator, Iterable, Mapping

from .emitter import Emitter
from .session import Session

Status = dict[str, Any]


class Statuses:
    """The statuses of followed users after events. Pure."""

    def __init__(self) -> None:
        self.users: dict[str, Status] = {}

    def replace(self, statuses: list[Status]) -> None:
        self.users = {status["user"]: status for status in statuses}

    def take(self, event: dict[str, Any]) -> None:
        self.users[event["user"]] = event["status"]

    def unfollowed(self, user: str) -> None:
        self.users.pop(user, None)


class Me(Emitter):
    EVENTS = frozenset(["status", "statuses", "inbox"])

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._statuses = Statuses()

    @property
    def statuses(self) -> Mapping[str, Status]:
        """The statuses of followed users that the server has sent so far; with the option `statuses`, of all."""
        return self._statuses.users

    def take(self, event: dict[str, Any]) -> None:
        if event["event"] == "statuses":
            self._statuses.replace(event["statuses"])
        elif event["event"] == "status":
            self._statuses.take(event)
        self.emit(event["event"], event)

    @property
    def user(self) -> str | None:
        """The user name; None: anonymous."""
        return self._session.hello.get("user")

    @property
    def client(self) -> str | None:
        """The public id of this session."""
        return self._session.hello.get("client")

    async def status(self, users: Iterable[str]) -> list[Status]:
        """The statuses of up to 100 users, in the given order."""
        answer = await self._session.ask("status", {"users": list(users)})
        return list(answer["statuses"])

    async def follow(self, user: str) -> None:
        await self._session.ask("follow", {"user": user})

    async def unfollow(self, user: str) -> None:
        await self._session.ask("unfollow", {"user": user})
        self._statuses.unfollowed(user)

    async def following(self) -> list[str]:
        """All users that this user follows."""
        return [user async for user in self._pages("following")]

    async def followers(self) -> list[str]:
        return [user async for user in self._pages("followers")]

    async def _pages(self, op: str) -> AsyncIterator[str]:
        after: dict[str, str] = {}
        while True:
            page = await self._session.ask(op, after)
            for user in page["users"]:
                yield user
            if page.get("next") is None:
                return
            after = {"after": page["next"]}

    async def visibility(self, value: str) -> None:
        """`everyone`, `followers_i_follow` or `nobody`."""
        await self._session.ask("visibility", {"value": value})
