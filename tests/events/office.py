"""What tests say to the office."""


def code(answer):
    """Status and code of a refusal."""
    return answer.status_code, answer.json()["error"]["code"]


def publish(api, topic, body, once=None):
    headers = {"idempotency-key": once} if once else {}
    answer = api.post(f"/v1/topics/{topic}/events", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    return answer.json()


def put(api, name, **wish):
    answer = api.put(f"/v1/subscriptions/{name}", json=wish)
    assert answer.status_code == 200, answer.text
    return answer.json()


def pull(api, name, **question):
    answer = api.get(f"/v1/subscriptions/{name}/events", params=question)
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


def order(api, name, what, body=None):
    answer = api.post(f"/v1/subscriptions/{name}/{what}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()
