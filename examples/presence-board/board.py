"""A board that shows who is here and what they do, live. `python3 board.py NAME STATE`; ends with Ctrl-C."""
import asyncio
import os
import signal
import sys

from tavern_client import Tavern


def show(present):
    rows = []
    for name, user in present.users.items():
        states = [client.state.get("doing", "") for client in user.clients.values() if isinstance(client.state, dict)]
        rows.append(f"{name} ({'connection lost' if user.leaving else ', '.join(states)})")
    print(", ".join(sorted(rows)) or "nobody", flush=True)


async def main(name, doing):
    end = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end.set)
    # Leaving the block leaves the channel at once; without it the user stays for the grace period.
    async with Tavern(os.environ.get("TAVERN_URL", "http://127.0.0.1:7400"), user=name) as tavern:
        board = tavern.channel("room#board")
        present = await board.presence()
        present.on("change", lambda _: show(present))
        await board.join({"doing": doing})
        await end.wait()


asyncio.run(main(*(sys.argv[1:] + ["ann", "here"][len(sys.argv) - 1:])))
