"""A party of two. `python3 party.py bob` waits for an invite and accepts it; `python3 party.py ann bob` invites bob. Both print the members."""
import asyncio
import os
import sys

from tavern_client import Tavern


async def main(name, friend=None):
    tavern = Tavern(os.environ.get("TAVERN_URL", "http://127.0.0.1:7400"), user=name)
    party, members, ended = tavern.party, asyncio.Future(), asyncio.Event()

    async def accept(event):
        print(f"{event['user']} invites you", flush=True)
        await party.accept(event["party_id"])

    def change(now):
        if now and len(now["members"]) > 1 and not members.done():
            members.set_result([member["user"] for member in now["members"]])

    party.on("invite", accept)
    party.on("change", change)
    party.on("disband", lambda _: ended.set())
    async with tavern:
        print("connected", flush=True)
        if friend:
            await party.invite(friend)
        print("party:", ", ".join(await members), flush=True)
        # The leader ends it; a member waits until it has ended.
        if friend:
            await party.disband()
        else:
            await ended.wait()
        print("the party has ended", flush=True)


asyncio.run(main(*sys.argv[1:] or ["ann"]))
