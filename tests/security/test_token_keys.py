"""Tokens signed with public keys, from files and from a key set (JWKS), and several secrets at once."""
import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import threading

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from support import tokens
from support.json_client import Poller, Socket, Stream
from support.process import until
from support.resp import RespConnection
from support.tavern import Tavern

ALGORITHMS = ["RS256", "ES256", "EdDSA"]


def private_key(algorithm):
    match algorithm:
        case "RS256": return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case "ES256": return ec.generate_private_key(ec.SECP256R1())
        case "EdDSA": return ed25519.Ed25519PrivateKey.generate()


def pem(key):
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def signed(key, algorithm, user="ann", kid=None, **more):
    headers = {"kid": kid} if kid else None
    return jwt.encode(tokens.claims(user) | more, key, algorithm=algorithm, headers=headers)


def accepts(server, token):
    """Whether every transport accepts the token, or none does."""
    headers = {"authorization": f"Bearer {token}"}
    answers = [httpx.post(f"{server.url}/v1/command", json={"op": "hello"}, headers=headers, trust_env=False).status_code == 200]
    redis = RespConnection(server.resp_port)
    answers.append(redis.call("AUTH", token) == "OK")
    redis.close()
    with Socket(server) as socket:
        answers.append("ok" in socket.call("hello", token=token))
    with Stream(server, token=token) as stream:
        answers.append(stream.status == 200)
    with Poller(server, token=token) as poller:
        answers.append("ok" in poller.command("hello"))
    assert len(set(answers)) == 1, answers
    return answers[0]


def accepts_over_http(server, token):
    """A request waits for keys that are being read."""
    headers = {"authorization": f"Bearer {token}"}
    url = f"{server.url}/v1/command"
    return httpx.post(url, json={"op": "hello"}, headers=headers, trust_env=False, timeout=10).status_code == 200


class KeySet:
    """A JWKS endpoint. `keys` is what it answers; `status` and `gate` break it."""

    def __init__(self):
        self.keys, self.reads, self.status, self.body = [], 0, 200, None
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                owner.reads += 1
                body = owner.body if owner.body is not None else json.dumps({"keys": owner.keys}).encode()
                self.send_response(owner.status)
                if owner.status == 302:
                    self.send_header("location", "/elsewhere")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys?secret=hidden"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add(self, key, algorithm, kid):
        described = jwt.algorithms.get_default_algorithms()[algorithm].to_jwk(key.public_key(), as_dict=True)
        self.keys.append(described | {"kid": kid, "use": "sig"})

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def key_set():
    with KeySet() as running:
        yield running


def jwks(url, more=""):
    return f'[[tokens.keys]]\njwks_url = "{url}"\njwks_private = true\n{more}'


@pytest.fixture(scope="module")
def keys():
    return {algorithm: private_key(algorithm) for algorithm in ALGORITHMS}


@pytest.fixture(scope="module")
def with_files(keys, tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    config = ""
    for algorithm, key in keys.items():
        (folder / algorithm).write_bytes(pem(key))
        config += f'[[tokens.keys]]\nalgorithm = "{algorithm}"\nfile = "{folder / algorithm}"\n'
    with Tavern.serve(config) as server:
        yield server


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_a_public_key_is_accepted_on_every_transport(with_files, keys, algorithm):
    assert accepts(with_files, signed(keys[algorithm], algorithm))
    assert not accepts(with_files, signed(private_key(algorithm), algorithm)), "another key"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_public_key_is_not_a_secret(with_files, keys, algorithm):
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    head = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(tokens.claims('ann'))}"
    mark = hmac.new(pem(keys[algorithm]), head.encode(), hashlib.sha256).digest()
    forged = f"{head}.{base64.urlsafe_b64encode(mark).rstrip(b'=').decode()}"
    assert not accepts(with_files, forged)
    head, body, mark = signed(keys[algorithm], algorithm).split(".")
    others = [other for other in (*ALGORITHMS, "RS512", "PS256", "none") if other != algorithm]
    for other in others:
        assert not accepts(with_files, f"{part({'alg': other, 'typ': 'JWT'})}.{body}.{mark}"), other


def test_two_secrets_are_accepted_while_one_is_replaced(tmp_path):
    former, third = "former-secret-" * 4, "third-secret-from-a-file-" * 2
    (tmp_path / "third").write_text(third + "\n")
    config = f'former_secret = "{former}"\n[[tokens.keys]]\nalgorithm = "HS256"\nfile = "{tmp_path / "third"}"\nkid = "3"\n'
    with Tavern.serve(config) as server:
        assert accepts(server, tokens.token("ann"))
        assert accepts(server, tokens.token("ann", secret=former))
        assert accepts(server, jwt.encode(tokens.claims("ann"), third, algorithm="HS256", headers={"kid": "3"}))
        assert not accepts(server, jwt.encode(tokens.claims("ann"), third, algorithm="HS256", headers={"kid": "4"}))
        assert not accepts(server, tokens.token("ann", secret="another-secret-" * 4))
        shown = httpx.get(f"{server.url}/v1/settings", headers={"authorization": f"Bearer {server.key}"}, trust_env=False)
        assert former not in shown.text and third not in shown.text


def test_the_keys_of_a_set_are_chosen_by_their_id(keys, key_set):
    for algorithm, key in keys.items():
        key_set.add(key, algorithm, algorithm.lower())
    with Tavern.serve(jwks(key_set.url)) as server:
        assert accepts_over_http(server, signed(keys["RS256"], "RS256", kid="rs256"))
        for algorithm, key in keys.items():
            assert accepts(server, signed(key, algorithm, kid=algorithm.lower())), algorithm
        assert not accepts(server, signed(keys["RS256"], "RS256", kid="es256")), "the key of another id"
        reads = key_set.reads
        for n in range(20):
            assert not accepts(server, signed(private_key("EdDSA"), "EdDSA", kid=f"unknown-{n}"))
        assert key_set.reads <= reads + 1, "unknown ids do not cause a read each"
        check = server.run("check", "--config", server.config, "--data", server.data).stdout
        assert "hidden" not in check and "secret=***" in check


def test_a_key_of_a_set_may_name_another_algorithm_that_fits_its_type(key_set):
    private = {algorithm: private_key("RS256") for algorithm in ("RS384", "RS512", "PS256", "PS384", "PS512")}
    private["ES384"] = ec.generate_private_key(ec.SECP384R1())
    for algorithm, key in private.items():
        key_set.add(key, algorithm, algorithm)
        key_set.keys[-1]["alg"] = algorithm
    with Tavern.serve(jwks(key_set.url)) as server:
        for algorithm, key in private.items():
            assert accepts_over_http(server, signed(key, algorithm, kid=algorithm)), algorithm
            another = private_key("RS256") if algorithm != "ES384" else ec.generate_private_key(ec.SECP384R1())
            assert not accepts_over_http(server, signed(another, algorithm, kid=algorithm)), algorithm


@pytest.mark.alone
def test_a_new_key_is_found_by_its_id_and_a_broken_endpoint_keeps_the_old_ones(keys, key_set):
    key_set.add(keys["ES256"], "ES256", "old")
    with Tavern.serve(jwks(key_set.url)) as server:
        assert accepts_over_http(server, signed(keys["ES256"], "ES256", kid="old"))
        key_set.keys = []
        key_set.add(keys["EdDSA"], "EdDSA", "new")
        new = signed(keys["EdDSA"], "EdDSA", kid="new")
        # Keys are read again ten seconds after the last time, at the earliest.
        until(lambda: accepts_over_http(server, new), "the new key", 15)
        assert accepts(server, signed(keys["EdDSA"], "EdDSA", kid="new"))
        assert not accepts(server, signed(keys["ES256"], "ES256", kid="old")), "a key that is gone"
        key_set.status, reads = 302, key_set.reads
        unknown = signed(private_key("EdDSA"), "EdDSA", kid="newer")
        until(lambda: not accepts_over_http(server, unknown) and key_set.reads > reads, "another read", 15)
        assert accepts(server, new), "the keys of the last good read stay"
        assert "cannot read the token keys" in server.log() and "hidden" not in server.log()


def test_a_server_starts_although_the_key_set_cannot_be_read(keys, key_set):
    key_set.status = 500
    with Tavern.serve(jwks(key_set.url)) as server:
        assert accepts(server, tokens.token("ann")), "tokens of the secret are accepted"
        until(lambda: "cannot read the token keys" in server.log(), "a warning")
        findings = server.run("doctor", "--config", server.config, "--data", server.data, "--secret", tokens.SECRET).stdout
        assert "status 500" in findings and "hidden" not in findings


def test_an_address_that_is_not_allowed_is_refused_at_start(key_set):
    config = jwks(key_set.url).replace("true", "false")
    server = Tavern.serve(config)
    done = server.run(*[str(word) for word in server.command()[1:]])
    assert done.returncode != 0 and "jwks_url" in done.stderr, done.stderr
