"""Tokens as an app would mint them: valid ones and every kind of invalid one."""
import base64
import hashlib
import hmac
import json
import time

import jwt

SECRET = "test-secret-2f8d1c7be0a94356b1d2e3f405162738-and-long-enough-for-every-algorithm"
EVERYTHING = {"*": ["subscribe", "publish", "join", "presence"]}


def claims(user="tester", allow=None, ttl=3600, **more):
    made = {"exp": int(time.time()) + ttl, "allow": EVERYTHING if allow is None else allow} | more
    return made if user is None else {"sub": user} | made


def token(user="tester", allow=None, ttl=3600, secret=SECRET, **more):
    return jwt.encode(claims(user, allow, ttl, **more), secret, algorithm="HS256")


def _part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def signed(header, body):
    """A correctly signed token with any header and claims, which a library would not mint."""
    text = f"{_part(header)}.{_part(body)}"
    signature = hmac.new(SECRET.encode(), text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def refused():
    """Invalid tokens by name: each must be rejected on every transport."""
    without_expiry = claims()
    del without_expiry["exp"]
    whole = token()
    head, body, signature = whole.split(".")
    flipped = ("A" if signature[0] != "A" else "B") + signature[1:]
    return {
        "no expiry": jwt.encode(without_expiry, SECRET, algorithm="HS256"),
        "expired": token(ttl=-600),
        "signed with another secret": token(secret="another-secret-" * 6),
        "signature changed": f"{head}.{body}.{flipped}",
        "no signature": f"{head}.{body}.",
        "claims changed": f"{head}.{_part(claims('mallory'))}.{signature}",
        "algorithm none": f"{_part({'alg': 'none', 'typ': 'JWT'})}.{body}.",
        "algorithm HS512": jwt.encode(claims(), SECRET, algorithm="HS512"),
        "algorithm HS384": jwt.encode(claims(), SECRET, algorithm="HS384"),
        "header says RS256": signed({"alg": "RS256", "typ": "JWT"}, claims()),
        "expiry is text": signed({"alg": "HS256", "typ": "JWT"}, claims() | {"exp": "tomorrow"}),
        "expiry in milliseconds": jwt.encode(claims() | {"exp": int(time.time() + 3600) * 1000}, SECRET, algorithm="HS256"),
        "not a token": "not-a-token",
        "empty": "",
    }
