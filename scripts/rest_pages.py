"""The pages of the REST API, from the OpenAPI document: an overview, and one page per resource with a curl example of each request.

Used by `scripts/reference`. Must hold: every operation is on exactly one page; `tests/reference/test_rest_examples.py` runs every example.
"""
import json
import re
import shlex
import urllib.parse

URL = "http://127.0.0.1:7400"
# Name of the page, title, what it is about, and the paths that it describes. The first page that matches a path has it.
PAGES = (
    ("sessions", "Sessions", "Requests of clients: open a session over WebSocket, Server-Sent Events or polls, run commands, and look at one session.",
     r"/v1/(connect|stream|poll|command|sessions)\b|/party"),
    ("parties", "Parties", "Read parties, run party commands on behalf of a user, and answer tickets as the matchmaker.", r"/v1/parties|/v1/users/[^/]+/party$"),
    ("channels", "Channels", "Publish to one channel or many, read and clear history, and see or change who is present.", r"/v1/(channels|publish|broadcast)\b"),
    ("users", "Users", "Find users and see why they are online, send them inbox messages, disconnect, ban or erase them.", r"/v1/(users|bans)\b"),
    ("topics", "Topics", "Publish durable events, browse the events that are stored, and manage who may publish.", r"/v1/topics\b"),
    ("subscriptions", "Subscriptions", "Create webhooks and pull subscriptions, see why a delivery failed, replay events and retry dead letters.", r"/v1/subscriptions\b"),
    ("keys", "API keys", "Create, list and revoke the keys that services authenticate with, ask what a key may do, and sign in to the dashboard.", r"/v1/(keys|whoami|dashboard)\b"),
    ("cluster", "Cluster", "Compare the nodes of a cluster, read its load, counts and settings, and watch what passes through a node.", r"/v1/(nodes|load|overview|settings|stats|traffic)\b"),
    ("health", "Health and files", "Probes for load balancers, metrics for Prometheus, the JavaScript client and the OpenAPI document.", r"/(livez|healthz|readyz|metrics|client\.js|openapi\.json)$"),
)
METHODS = ("get", "post", "put", "patch", "delete")


def pages(api):
    """The text of each page by its name in docs/reference."""
    found = {name: [] for name, *_ in PAGES}
    for path, methods in api["paths"].items():
        page = next(name for name, _, _, pattern in PAGES if re.match(pattern, path))
        found[page] += [(method.upper(), path, operation) for method, operation in methods.items() if method in METHODS]
    made = {f"rest/{name}.md": resource(api, title, about, found[name]) for name, title, about, _ in PAGES}
    return made | {"rest.md": overview(found)}


def overview(found):
    out = [
        "# REST API", "",
        "What services and operators ask a server over HTTP, one page for each resource, with a curl example of every request. The same "
        "as OpenAPI is served at `/openapi.json`.", "",
        "Services authenticate with an API key: `Authorization: Bearer KEY`, or Basic with the key as the user name. The scope that "
        "the key needs is named for each request. Bodies are JSON. Lists are paged: pass `next` as `after`. In a URL, write `%23` for "
        "the `#` of a channel name. A refused request has an error body; [errors](errors.md) explains the codes.", "",
        "The examples are written for a server in dev mode on this machine. It writes a key with all scopes; clients have a token for a "
        "user:", "",
        "```sh", "key=$(cat tavern-data/dev-key)", "token=$(tavern token --user ann)", "```", "",
    ]
    for name, title, about, _ in PAGES:
        out += [f"## {title}", "", f"{about} [Details and examples](rest/{name}.md).", "", *requests(found[name], f"rest/{name}.md")]
    return finish(out)


def resource(api, title, about, operations):
    out = [f"# {title}: REST API", "", about, "", "The [overview](../rest.md) says how to authenticate.", "", *requests(operations)]
    for method, path, operation in operations:
        out += one_operation(api, method, path, operation)
    return finish(out)


def finish(out):
    return "\n".join(out).rstrip() + "\n"


def requests(operations, page=""):
    out = ["| request | does |", "|---|---|"]
    for method, path, operation in operations:
        name = f"{method} {path}"
        out.append(f"| [`{name}`]({page}#{slug(name)}) | {cell(operation['summary'])} |")
    return [*out, ""]


def one_operation(api, method, path, operation):
    out = [f"## `{method} {path}`", "", sentence(operation["summary"]), ""]
    if about := operation.get("description"):
        out += [sentence(about), ""]
    out += curl(api, method, path, operation)
    if parameters := operation.get("parameters"):
        out += ["| parameter | in | type | meaning |", "|---|---|---|---|"]
        for one in (resolve(api, parameter) for parameter in parameters):
            name = f"`{one['name']}`" + ("" if one.get("required") else " (optional)")
            out.append(f"| {name} | {one['in']} | {cell(kind(api, one['schema']))} | {cell(one.get('description', ''))} |")
        out.append("")
    body = operation.get("requestBody")
    if body:
        for media, content in resolve(api, body)["content"].items():
            out += [f"Body (`{media}`{'' if body.get('required') else ', optional'}):", "", *schema_lines(api, content.get("schema", {}))]
    # Errors are explained once, on the page about errors.
    errors = [status for status in operation["responses"] if status[0] in "45"]
    for status, response in operation["responses"].items():
        if status == "default" or status in errors:
            continue
        response = resolve(api, response)
        out += [f"**{status}**: {sentence(response['description'])}", ""]
        for content in response.get("content", {}).values():
            out += schema_lines(api, content.get("schema", {}))
            out += example(content)
    if errors:
        out += [f"Errors: {', '.join(errors)}.", ""]
    return out


def curl(api, method, path, operation):
    """The request as a command. A WebSocket has none: curl cannot hold a conversation."""
    if "101" in operation["responses"]:
        return []
    parameters = [resolve(api, parameter) for parameter in operation.get("parameters", [])]
    for one in parameters:
        if one["in"] == "path":
            path = path.replace(f"{{{one['name']}}}", urllib.parse.quote(str(sample(one)), safe=""))
    query = [(one["name"], sample(one)) for one in parameters if one["in"] == "query" and one.get("required")]
    address = URL + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
    streams = {"text/event-stream", "application/x-ndjson"} & operation["responses"].get("200", {}).get("content", {}).keys()
    words = ["curl", *(["-N"] if streams else [])]
    lines = []
    if method not in ("GET", "POST"):
        words.append(f"-X {method}")
    kinds = {name for entry in operation.get("security", []) for name in entry}
    if kinds:
        lines.append('-H "Authorization: Bearer ' + ("$token" if "token" in kinds else "$key") + '"')
    body = resolve(api, operation.get("requestBody", {}))
    for media, content in body.get("content", {}).items():
        given = sample(content | {"schema": resolve(api, content["schema"])})
        if media == "application/json":
            lines.append(f"-d {shlex.quote(json.dumps(given, ensure_ascii=False))}")
        else:
            lines += [f"--data-urlencode {shlex.quote(f'{name}={value}')}" for name, value in given.items()]
    if method == "POST" and not body:
        words.append("-X POST")
    return ["```sh", " \\\n  ".join([" ".join([*words, address]), *lines]), "```", ""]


def sample(of):
    """The example of a parameter or a body, or else that of its schema."""
    if "example" in of:
        return of["example"]
    if of.get("examples"):
        return next(iter(of["examples"].values()))["value"]
    return of["schema"]["example"]


def example(content):
    found = content.get("example")
    if found is None and content.get("examples"):
        found = next(iter(content["examples"].values())).get("value")
    if isinstance(found, str):
        return ["```text", found.rstrip("\n"), "```", ""]
    return [] if found is None else ["```json", json.dumps(found, indent=2, ensure_ascii=False), "```", ""]


def schema_lines(api, schema):
    """The members of an object, or of the objects of a list, as a table."""
    schema = resolve(api, schema)
    out = [sentence(schema["description"]), ""] if schema.get("description") else []
    members = object_members(api, schema)
    if not members:
        return out
    required = set(schema.get("required", []))
    out += ["| member | type | meaning |", "|---|---|---|"]
    for name, of in members.items():
        of_resolved = resolve(api, of)
        meaning = of_resolved.get("description", "")
        if "default" in of_resolved:
            meaning = f"{sentence(meaning)} Default: `{json.dumps(of_resolved['default'])}`".strip()
        mark = "" if name in required else " (optional)"
        out.append(f"| `{name}`{mark} | {cell(kind(api, of))} | {cell(meaning)} |")
    return [*out, ""]


def object_members(api, schema):
    schema = resolve(api, schema)
    found = dict(schema.get("properties", {}))
    for part in schema.get("allOf", []):
        found = object_members(api, part) | found
    return found


def kind(api, schema):
    """A type for people."""
    schema = resolve(api, schema)
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return "one of " + ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"] if value is not None)
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(kind(api, one) for one in schema[several]))
    types = schema.get("type", "any")
    types = [types] if isinstance(types, str) else [one for one in types if one != "null"]
    names = []
    for name in types:
        if name == "array":
            names.append(f"list of {kind(api, schema.get('items', {}))}")
        elif name in ("integer", "number"):
            low, high = schema.get("minimum"), schema.get("maximum")
            # The largest value of its type is no bound for people.
            high = None if high is None or high >= 2**53 else high
            bounds = f", {low} to {high}" if None not in (low, high) else f", {low} or more" if low is not None else ""
            names.append(name + bounds)
        elif name == "string" and schema.get("maxLength"):
            names.append(f"text of at most {schema['maxLength']} characters")
        else:
            names.append({"string": "text", "boolean": "true or false", "any": "any JSON"}.get(name, name))
    return " or ".join(names)


def resolve(api, value):
    while isinstance(value, dict) and "$ref" in value:
        place = api
        for step in value["$ref"].removeprefix("#/").split("/"):
            place = place[step]
        value = place
    return value


# Text

def slug(text):
    """As GitHub names headings."""
    return "".join(letter for letter in text.lower() if letter.isalnum() or letter in " -_").replace(" ", "-")


def cell(text):
    return " ".join(text.split()).replace("|", "\\|")


def sentence(text):
    text = " ".join(text.split())
    return text if not text or text[-1] in ".:!?" else text + "."
