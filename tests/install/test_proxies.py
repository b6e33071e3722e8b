"""The proxy configurations: the documentation shows the files as they are, and the real proxies accept them."""
import pathlib
import subprocess

import pytest
import yaml

from install.files import PACKAGING, ROOT

FILES = sorted((PACKAGING / "proxies").iterdir())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Files with a self-signed certificate: certificate, key, both."""
    folder = tmp_path_factory.mktemp("certificate")
    cert, key, both = (folder / name for name in ("cert.pem", "key.pem", "both.pem"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=tavern.example", "-days", "2",
         "-keyout", key, "-out", cert], check=True, capture_output=True,
    )
    both.write_text(cert.read_text() + key.read_text())
    return cert, key, both


def accepted(*command):
    said = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_documentation_shows_the_file(path: pathlib.Path):
    assert f"\n{path.read_text()}```\n" in (ROOT / "docs/deploy/proxies.md").read_text()


def test_nginx_accepts_its_file(certificate, tmp_path):
    text = (PACKAGING / "proxies/nginx.conf").read_text()
    text = text.replace("/etc/ssl/tavern.example.pem", f'"{certificate[0]}"').replace("/etc/ssl/tavern.example.key", f'"{certificate[1]}"')
    (tmp_path / "nginx.conf").write_text(f"pid '{tmp_path}/pid';\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{text}\n}}\n")
    accepted("/usr/sbin/nginx", "-t", "-c", tmp_path / "nginx.conf", "-p", tmp_path)


def test_caddy_accepts_its_file():
    accepted("caddy", "adapt", "--adapter", "caddyfile", "--validate", "--config", PACKAGING / "proxies/Caddyfile")


def test_haproxy_accepts_its_file(certificate, tmp_path):
    text = (PACKAGING / "proxies/haproxy.cfg").read_text().replace("/etc/haproxy/tavern.example.pem", f'"{certificate[2]}"')
    (tmp_path / "haproxy.cfg").write_text(text)
    accepted("/usr/sbin/haproxy", "-c", "-f", tmp_path / "haproxy.cfg")


def test_the_file_for_traefik_is_consistent():
    http = yaml.safe_load((PACKAGING / "proxies/traefik.yaml").read_text())["http"]
    for router in http["routers"].values():
        assert router["service"] in http["services"]
    assert http["services"]["tavern"]["loadBalancer"]["healthCheck"]["path"] == "/readyz"
