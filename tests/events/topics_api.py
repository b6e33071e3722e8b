"""Calls of the topics API."""


def code(answer):
    """Status and error code of a response."""
    return answer.status_code, answer.json()["error"]["code"]


def publish(api, topic, body, once=None):
    headers = {"idempotency-key": once} if once else {}
    answer = api.post(f"/v1/topics/{topic}/events", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    return answer.json()


def put(api, name, **settings):
    answer = api.put(f"/v1/subscriptions/{name}", json=settings)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def pull(api, name, **query):
    answer = api.get(f"/v1/subscriptions/{name}/events", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(answer):
    return answer["events"]


def seqs(answer):
    return [event["seq"] for event in answer["events"]]


def report(api, name):
    answer = api.get(f"/v1/subscriptions/{name}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def command(api, name, what, body=None):
    answer = api.post(f"/v1/subscriptions/{name}/{what}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()
