"""The facts that the kernels compute, in plain Python over lists and dicts."""

from __future__ import annotations

from dataclasses import dataclass, field

from dotllm.charset import CharSet
from dotllm.vocabulary import Trie


def trie_strings(trie: Trie, low: int = 0, high: int | None = None) -> dict[bytes, list[int]]:
    """Token ids by string, read from nodes ``low`` to ``high`` of the flat arrays; also checks the layout."""
    high = len(trie.byte) if high is None else high
    found: dict[bytes, list[int]] = {}
    path: list[int] = []
    ends: list[int] = []
    for v in range(low, high):
        depth = int(trie.depth[v])
        assert 1 <= depth <= len(path) + 1
        for end in ends[depth - 1 :]:
            assert end == v, "a subtree ends where the next node of its depth starts"
        if depth <= len(path):
            assert path[depth - 1] < trie.byte[v], "children stand in byte order"
        path[depth - 1 :] = [int(trie.byte[v])]
        ends[depth - 1 :] = [int(trie.end[v])]
        here = trie.tokens[trie.token_start[v] : trie.token_start[v + 1]].tolist()
        if here:
            found[bytes(path)] = here
        else:
            assert trie.end[v] > v + 1, "every leaf is the end of a token"
    assert all(end == high for end in ends)
    return found


def grouped(pairs: list[tuple[bytes, int]]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for text, token in pairs:
        found.setdefault(text, []).append(token)
    return {text: sorted(ids) for text, ids in found.items()}


def is_prefix_of_char(part: bytes, charset: CharSet) -> bool:
    """Is ``part`` a proper, non-empty prefix of the UTF-8 form of a member? Tries every continuation by code point."""
    if not part or part[0] < 0xC2 or part[0] > 0xF4:
        return False
    length = 2 if part[0] < 0xE0 else 3 if part[0] < 0xF0 else 4
    if len(part) >= length or any(not 0x80 <= b <= 0xBF for b in part[1:]):
        return False
    bits = part[0] & (0xFF >> (length + 1))
    for b in part[1:]:
        bits = bits << 6 | b & 0x3F
    missing = 6 * (length - len(part))
    low = max(bits << missing, {2: 0x80, 3: 0x800, 4: 0x10000}[length])
    high = ((bits + 1) << missing) - 1
    return bool(charset & CharSet.of((low, high))) if low <= high else False


@dataclass
class CharsetFacts:
    inside: dict[int, int] = field(default_factory=dict)
    """Characters by token."""
    exits: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """(whole characters, remainder) by token."""


def charset_facts(tokens: list[bytes | None], charset: CharSet) -> CharsetFacts:
    facts = CharsetFacts()
    for token, text in enumerate(tokens):
        if not text:
            continue
        at = chars = 0
        while at < len(text):
            for length in (1, 2, 3, 4):
                try:
                    char = text[at : at + length].decode()
                except UnicodeDecodeError:
                    continue
                if len(char) == 1 and ord(char) in charset:
                    break
            else:
                break
            if at + length > len(text):
                break
            at += length
            chars += 1
        rest = text[at:]
        if not rest:
            facts.inside[token] = chars
        elif is_prefix_of_char(rest, charset):
            facts.inside[token] = chars + 1
        elif chars:
            facts.exits[token] = (chars, rest)
    return facts
