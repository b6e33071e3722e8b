"""Python `websockets`: subscribes to a channel and publishes the lines from stdin. See `client_processes.py` for the format."""
import asyncio
import json
import sys

import websockets


async def main(url, channel):
    async with websockets.connect(url) as socket:
        await socket.recv()
        await socket.send(json.dumps({"id": 1, "op": "subscribe", "channel": channel}))
        assert "ok" in json.loads(await socket.recv())
        print(json.dumps({"ready": True}), flush=True)
        await asyncio.gather(receive(socket), publish(socket, channel))


async def receive(socket):
    async for frame in socket:
        frame = json.loads(frame)
        if frame.get("event") == "message":
            print(json.dumps({"received": frame["data"]}), flush=True)


async def publish(socket, channel):
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        await socket.send(json.dumps({"op": "publish", "channel": channel, "data": json.loads(line)}))


asyncio.run(main(*sys.argv[1:]))
