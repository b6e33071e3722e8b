"""Runs the libraries `pusher` and `pysher` of PyPI: one JSON action per line, one result per line. Started with `python -I`, so that
`pusher` is the library and not this folder."""
import json
import sys
import traceback

import pusher
import pysher

servers = {}
clients = {}


class Actions:
    def server(self, app, port):
        servers[app["id"]] = pusher.Pusher(
            app_id=app["id"], key=app["key"], secret=app["secret"], host="127.0.0.1", port=port, ssl=False,
            encryption_master_key_base64="MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        )

    def call(self, app, method, args, kwargs=None):
        return getattr(servers[app], method)(*args, **(kwargs or {}))

    def refused(self, app, method, args):
        try:
            getattr(servers[app], method)(*args)
        except Exception as error:
            return {"error": type(error).__name__, "text": str(error)}
        raise AssertionError("it was not refused")

    def connect(self, name, app, port, user_data=None):
        client = pysher.Pusher(
            key=app["key"], custom_host="127.0.0.1", port=port, secure=False, secret=app["secret"], user_data=user_data,
        )
        clients[name] = {"client": client, "seen": [], "established": False}
        state = clients[name]
        client.connection.bind("pusher:connection_established", lambda data: state.update(established=True))
        client.connect()

    def established(self, name):
        return clients[name]["established"]

    def subscribe(self, name, channel, events):
        state = clients[name]
        subscribed = state["client"].subscribe(channel)
        for event in events:
            subscribed.bind(event, lambda data, event=event: state["seen"].append({"event": event, "channel": channel, "data": data}))

    def unsubscribe(self, name, channel):
        clients[name]["client"].unsubscribe(channel)

    def trigger(self, name, channel, event, data):
        clients[name]["client"].channel(channel).trigger(event, data)

    def seen(self, name):
        return clients[name]["seen"]

    def disconnect(self, name):
        clients[name]["client"].disconnect()


def main():
    # Whatever the libraries print must not mix with the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        action = json.loads(line)
        try:
            answer = {"ok": getattr(Actions(), action.pop("do"))(**action)}
        except Exception:
            answer = {"fault": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


main()
