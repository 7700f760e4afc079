"""What the page receives: tokens and what each place allows, groups, samples, outlines, refusals with their places."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dotllm import Index, Vocabulary
from dotllm.compilation import Kind, Specification
from dotllm.inspector.continuations import continuations, label
from dotllm.inspector.inspector import MOST_TOKENS, BadQuestion, Inspector
from dotllm.inspector.outline import JsonPlace, Node, outline

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "mood": {"enum": ["sad", "happy"]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
SCHEMA = {"kind": "json_schema", "text": json.dumps(PERSON)}
SELECT = 'start: "SELECT" " "+ NAME\nNAME: /[a-z]+/'


def texts(answer: dict[str, Any]) -> list[str]:
    return [step["text"] for step in answer["steps"]]


def after(inspector: Inspector, document: str) -> dict[str, Any]:
    at = len(inspector.answer("walk", SCHEMA | {"document": document})["steps"]) - 1
    return inspector.answer("position", SCHEMA | {"document": document, "at": at})


def test_a_text_that_fits(inspector: Inspector) -> None:
    answer = inspector.answer("walk", SCHEMA | {"document": '{"name": "Bob","age":13}'})
    assert answer["bad"] is None and answer["steps"][-1]["end"]
    assert "".join(texts(answer)) == '{"name": "Bob","age":13}'
    by_text = {step["text"]: step for step in answer["steps"]}
    assert by_text["name"]["forced"] and not by_text["Bob"]["forced"]
    assert by_text["Bob"]["path"] == "/name" and by_text["13"]["path"] == "/age"


def test_the_token_that_does_not_fit_is_cut_where_it_ceases_to(inspector: Inspector) -> None:
    answer = inspector.answer("walk", SCHEMA | {"document": '{"name":"Bob","age":131,"mood":1}'})
    bad = answer["bad"]
    assert texts(answer)[bad - 1 : bad + 2] == ["13", "1", ","], "131 is one token of the vocabulary"
    assert "allowed" in answer["steps"][bad] and "allowed" not in answer["steps"][bad + 1]
    place = inspector.answer("position", SCHEMA | {"document": '{"name":"Bob","age":131}', "at": bad})
    assert {group["label"] for group in place["groups"]} == {"white space", ",", "0", "}"}
    assert (place["path"], place["where"], place["end"]) == ("/age", "in a number", False)


def test_tokens_may_be_given_by_id(inspector: Inspector, vocabulary: Vocabulary) -> None:
    ids = [*vocabulary.encode(b'{"name":"","age":1}'), vocabulary.eos_token_ids[0]]
    answer = inspector.answer("walk", SCHEMA | {"tokens": ids})
    assert answer["bad"] is None and answer["finished"] and answer["steps"][-2]["special"]


def test_groups_of_an_enum_and_of_a_string(inspector: Inspector) -> None:
    answer = after(inspector, '{"name":"Bob","age":1,"mood":"')
    assert {(group["label"], group["then"]) for group in answer["groups"]} == {("s", 'ad"'), ("h", 'appy"')}
    answer = after(inspector, '{"name":"')
    assert [group["label"] for group in answer["groups"]] == ['any character but " \\', '"', "\\"]
    assert [group["meaning"] for group in answer["groups"]] == ["", "the end of the string", "an escaped character"]


@given(st.text('{}[]",:19 aé.\n', max_size=12))
def test_groups_are_all_that_the_mask_allows(text: str) -> None:
    vocabulary = Vocabulary.from_bytes([*(bytes([b]) for b in range(256)), b"12", b'a"', None], eos_token_ids=258)
    index = Index.from_json_schema({"type": ["object", "array"], "uniqueItems": True, "maxItems": 4}, vocabulary)
    guide = index.guide()
    for token in text.encode():
        if not guide.advance(token):
            break
    groups = continuations(guide, JsonPlace().meaning)
    assert sum(group.tokens for group in groups) == len(list(guide.allowed_tokens()))
    assert len({group.label for group in groups}) == len(groups)


def test_labels() -> None:
    assert label("0123456789abcdef") == "0-9 a-f"
    assert label(" \n") == "white space" and label(" ") == "space" and label('"') == '"'
    assert label("é") == "characters such as é"


def test_samples_are_valid(inspector: Inspector) -> None:
    for seed in range(5):
        answer = inspector.answer("samples", SCHEMA | {"seed": seed})
        for sample in answer["texts"]:
            assert sample["whole"]
            jsonschema.validate(json.loads(sample["text"]), PERSON)
    assert inspector.answer("samples", SCHEMA) == inspector.answer("samples", SCHEMA | {"seed": 0})
    for sample in inspector.answer("samples", {"kind": "regex", "text": r"\d{3}-[a-z]+\n"})["texts"]:
        assert re.fullmatch(r"\d{3}-[a-z]+\n", sample["text"])


@pytest.mark.parametrize(
    "document", ['{"name":"Bob","age":131}', '{"name":"Bob","age":131', '{"name":"Bob","age":131,"mo']
)
def test_why_a_text_does_not_fit(inspector: Inspector, document: str) -> None:
    answer = inspector.answer("why", SCHEMA | {"document": document})
    assert [blame["pointer"] for blame in answer["blamed"]] == ["/properties/age/maximum"], answer
    assert answer["reason"] and answer["help"]


def test_why_not_of_a_text_too_deep_for_python(inspector: Inspector) -> None:
    schema = {"kind": "json_schema", "text": '{"type": "array", "items": {"$ref": "#"}}'}
    assert inspector.answer("why", schema | {"document": "[" * 2000 + "1" + "]" * 2000})["reason"]


def test_why_not_of_other_kinds(inspector: Inspector) -> None:
    assert inspector.answer("why", {"kind": "regex", "text": "a+", "document": "aab"})["allowed"]
    assert inspector.answer("why", {"kind": "regex", "text": "a+", "document": "aa"})["blamed"] == []


def test_options(inspector: Inspector) -> None:
    spaced = {"document": '{"name": "Bob","age":13}'}
    assert inspector.answer("walk", SCHEMA | spaced | {"options": {"any_whitespace": False}})["bad"] is not None
    turned = {"document": '{"age":13,"name":"Bob"}'}
    assert inspector.answer("walk", SCHEMA | turned)["bad"] is not None
    assert inspector.answer("walk", SCHEMA | turned | {"options": {"order": "any"}})["bad"] is None


@pytest.mark.parametrize(
    ("kind", "text", "place"),
    [
        ("json_schema", '{"properties": {"a": {"type": "strnig"}}}', {"pointer": "/properties/a/type"}),
        ("regex", "ab(c", {"offset": 2}),
        ("grammar", "start: greeting", {"line": 1, "column": 8}),
    ],
)
def test_refusals_have_their_place(inspector: Inspector, kind: str, text: str, place: dict[str, Any]) -> None:
    error = inspector.answer("walk", {"kind": kind, "text": text})["error"]
    assert error["message"] and error["code"]
    assert {name: error[name] for name in place} == place


def test_a_refusal_has_its_related_places(inspector: Inspector) -> None:
    text = '{"properties": {"a": {"type": "integer", "minimum": 5, "maximum": 3}}, "required": ["a"], "type": "object"}'
    error = inspector.answer("walk", {"text": text})["error"]
    assert error["code"] == "unsatisfiable"
    assert {error["pointer"], *(other["pointer"] for other in error["related"])} == {
        "/properties/a/minimum",
        "/properties/a/maximum",
    }


def test_what_is_no_question(inspector: Inspector) -> None:
    for question, body in (
        ("nothing", {}),
        ("walk", []),
        ("walk", {"kind": "poem", "text": ""}),
        ("walk", SCHEMA | {"document": 3}),
        ("walk", SCHEMA | {"tokens": [10**9]}),
        ("position", SCHEMA | {"at": 99}),
        ("position", SCHEMA | {"at": "1"}),
    ):
        with pytest.raises(BadQuestion):
            inspector.answer(question, body)


def test_a_long_text_is_followed_to_a_limit(inspector: Inspector) -> None:
    assert (
        len(inspector.answer("walk", {"kind": "regex", "text": "x*", "document": "x" * 9999})["steps"])
        == MOST_TOKENS + 1
    )


def test_outlines(inspector: Inspector) -> None:
    root = {
        "properties": {"a/b": {"$ref": "#/$defs/n"}},
        "required": ["a/b"],
        "$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}}},
    }
    (tree,) = inspector.answer("walk", {"text": json.dumps(root)})["outline"]
    (first,) = tree["children"]
    assert (first["label"], first["pointer"], first["path"]) == ("a/b", "/properties/a~1b", "/a~1b")
    (second,) = first["children"]
    assert (second["label"], second["pointer"], second["path"]) == ("next?", "/$defs/n/properties/next", "/a~1b/next")
    assert second["children"] == [], "a reference is not followed inside itself"
    rules = inspector.answer("walk", {"kind": "grammar", "text": SELECT})["outline"]
    assert [(rule["label"], rule["line"]) for rule in rules] == [("start", 1), ("NAME", 2)]
    branches = {"anyOf": [{"prefixItems": [{"type": ["null", "integer"]}, {"items": {"const": 1}}]}, False]}
    assert shape(inspector.answer("walk", {"text": json.dumps(branches)})["outline"]) == [
        ("document", "", [
            ("any of 1", "", [("item 1", "null or integer", []), ("item 2", "", [("items", "const 1", [])])]),
            ("any of 2", "nothing", []),
        ])
    ]  # fmt: skip
    choice = inspector.answer("walk", {"kind": "choice", "text": '["yes", "no"]'})["outline"]
    assert [(node["label"], node["pointer"]) for node in choice] == [('"yes"', "/0"), ('"no"', "/1")]
    content = {"type": "json_schema", "json_schema": {"properties": {"x": {"type": "integer"}}}}
    tag = {"type": "triggered_tags", "triggers": ["<a"], "tags": [{"begin": "<a>", "content": content, "end": "</a>"}]}
    text = json.dumps({"type": "structural_tag", "format": tag})
    schema = ("schema", "", [("x?", "integer", [])])
    assert shape(inspector.answer("walk", {"kind": "structural_tag", "text": text})["outline"]) == [
        ("structural_tag", "", [("triggered_tags", "", [("tag", '"<a>"', [("json_schema", "", [schema])])])])
    ]


def shape(nodes: list[Node]) -> list[Any]:
    """(label, summary, children) of each node."""
    return [(node["label"], node["summary"], shape(node["children"])) for node in nodes]


def pointers(nodes: list[Node]) -> Iterator[str]:
    for node in nodes:
        yield node["pointer"]
        yield from pointers(node["children"])


_KEYWORDS = ("properties", "patternProperties", "required", "items", "anyOf", "prefixItems", "type", "enum", "$ref")
_TAG_KEYWORDS = ("format", "structures", "tags", "content", "schema", "begin", "type")


@pytest.mark.parametrize(
    ("kind", "names"), [(Kind.JSON_SCHEMA, _KEYWORDS), (Kind.STRUCTURAL_TAG, _TAG_KEYWORDS), (Kind.CHOICE, ("a",))]
)
@given(data=st.data())
def test_a_document_that_is_refused_has_an_outline(kind: Kind, names: tuple[str, ...], data: st.DataObject) -> None:
    """A value of the wrong type ended the request with a traceback, and the page showed no error of the document."""
    inner = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.sampled_from(("a", "#", "#a", "#/items", "#/anyOf/0", "#/type/x"))
    )
    document = data.draw(
        st.recursive(inner, lambda part: st.lists(part) | st.dictionaries(st.sampled_from((*names, "a")), part))
    )
    for pointer in pointers(outline(Specification(kind, json.dumps(document)))):
        value = document
        for token in pointer.split("/")[1:]:
            value = value[int(token)] if isinstance(value, list) else value[token]


def test_a_document_that_is_refused_has_an_error(inspector: Inspector) -> None:
    for text in ('{"properties": {"a": []}}', '{"properties": {"a": {}}, "required": true}'):
        assert inspector.answer("walk", {"text": text})["error"]["pointer"]


def values(value: Any, pointer: str, write: list[str]) -> list[tuple[int, str]]:
    """(Offset, pointer) of each value of the document that it writes."""
    found = [(sum(map(len, write)), pointer)]
    if isinstance(value, dict):
        for number, (key, child) in enumerate(value.items()):
            write.append(f"{', ' if number else '{ '}{json.dumps(key)} : ")
            found += values(child, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}", write)
        write.append(" }" if value else "{ }")
    elif isinstance(value, list):
        for number, child in enumerate(value):
            write.append(" , " if number else "[")
            found += values(child, f"{pointer}/{number}", write)
        write.append("]" if value else "[]")
    else:
        write.append(json.dumps(value))
    return found


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_the_place_in_json(value: Any) -> None:
    written: list[str] = []
    found = values(value, "", written)
    text = "".join(written)
    assert json.loads(text) == value
    for offset, pointer in found:
        place = JsonPlace()
        place.feed(text[:offset].encode())
        assert (place.pointer, place.where) == (pointer, "before a value")
        assert json.loads(text[:offset] + place.closing) is None or pointer
        place.feed(text[offset : offset + 1].encode())
        assert place.where in ("before a key", "before a value", "in a string", "in a number", "in a word")
