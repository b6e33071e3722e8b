"""The topics of a subscription change while it is pulled and its topics are published to, on two servers: a seq always names the
same event, and events of a topic that was always subscribed arrive once and in order."""
import contextlib
import threading
import time

from events.conftest import client
from events.topics_api import publish
from support.process import until

SECONDS = 4


class Worker(threading.Thread):
    """Repeats its work until it is stopped."""

    def __init__(self, work):
        super().__init__()
        self.work, self.failure, self.enough = work, None, threading.Event()

    def run(self):
        try:
            while not self.enough.is_set():
                self.work()
        except Exception as failure:
            self.failure = failure

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *failure):
        self.enough.set()
        self.join()
        assert self.failure is None, self.failure


def publisher(api, topic, taken):
    def work():
        taken.append(f"{topic}-{len(taken)}")
        publish(api, topic, {"type": "x", "id": taken[-1]})
    return work


def asked(ask):
    """Retries on conflict until it gets an answer."""
    while (answer := ask()).status_code == 503:
        pass
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def put(api, name, **settings):
    return asked(lambda: api.put(f"/v1/subscriptions/{name}", json=settings))


def pull(api, name, **query):
    return asked(lambda: api.get(f"/v1/subscriptions/{name}/events", params=query))


def changer(api, name, always, sometimes, changes):
    def work():
        put(api, name, topics=[always])
        put(api, name, topics=[always, sometimes])
        changes.append(1)
        time.sleep(0.01)
    return work


def test_a_seq_always_names_the_same_event(nodes, topic, name):
    always, sometimes, taken, other, changes = f"{topic}-a", f"{topic}-b", [], [], []
    with contextlib.ExitStack() as stack:
        apis = [stack.enter_context(client(node, node.key)) for node in (*nodes, *nodes)]
        put(apis[0], name, topics=[always, sometimes], pull=True)
        numbers, after = {}, 0

        def turn():
            nonlocal after
            # Read, then acknowledge: the topics may change in between.
            for api in apis[:2]:
                for event in pull(api, name, after=after, limit=20)["events"]:
                    assert numbers.setdefault(event["seq"], event["id"]) == event["id"], f"{event['seq']} names two events"
            after = max(numbers, default=0)

        with Worker(publisher(apis[2], always, taken)), Worker(publisher(apis[3], sometimes, other)):
            with Worker(changer(stack.enter_context(client(nodes[1], nodes[1].key)), name, always, sometimes, changes)):
                end = time.monotonic() + SECONDS
                while time.monotonic() < end:
                    turn()
        until(lambda: turn() or taken[-1] in numbers.values(), "everything to be pulled", 20)
        turn()
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
        came = [numbers[seq] for seq in sorted(numbers)]
        assert [id for id in came if id.startswith(always)] == taken
        assert len(set(came)) == len(came) > 50 and len(changes) > 2
