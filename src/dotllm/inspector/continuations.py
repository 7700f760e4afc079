"""Groups the tokens that may come at a position (often 150,000), so that a reader can take them in.

A group holds the characters that lead to the same configuration. Characters that the grammar does not distinguish are
in one group, so no rule for a particular language is needed. All digits of a number form a group, all characters of a
string except those that end it form another, and each first letter of an enum's values has its own. The mask says
which characters may come, and how many tokens begin with each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

import numpy as np

from dotllm.api import Index
from dotllm.arrays import Int32
from dotllm.index import Guide, Walkable
from dotllm.vocabulary import Vocabulary

MOST_GROUPS = 32
EXAMPLES = 8
_FORCED_BYTES = 60
_WHITE_SPACE = frozenset(" \t\r\n")
_PRINTABLE = frozenset(map(chr, range(0x20, 0x7F)))
_NAMES = {" ": "space", "\t": "tab", "\n": "line break", "\r": "carriage return"}
_CONTINUATION = range(0x80, 0xC0)
_INSIDE, _SPACES = -2, -3  # used in place of configurations


class ContinuationGroup(NamedTuple):
    """Continuations that the grammar does not distinguish."""

    label: str
    """Their first characters."""
    meaning: str
    """The meaning of the characters (the value that they begin or end), or "" if it is not known."""
    then: str
    """The text that must follow them."""
    tokens: int
    """Number of tokens that begin with these characters."""
    examples: tuple[str, ...]
    """Some of these tokens, the first in the vocabulary."""


def allowed(guide: Guide) -> Int32:
    """The mask of the next token, int32 [words]."""
    bitmask: Int32 = np.zeros((1, guide.index.vocabulary.words), np.int32)
    guide.write_mask(bitmask)
    return bitmask.ravel()


def continuations(guide: Guide, meaning: Callable[[str], str]) -> list[ContinuationGroup]:
    """The groups at the position of a guide, the largest first; ``meaning`` gives a character's meaning here, or ""."""
    ids = np.flatnonzero(np.unpackbits(allowed(guide).view(np.uint8), bitorder="little"))
    index = guide.index
    vocabulary = index.vocabulary
    has_bytes = vocabulary.token_offset[ids + 1] > vocabulary.token_offset[ids]
    first = vocabulary.token_data[vocabulary.token_offset[ids[has_bytes]]]
    bytes_after: dict[int, list[int]] = {}
    char_of: dict[int, str] = {}
    for byte in np.unique(first).tolist():
        after, char_of[byte] = _after(index, guide.config, byte)
        bytes_after.setdefault(after, []).append(byte)
    spaces = [after for after, members in bytes_after.items() if _WHITE_SPACE.issuperset(char_of[b] for b in members)]
    if len(spaces) > 1:
        bytes_after[_SPACES] = [byte for after in spaces for byte in bytes_after.pop(after)]
    groups = []
    for after, members in bytes_after.items():
        of_group = ids[has_bytes][np.isin(first, members)]
        chars = [char_of[byte] for byte in members]
        groups.append(
            ContinuationGroup(
                "the rest of a character" if after == _INSIDE else label(chars),
                meaning(chars[0]) if len({meaning(char) for char in chars}) == 1 else "",
                "" if after < 0 else shown(index.forced_bytes(after, _FORCED_BYTES)),
                len(of_group),
                tuple(shown(vocabulary.token_bytes(int(token)) or b"") for token in of_group[:EXAMPLES]),
            )
        )
    groups.sort(key=lambda group: -group.tokens)
    return [*_special(vocabulary, ids[~has_bytes].tolist()), *groups[:MOST_GROUPS], *_rest(groups[MOST_GROUPS:])]


def shown(data: bytes) -> str:
    r"""Bytes as text; bytes that are not a whole character are written as ``\xE2``."""
    return data.decode(errors="backslashreplace")


def label(chars: Iterable[str]) -> str:
    """A set of characters in a few words: ``0-9 a-f``, ``any character but "``."""
    members = frozenset(chars)
    if members <= _WHITE_SPACE and len(members) > 1:
        return "white space"
    beyond = sorted(members - _PRINTABLE - _WHITE_SPACE)
    missing = _PRINTABLE - members
    if beyond and len(missing) <= len(_PRINTABLE) // 2:
        return f"any character but {_ranges(missing)}" if missing else "any character"
    others = f"characters such as {' '.join(beyond[:3])}" if beyond else ""
    return " ".join(part for part in (_ranges(members - frozenset(beyond)), others) if part)


def _after(index: Walkable, config: int, byte: int) -> tuple[int, str]:
    """(The configuration after a character that begins with ``byte``, that character)."""
    if byte in _CONTINUATION:
        return _INSIDE, f"\\x{byte:02X}"
    data = bytes([byte])
    for _ in range(0 if byte < 0x80 else 1 + (byte >= 0xE0) + (byte >= 0xF0)):
        follows = (data + bytes([end]) for end in (*range(0xA9, 0xC0), *range(0x80, 0xA9)))
        data = next((longer for longer in follows if index.advance_bytes(config, longer) >= 0), data)
    return index.advance_bytes(config, data), shown(data)


def _ranges(chars: Iterable[str]) -> str:
    """``a-f x y``: runs of at least three letters or digits are written as ranges."""
    runs: list[list[str]] = []
    for char in sorted(chars):
        previous = runs[-1][-1] if runs else ""
        if previous and ord(char) == ord(previous) + 1 and char.isalnum() and previous.isalnum():
            runs[-1].append(char)
        else:
            runs.append([char])
    parts = [
        f"{run[0]}-{run[-1]}" if len(run) > 2 else " ".join(_NAMES.get(char, char) for char in run) for run in runs
    ]
    return " ".join(parts)


def _special(vocabulary: Vocabulary, ids: list[int]) -> list[ContinuationGroup]:
    """Tokens without text: the end, and tokens that a grammar names."""
    names: dict[int, Any] = {number: name for name, number in vocabulary.special_tokens.items()}
    ends = [token for token in ids if token in vocabulary.eos_token_ids]
    named = [str(names.get(token, token)) for token in ids if token not in ends]
    return [
        *([ContinuationGroup("the end", "of the answer", "", len(ends), ())] if ends else ()),
        *([ContinuationGroup("a special token", "", "", len(named), tuple(named[:EXAMPLES]))] if named else ()),
    ]


def _rest(groups: list[ContinuationGroup]) -> list[ContinuationGroup]:
    return (
        [ContinuationGroup(f"{len(groups)} more groups", "", "", sum(group.tokens for group in groups), ())]
        if groups
        else []
    )


# Draws random texts that a specification allows.
#
# Drawing tokens uniformly gives long nonsense, because most of a vocabulary is text. So the walk draws among the
# *groups* of the bytes that may come (see `continuations`). The more often it has been at a place, the less likely it
# returns there, so that loops end.


LONGEST = 600
"""The most bytes of a text; longer texts are cut off."""
_CLOSING = frozenset(b'"}])')
_PLAIN = frozenset(range(0x21, 0x7F)) - {ord("\\")}
"""Bytes that make texts look tidy: no white space, no escapes, nothing beyond ASCII."""
_LETTERS = b"etaoinshrdlucmfwypvbgkqjxz"
_BYTES = [bytes([byte]) for byte in range(256)]


def sample(index: Index, random: Random) -> tuple[bytes, bool]:
    """A random text, and whether it is complete."""
    guide, text, visits = index.guide(), bytearray(), Counter[int]()
    while len(text) < LONGEST:
        visits[guide.config] += 1
        groups = _groups(guide.index, guide.config)
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


def _groups(index: Walkable, config: int) -> dict[int, list[int]]:
    """Bytes that may come, by the configuration after them."""
    groups: dict[int, list[int]] = defaultdict(list)
    for byte in range(256):
        after = index.advance_bytes(config, _BYTES[byte])
        if after >= 0:
            groups[after].append(byte)
    return groups


def _weight(members: list[int], length: int) -> float:
    """The weight of the group ``members`` after ``length`` bytes: large groups weigh more, and groups with closing
    bytes weigh more as the text grows."""
    if not _PLAIN.intersection(members):
        return 0.02
    return float(len(members) ** 0.5) * (0.5 + length / 100 if _CLOSING.intersection(members) else 1)


def _pleasant(members: list[int], random: Random) -> int:
    """One of ``members``; if it has letters, probably a frequent one."""
    letters = [byte for byte in _LETTERS if byte in members]
    if len(letters) > 1:
        return letters[min(int(random.expovariate(0.15)), len(letters) - 1)]
    return random.choice([byte for byte in members if byte in _PLAIN] or members)


def _take(guide: Guide, data: bytes) -> bool:
    """Advance by tokens that spell ``data``; False if they are not allowed (because of values that the guide remembers,
    say)."""
    try:
        tokens = guide.index.vocabulary.encode(data)
    except ValueError:
        return False
    if guide.accepts(tokens) < len(tokens):
        return False
    return all(guide.advance(token) for token in tokens)
