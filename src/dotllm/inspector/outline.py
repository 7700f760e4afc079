"""The outline of a specification: a tree of its parts, for people who look for a place in it.

A node is a JSON object: ``label``, ``summary``, ``pointer`` (into the specification, for the editor) or ``line``,
``path`` (into documents: a JSON Pointer with ``*`` for any item or key) and ``children``.
"""

from __future__ import annotations

import json
import re
from typing import Any

from dotllm.compilation import Kind, Specification
from dotllm.errors import escaped

MOST_NODES = 500
_RULE = re.compile(r"^\s*(?:\?|!)?([A-Za-z_][\w-]*)(?:\.\d+)?\s*(?:::=|:)\s*(.*)$")
_SAID = ("type", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_SIZES = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "uniqueItems")
_BRANCHES = {"allOf": "all of", "anyOf": "any of", "oneOf": "one of", "prefixItems": "item"}
_TAG_PARTS = ("format", "structures", "tags", "elements", "content", "schema", "json_schema")
Node = dict[str, Any]


def outline(specification: Specification) -> list[Node]:
    """The top nodes; none if the specification cannot be read (its error says why). The page shows the outline of a
    refused specification, too, so any part may be of the wrong type."""
    if specification.kind is Kind.GRAMMAR:
        return _rules(specification.text)
    if specification.kind in (Kind.REGEX, Kind.JSON_OBJECT):
        return []
    try:
        value = json.loads(specification.text)
    except (ValueError, RecursionError):
        return []
    if specification.kind is Kind.CHOICE:
        texts = value[:MOST_NODES] if isinstance(value, list) else []
        return [_node(json.dumps(text), "", f"/{i}", "") for i, text in enumerate(texts)]
    tree = _Tree(value)
    return [
        tree.tag(value, "") if specification.kind is Kind.STRUCTURAL_TAG else tree.schema("document", value, "", "")
    ]


def _node(label: str, summary: str, pointer: str, path: str, children: list[Node] | None = None) -> Node:
    return {"label": label, "summary": summary, "pointer": pointer, "path": path, "children": children or []}


def _rules(text: str) -> list[Node]:
    rules: list[Node] = []
    for number, line in enumerate(text.split("\n"), 1):
        rule = _RULE.match(line)
        if rule and len(rules) < MOST_NODES:
            rules.append({"label": rule[1], "summary": rule[2][:80], "line": number, "children": []})
    return rules


class _Tree:
    """The nodes of a JSON document, at most `MOST_NODES`. A reference is followed, except inside its own target."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.nodes = 0

    def schema(self, label: str, schema: Any, pointer: str, path: str, inside: tuple[str, ...] = ()) -> Node:
        """The node of the JSON Schema at ``pointer``, for values at ``path``; ``inside``: references on the way."""
        self.nodes += 1
        if not isinstance(schema, dict) or self.nodes > MOST_NODES:
            said = "anything" if schema is True else "nothing" if schema is False else "?"
            return _node(label, "" if isinstance(schema, dict) else said, pointer, path)
        children: list[Node] = []
        reference = schema.get("$ref")
        if isinstance(reference, str) and re.match("#(/|$)", reference) and reference not in inside:
            target = self._at(reference[1:])
            children = self.schema(label, target, reference[1:], path, (*inside, reference))["children"]
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        for name, child in _members(schema, "properties"):
            mark = name if name in required else f"{name}?"
            children.append(
                self.schema(mark, child, f"{pointer}/properties/{escaped(name)}", f"{path}/{escaped(name)}", inside)
            )
        for name, child in _members(schema, "patternProperties"):
            children.append(
                self.schema(f"/{name}/", child, f"{pointer}/patternProperties/{escaped(name)}", f"{path}/*", inside)
            )
        for keyword, said in (("items", "items"), ("additionalProperties", "other keys")):
            if isinstance(schema.get(keyword), dict):
                children.append(self.schema(said, schema[keyword], f"{pointer}/{keyword}", f"{path}/*", inside))
        for keyword, said in _BRANCHES.items():
            branches = schema.get(keyword)
            for i, child in enumerate(branches if isinstance(branches, list) else ()):
                place = f"{path}/{i}" if keyword == "prefixItems" else path
                children.append(self.schema(f"{said} {i + 1}", child, f"{pointer}/{keyword}/{i}", place, inside))
        return _node(label, _summary(schema), pointer, path, children)

    def tag(self, value: Any, pointer: str) -> Node:
        """The node of a part of a structural tag: its ``begin`` and its content."""
        self.nodes += 1
        if not isinstance(value, dict) or self.nodes > MOST_NODES:
            return _node("?", "", pointer, "")
        children = []
        for name in (name for name in _TAG_PARTS if name in value):
            inner, place = value[name], f"{pointer}/{name}"
            if name in ("schema", "json_schema"):
                children.append(self.schema("schema", inner, place, ""))
            elif isinstance(inner, list):
                children += [self.tag(part, f"{place}/{i}") for i, part in enumerate(inner)]
            else:
                children.append(self.tag(inner, place))
        begin = json.dumps(value["begin"]) if isinstance(value.get("begin"), str) else ""
        return _node(str(value.get("type", "tag")), begin, pointer, "", children)

    def _at(self, path: str) -> Any:
        value = self.root
        for token in path.split("/")[1:]:
            token = token.replace("~1", "/").replace("~0", "~")
            try:
                value = value[int(token)] if isinstance(value, list) else value[token]
            except (KeyError, ValueError, IndexError, TypeError):
                return True  # the compiler refuses it
        return value


def _members(schema: dict[str, Any], keyword: str) -> list[tuple[str, Any]]:
    value = schema.get(keyword)
    return list(value.items()) if isinstance(value, dict) else []


def _summary(schema: dict[str, Any]) -> str:
    """The schema's demands on a value, in one line."""
    parts = [str(schema["$ref"])] if "$ref" in schema else []
    for keyword in ("const", "enum"):
        if keyword in schema:
            text = json.dumps(schema[keyword], ensure_ascii=False)
            parts.append(f"{keyword} {text if len(text) < 60 else text[:57] + '…'}")
    said = schema.get("type")
    parts += [" or ".join(map(str, said)) if isinstance(said, list) else str(said)] if said else []
    parts += [f"{keyword} {schema[keyword]}" for keyword in (*_SAID[1:], *_SIZES) if keyword in schema]
    parts += ["no other keys"] if schema.get("additionalProperties") is False else []
    return ", ".join(parts)


# Finds the place of a position in a JSON text: its JSON Pointer, and the meaning of what follows. Reads JSON piece by
# piece.


_WHITE_SPACE = " \t\r\n"
_MEANINGS = {
    "before a value": {
        "{": "an object", "[": "an array", '"': "a string", "-": "a number", "t": "true", "f": "false", "n": "null",
        "]": "the end of the array", **dict.fromkeys("0123456789", "a number"),
    },
    "before a key": {'"': "a key", "}": "the end of the object"},
    "after a key": {":": "the key's value"},
    "in a key": {'"': "the end of the key", "\\": "an escaped character"},
    "in a string": {'"': "the end of the string", "\\": "an escaped character"},
    "after a value": {",": "then the next one", "}": "the end of the object", "]": "the end of the array"},
}  # fmt: skip
_MEANINGS["in a word"] = _MEANINGS["after a value"]  # true, false, null
_MEANINGS["in a number"] = {**_MEANINGS["in a word"], ".": "a fraction", "e": "an exponent"}
_CLOSING = {"in a string": '"', "before a value": "null", "after a key": ":null", "in a key": '":null'}


class JsonPlace:
    """The place at the end of the text fed so far. If the text is not valid, the place is a guess."""

    def __init__(self) -> None:
        self.where = "before a value"
        """A key of `_MEANINGS`."""
        self._inside: list[str | int] = []  # per open object: the key (or ""); per open array: the item's number
        self._key = ""
        self._escapes = False

    @property
    def pointer(self) -> str:
        """The JSON Pointer (RFC 6901) of the value here; in or before a key, of the object."""
        inside = self._inside[:-1] if self.where in ("in a key", "before a key") else self._inside
        return "".join(f"/{escaped(str(token))}" for token in inside)

    def meaning(self, char: str) -> str:
        """What ``char`` would begin or end here, or ""."""
        return _MEANINGS[self.where].get(char, "")

    def feed(self, data: bytes) -> None:
        """Read ``data``."""
        for char in data.decode("latin-1"):  # JSON's own characters are ASCII
            if self.where in ("in a key", "in a string"):
                self._in_string(char)
            elif char in _WHITE_SPACE:
                self.where = "after a value" if self.where in ("in a number", "in a word") else self.where
            else:
                self._structure(char)

    @property
    def closing(self) -> str:
        """The shortest text that completes the fed text, if that is JSON so far."""
        innermost = _CLOSING.get(self.where, "")
        return innermost + "".join("]" if isinstance(token, int) else "}" for token in reversed(self._inside))

    def _in_string(self, char: str) -> None:
        if char == '"' and not self._escapes:
            if self.where == "in a key":
                self._inside[-1:] = [_unquoted(self._key)]
            self.where = "after a key" if self.where == "in a key" else "after a value"
            return
        self._key += char
        self._escapes = char == "\\" and not self._escapes

    def _structure(self, char: str) -> None:
        if char in "{[":
            self._inside.append("" if char == "{" else 0)
            self.where = "before a key" if char == "{" else "before a value"
        elif char in "}]":
            del self._inside[-1:]
            self.where = "after a value"
        elif char == ",":
            last = self._inside[-1] if self._inside else ""
            self._inside[-1:] = [last + 1 if isinstance(last, int) else ""]
            self.where = "before a value" if isinstance(last, int) else "before a key"
        elif char == ":":
            self.where = "before a value"
        elif char == '"':
            self.where, self._key = "in a key" if self.where == "before a key" else "in a string", ""
        elif self.where == "before a value":
            self.where = "in a number" if char in "-0123456789" else "in a word"


def _unquoted(latin: str) -> str:
    raw = latin.encode("latin-1").decode(errors="replace")
    try:
        return str(json.loads(f'"{raw}"'))
    except ValueError:
        return raw
