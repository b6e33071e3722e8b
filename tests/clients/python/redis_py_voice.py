"""redis-py: listens with its pubsub object and says with its client, at the protocol asked for (`default` lets it choose)."""
import json
import sys
import threading

import redis


def main(port, channel, protocol):
    options = {} if protocol == "default" else {"protocol": int(protocol)}
    client = redis.Redis(host="127.0.0.1", port=int(port), **options)
    pubsub = client.pubsub()
    pubsub.subscribe(channel)
    threading.Thread(target=say, args=(client, channel), daemon=True).start()
    for message in pubsub.listen():
        if message["type"] == "subscribe":
            print(json.dumps({"ready": True}), flush=True)
        elif message["type"] == "message":
            assert message["channel"] == channel.encode()
            print(json.dumps({"heard": json.loads(message["data"])}), flush=True)


def say(client, channel):
    for line in sys.stdin:
        client.publish(channel, line.strip())


main(*sys.argv[1:])
