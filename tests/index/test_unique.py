"""Arrays without equal items whose values no automaton could list: guides remember the items."""

from __future__ import annotations

import gc
import inspect
import json
import re
import sys
import threading
import tracemalloc
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dotllm import Guide, Index, SpecError, Vocabulary
from dotllm.errors import BudgetExceededError, InvalidSpecError, UnsupportedError
from dotllm.index.batch import advance_guides, mask_rows
from dotllm.index.draft_rows import NO_MASK, mask_rows_along
from dotllm.index.unique import guide as remembering
from dotllm.index.unique import plans
from dotllm.index.unique.paths import first_of, listed
from dotllm.index.unique.values import (
    EMPTY,
    NOTHING,
    Container,
    Seen,
    array,
    entries,
    find,
    inserted,
    number_may_equal,
    object_of,
)
from dotllm.index.unique.values import number as number_of
from dotllm.languages.json_schema.arrays import unique
from tests.cases import EVERY, few
from tests.languages.json_schema.verdicts import byte_vocabulary

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "corpus" / "unique_items.json").read_text())
WORDS = [
    b'{"', b'":', b'",', b'","', b'"a"', b'a",', b'","a', b'","a"', b"1,1", b"1,", b",1", b'["a"', b'["a","a"]', b'["a","b"]',
    b'", "', b"\n  ", b' "', b"ab", b'b"]', b"00", b"true,", b"null,true", b'{"a"', b":1}", b'},{"', b"],[", b"[[", b"]]",
    b'":1},{"a":1}', b',"b":', b"\\u00", b'61"', b".0",
]  # fmt: skip
EOS = 256 + len(WORDS)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    """Every byte, and tokens that contain ends of items or whole items."""
    return Vocabulary.from_bytes([*(bytes([i]) for i in range(256)), *WORDS, None], eos_token_ids=[EOS])


def taken(guide: Guide, text: str) -> bool:
    """Whether a guide takes a text byte by byte; checks that it takes a byte if and only if the mask allows it."""
    for byte in text.encode():
        allowed = byte in set(guide.allowed_tokens())
        assert guide.advance(byte) == allowed
        if not allowed:
            return False
    return True


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["what"])
def test_texts(case: dict[str, Any], vocabulary: Vocabulary) -> None:
    index = Index.from_json_schema(case["schema"], vocabulary)
    assert index.unique_nodes
    for text in case["valid"]:
        guide = index.guide()
        assert taken(guide, text) and guide.can_finish, text
    for text in case["invalid"]:
        guide = index.guide()
        assert not (taken(guide, text) and guide.can_finish), text
        assert not guide.can_finish or not text.endswith("]")


@pytest.mark.parametrize(
    "code", [0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x103FF, 0x1F400, 0x10FFFF]
)
def test_every_way_to_write_a_character_is_that_character(code: int, vocabulary: Vocabulary) -> None:
    """Code points at the limits of one, two, three and four bytes, and of one escape and two."""
    index = Index.from_json_schema({"items": {"type": "string"}, "uniqueItems": True}, vocabulary)
    ways = [f'"{chr(code)}"', json.dumps(chr(code)), json.dumps(chr(code)).upper().replace("\\U", "\\u")]
    for one in ways:
        for other in ways:
            assert json.loads(one) == json.loads(other)
            assert not taken(index.guide(), f"[{one},{other}]")
        guide = index.guide()
        assert taken(guide, f'[{one},"x"]') and guide.can_finish
    for half in ("\\ud800", "\\udbff", "\\udc00", "\\udfff"):
        assert not taken(index.guide(), f'["{half}"') and not taken(index.guide(), f'["{half}x')


# -- against the automaton, where there is one -----------------------------------------------------------------------


def random_item(random: Random, depth: int = 0) -> dict[str, Any]:
    """A schema with few values."""
    match random.randrange(8 if depth < 2 else 4):
        case 0:
            some = [0, 1, 2, "a", "b", "ab", True, None, [], [1], {"a": 1}, {"a": 1, "b": 1}]
            return {"enum": random.sample(some, random.randint(1, 4))}
        case 1:
            return {"enum": list(range(random.choice([2, 4, 12])))}
        case 2:
            return {
                "type": "string",
                "pattern": random.choice(["^(a|b|ab)$", "^[ab]{0,2}$", "^a{0,3}$", "^(a|ab|abb)$"]),
            }
        case 3:
            return {"type": ["boolean", "null"]}
        case 4:
            members = {"a": random_item(random, depth + 1), "b": random_item(random, depth + 1)}
            needed = random.choice([["a"], ["a", "b"], []])
            return {"type": "object", "properties": members, "required": needed, "additionalProperties": False}
        case 5:
            return {"anyOf": [random_item(random, depth + 1), random_item(random, depth + 1)]}
        case _:
            return {"type": "array", "items": random_item(random, depth + 1), "maxItems": random.randint(1, 2)}


def random_array(random: Random) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", "items": random_item(random), "uniqueItems": True}
    if random.random() < 0.5:
        schema["minItems"] = random.randint(1, 3)
    if random.random() < 0.5:
        schema["maxItems"] = random.randint(2, 4)
    if random.random() < 0.2:
        schema["prefixItems"] = [random_item(random)]
    return schema


@pytest.mark.parametrize("block", range(few(4)))
def test_masks_are_those_of_the_automaton(block: int, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few values can be listed by an automaton or remembered by guides: token by token, the masks are equal."""
    compared = 0
    for number in range(25):
        random = Random(f"unique/{block}/{number}")
        schema = random_array(random)
        try:
            monkeypatch.setattr(unique, "MAX_VALUES", 1000)
            listing = Index.from_json_schema(schema, vocabulary, any_whitespace=False)
            monkeypatch.setattr(unique, "MAX_VALUES", 0)
            remembering = Index.from_json_schema(schema, vocabulary, any_whitespace=False)
        except SpecError:
            continue
        if listing.unique_nodes:
            continue
        compared += 1
        for _ in range(2):
            one, other = listing.guide(), remembering.guide()
            for _ in range(40):
                allowed = list(one.allowed_tokens())
                assert allowed == other.allowed_tokens(), schema
                assert one.can_finish == other.can_finish
                token = random.choice(allowed)
                some = random.randrange(EOS)
                assert other.fork().advance(some) == (some in allowed)
                assert one.advance(token) and other.advance(token)
                if one.is_finished:
                    break
                if random.random() < 0.1:
                    back = random.randint(0, min(3, one.tokens_taken))
                    one.rollback(back)
                    other.rollback(back)
    assert compared > 10


# -- against a validator ---------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.sampled_from(["", "a", "b", "ab", 0, 1, 1.0, -1, 10, True, False, None, [], {}]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=4,
)


def test_outside_of_arrays_only_their_beginnings_are_looked_at(vocabulary: Vocabulary) -> None:
    """Masks there find hardly more configurations than those of a schema without the condition."""
    found = []
    for condition in (True, False):
        schema = {"properties": {"note": {"type": "string"}, "tags": {"uniqueItems": condition}}}
        index = Index.from_json_schema(schema, vocabulary)
        assert taken(index.guide(), '{"note": "it is [1, 2], here", "tags": ')
        found.append(index.configurations)
    assert found[0] < 2 * found[1]


@settings(max_examples=few(200))
@given(st.lists(VALUES, max_size=5), st.booleans(), st.booleans())
def test_verdicts(items: list[Any], compact: bool, ascii_only: bool) -> None:
    schema = {"type": "array", "uniqueItems": True}
    index = anything()
    text = json.dumps(items, ensure_ascii=ascii_only, separators=(",", ":") if compact else None)
    guide = index.guide()
    accepted = all(guide.advance(byte) for byte in text.encode()) and guide.can_finish
    assert accepted == Draft202012Validator(schema).is_valid(items)


_indexes: list[Index] = []


def anything() -> Index:
    if not _indexes:
        bytes_only = Vocabulary.from_bytes([*(bytes([i]) for i in range(256)), None], eos_token_ids=[256])
        _indexes.append(Index.from_json_schema({"type": "array", "uniqueItems": True}, bytes_only))
    return _indexes[0]


WALKED = [
    {"type": "array", "items": {"type": "string", "pattern": "^[ab]{0,2}$|^cc*$"}, "uniqueItems": True, "minItems": 4},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1500}, "uniqueItems": True, "maxItems": 30},
    {
        "type": "array",
        "items": {"properties": {"a": {"type": "boolean"}, "b": {"type": "string", "maxLength": 1}}, "type": "object"},
        "uniqueItems": True,
        "maxItems": 12,
    },
    {
        "type": "array",
        "items": {"type": "array", "items": {"pattern": "^a*$", "type": "string"}, "uniqueItems": True, "maxItems": 2},
        "uniqueItems": True,
    },
    # Few values at each depth, but any number of arrays and objects of them; these schemas were once refused.
    {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}, "uniqueItems": True, "minItems": 6},
    {
        "type": "array",
        "items": {"type": ["boolean", "array"], "items": {"type": "boolean"}, "uniqueItems": True, "maxItems": 1},
        "uniqueItems": True,
        "minItems": 5,
    },
    {
        "type": "array",
        "items": {
            "type": ["null", "boolean", "object"],
            "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}},
            "maxProperties": 1,
            "required": ["a"],
        },
        "uniqueItems": True,
        "minItems": 5,
    },
]


def walked(index: Index, seed: int) -> str:
    """A whole text. The walk is uniform over the masks, with a preference for tokens that end items."""
    random, guide, text = Random(seed), index.guide(), b""
    ends = b'"]},'
    for step in range(1500):
        allowed = list(guide.allowed_tokens())
        assert allowed, text
        liked = [t for t in allowed if t == EOS or (t < 256 and t in (ends[:3] if step > 150 else ends))]
        token = random.choice(liked if liked and random.random() < 0.6 else allowed)
        assert guide.advance(token), text
        if guide.is_finished:
            break
        text += index.vocabulary.token_bytes(token) or b""
    assert guide.is_finished, text
    return text.decode()


@pytest.mark.parametrize("number", range(len(WALKED)))
def test_walks_end_and_are_valid(number: int, vocabulary: Vocabulary) -> None:
    schema = WALKED[number]
    index = Index.from_json_schema(schema, vocabulary, any_whitespace=False)
    judge = Draft202012Validator(schema)
    for seed in range(few(12)):
        text = walked(index, seed)
        assert judge.is_valid(json.loads(text)), text


# -- strings that must not contain certain texts ---------------------------------------------------------------------


def excluding(items: Any, minimum: int, *excludes: str) -> dict[str, Any]:
    schema = {"type": "array", "items": items, "uniqueItems": True, "minItems": minimum}
    return {"format": {"type": "json_schema", "json_schema": schema, "excludes": [*excludes]}}


SHORT = {"type": "string", "pattern": "^[ab<]{0,2}$"}  # 13 strings, 10 of them without "<a" and "<<"


@pytest.mark.parametrize(
    ("items", "minimum", "excludes"),
    [
        ({"type": "integer"}, 6, ["1", "<"]),
        ({"type": "string"}, 4, ["</tool_call>", "<tool_call>"]),
        ({"type": "string"}, 4, ["a", "u006"]),
        (SHORT, 10, ["<a", "<<", "b<"]),
        ({"anyOf": [SHORT, {"type": "number", "minimum": 0}]}, 14, ["<", "b"]),
        ({"type": "array", "items": SHORT, "maxItems": 1}, 11, ["<a", "<<", "b<"]),
        ({"type": "object", "properties": {"a": SHORT, "b": SHORT}, "additionalProperties": False}, 11, ["<a", "<<", "b<", 'b"']),
        ({"type": "object", "properties": {"a": SHORT, "b": SHORT}, "additionalProperties": False}, 6, ["<a", "<<", "b"]),
    ],
)  # fmt: skip
def test_items_without_excluded_texts(items: Any, minimum: int, excludes: list[str], vocabulary: Vocabulary) -> None:
    """A strict tool's strings do not contain its parser's marks. Such arrays with ``minItems`` were once refused."""
    tag = excluding(items, minimum, *excludes)
    index = Index.from_structural_tag(json.dumps(tag), vocabulary, any_whitespace=False)
    judge = Draft202012Validator(tag["format"]["json_schema"])
    for seed in range(few(12)):
        text = walked(index, seed)
        assert judge.is_valid(json.loads(text)), text
        for written in re.findall(r'"((?:[^"\\]|\\.)*)"', text):
            assert not any(excluded in written for excluded in excludes), text


@pytest.mark.parametrize(
    ("items", "minimum", "excludes"),
    [
        (SHORT, 11, ["<a", "<<", "b<"]),
        (SHORT, 4, ["a", "b", "<"]),
        ({"type": "array", "items": SHORT, "maxItems": 1}, 12, ["<a", "<<", "b<"]),
        ({"type": "object", "properties": {"a": SHORT, "b": SHORT}, "additionalProperties": False}, 7, ["<a", "<<", "b"]),
        ({"type": "object", "properties": {"ab": SHORT}, "required": ["ab"]}, 2, ["a"]),
    ],
)  # fmt: skip
def test_too_few_items_without_excluded_texts(
    items: Any, minimum: int, excludes: list[str], vocabulary: Vocabulary
) -> None:
    with pytest.raises(SpecError) as refusal:
        Index.from_structural_tag(json.dumps(excluding(items, minimum, *excludes)), vocabulary)
    assert refusal.value.location is not None


# -- guides ----------------------------------------------------------------------------------------------------------

STRINGS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}


def at(index: Index, text: str) -> Guide:
    guide = index.guide()
    assert taken(guide, text)
    return guide


@pytest.mark.parametrize("schema", [STRINGS, {"type": "string"}], ids=["remembers", "does not"])
def test_an_ended_text_goes_nowhere(schema: dict[str, Any]) -> None:
    guide = at(Index.from_json_schema(schema, byte_vocabulary()), "[]" if schema is STRINGS else '""')
    assert guide.advance(256) and guide.is_finished
    assert not any(guide.advance(token) for token in (*b'[{" a', 256))
    for outside in (-1, 257, 10**12):
        assert not guide.advance(outside)
    assert guide.mask_within(1) is None and guide.is_finished
    assert guide.index.mask_within(guide.config, 1) is None


def test_going_back_and_forking(vocabulary: Vocabulary) -> None:
    index = Index.from_json_schema(STRINGS, vocabulary)
    guide = at(index, '["a","b","')
    before = list(guide.allowed_tokens())
    other = guide.fork()
    assert taken(other, 'c"')
    guide.rollback(4)
    assert taken(guide, 'c","a') and not guide.advance(ord('"'))
    other.rollback(2)
    assert list(other.allowed_tokens()) == before
    assert other.accepts([*b'b"']) == 1 and other.accepts([*b'c","b"']) == 5
    assert other.tokens_taken == len('["a","b","')
    other.reset()
    assert list(other.allowed_tokens()) == list(index.guide().allowed_tokens())
    assert other.tokens_taken == 0 and taken(other, '["b"]') and other.can_finish
    assert other.advance(EOS) and other.is_finished and list(other.allowed_tokens()) == [EOS]
    other.rollback(1)
    assert other.can_finish and not other.is_finished
    with pytest.raises(ValueError, match="cannot undo"):
        other.rollback(99)


def test_batches_hold_both_kinds(vocabulary: Vocabulary) -> None:
    plain = Index.from_json_schema({"type": "array", "items": {"type": "string"}}, vocabulary)
    index = Index.from_json_schema(STRINGS, vocabulary)
    guides = [at(plain, '["a","a'), at(index, '["a","a'), at(index, '["a","b'), at(plain, "[")]
    rows, failures = mask_rows(guides)
    assert not failures
    for guide, row in zip(guides, rows.tolist(), strict=True):
        assert (index.masks[row] == index.masks[guide.mask_row]).all()
    accepted, failures = advance_guides(guides, [ord('"')] * 4)
    assert accepted == [True, False, True, True] and not failures


def test_masks_along_drafts(vocabulary: Vocabulary) -> None:
    index = Index.from_json_schema(STRINGS, vocabulary)
    guide = at(index, '["a",')
    drafts = [*b'"a"']
    rows, _, failures = mask_rows_along([guide, index.guide()], [drafts, [ord("[")]])
    assert not failures
    assert (index.masks[rows[0]] == index.masks[guide.mask_row]).all()
    assert rows[2] != NO_MASK and not index.masks[rows[2]][0x22 >> 5] >> (0x22 & 31) & 1
    assert rows[3] == NO_MASK, "the quote would have made a second one"
    assert rows[5] != NO_MASK


def test_an_index_from_a_file_still_remembers(vocabulary: Vocabulary, tmp_path: Path) -> None:
    index = Index.from_json_schema(STRINGS, vocabulary)
    at(index, '["a"')
    index.save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index", vocabulary)
    assert not at(loaded, '["a","a').advance(ord('"'))
    assert not at(loaded.renewed(), '["a","a').advance(ord('"'))


def test_forced_text_is_as_ever(vocabulary: Vocabulary) -> None:
    """Text that the grammar forces is forced; where an array may be of two kinds, nothing is."""
    item = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    schema = {"type": "array", "items": item, "uniqueItems": True}
    index = Index.from_json_schema(schema, vocabulary, any_whitespace=False)
    assert at(index, '[{"name":"a"},{').forced_bytes() == b'"name":"'
    both = {"anyOf": [schema, {"type": "array", "items": item, "maxItems": 1}]}
    assert at(Index.from_json_schema(both, vocabulary, any_whitespace=False), "[{").forced_bytes() == b""


def test_several_ways_to_read_a_text_force_what_all_of_them_force(vocabulary: Vocabulary) -> None:
    """The first reading alone, whose array must not repeat items, once decided for all of them."""

    def alternative(unique: bool, kind: int) -> dict[str, Any]:
        properties = {
            "a": {"items": {"type": "string"}, "type": "array", "uniqueItems": unique},
            "k": {"const": kind},
        }
        return {"type": "object", "properties": properties, "required": ["a", "k"], "additionalProperties": False}

    schema = {"anyOf": [alternative(True, 1), alternative(False, 2)]}
    guide = Index.from_json_schema(schema, vocabulary, any_whitespace=False).guide()
    ambiguous = 0
    for byte in b'{"a":["x","y"],"k":':
        spelt = b"".join(vocabulary.token_bytes(token) or b"" for token in guide.forced_tokens())
        assert guide.forced_bytes().startswith(spelt)
        ambiguous += guide.is_ambiguous
        assert guide.advance(byte)
    assert ambiguous
    assert {ord("1"), ord("2")} <= set(guide.allowed_tokens())


def test_other_text_around(vocabulary: Vocabulary) -> None:
    """If a grammar surrounds the array with other text, only the array's items must differ."""
    grammar = f'start: "[a,a] " json " [1,1]"\njson: %json {json.dumps(STRINGS)}'
    index = Index.from_grammar(grammar, vocabulary)
    assert taken(index.guide(), '[a,a] ["a", "b"] [1,1]')
    assert not taken(index.guide(), '[a,a] ["a", "a"')


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        ({"uniqueItems": True, "contains": {"type": "string"}, "minContains": 2}, {}),
        ({"uniqueItems": True, "contains": {"type": "string"}, "maxContains": 2}, {}),
        ({"uniqueItems": True, "contains": {"type": "string"}, "prefixItems": [{"enum": [1, 2]}]}, {}),
        ({"uniqueItems": True, "not": {"prefixItems": [{}, {"type": "string"}], "maxItems": 3}}, {}),
        ({"not": {"uniqueItems": True}}, {}),
        ({"items": {"type": "array", "contains": {"const": 1}, "minItems": 1}, "uniqueItems": True, "minItems": 9}, {}),
    ],
)
def test_refused_by_name(schema: Any, options: dict[str, Any], vocabulary: Vocabulary) -> None:
    with pytest.raises(SpecError) as refusal:
        Index.from_json_schema(schema, vocabulary, **options)
    assert refusal.value.keyword == "uniqueItems"


VALUES_OF_FEW = ["a", "b", "ab", "c", True, None]


def test_what_the_refusal_of_a_not_names(vocabulary: Vocabulary) -> None:
    """This schema has no minContains that could be removed."""
    schema = {"items": {"enum": [1, 2]}, "not": {"uniqueItems": True}, "contains": {"const": 1}}
    with pytest.raises(UnsupportedError, match="a 'not' of uniqueItems cannot be combined with contains"):
        Index.from_json_schema({"type": "array", **schema}, vocabulary)


def random_conditions(random: Random) -> dict[str, Any]:
    """An array of few values without equal items, with `contains`, `not` or another alternative."""

    def few_values() -> dict[str, Any]:
        return {"enum": random.sample(VALUES_OF_FEW, random.randint(1, 4))}

    def other() -> dict[str, Any]:
        chosen = {"items": few_values(), "contains": few_values(), "minItems": random.randint(1, 3), "maxItems": 3}
        return {"type": "array", **{name: chosen[name] for name in chosen if random.random() < 0.5}}

    schema = {"type": "array", "uniqueItems": True, "items": few_values(), "minItems": random.randint(0, 2)}
    if random.random() < 0.3:
        schema["maxItems"] = random.randint(2, 4)
    conditions = [{"contains": few_values()}, {"contains": few_values()}, {"not": other()}]
    schema["allOf"] = random.sample(conditions, random.randint(1, 3))
    return {"oneOf": [schema, {**other(), "items": few_values()}]} if random.random() < 0.3 else schema


def all_texts(index: Index) -> set[bytes]:
    """All texts that tokens of one byte can write; every prefix leads to one."""
    texts, pending = set(), [(index.guide(), b"")]
    while pending:
        guide, text = pending.pop()
        tokens = list(guide.allowed_tokens())
        assert tokens, text
        for token in tokens:
            if token == byte_vocabulary().size - 1:
                texts.add(text)
            elif len(text) < 24:
                longer = guide.fork()
                assert longer.advance(token), text
                pending.append((longer, text + bytes([token])))
    return texts


@pytest.mark.parametrize("seed", range(few(160)))
def test_items_that_other_conditions_demand(seed: int) -> None:
    """The texts are exactly the valid ones, and none of their beginnings is a dead end."""
    schema = random_conditions(Random(seed))
    valid = Draft202012Validator(schema).is_valid
    arrays = [list(items) for length in range(4) for items in product(VALUES_OF_FEW, repeat=length)]
    expected = {json.dumps(items, separators=(",", ":")).encode() for items in arrays if valid(items)}
    try:
        index = Index.from_json_schema(schema, byte_vocabulary(), any_whitespace=False)
    except UnsupportedError:
        return
    except InvalidSpecError:
        assert not expected
        return
    assert {text for text in all_texts(index) if len(json.loads(text)) < 4} == expected


@pytest.mark.parametrize("blank", [b"\n  ", b"\n\n  ", b" \n"])
def test_white_space_that_ends_the_last_number(blank: bytes) -> None:
    """Of a member whose object could then only repeat an item: white space of several bytes is not allowed, either."""
    member = {"properties": {"a": {"type": "number"}}, "required": ["a"], "additionalProperties": False}
    schema = {"type": "array", "uniqueItems": True, "items": {"type": "object", **member}}
    words = Vocabulary.from_bytes([*(bytes([i]) for i in range(256)), b"\n ", blank, None], eos_token_ids=[258])
    index = Index.from_json_schema(schema, words, whitespace="any")
    for number, is_allowed in (("1.5", False), ("1.50", False), ("1.51", True)):
        guide = at(index, f'[{{"a":1.5}},{{"a":{number}')
        for token in (*b" \n", 256, 257):
            assert (token in guide.allowed_tokens()) == guide.fork().advance(token) == is_allowed


def test_zeros_make_no_other_number() -> None:
    """Zeros may follow ``1.`` without end, and every item with ``1`` is taken."""
    number = {"type": "number", "multipleOf": 1, "minimum": 0, "maximum": 31}
    item = {"properties": {"a": number, "b": number}, "required": ["a", "b"], "additionalProperties": False}
    schema = {"type": "array", "uniqueItems": True, "items": {"type": "object", **item}}
    index = Index.from_json_schema(schema, byte_vocabulary(), any_whitespace=False)
    guide = index.guide()
    assert guide.is_stateful
    assert taken(guide, "[" + ",".join(f'{{"a":1,"b":{b}}}' for b in range(32)) + ',{"a":1')
    assert {chr(token) for token in guide.allowed_tokens()} == set("0123456789")


def test_items_that_contains_demands_are_written(vocabulary: Vocabulary) -> None:
    """The type of a verifiable presentation (W3C) of an agent's manifest, as SchemaStore has it."""
    kinds = [{"contains": {"const": name}} for name in ("VerifiablePresentation", "KyaManifest")]
    schema = {"type": "array", "items": {"type": "string"}, "allOf": kinds, "uniqueItems": True, "minItems": 1}
    index = Index.from_json_schema(schema, vocabulary)
    assert at(index, '["KyaManifest", "x", "VerifiablePresentation"]').can_finish
    assert not at(index, '["KyaManifest", "x", "y"').advance(ord("]"))
    assert not taken(index.guide(), '["KyaManifest", "KyaManifest"')


def test_values_that_are_used_up(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """No earlier item is forgotten, and when no value is left, the array ends."""
    monkeypatch.setattr(unique, "MAX_VALUES", 0)
    schema = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 120}, "uniqueItems": True}
    index = Index.from_json_schema(schema, vocabulary, any_whitespace=False)
    guide = index.guide()
    for byte in ("[" + ",".join(map(str, range(120)))).encode():
        assert guide.advance(byte)
    assert guide.advance(ord(","))
    assert [t for t in guide.allowed_tokens() if t < 256] == [ord("1")]
    assert taken(guide, "120") and [t for t in guide.allowed_tokens() if t < 256] == [ord("]")]


@pytest.mark.parametrize(
    ("items", "text", "follow"),
    [
        ({"type": "number"}, "[0,0", "."),  # 0e… is 0 whatever follows
        ({"type": "number"}, "[0,-0.0", "0123456789"),
        ({"type": "number"}, "[1,0", ".,]eE"),
        ({"minimum": 1, "maximum": 10, "type": "number"}, "[1,10,1", "."),  # and 1e00…1 is 10
        ({"properties": {"a": {"type": "number"}}, "required": ["a"], "additionalProperties": False, "type": "object"},
         '[{"a":0},{"a":-0', "."),
    ],
)  # fmt: skip
def test_exponents_that_change_nothing(items: Any, text: str, follow: str, vocabulary: Vocabulary) -> None:
    """An exponent that cannot change the value is not begun: its digits could go on for ever and never end the item."""
    schema = {"type": "array", "items": items, "uniqueItems": True}
    guide = at(Index.from_json_schema(schema, vocabulary, any_whitespace=False), text)
    assert {chr(token) for token in guide.allowed_tokens() if token < 256} == set(follow)


def test_few_values_inside_of_arrays_that_are_remembered(vocabulary: Vocabulary) -> None:
    """Each used value leads to other states of the automaton; counting the continuations must not visit them all."""
    inner = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 200}, "uniqueItems": True}
    index = Index.from_json_schema(
        {"type": "array", "items": inner, "uniqueItems": True}, vocabulary, any_whitespace=False
    )
    guide = index.guide()
    assert taken(guide, "[[1,2,3],[1,2,3,4],[1,2,30,4,5],[77,1,105,6,0,10,12]")
    assert not taken(guide.fork(), "],[1,2,3]")
    assert not taken(guide.fork(), "],[1,2,3,4,1")
    assert index.nbytes < 100 << 20


ITEMS: dict[str, tuple[dict[str, Any], Callable[[int], Any]]] = {
    "integers": ({"type": "integer"}, lambda i: i * 7919 % 1_000_003),
    "strings": ({"type": "string"}, lambda i: f"item {i * 7919 % 1_000_003}"),
    "objects": ({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}, lambda i: {"a": i}),
    "arrays": ({"type": "array", "items": {"type": "integer"}}, lambda i: [i, i % 3]),
}  # fmt: skip


def text_of(items: list[Any]) -> bytes:
    return json.dumps(items, separators=(",", ":")).encode()


@pytest.mark.parametrize("kind", ITEMS if EVERY else ["strings", "objects"])
def test_memory_grows_with_the_items(kind: str, vocabulary: Vocabulary) -> None:
    """Not with their square: each item's state once held all items before it."""
    schema, item = ITEMS[kind]
    index = Index.from_json_schema({"type": "array", "items": schema, "uniqueItems": True}, vocabulary)
    held: list[int] = []
    for count in (200, 800):
        guide = index.guide()
        tracemalloc.start()
        assert all(map(guide.advance, text_of([item(i) for i in range(count)])[:-1]))
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert 0.2 < index.remembered_bytes / held[-1] < 5, "about what is counted"
        again = guide.fork()
        again.rollback(guide.tokens_taken // 2)
        del guide, again
    assert held[1] < 8 * held[0]
    assert index.remembered_bytes == 0


def test_a_long_string_is_kept_once(vocabulary: Vocabulary) -> None:
    """Each token's state once held the string so far."""
    index = Index.from_json_schema({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, vocabulary)
    guide = index.guide()
    data = text_of(["short", "é\n" + "x y" * 4000, "short 2", "x" * 500])
    tracemalloc.start()
    assert all(map(guide.advance, data))
    assert tracemalloc.get_traced_memory()[0] < 8_000_000
    tracemalloc.stop()
    random = Random(1)
    while guide.tokens_taken:
        guide.rollback(min(guide.tokens_taken, random.randint(1, 2500)))
        fresh = index.guide()
        assert all(map(fresh.advance, data[: guide.tokens_taken]))
        assert guide._branches == fresh._branches and (guide.mask == fresh.mask).all()  # type: ignore[attr-defined]


def test_what_an_answer_remembers_is_bounded(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "_MOST_REMEMBERED", 100_000)
    guide = Index.from_json_schema({"type": "array", "uniqueItems": True}, vocabulary).guide()
    with pytest.raises(BudgetExceededError, match="items that must differ"):
        assert all(map(guide.advance, text_of([*range(2000)])))
    assert guide.tokens_taken > 100


DEEP = {
    "type": "array",
    "items": {"$ref": "#/$defs/part"},
    "uniqueItems": True,
    "$defs": {
        "part": {
            "anyOf": [
                {"type": "integer"},
                {"type": "array", "items": {"$ref": "#/$defs/part"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/part"}},
            ]
        }
    },
}


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("[", "]"), ('{"a":', "}"), ('[{"b":[', "]}]"), ('{"a":[0,{"a":', "}]}"), ("[0,[", "]]"), ('{"a":0,"b":', "}")],
)
def test_texts_nested_deeper_than_the_stack_of_python(opening: str, closing: str, vocabulary: Vocabulary) -> None:
    """The comparison of two such items was once recursive."""
    guide = Index.from_json_schema(DEEP, vocabulary).guide()
    depth = 480 // sum(map(opening.count, "[{"))
    one, other = (opening * depth + number + closing * depth for number in "12")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        assert guide.accept_string(f"[{one},{other}") and not guide.fork().accept_string(f",{one}")
        assert guide.accept_string(f",{one[:-1]}") and not guide.fork().accept_string(closing[-1])
        assert set(guide.allowed_tokens()) and guide.fork().accept_string(",0" if one[-1] == "]" else ',"z":0')
        guide.rollback(1)
        assert guide.accept_string(f",{opening * depth}1") and set(guide.allowed_tokens())
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("opening", ["[", '{"a":', "[0,["])
def test_nesting_is_bounded(opening: str, vocabulary: Vocabulary) -> None:
    guide = Index.from_json_schema(DEEP, vocabulary).guide()
    assert guide.accept_string("[")
    with pytest.raises(BudgetExceededError, match="nested more than 500 deep"):
        assert all(guide.accept_string(opening) for _ in range(600))
    assert set(guide.allowed_tokens())


@pytest.mark.parametrize("token", ["[", "[[", "[" * 20])
def test_ways_to_read_an_array_are_bounded(token: str) -> None:
    """Each array may be read with or without ``uniqueItems``: twelve nested arrays once took half a second a token."""
    part = {"type": "array", "items": {"$ref": "#/$defs/part"}}
    schema = {"$ref": "#/$defs/part", "$defs": {"part": {"anyOf": [part, part | {"uniqueItems": True}]}}}
    tokens = [*(bytes([i]) for i in range(256)), token.encode(), None]
    guide = Index.from_json_schema(schema, Vocabulary.from_bytes(tokens, eos_token_ids=[257])).guide()
    with pytest.raises(BudgetExceededError, match=r"nested arrays can be read in more than \d+ ways"):
        for _ in range(30):
            assert guide.advance(256)
    text = "[[0,0],[0]]".replace("0", "[]")
    assert taken(guide.index.guide(), text)


def test_equal_containers_are_one() -> None:
    """Equal containers are one object in all threads, as long as it is in use."""
    made: list[list[object]] = [[] for _ in range(4)]

    def make(into: list[object]) -> None:
        for i in range(3000):
            inner = array((str(i % 7), number_of(f"{i % 5}.0")))
            into.append(object_of({"b": inner, "a": array(())} if i % 2 else {"a": array(()), "b": inner}))

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for same in zip(*made, strict=True):
        assert len(set(map(id, same))) == 1
    assert len({id(value) for into in made for value in into}) == 35
    assert array(()) is not object_of({}) and array(("1",)) is not array((number_of("1"),))


def test_a_set_of_items_finds_what_may_be_equal() -> None:
    """Compared with a list: which items have a scalar at a path, and which strings and numbers begin with a text."""
    random, seen = Random(3), Seen()
    known: list[Any] = []
    for _ in range(600):
        item = random.choice(
            [str(random.randrange(99)), number_of(f"{random.randrange(999)}e{random.randrange(3)}"), ("word", "true"),
             array((str(random.randrange(9)), number_of(str(random.randrange(9))))), array(()),
             object_of({"a/b": str(random.randrange(9)), "a": array(("z",)), "a!": "y", "c": number_of("1")})]
        )  # fmt: skip
        assert seen.has(item) == (item in known)
        if item not in known:
            before, seen = seen, seen.plus(item)
            known.append(item)
            assert not before.has(item) and len(before) == len(known) - 1
        text = str(random.randrange(99))[: random.randint(0, 2)]
        strings = [other for other in known if isinstance(other, str)]
        assert seen.may_have_string(text) == any(other.startswith(text) for other in strings)
        assert sorted(seen.strings(text)) == sorted(other for other in strings if other.startswith(text))
        following = {other[len(text) : len(text) + 1] for other in strings if other.startswith(text)}
        assert sorted(seen.next_characters(text)) == sorted(following)
        begun = random.choice(["", "-", "0.", "1", "12", "100", "1e", "990", "5e1"])
        numbers = [other for other in known if number_may_equal(begun, other)]
        assert seen.may_have_number(begun) >= bool(numbers) and set(seen.with_number("", begun)) >= set(numbers)
        assert set(seen.with_scalar("/0", text) or ()) == {
            other for other in known if isinstance(other, Container) and other.items[:1] == (text,)
        }
        assert set(seen.names("", "")) == {
            name
            for other in known
            if isinstance(other, Container)
            for name in (map(str, range(len(other.items))) if other.members is None else other.members)
        }
        assert set(seen.with_path("/a~1b")) == {
            other for other in known if isinstance(other, Container) and other.members is not None
        }
    assert seen.items == tuple(known) and seen == seen and seen != Seen()


def test_persistent_trees_are_sorted_lists() -> None:
    random, root, entries_ = Random(5), EMPTY, list[tuple[Any, int]]()
    versions = []
    for i in range(2000):
        key = ("", "s", str(random.randrange(300)))
        root = inserted(root, key, i)
        entries_.append((key, i))
        if i % 250 == 0:
            versions.append((root, sorted(entries_, key=lambda entry: entry[0])))
    for version, expected in versions:
        assert list(entries(version, ("", "", ""))) == expected
        for wanted in range(0, 300, 7):
            first = ("", "s", str(wanted))
            rest = [entry for entry in expected if entry[0] >= first]
            assert list(entries(version, first)) == rest and find(version, first) == (rest[0][0] if rest else None)


def test_a_long_chain_ends_quietly() -> None:
    chain = NOTHING
    for i in range(200_000):
        chain = chain.plus(i)
    assert len(chain) == 200_000 and next(iter(chain)) == 0
    del chain


@pytest.mark.parametrize("leaves", [[], ["boolean"], ["integer"], ["string"]])
def test_arrays_inside_each_other_must_differ_on_every_level(leaves: list[str], vocabulary: Vocabulary) -> None:
    """Counting what may still come once opened hundreds of arrays inside each other, for each token: 0.4 s a mask."""
    schema = {"type": ["array", *leaves], "uniqueItems": True, "items": {"$ref": "#"}}
    index = Index.from_json_schema(schema, vocabulary)
    guide = index.guide()
    for byte in b"[[],[[]],[[],[[]]],[[[]]],[[[]],[]]]":
        assert guide.mask[byte >> 5] >> (byte & 31) & 1
        assert guide.advance(byte)
    assert guide.can_finish
    for text in ("[[],[]", "[[[]],[[]]", "[[[],[[]]],[[],[[]]]"):
        assert not index.guide().accept_string(text), text
    assert index.configurations < 4000


@pytest.mark.parametrize("tokens", [(0,), (31,), (32, 95), (63,), (40, 41, 64), (95,)])
def test_the_first_token_of_a_mask(tokens: tuple[int, ...]) -> None:
    """Bit 31 of a word is its sign."""
    members = np.zeros(96, np.uint8)
    members[list(tokens)] = 1
    mask = np.packbits(members, bitorder="little").view(np.int32)
    assert listed(mask) == list(tokens)
    assert first_of(mask) == tokens[0]


def test_a_plan_lists_no_whole_mask(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan needs one token of each mask on its way. To list all tokens of each took most of the time."""
    longest: list[int] = []

    def recorded(mask: Any) -> list[int]:
        tokens = listed(mask)
        longest.append(len(tokens))
        return tokens

    monkeypatch.setattr(plans, "listed", recorded)
    item = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "minLength": 30}}}
    guide = Index.from_json_schema({"type": "array", "uniqueItems": True, "items": item}, vocabulary).guide()
    assert guide.accept_string('[{"name": "' + "a" * 30 + '"}, ')
    guide.mask_within(guide.tokens_to_finish)
    assert longest and max(longest) < 20
