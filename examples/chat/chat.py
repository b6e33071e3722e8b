"""A chat in a terminal: prints the messages of a channel and publishes what you type. `python3 chat.py NAME`"""
import asyncio
import os
import sys

from tavern_client import Tavern


async def main(name):
    async with Tavern(os.environ.get("TAVERN_URL", "http://127.0.0.1:7400"), user=name) as tavern:
        room = tavern.channel("room#chat")
        await room.subscribe(lambda message: print(f"{message.user}: {message.data}", flush=True))
        print("connected", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await room.publish(line.rstrip("\n"))


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "ann"))
