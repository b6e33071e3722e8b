"""Requests, and every operation of the server API."""
import httpx


def ask(server, method, path, token=None, **request):
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.request(method, server.url + path, headers=headers, timeout=30, trust_env=False, **request)


def operations(server):
    """Each method and path of the server API, with names in place of parameters."""
    for path, methods in ask(server, "GET", "/openapi.json").json()["paths"].items():
        parts = ["1" if part.startswith("{") else part for part in path.split("/")]
        for method in methods.keys() & {"get", "post", "put", "delete"}:
            yield method.upper(), "/".join(parts)
