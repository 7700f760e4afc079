"""Masks under a limit: every text ends in time and is valid, and no token that the plans allow is refused."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dotllm import Index, TooFewTokensError, Vocabulary
from dotllm.automata.machine import layout
from dotllm.automata.machine.layout import FINISHED
from dotllm.errors import BudgetExceededError, UnsupportedError
from dotllm.grammar import Grammar
from dotllm.index import NO_LIMIT, Guide, limits
from dotllm.index.draft_rows import NO_MASK, limit_rows, mask_rows_along
from dotllm.index.limits import tight_guides
from tests.cases import few

BYTES = Vocabulary.from_bytes([bytes([i]) for i in range(256)] + [None], eos_token_ids=[256])
WORDS = [
    b'{"',
    b'":',
    b'","',
    b'"}',
    b"true",
    b"null",
    b"12",
    b"ab",
    b"abc",
    b"ba",
    b", ",
    b"]}",
    b"\xc3",
    b"\xa9x",
    b"00",
]
FEW = Vocabulary.from_bytes(
    [*(bytes([i]) for i in range(256)), *WORDS, None, None], eos_token_ids=[256 + len(WORDS)],
    special_tokens={"<tool>": 257 + len(WORDS)},
)  # fmt: skip
TREE = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"v": {"enum": ["ab", 12]}, "l": {"$ref": "#/$defs/t"}}, "required": ["v"]}}}  # fmt: skip
SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "minLength": 3}, "age": {"type": "integer"}}, "required": ["name", "age"]},
    {"type": "array", "items": {"type": "array", "items": {"enum": [12, 345]}, "minItems": 2, "maxItems": 5}, "minItems": 3},
    {"type": "string", "pattern": "^(ab|é)+x$", "minLength": 5, "maxLength": 60},
    {"type": "string", "pattern": "b$", "maxLength": 2},
    {"type": "string", "maxLength": 4},
    {"type": "number", "minimum": -3, "maximum": 70},
    {"anyOf": [{"type": "array", "items": {"type": "boolean"}, "minItems": 4}, {"type": "object", "required": ["abc"]}]},
    TREE,
    {},
]  # fmt: skip
GRAMMAR = 'root ::= expr\nexpr ::= term (("+" | "-") term)*\nterm ::= [0-9]+ | "(" expr ")" | [a-c]{40,70} ";"\n'
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "sequence",
        "elements": [
            {"type": "token", "token": "<tool>"},
            {"type": "json_schema", "json_schema": SCHEMAS[0]},
            {"type": "regex", "pattern": "(ab){2,9}"},
        ],
    },
}
MAKERS: list[tuple[str, Callable[[Vocabulary], Index]]] = [
    *[(json.dumps(s)[:50], lambda v, s=s: Index.from_json_schema(s, v)) for s in SCHEMAS],
    ("any order", lambda v: Index.from_json_schema(SCHEMAS[0] | {"properties": {"name": {"const": 1}, "b": {"type": "string"}, "age": {"type": "integer"}}}, v, property_order="any")),
    *[(p, lambda v, p=p: Index.from_regex(p, v)) for p in (r"[a-z]*abc", r"(a|b|c)*a(a|b|c){20}", r"([a-c]{2,4},){3,5};", "é+ü|zzz", r"\w+( \w+){2,30}")],
    ("choice", lambda v: Index.from_choice(["ab", "abcde", "x" * 30], v)),
    ("grammar", lambda v: Index.from_grammar(GRAMMAR, v)),
    ("tag", lambda v: Index.from_structural_tag(TAG, v)),
]  # fmt: skip


def ids(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def allowed(guide: Guide, left: int) -> list[int]:
    bitmask = np.full((1, guide.index.space.words + 1), -1, np.int32)
    guide.write_mask(bitmask, 0, tokens_left=left)
    return ids(bitmask[0])


def walk(index: Index, left: int, random: Random) -> tuple[bytes, list[int]]:
    """A text of random tokens under a limit."""
    guide, text, taken = index.guide(), b"", []
    while not guide.is_finished:
        tokens = allowed(guide, left - len(taken))
        assert tokens, text
        taken.append(random.choice(tokens))
        assert guide.advance(taken[-1]), text
        text += index.vocabulary.token_bytes(taken[-1]) or b""
    return text, taken


@pytest.mark.parametrize(("name", "make"), MAKERS, ids=[name for name, _ in MAKERS])
@pytest.mark.parametrize("vocabulary", [BYTES, FEW], ids=["bytes", "few"])
def test_every_text_ends_in_time(name: str, make: Callable[[Vocabulary], Index], vocabulary: Vocabulary) -> None:
    """Random walks with the least limit, a little more, and much more; a limit below the least is refused."""
    if name == "tag" and vocabulary is BYTES:
        pytest.skip("has no such token")
    index, random = make(vocabulary), Random(name)
    needed = index.tokens_to_finish()
    for left in (needed, needed + 1, needed + 5, 2 * needed, max(64, needed)):
        for _ in range(8):
            _, taken = walk(index, left, random)
            assert len(taken) <= left
    with pytest.raises(TooFewTokensError) as refusal:
        index.guide().write_mask(np.zeros((1, index.space.words), np.int32), 0, tokens_left=needed - 1)
    assert (refusal.value.needed, refusal.value.left) == (needed, needed - 1) and str(needed) in str(refusal.value)


@pytest.mark.parametrize(("name", "make"), MAKERS, ids=[name for name, _ in MAKERS])
def test_exactly_what_plans_allow(name: str, make: Callable[[Vocabulary], Index]) -> None:
    """A token of the ordinary mask is allowed if and only if the text can end in time after it."""
    index, random = make(FEW), Random(name)
    seen = 0
    while seen < 40:
        guide = index.guide()
        left = guide.tokens_to_finish + random.choice([0, 1, 3, 9])
        while not guide.is_finished:
            ordinary = ids(index.masks[guide.mask_row])
            fitting = [t for t in ordinary if index.tokens_to_finish(index.advance(guide.config, t)) < left]
            assert allowed(guide, left) == fitting
            assert fitting
            assert guide.advance(random.choice(fitting))
            left -= 1
            seen += 1


def test_the_least_stays_the_least() -> None:
    """A lower limit is refused even if every token is known to leave enough, since tokens have plans of their own."""
    few = Vocabulary.from_bytes([*(bytes([i]) for i in range(256)), b"ab", b"aaa", None], eos_token_ids=[258])
    index = Index.from_json_schema({"type": "string", "pattern": "[ab]{2}$", "maxLength": 5}, few)
    needed = index.tokens_to_finish()
    for left in (needed - 1, needed, needed - 1):
        with contextlib.nullcontext() if left == needed else pytest.raises(TooFewTokensError):
            index.guide().mask_within(left)


def can_end(index: Index, config: int, left: int, impossible: dict[int, int]) -> bool:
    """Whether ``left`` tokens or fewer can lead from ``config`` to the end, by trying all."""
    if config == FINISHED:
        return True
    if left <= impossible.get(config, 0):
        return False
    afters = {index.advance(config, token) for token in ids(index.masks[index.mask_row(config)])}
    if any(can_end(index, after, left - 1, impossible) for after in afters):
        return True
    impossible[config] = left
    return False


@pytest.mark.parametrize(("vocabulary", "least"), [(BYTES, 1.0), (FEW, 0.9)], ids=["bytes", "few"])
def test_against_all_completions(vocabulary: Vocabulary, least: float) -> None:
    """Masks with few tokens left, against all texts of that many tokens: every allowed token leads to such a text. If
    tokens are bytes, no other token does; if they are words, hardly any (a longer text may take fewer tokens)."""
    seen = equal = 0
    for name, make in MAKERS:
        if name == "tag" and vocabulary is BYTES:
            continue
        index, random, impossible = make(vocabulary), Random(name), dict[int, int]()
        for _ in range(4):
            guide = index.guide()
            while not guide.is_finished:
                left = guide.tokens_to_finish + random.choice([0, 0, 1, 2])
                tokens = allowed(guide, left)
                if left <= 6:
                    afters = {token: index.advance(guide.config, token) for token in ids(index.masks[guide.mask_row])}
                    expected = [t for t, after in afters.items() if can_end(index, after, left - 1, impossible)]
                    assert set(tokens) <= set(expected), name
                    seen += 1
                    equal += tokens == expected
                assert guide.advance(random.choice(tokens))
    assert seen >= 200 and equal >= least * seen, (seen, equal)


def shortest(index: Index, config: int) -> int:
    """The fewest bytes from ``config`` to an end, by breadth-first search."""
    seen, queue = {config}, deque([(config, 0)])
    while queue:
        here, length = queue.popleft()
        if index.can_finish(here):
            return length
        for byte in range(256):
            after = index.advance_bytes(here, bytes([byte]))
            if after >= 0 and after not in seen:
                seen.add(after)
                queue.append((after, length + 1))
    raise AssertionError("dead end")


@pytest.mark.parametrize(
    ("pattern", "prefixes"),
    [
        ("abc|a", ["", "a", "ab"]),
        ("a{3,9}b", ["", "a", "aaaa"]),
        ("(x(ab){2,3}y){2,}", ["", "x", "xab", "xabab", "xababa", "xababyx"]),
        ("([a-c]{2,4},){3,5};", ["", "a", "ab,", "ab,ab,ab,"]),
        ("é+ü|zzz", ["", "é"]),
    ],
)
def test_shortest_bytes(pattern: str, prefixes: list[str]) -> None:
    """If tokens are bytes, no text is shorter than the plan: alternatives, counted loops (nested, half-way through),
    characters of several bytes."""
    index = Index.from_regex(pattern, BYTES)
    for prefix in prefixes:
        config = index.advance_bytes(index.guide().config, prefix.encode())
        assert index.tokens_to_finish(config) == shortest(index, config) + 1


def test_keys_in_any_order() -> None:
    """Required members that have not come are counted, after a separator or before it."""
    schema = {"type": "object", "properties": {"a": {"enum": [12, 345]}, "b": {"type": "string"}, "long": {"const": True}, "d": {"const": 1}}, "required": ["a", "long", "b"], "additionalProperties": True}  # fmt: skip
    index = Index.from_json_schema(schema, BYTES, any_whitespace=False, property_order="any")
    whole = '"a":12,"long":true,"b":""}'
    for prefix, rest in (("", "{" + whole), ("{", whole), ('{"d":1', "," + whole), ('{"d":1,', whole), ('{"b":""', ',"a":12,"long":true}'), ('{"b":"",', '"a":12,"long":true}'), ('{"b":"","zz":[', '],"a":12,"long":true}'), ('{"long":true,"a":12,"b":"', '"}')):  # fmt: skip
        config = index.advance_bytes(index.guide().config, prefix.encode())
        assert index.tokens_to_finish(config) == len(rest) + 1, prefix


@pytest.mark.parametrize(
    ("required", "separator", "other", "least"),
    [
        (["a"], ",", "zz", 2),
        (["aaa"], ",", "zz", 3),
        (["a", "b"], ",", "zzzz", 4),
        (["a", "b"], ",,,,", "zzz", 4),
        (["a", "bbbb"], ",", "zzz", 4),
        (["bbbb", "a"], ",", "zzz", 4),
        (["a", "b", "a"], ",", "zzzzzz", 6),
        (["a", "b", "a"], ",,", "zzz", 4),
    ],
)
def test_parts_in_any_order_or_a_shorter_text(required: list[str], separator: str, other: str, least: int) -> None:
    """The shorter way is known one token earlier: all required parts with separators between, or the other text."""
    letters = Vocabulary.from_bytes([b"a", b"b", b"z", b",", None], eos_token_ids=4)
    grammar = Grammar()
    parts = grammar.unordered([grammar.literal(part) for part in required], [], [], grammar.literal(separator))
    grammar.start = grammar.seq([grammar.literal("b"), grammar.alt([parts, grammar.literal(other)])])
    index = Index.from_grammar_object(grammar, letters)
    assert index.tokens_to_finish() == 1 + least == 2 + min(len(separator.join(required)), len(other))


def rows_within(guides: Sequence[Guide], drafts: Sequence[Sequence[int]], left: Sequence[int]) -> list[list[int]]:
    """For each guide the rows along its drafts under its limit, found as the plugin finds them (`rows_of_step`)."""
    rows, configs, failures = mask_rows_along(guides, drafts)
    assert not failures
    counts = np.array([1 + len(draft) for draft in drafts], np.int32)
    own_rows, own_configs = (np.split(array, np.cumsum(counts)[:-1]) for array in (rows, configs))
    for g in tight_guides(guides, left, configs, counts):
        limit_rows(guides[g], drafts[g], left[g], own_rows[g], own_configs[g])
    return [own.tolist() for own in own_rows]


def test_batches() -> None:
    """Batches and drafts have the masks that guides have alone."""
    index = Index.from_json_schema(SCHEMAS[0], FEW)
    guides = [index.guide() for _ in range(3)]
    needed = guides[0].tokens_to_finish
    left = [needed, NO_LIMIT, 10_000]
    (first,), *others = rows_within(guides, [[]] * 3, left)
    ordinary = guides[0].mask_row
    assert ids(index.masks[first]) == allowed(guides[0], needed) != ids(index.masks[ordinary])
    assert others == [[ordinary]] * 2
    with pytest.raises(TooFewTokensError):
        rows_within(guides, [[]] * 3, [NO_LIMIT, needed - 1, NO_LIMIT])
    _, draft = walk(index, needed, Random(1))
    rows, _ = rows_within(guides[:2], [draft, draft], [needed, NO_LIMIT])
    ahead = index.guide()
    for i, token in enumerate(draft):
        assert ids(index.masks[rows[i]]) == allowed(ahead, needed - i)
        assert ahead.advance(token)
    longer = [draft[0], index.vocabulary.encode(b" ")[0], index.vocabulary.encode(b" ")[0]]
    (rows,) = rows_within(guides[:1], [longer], [needed])
    assert rows[0] >= 0 and rows[-1] == NO_MASK


def test_limits_along_drafts_of_many_guides() -> None:
    """Each row is the mask of its guide alone after the drafts before it; after a forbidden draft there is none."""
    random, indexes = Random(3), [Index.from_json_schema(schema, FEW) for schema in SCHEMAS[:4]]
    guides, drafts, left = [], [], []
    for number in range(40):
        index = random.choice(indexes)
        needed = index.tokens_to_finish()
        _, draft = walk(index, needed + random.randint(0, 3), random)
        if random.random() < 0.5:
            draft[random.randrange(len(draft))] = random.choice([*b' "a1,\xc3'])  # perhaps refused only by the limit
        guides.append(index.guide())
        drafts.append(draft[: random.randint(0, 6)])
        left.append(NO_LIMIT if number % 5 == 4 else needed + random.randint(0, 3))
    rows = rows_within(guides, drafts, left)
    for guide, draft, limit, own in zip(guides, drafts, left, rows, strict=True):
        ahead, goes_on = guide.fork(), True
        for j, (token, row) in enumerate(zip([*draft, None], own, strict=True)):
            if not goes_on or ahead.is_finished:
                assert goes_on or row == NO_MASK
                continue
            alone = list(ahead.allowed_tokens()) if limit == NO_LIMIT else allowed(ahead, limit - j)
            assert ids(guide.index.masks[row]) == alone
            goes_on = token in alone and ahead.advance(token)


def test_a_limit_stays_with_forks_rollbacks_and_saved_indexes() -> None:
    """A guide stores nothing about a limit; a loaded index gives the same masks."""
    index = Index.from_json_schema(SCHEMAS[1], FEW)
    guide = index.guide()
    needed = guide.tokens_to_finish
    before = allowed(guide, needed)
    for token in (before[0], *itertools.islice(_onwards(guide, before[0], needed), 3)):
        assert guide.advance(token)
    fork = guide.fork()
    assert fork.tokens_to_finish == guide.tokens_to_finish <= needed - 4
    guide.rollback(4)
    assert allowed(guide, needed) == before
    loaded = Index.from_bytes(index.to_bytes(), FEW)
    assert loaded.tokens_to_finish() == needed and allowed(loaded.guide(), needed) == before
    assert loaded.renewed().tokens_to_finish() == needed


def _onwards(guide: Guide, first: int, left: int) -> Iterable[int]:
    ahead = guide.fork()
    ahead.advance(first)
    while not ahead.is_finished:
        left -= 1
        token = allowed(ahead, left)[0]
        ahead.advance(token)
        yield token


def test_a_limit_that_suffices_costs_no_mask() -> None:
    """A limit that is known to suffice for one configuration is known to suffice for all that share its row."""
    index = Index.from_json_schema({"type": "array", "items": {"type": "string", "maxLength": 300}}, FEW)
    guide = index.guide()
    for token in FEW.encode(b'["'):
        assert guide.advance(token)
    assert guide.mask_within(1_000) is None
    for token in FEW.encode(b"xyzxyz"):
        assert guide.advance(token)
        assert guide.mask_row >= 0 and tight_guides([guide], [1_000]) == []


KEYED = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}, "minProperties": 1, "maxProperties": 4}  # fmt: skip
DISTINCT = [
    {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    {"type": "array", "items": {"type": "string", "maxLength": 2}, "uniqueItems": True, "minItems": 1},
    {"type": "array", "items": {"type": "string", "pattern": "^a*$"}, "uniqueItems": True},
    {"type": "array", "items": {"type": ["integer", "null"]}, "uniqueItems": True},
    {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "number"}, "s": {"type": "string"}}, "required": ["id"], "additionalProperties": False}, "uniqueItems": True},
    {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 1}, "more": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "uniqueItems": True}}, "required": ["tags", "more"]},
    {"anyOf": [{"type": "array", "items": {"type": "string"}, "uniqueItems": True}, {"type": "array", "items": {"type": "integer"}}]},
    {"type": "array", "prefixItems": [True, {"type": "boolean"}], "minItems": 2, "uniqueItems": True},
    {"oneOf": [{"properties": {"a": {"enum": [True, "x1"]}}}, {"properties": {"x1": {"enum": [3, -1, "ba"]}}}, {"properties": {"x1": {"type": "null"}}, "additionalProperties": {"type": ["boolean", "null", "array"], "maxItems": 0}}]},
    {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 2}, "uniqueItems": True},
    {"type": "array", "items": {"type": "array", "prefixItems": [{"const": "a"}, {"type": "string", "pattern": "^[ab]*$"}], "items": False, "minItems": 2}, "uniqueItems": True},
    KEYED,
]  # fmt: skip


@pytest.mark.parametrize("schema", DISTINCT, ids=lambda schema: json.dumps(schema)[:60])
@pytest.mark.parametrize("vocabulary", [BYTES, FEW], ids=["bytes", "few"])
def test_items_that_must_differ(schema: object, vocabulary: Vocabulary) -> None:
    """Every walk ends in time and is valid; near the limit, many items begin like earlier ones and must differ."""
    index, random, judge = Index.from_json_schema(schema, vocabulary), Random(0), Draft202012Validator(schema)
    needed = index.guide().tokens_to_finish
    for left in (needed, needed + 1, needed + 2, needed + 5, 2 * needed, 40, 80):
        for _ in range(few(6)):
            text, taken = walk(index, max(left, needed), random)
            assert len(taken) <= max(left, needed)
            assert judge.is_valid(json.loads(text)), text
    with pytest.raises(TooFewTokensError):
        index.guide().mask_within(needed - 1)


@pytest.mark.parametrize("schema", DISTINCT, ids=lambda schema: json.dumps(schema)[:60])
@pytest.mark.parametrize("vocabulary", [BYTES, FEW], ids=["bytes", "few"])
def test_whatever_is_taken_leaves_enough(schema: object, vocabulary: Vocabulary) -> None:
    """This holds for every token allowed near the least limit, not only for those that a walk takes."""
    index, random = Index.from_json_schema(schema, vocabulary), Random(1)
    for more in (0, 1, 3):
        guide = index.guide()
        left = guide.tokens_to_finish + more
        while not guide.is_finished:
            tokens = allowed(guide, left)
            for token in tokens:
                assert guide.advance(token)
                assert guide.tokens_to_finish < left
                guide.rollback(1)
            assert guide.advance(random.choice(tokens))
            left -= 1


def test_a_repetition_is_avoided_in_time() -> None:
    """An item that repeats an earlier one is extended if there is room, and not begun if there is none."""
    index = Index.from_json_schema(DISTINCT[0], BYTES, any_whitespace=False)
    guide = index.guide()
    for byte in b'["ab",':
        assert guide.advance(byte)
    assert guide.tokens_to_finish == len('""]') + 1
    for byte in b'"ab':
        assert guide.advance(byte)
    assert guide.tokens_to_finish == len('!"]') + 1
    assert ord('"') not in allowed(guide, 4) and ord("\\") not in allowed(guide, 4)
    guide.rollback(5)  # after ["a
    assert ord("b") in allowed(guide, 4)
    assert guide.advance(ord("b")) and guide.advance(ord('"'))
    assert ord(",") not in allowed(guide, 4) and ord(",") in allowed(guide, 5)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "integer"}, "minItems": 2, "uniqueItems": True},
        {"type": "object", "properties": {"b": True}, "additionalProperties": {"type": "array"}, "minProperties": 2},
    ],
    ids=["items", "keys"],
)
def test_several_that_must_differ(schema: object) -> None:
    """Limits are refused where the shortest array would repeat an item, or a shortest object a key."""
    index = Index.from_json_schema(schema, BYTES)
    with pytest.raises(UnsupportedError, match="uniqueItems"):
        _ = index.guide().tokens_to_finish


regexes = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "ab", "é", "c?", "[^a]"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2,3}", "{30,90}", "{20}"])).map(lambda p: f"({p[0]}){p[1]}"),
    ),
    max_leaves=8,
)


@settings(max_examples=few(120))
@given(regexes, st.integers(0, 6), st.integers(0, 2**32))
@example("((a|ab)|[^a])([ab]|([ab])*)é", 0, 0)
def test_random_regexes(pattern: str, more: int, seed: int) -> None:
    """Like the walks above, with random patterns."""
    index = Index.from_regex(pattern, FEW)
    left = index.tokens_to_finish() + more
    _, taken = walk(index, left, Random(seed))
    assert len(taken) <= left


@pytest.mark.parametrize("beyond", [2**31, 2**32 + 5, 10**30])
def test_a_limit_of_any_size_is_no_limit(beyond: int) -> None:
    """Such a limit once wrapped around in a kernel's 32 bits, and the wrong mask was remembered."""
    guide = Index.from_regex("a|b{20}", BYTES).guide()
    assert guide.mask_within(beyond) is None
    mask = guide.mask_within(5)
    assert mask is not None and np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist() == [97]


MANY = {"type": "array", "minItems": 10**9}


@pytest.mark.parametrize(
    "schema",
    [MANY | {"items": MANY}, {"type": "object", "properties": {"a": MANY | {"items": MANY}}, "required": ["a"]}],
)
def test_what_no_answer_could_end_is_told(schema: object) -> None:
    """The shortest text has more bytes than a cost can count; this was once an internal fault."""
    guide = Index.from_json_schema(schema, BYTES).guide()
    before = guide.index.nbytes
    with pytest.raises(BudgetExceededError, match="the shortest text is too long"):
        _ = guide.tokens_to_finish
    assert guide.index.nbytes < 2 * before, "no memory is spent on it"
    assert guide.advance(ord("[" if schema == MANY | {"items": MANY} else "{"))


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [MANY, {"const": "ab"}]},
        {"anyOf": [MANY | {"items": MANY}, {"const": "ab"}]},
        {"type": "array", "maxItems": 4, "items": {"type": "object", "properties": {"a": {"type": "string", "minLength": 10**9}}}},
        {"type": "object", "properties": {"a": MANY, "b": {"type": "string", "minLength": 10**7}, "c": {"type": "null"}}, "additionalProperties": False},
    ],
)  # fmt: skip
def test_a_limit_leads_past_what_is_too_far(schema: object, order: str) -> None:
    index = Index.from_json_schema(schema, FEW, property_order=order)
    least = index.guide().tokens_to_finish
    before = index.nbytes
    for seed in range(20):
        text, taken = walk(index, least + seed, Random(seed))
        assert len(taken) <= least + seed and Draft202012Validator(schema).is_valid(json.loads(text))
    assert index.nbytes < 4 * before


def test_automata_of_millions_of_nodes_have_ways() -> None:
    """The heap once had only 23 bits for a node."""
    guide = Index.from_choice(["x" * 9_000_000, "ab"], BYTES).guide()
    assert guide.advance(ord("a"))
    assert guide.tokens_to_finish == 2


def test_the_shortest_ways_are_found_without_the_lock(
    bytes_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding them takes seconds for tens of thousands of choices, and other guides of the index must not wait."""
    index = Index.from_choice([f"choice {i}" for i in range(300)], bytes_vocabulary)
    expected = Index.from_bytes(index.to_bytes(), bytes_vocabulary).tokens_to_finish()
    find, waits = limits.find_shortest_ways, []

    def use_the_index() -> None:
        if index.lock.acquire(timeout=5):
            waits.append(None)
            index.lock.release()

    def find_shortest_ways(asked: Index) -> None:
        if not asked.mem[layout.H_HAS_WAYS]:
            other = threading.Thread(target=use_the_index)
            other.start()
            other.join()
        find(asked)

    monkeypatch.setattr(limits, "find_shortest_ways", find_shortest_ways)
    assert index.guide().tokens_to_finish == expected
    assert waits == [None], "another thread had the lock meanwhile"
    assert index.mem[layout.H_HAS_WAYS] == 1
    later = index.renewed()
    assert later.guide().tokens_to_finish == expected and len(waits) == 1, "and they are found once"
