"""A load balancer as in production: one address for each client, which leads to its preferred server or, if that fails its health
checks, to the next one. It tells the record which server each client is connected to.
"""
import asyncio
import contextlib

HEALTH_EVERY, HEALTH_TIMEOUT = 0.5, 1.0


class Balancer:
    def __init__(self, host, servers, record):
        self.host, self.servers, self.record = host, servers, record
        self.healthy = {server: True for server in servers}
        self.listeners, self.links = [], set()
        self.checks = [asyncio.create_task(self._check(server)) for server in servers]

    async def address(self, client, preferred):
        """A port for this client only."""
        listener = await asyncio.start_server(lambda reader, writer: self._serve(client, preferred, reader, writer), self.host, 0)
        self.listeners.append(listener)
        return listener.sockets[0].getsockname()[1]

    async def _check(self, server):
        failures = 0
        while True:
            try:
                async with asyncio.timeout(HEALTH_TIMEOUT):
                    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                    writer.write(b"GET /readyz HTTP/1.1\r\nHost: truth\r\nConnection: close\r\n\r\n")
                    answer = await reader.read(13)
                    writer.transport.abort()
                # A server without health checks answers anything that is not a refusal.
                failures = 0 if answer and not answer.startswith(b"HTTP/1.1 503") else failures + 1
            except (OSError, TimeoutError):
                failures += 1
            self.healthy[server] = failures < 2
            await asyncio.sleep(HEALTH_EVERY)

    async def _serve(self, client, preferred, reader, writer):
        far = None
        at = self.servers.index(preferred)
        for server in [*self.servers[at:], *self.servers[:at]]:
            if not self.healthy[server]:
                continue
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1.0):
                    far_reader, far = await asyncio.open_connection("127.0.0.1", server.port)
                break
        if far is None:
            writer.transport.abort()
            return
        link = (writer, far)
        self.links.add(link)
        client.links[link] = server
        self.record.look(client, "lost")
        carries = [asyncio.create_task(carry(reader, far)), asyncio.create_task(carry(far_reader, writer))]
        try:
            await asyncio.wait(carries, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in carries:
                task.cancel()
            self.links.discard(link)
            far.transport.abort()
            writer.transport.abort()
            del client.links[link]
            self.record.look(client, "lost" if server.serves else "server")

    async def close(self):
        for task in self.checks:
            task.cancel()
        for listener in self.listeners:
            listener.close()
        for writer, far in list(self.links):
            writer.transport.abort()
            far.transport.abort()
        await asyncio.sleep(0)


async def carry(reader, writer):
    with contextlib.suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
