"""redis-py: subscribes with its pubsub object and publishes with its client, with the given protocol (`default`: its own choice)."""
import json
import sys
import threading

import redis


def main(port, channel, protocol):
    options = {} if protocol == "default" else {"protocol": int(protocol)}
    client = redis.Redis(host="127.0.0.1", port=int(port), **options)
    pubsub = client.pubsub()
    pubsub.subscribe(channel)
    threading.Thread(target=publish, args=(client, channel), daemon=True).start()
    for message in pubsub.listen():
        if message["type"] == "subscribe":
            print(json.dumps({"ready": True}), flush=True)
        elif message["type"] == "message":
            assert message["channel"] == channel.encode()
            print(json.dumps({"received": json.loads(message["data"])}), flush=True)


def publish(client, channel):
    for line in sys.stdin:
        client.publish(channel, line.strip())


main(*sys.argv[1:])
