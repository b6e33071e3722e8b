"""A TCP proxy to a server that can be cut and restored."""
import contextlib
import selectors
import socket
import threading


class TcpProxy:
    def __init__(self, port):
        self.to = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.open, self.over = True, False
        self.pairs = []
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        self.listener.settimeout(0.05)
        while not self.over:
            with contextlib.suppress(TimeoutError, OSError):
                near, _ = self.listener.accept()
                if not self.open:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self.to))
                self.pairs.append((near, far))
                threading.Thread(target=self.carry, args=(near, far), daemon=True).start()

    @staticmethod
    def carry(near, far):
        with near, far, contextlib.suppress(OSError), selectors.DefaultSelector() as ready:
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in ready.select():
                    chunk = key.fileobj.recv(65536)
                    if not chunk:
                        return
                    key.data.sendall(chunk)

    def cut(self):
        self.open = False
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def restore(self):
        self.open = True

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.over = True
        self.cut()
        self.thread.join()
        self.listener.close()
