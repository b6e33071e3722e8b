"""Uses that type checkers must reject: mypy fails if a line with `type: ignore` has no error, or another one. Never run."""
from tavern_client import Message, Presence, Published, Tavern, TavernError
from tavern_client import sync


async def right(tavern: Tavern, plain: sync.Tavern) -> None:
    room = tavern.channel("game#1")
    published: Published = await room.publish({"n": 1}, id="a")
    presence: Presence = await room.presence()
    names: list[str | None] = [user.name for user in presence.users.values()]
    async for message in room:
        text: Message = message
    try:
        tavern.party.current
    except TavernError as error:
        wait: int | None = error.retry_after_ms
    party: dict[str, object] | None = plain.party.get()
    Tavern("http://h", get_token=lambda: "x", transports=["poll"])
    print(published.receivers + 1, names, text, wait, party)


async def wrong(tavern: Tavern, plain: sync.Tavern) -> None:
    room = tavern.channel("game#1")
    tavern.chanel("game#1")  # type: ignore[attr-defined]
    await room.subscribe(on_message=print)  # type: ignore[call-arg]
    await room.subscribe(lambda: None)  # type: ignore[arg-type, misc]
    await room.publish()  # type: ignore[call-arg]
    await room.publish(1, id=7)  # type: ignore[arg-type]
    text: str = await room.publish(1)  # type: ignore[assignment]
    tavern.state = "open"  # type: ignore[misc]
    await tavern.me.status([7])  # type: ignore[list-item]
    await tavern.party.accept("7")  # type: ignore[arg-type]
    await tavern.party.promote()  # type: ignore[call-arg]
    Tavern("http://h", get_token=lambda: 7)  # type: ignore[arg-type, return-value]
    Tavern("http://h", tokens="x")  # type: ignore[call-arg]
    sync.Tavern("http://h", tokens="x")  # type: ignore[call-arg]
    sync.Tavern("http://h", statuses="yes")  # type: ignore[arg-type]
    plain.party.invent("bob")  # type: ignore[attr-defined]
    plain.party.accept("7")  # type: ignore[arg-type]
    plain.channel("game#1").publish(1).receivers.upper()  # type: ignore[attr-defined]
    print(text)
