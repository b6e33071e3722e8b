"""The TypeScript types of the server API, from the OpenAPI document: `clients/js/rest.d.ts`, which types `Backend.request`.

Used by `scripts/reference`. Must hold: every operation whose success is JSON is in it, and a schema that this does not know is an error.
"""
import json
import re

METHODS = ("get", "post", "put", "patch", "delete")
JSON = "application/json"
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
HEAD = """// Written by `make reference` from crates/server/assets/openapi.json. Do not edit.

/** The requests of the server API: what each takes, and what it answers. */
export interface Operations {
"""


def module(api):
    operations = [
        line
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
        for line in one_operation(f"{method.upper()} {path}", operation)
    ]
    schemas = [f"{comment(schema).strip()}\nexport type {name} = {typed(schema)};\n" for name, schema in api["components"]["schemas"].items()]
    return HEAD + "".join(operations) + "}\n\n" + "\n".join(schemas)


def one_operation(name, operation):
    answers = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
    contents = [answer.get("content", {}) for answer in answers]
    if not answers or any(set(content) - {JSON} for content in contents):
        # A stream, a WebSocket, a page of text.
        return
    body = operation.get("requestBody", {"content": {}})
    if set(body["content"]) - {JSON}:
        return
    members = []
    for place, given in (("params", "path"), ("query", "query")):
        found = [one for one in operation.get("parameters", []) if one["in"] == given]
        if found:
            needed = any(one.get("required") for one in found)
            listed = "; ".join(f"{comment(one)}{key(one['name'])}{'' if one.get('required') else '?'}: {typed(one['schema'])}" for one in found)
            members.append(f"{place}{'' if needed else '?'}: {{ {listed} }}")
    if body["content"]:
        members.append(f"body{'' if body.get('required') else '?'}: {typed(body['content'][JSON]['schema'])}")
    # The schema of success is written twice where two statuses mean it: created, and replaced.
    replies = dict.fromkeys(typed(content[JSON]["schema"]) if content else "void" for content in contents)
    yield f"  {comment({'description': operation['summary']}).strip()}\n  '{name}': {{ {'; '.join([*members, f'reply: {union(replies)}'])} }};\n"


def typed(schema):
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[1]
    if "const" in schema:
        return literal(schema["const"])
    if "enum" in schema:
        return union(map(literal, schema["enum"]))
    for name, join in (("oneOf", " | "), ("anyOf", " | "), ("allOf", " & ")):
        if name in schema:
            return join.join(f"({part})" if " " in part and not part.startswith("{") else part for part in map(typed, schema[name]))
    kinds = schema.get("type", [])
    return union(one_kind(schema, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)) or "unknown"


def one_kind(schema, kind):
    if kind == "array":
        inner = typed(schema.get("items", {}))
        return f"({inner})[]" if " | " in inner and not inner.startswith("{") else f"{inner}[]"
    if kind != "object":
        return PLAIN[kind]
    rest = schema.get("additionalProperties")
    if "properties" not in schema:
        return f"Record<string, {typed(rest) if isinstance(rest, dict) else 'unknown'}>"
    needed = schema.get("required", [])
    members = [f"{comment(one)}{key(name)}{'' if name in needed else '?'}: {typed(one)}" for name, one in schema["properties"].items()]
    return f"{{ {'; '.join(members)} }}" if members else "Record<string, never>"


def union(types):
    return " | ".join(dict.fromkeys(types))


def literal(value):
    return "null" if value is None else f"'{value}'" if isinstance(value, str) else json.dumps(value)


def key(name):
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"'{name}'"


def comment(described):
    text = " ".join(described.get("description", "").replace("*/", "* /").split())
    return f"/** {text} */ " if text else ""
