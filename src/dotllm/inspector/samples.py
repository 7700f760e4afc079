"""Random texts that a specification allows.

Drawing tokens uniformly gives long nonsense, for most of a vocabulary is text. So the walk draws among the *groups* of
the bytes that may come (`continuations` says what a group is), and leaves a place the more likely the more often it
has been there, so that loops end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

from dotllm.api import Index
from dotllm.index import Guide

LONGEST = 600
"""Bytes; a text that is longer is cut off."""
_CLOSING = frozenset(b'"}])')
_PLAIN = frozenset(range(0x21, 0x7F)) - {ord("\\")}
"""Bytes that texts look tidy with: no white space, no escapes, nothing beyond ASCII."""
_LETTERS = b"etaoinshrdlucmfwypvbgkqjxz"
_BYTES = [bytes([byte]) for byte in range(256)]


def sample(index: Index, random: Random) -> tuple[bytes, bool]:
    """A text, and whether it is whole."""
    guide, text, visits = index.guide(), bytearray(), Counter[int]()
    while len(text) < LONGEST:
        visits[guide.config] += 1
        groups = _groups(index, guide.config)
        if guide.can_finish and (not groups or random.random() < 0.3):
            return bytes(text), True
        if not groups:
            break
        weights = [_weight(members, len(text)) / (1 + visits[after]) ** 2 for after, members in groups.items()]
        members = random.choices(list(groups.values()), weights)[0]
        chunk = bytes([_pleasant(members, random)])
        if not _take(guide, chunk):
            break
        text += chunk
        forced = guide.forced_bytes()
        if forced and _take(guide, forced):
            text += forced
    return bytes(text), False


def _groups(index: Index, config: int) -> dict[int, list[int]]:
    """Bytes that may come, by the configuration after them."""
    found: dict[int, list[int]] = defaultdict(list)
    for byte in range(256):
        after = index.advance_bytes(config, _BYTES[byte])
        if after >= 0:
            found[after].append(byte)
    return found


def _weight(members: list[int], length: int) -> float:
    """How likely one of ``members`` is drawn after ``length`` bytes: many are likelier, and what closes becomes so."""
    if not _PLAIN.intersection(members):
        return 0.02
    return float(len(members) ** 0.5) * (0.5 + length / 100 if _CLOSING.intersection(members) else 1)


def _pleasant(members: list[int], random: Random) -> int:
    """One of ``members``, a frequent letter if there are letters."""
    letters = [byte for byte in _LETTERS if byte in members]
    if len(letters) > 1:
        return letters[min(int(random.expovariate(0.15)), len(letters) - 1)]
    return random.choice([byte for byte in members if byte in _PLAIN] or members)


def _take(guide: Guide, data: bytes) -> bool:
    """Advance by tokens that spell ``data``; False if they are not allowed (what guides remember may forbid it)."""
    try:
        tokens = guide.index.vocabulary.encode(data)
    except ValueError:
        return False
    if guide.accepts(tokens) < len(tokens):
        return False
    return all(guide.advance(token) for token in tokens)
