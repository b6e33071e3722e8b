"""What schemathesis should send otherwise than it would."""
import re
import sys
import uuid

import schemathesis


@schemathesis.hook
def before_call(context, case, kwargs):
    """A used key gets the first response again, for any request: so each valid key here is new."""
    headers = case.headers or {}
    if re.fullmatch("[!-~]{1,255}", headers.get("Idempotency-Key", "")):
        headers["Idempotency-Key"] = uuid.uuid4().hex


@schemathesis.hook
def map_body(context, body):
    """Integers without a fraction: to a JSON schema 1.0 is one too, the server refuses it. And none that no double can hold."""
    return _integers(body)


def _integers(value):
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return 0
    if isinstance(value, list):
        return [_integers(item) for item in value]
    if isinstance(value, dict):
        return {name: _integers(item) for name, item in value.items()}
    return value
