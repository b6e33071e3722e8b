"""The API of a server with the admin key."""
import httpx

from support.process import until


class Service:
    def __init__(self, server, key=None):
        self.server = server
        headers = {"authorization": f"Bearer {key or server.key}"}
        self.http = httpx.Client(base_url=f"{server.url}/v1", headers=headers, timeout=30, trust_env=False)

    def call(self, method, path, status=200, **body):
        """Sends a request; its answer must have the status."""
        answer = self.http.request(method, path, json=body or None)
        assert answer.status_code == status, f"{method} {path} answered {answer.status_code}: {answer.text}"
        return answer.json()

    def refused(self, method, path, status, **body):
        return self.call(method, path, status, **body)["error"]["code"]

    def stats(self):
        return self.call("GET", "/stats")

    def sessions(self, user):
        found = self.call("GET", f"/users/{user}/sessions")
        assert found["missing_nodes"] == []
        return found["sessions"]

    def is_online(self, user):
        return self.call("GET", f"/users/{user}")["online"]

    def until_online(self, count):
        """Waits until this many users are online in the cluster."""
        until(lambda: self.stats()["cluster"]["users_online"] == count, f"{count} users online, not {self.stats()}")

    def audit(self):
        """All events of the audit trail."""
        found = self.call("GET", "/topics/tavern.audit/events?limit=1000")
        return [event["data"] for event in found["events"]]

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.http.close()
