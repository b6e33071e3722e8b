"""A server with TLS on both ports; `openssl` creates its certificates."""
import http.client
import os
import ssl
import subprocess

from .tavern import Tavern


class TlsServer(Tavern):
    """`tavern dev` with a certificate that can be replaced while it runs."""

    def __init__(self, config=""):
        super().__init__("dev", config)
        self.cert, self.key_file = self.folder / "cert.pem", self.folder / "key.pem"
        self.renew("first")
        self.options = ("--tls-cert", self.cert, "--tls-key", self.key_file)

    def renew(self, name):
        """Installs a new self-signed certificate, each file atomically. Clients in this process trust it and the
        earlier ones."""
        new_cert, new_key = self.folder / f"{name}-cert.pem", self.folder / f"{name}-key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-keyout", new_key, "-out", new_cert, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
            check=True, capture_output=True, timeout=20,
        )
        self.trust = self.trust or ssl.create_default_context(cafile=new_cert)
        self.trust.load_verify_locations(new_cert)
        text = new_cert.read_text()
        os.replace(new_key, self.key_file)
        os.replace(new_cert, self.cert)
        return text

    def certify(self):
        """Before the start: creates a certificate signed by its own CA; returns the CA file."""
        authority, authority_key = self.folder / "ca.pem", self.folder / "ca-key.pem"
        request, extensions = self.folder / "server.csr", self.folder / "server.ext"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        for command in (
            ["req", "-x509", *new_key, "-days", "2", "-keyout", authority_key, "-out", authority, "-subj", "/CN=authority"],
            ["req", *new_key, "-keyout", self.key_file, "-out", request, "-subj", "/CN=server"],
            ["x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority_key, "-CAcreateserial", "-days", "2",
             "-extfile", extensions, "-out", self.cert],
        ):
            subprocess.run(["openssl", *command], check=True, capture_output=True, timeout=20)
        self.trust.load_verify_locations(authority)
        return authority

    @property
    def url(self):
        return f"https://127.0.0.1:{self.port}"

    @property
    def ws_url(self):
        return f"wss://127.0.0.1:{self.port}/v1/connect"

    def shown(self, port=None):
        """The certificate that a new connection gets."""
        return ssl.get_server_certificate(("127.0.0.1", port or self.port), timeout=5)

    def ready(self):
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=2, context=self.trust)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
