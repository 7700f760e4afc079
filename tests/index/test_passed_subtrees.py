"""Walks that pass over subtrees of the token trie (`automata.machine.walk`), against steps of every token, with a
vocabulary that is large enough for such walks."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from dotllm.automata.machine import walk
from dotllm.automata.machine.subtrees import BIT, HEIGHT_AT, HIGHEST, bytes_below
from tests.index.test_limits import ids

CHARACTERS = [
    "a",
    "b",
    "e",
    "A",
    "0",
    "1",
    "f",
    "-",
    " ",
    "\t",
    '"',
    "\\",
    "é",
    "\u00a0",
    "ж",
    "あ",
    "\u3000",
    "語",
    "😀",
]
"""Among them characters beyond ASCII in sets and outside them, with equal and with different first bytes."""


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    """All bytes, and many texts of these characters; some begin or end inside a character."""
    random = Random(3)
    tokens = {bytes([byte]) for byte in range(256)}
    while len(tokens) < 9000:
        common = CHARACTERS if random.random() < 0.4 else CHARACTERS[:8]
        length = random.randint(2, 9) if random.random() < 0.95 else random.randint(10, 130)
        token = "".join(random.choice(common) for _ in range(length)).encode()
        cut = random.choice((0, 0, 0, 1, 2))
        tokens.add(random.choice((token[cut:], token[: len(token) - cut])))
    return Vocabulary.from_bytes([*sorted(tokens), None], eos_token_ids=len(tokens))


PATTERNS = [
    r"[a-z]{3,40}",  # near a limit, each character leads elsewhere
    r"[^\s]{2,7}",
    r"(?:\S+\s+){0,3}\S+",
    r"(?!.*abe)[a-f0-9 ]+",
    r"[0-9a-fA-F]{8}(-[0-9a-f]{4}){2}.*",
    r"(ab|[^a]|a[^b])*",
    r"[^\u3000é]*[ж語😀]",
    r"(?:[a-f]{1,9} ?){2,5}|[^e]{0,5}",
    r"(?=.{5,30}$)[^ ](.*[^ ])?",  # a character counts, and leads to one of two states
    r"(?=.{0,25}$)(?:\S+\s+){0,3}\S+",
    r"(?=.{4,20}$)(?=.*[A-Z])(?=.*[01]).*",
    r"[a-z0-9-]{1,30}([^\s]{1,40})?.{0,70}",
    r"[a-f0-9 -]{60,100}",
    r"x?[a-f]+-",  # a loop of few characters, entered from elsewhere
    r"[a-f]{1,62}|[a-f0-9]{1,64} ",
    r"[a-z0-9]{1,12}([-é][a-z0-9]{1,12})*",
    r"(?=[^あ]{0,9}$)(?!.*ab).*",
    r".{0,17}(\S{1,18}|[a-f -]{2,19})",
]


def texts(random: Random) -> Iterator[bytes]:
    yield b""
    for length in range(1, 12):
        yield "".join(random.choice(CHARACTERS[:7]) for _ in range(length)).encode()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_masks_hold_the_tokens_that_can_be_taken(pattern: str, vocabulary: Vocabulary) -> None:
    index, random, looked_at = Index.from_regex(pattern, vocabulary), Random(4), 0
    for text in texts(random):
        guide = index.guide()
        if not guide.accept_string(text):
            continue
        looked_at += 1
        mask = np.array(index.masks[guide.mask_row])
        expected = [token for token in range(vocabulary.size) if guide.accepts([token])]
        assert ids(mask) == expected, text
    assert looked_at > 2


def test_objects_that_overlap(vocabulary: Vocabulary) -> None:
    """Their keys lead into one state with different callers."""
    names = ["abe", "a0", "ab", "be", "ea", "fA", "é", "0"]
    branches = [
        {
            "type": "object",
            "properties": {name: {"type": kind} for name in names[i : i + 4]},
            "required": names[i : i + 1],
        }
        for i, kind in enumerate(["string", "integer", "boolean", "null"])
    ]
    index = Index.from_json_schema({"anyOf": branches}, vocabulary, additional_properties="open", property_order="any")
    for text in ('{"', '{"a', '{"ab', '{"abe": "", "', '{"e', '{"-": 1, "'):
        guide = index.guide()
        assert guide.accept_string(text)
        expected = [token for token in range(vocabulary.size) if guide.accepts([token])]
        assert ids(index.masks[guide.mask_row]) == expected, text


COUNTED = [
    {"type": "array", "items": {"type": "string", "maxLength": 9, "pattern": r"^(?:\S+ )*\S+$"}, "maxItems": 2},
    {
        "type": "object",
        "propertyNames": {"maxLength": 12, "pattern": "^[a-f]"},
        "additionalProperties": {"type": "null"},
    },
    {"type": "string", "format": "hostname", "maxLength": 40},
    {"anyOf": [{"type": "string", "maxLength": 16}, {"type": "string", "pattern": "^[a-f]{15,31}[0-9 ]"}]},
]


@pytest.mark.parametrize("schema", COUNTED, ids=str)
def test_counted_characters_in_json(schema: dict[str, object], vocabulary: Vocabulary) -> None:
    index, random, looked_at = Index.from_json_schema(schema, vocabulary), Random(5), 0
    for start in ('"', '["', '{"', '["ab", "'):
        for text in texts(random):
            guide = index.guide()
            if not guide.accept_string(start.encode() + text):
                continue
            looked_at += 1
            expected = [token for token in range(vocabulary.size) if guide.accepts([token])]
            assert ids(index.masks[guide.mask_row]) == expected, (start, text)
    assert looked_at > 3


def test_counted_rules_of_a_grammar(vocabulary: Vocabulary) -> None:
    index = Index.from_grammar('start: word ("-" word)~0..3 "A"?\nword: letter~2..20\nletter: /[a-z]/', vocabulary)
    for text in (b"", b"ab", b"abeabe", b"ab-ea", b"ab-ea-abe", b"abeabeabeabeabeabea", b"ab-ab-ab-ab"):
        guide = index.guide()
        assert guide.accept_string(text)
        expected = [token for token in range(vocabulary.size) if guide.accepts([token])]
        assert ids(index.masks[guide.mask_row]) == expected, text


def test_the_vocabulary_is_large_enough(vocabulary: Vocabulary) -> None:
    assert len(vocabulary.trie.byte) > 2 * walk._LONG_WALK


def test_bytes_below_a_node(vocabulary: Vocabulary) -> None:
    """The bits of a node's subtree are those of its characters, and one bit stands for all that is not UTF-8. Others have
    its height."""
    trie = vocabulary.trie
    below = bytes_below(trie.byte, trie.depth, trie.end)
    path = bytearray()
    nodes = len(trie.byte)
    texts = []
    for node in range(nodes):
        path[trie.depth[node] - 1 :] = bytes([trie.byte[node]])
        texts.append(bytes(path))
    for node in range(0, nodes, 7):
        inside = [text[len(texts[node]) :] for text in texts[node + 1 : trie.end[node]]]
        bits = int(below[node, 0])
        if bits & 1:
            continue
        assert texts[node].decode(errors="replace").encode() == texts[node], "the node ends with a character"
        assert bits >> HEIGHT_AT & HIGHEST == min(max(map(len, inside), default=0), HIGHEST)
        bits &= ~(HIGHEST << HEIGHT_AT)
        found = {int(BIT[byte]) for text in inside for byte in text if not 0x80 <= byte < 0xC2}
        assert found == {bit for bit in range(64) if bits >> bit & 1} | {
            64 + bit for bit in range(64) if int(below[node, 1]) >> bit & 1
        }
    assert (below[:, 0] & 1 == 0).sum() > nodes // 3
