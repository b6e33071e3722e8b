"""A member that no request has is refused by its name, in every operation with a body."""
import json

from security.operations import ask
from support import tokens

UNKNOWN = "unheard_of"
# The party is looked up before the body is read.
LOOKS_FIRST = ("/v1/parties/1/go/1",)


def resolved(document, value):
    while "$ref" in value:
        place = value["$ref"]
        value = document
        for part in place.removeprefix("#/").split("/"):
            value = value[part]
    return value


def bodies(document):
    """Each operation with an example of its JSON body."""
    for path, methods in document["paths"].items():
        for method in methods.keys() & {"post", "put", "delete"}:
            body = resolved(document, methods[method].get("requestBody", {}))
            content = body.get("content", {}).get("application/json")
            if content is None:
                continue
            named = [resolved(document, one)["value"] for one in content.get("examples", {}).values()]
            schema = resolved(document, content["schema"])
            example = next(one for one in [content.get("example"), *named, schema.get("example")] if one is not None)
            example = example[0] if isinstance(example, list) else example
            names = [("game:1" if part == "{channel}" else "1") if part.startswith("{") else part for part in path.split("/")]
            yield method.upper(), "/".join(names), example


def test_an_unknown_member_is_refused_by_its_name_everywhere(serve):
    document = ask(serve, "GET", "/openapi.json").json()
    found = list(bodies(document))
    assert len(found) > 20, found
    wrong = []
    for method, path, example in found:
        token = tokens.token("ann") if path in ("/v1/command", "/v1/poll") else serve.key
        answer = ask(serve, method, path, token, json=example | {UNKNOWN: 1})
        if (answer.status_code, UNKNOWN in answer.text) != (400, True) and path not in LOOKS_FIRST:
            wrong.append(f"{method} {path} {json.dumps(example)}: {answer.status_code} {answer.text}")
    assert not wrong, "\n".join(wrong)


def test_an_unknown_member_of_one_of_several_messages_is_refused_in_its_result(serve):
    messages = [{"channel": "game#1", "data": 1}, {"channel": "game#1", "data": 1, UNKNOWN: 1}]
    first, second = ask(serve, "POST", "/v1/publish", serve.key, json={"messages": messages}).json()["results"]
    assert "error" not in first and UNKNOWN in second["error"]["message"]
    events = [{"type": "x"}, {"type": "x", UNKNOWN: 1}]
    answer = ask(serve, "POST", "/v1/topics/orders/events", serve.key, json=events)
    assert answer.status_code == 400 and UNKNOWN in answer.text, answer.text
