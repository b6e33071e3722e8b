"""Headers of the answers of the API."""
from security.operations import ask, operations


def test_no_answer_is_taken_for_another_type(serve):
    """A browser must not take a value that a user published for a page."""
    for method, path in sorted(operations(serve)):
        if path == "/v1/connect":
            continue
        # Refused and answered ones alike; a pull ends at once, and streams are only refused.
        for token in (None, serve.key):
            if token and (method != "GET" or path in ("/v1/stream", "/v1/traffic", "/party/ping")):
                continue
            answer = ask(serve, method, path, token)
            assert answer.headers.get("x-content-type-options") == "nosniff", f"{method} {path}: {answer.status_code}"
