"""The confidence of an answer's values, from the log probabilities of its tokens under their masks.

**A value.** Its probability, as it was written, is the product of the probabilities of the tokens that hold a part of
it. (A number ends only at the token after it, so that token counts, too.) The product of the masses of the same tokens
is the probability that the masks left.

**The members of an enumeration.** At the place where a value begins, the index tells which texts the value may have. If
they are few, each allowed token belongs to one member, or to several members whose texts begin alike. The probability
of a token that belongs to one member is this member's, however the rest of the member is tokenized: the mask lets
nothing else follow. If the sampled token belongs to several members, the next place tells them apart, and so on. Two
things remain unknown: which member a token that was not sampled means, if it belongs to several, and what the tokens
beyond the likeliest mean. Their probabilities count for every member that may be meant, as a possible addition. A
member whose probability is known to within `TOLERANCE` gets this probability; any other member gets none.

A token may begin before the value and hold its first bytes. Then only the tokens that write the same text up to the
value count, since the question is which value comes, given that the value comes here. Let A be the sum of their
probabilities, and P the probability of the tokens that stop before the value and of those that are not known. Any part
q of P may lead to the value, and any part of q may be the member's. So a member to which the part a of A belongs has a
probability between a / (A + P) and (a + P) / (A + P).
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dotllm.inspector.outline import JsonPlace

if TYPE_CHECKING:
    from dotllm.api import Index
    from dotllm.index import Walkable

LIKELIEST = 20
"""Number of tokens whose probabilities are requested at each place; vLLM gives no more by default."""
MOST_MEMBERS = 64
TOLERANCE = 1e-4
_MOST_TRIES = 1 << 15  # bytes tried in all searches for the texts that the values of an answer may have
_MOST_BYTES = 4096  # of one such text
_SPACE = b" \t\r\n"
_NUMBER = b"0123456789+-.eE"
_DIGITS = "-0123456789"
_BEGIN_NUMBERS = [bytes([byte]) for byte in _DIGITS.encode()]
_ROUND = 6
_BYTES = [bytes([byte]) for byte in range(256)]
_BEGIN = [b"{", b"[", b'"', b"t", b"f", b"n", *_BEGIN_NUMBERS]
_IN_NUMBERS = [bytes([byte]) for byte in _NUMBER + b",]}" + _SPACE]


class Place(NamedTuple):
    """One of an answer's tokens."""

    log_mass: float | None
    """None: not known."""
    likeliest: Mapping[int, float]
    """Log probabilities under the mask, of the sampled token and of others."""


UNKNOWN = Place(None, {})


class Value(NamedTuple):
    """A JSON value in a text: its bytes ``start`` to ``end``, and its JSON Pointer."""

    pointer: str
    start: int
    end: int
    kind: str
    """The first character."""


class Field(NamedTuple):
    """What is known about a value."""

    probability: float | None
    mass: float | None
    """The logarithm of the probability that the masks left."""
    members: list[dict[str, Any]] | None
    """``value`` and ``probability`` (None: not known) of each member of an enumeration; None for any other value."""


def confidence(
    index: Index,
    tokens: Sequence[int],
    places: Sequence[Place],
    *,
    choices: Sequence[str] | None = None,
    begins: Sequence[str] | None = None,
) -> dict[str, Field]:
    """The complete values of an answer in JSON, by JSON Pointer. An answer that is one of ``choices`` has the key "".

    ``begins``: texts after which JSON comes, in an answer that holds other text, too. Then a pointer begins with the
    number of the JSON text: ``/0/city``.
    """
    return _Answer(index, tokens, places, choices).fields(begins)


def values(data: bytes, *, ended: bool) -> Iterator[Value]:
    """The complete values of a JSON text. A number at the end of the text is complete if the text has ``ended``."""
    place, open_ones = JsonPlace(), list[tuple[str, int, str]]()
    for at in range(len(data) + 1):
        byte, where = data[at : at + 1], place.where
        if where in ("in a number", "in a word") and (not byte or byte in _SPACE or byte in b",]}"):
            pointer, start, kind = open_ones[-1]
            if byte or ended or kind not in _DIGITS:
                yield Value(pointer, start, at, kind)
            open_ones.pop()
        if not byte or (open_ones == [] and place.where != "before a value"):
            return
        if where == "before a value" and byte not in _SPACE and byte != b"]":
            open_ones.append((place.pointer, at, byte.decode("latin-1")))
        place.feed(byte)
        closes = byte in b"]}" and where not in ("in a string", "in a key")
        if open_ones and (closes or (where == "in a string" and place.where == "after a value")):
            pointer, start, kind = open_ones.pop()
            yield Value(pointer, start, at + 1, kind)
            if not open_ones:
                return


def values_after(begins: Sequence[str], data: bytes) -> Iterator[Value]:
    """The values of JSON texts that follow one of ``begins``; a pointer begins with the number of the JSON text."""
    known = [begin.encode() for begin in begins if begin]
    number = at = 0
    while places := [(place, -len(begin)) for begin in known if (place := data.find(begin, at)) >= 0]:
        place, length = min(places)
        at = start = place - length
        for value in values(data[start:], ended=False):
            at = max(at, start + value.end)
            yield Value(f"/{number}{value.pointer}", start + value.start, start + value.end, value.kind)
        number += 1


class _Texts:
    """The texts that the values at configurations of an index may have."""

    def __init__(self, tries: int) -> None:
        """``tries``: the most bytes to try in all searches."""
        self._left = tries
        self._known: dict[tuple[Walkable, int], list[bytes] | None] = {}

    def __call__(self, index: Walkable, config: int) -> list[bytes] | None:
        """The texts of the value that begins at ``config``; None if there are many, or if it need not be a scalar."""
        key = index, config
        if key not in self._known:
            self._known[key] = self._look(index, config)
        return self._known[key]

    def _look(self, index: Walkable, config: int) -> list[bytes] | None:
        result, ways = set[bytes](), [(config, b"")]
        while ways:
            config, text = ways.pop()
            is_number = text[:1] in _BEGIN_NUMBERS
            if is_number and index.can_finish(config):
                result.add(text)
            forced = index.forced_bytes(config, 1)
            tried = [forced] if forced else _BEGIN if not text else _IN_NUMBERS if is_number else _BYTES
            self._left -= len(tried)
            for byte in tried:
                if self._left < 0 or len(result) + len(ways) > MOST_MEMBERS or len(text) > _MOST_BYTES:
                    return None
                after = index.advance_bytes(config, byte)
                if after < 0 or (not text and byte in _SPACE):
                    continue
                if not text and byte in b"{[":
                    return None
                if is_number and byte not in _NUMBER:
                    result.add(text)
                elif _is_whole(text + byte):
                    result.add(text + byte)
                else:
                    ways.append((after, text + byte))
        return sorted(result) or None


def _is_whole(text: bytes) -> bool:
    """Whether a scalar's text alone shows that it is complete. (A number's text does not.)"""
    closed = len(text) > 1 and text[:1] == text[-1:] == b'"' and not (len(text[:-1]) - len(text[:-1].rstrip(b"\\"))) % 2
    return closed or text in (b"true", b"false", b"null")


def _fits(member: bytes, text: bytes, *, ended: bool) -> bool:
    """Whether a value that begins with ``text`` (and may have ended inside it) may be ``member``."""
    if ended:
        return member == text
    further = text[len(member) : len(member) + 1]
    goes_on = member[:1] in _BEGIN_NUMBERS and further in _NUMBER
    return member.startswith(text) or (text.startswith(member) and not goes_on)


class _Answer:
    """The tokens of an answer, and where each is in its text."""

    def __init__(
        self, index: Index, tokens: Sequence[int], places: Sequence[Place], choices: Sequence[str] | None
    ) -> None:
        self._index, self._tokens, self._places, self._choices = index, tokens, places, choices
        self._vocabulary = index.vocabulary
        self._ends, pieces = list[int](), list[bytes]()
        for token in tokens:
            pieces.append(self._vocabulary.token_bytes(token) or b"")
            self._ends.append((self._ends[-1] if self._ends else 0) + len(pieces[-1]))
        self._data = b"".join(pieces)
        self._texts = _Texts(_MOST_TRIES)
        # (Where a value may end, the only tokens without text that the mask allows are end tokens.)
        self._has_ended = bool(tokens) and self._vocabulary.token_bytes(tokens[-1]) is None

    def fields(self, begins: Sequence[str] | None) -> dict[str, Field]:
        """The fields of all complete values; ``begins``: see `confidence`."""
        if self._choices is not None:
            whole = Value("", 0, len(self._data), "")
            members = [choice.encode() for choice in self._choices]
            return {"": self._field(whole, self._spread(whole, members))} if self._has_ended else {}
        whole_values = list(
            values(self._data, ended=self._has_ended) if begins is None else values_after(begins, self._data)
        )
        members_of = self._members(whole_values)
        return {value.pointer: self._field(value, members_of.get(value)) for value in whole_values}

    def _members(self, values: Sequence[Value]) -> dict[Value, list[dict[str, Any]] | None]:
        """The members of the values that are enumerations. A guide walks along the tokens to the beginning of each."""
        starting: dict[int, list[Value]] = {}
        for value in values:
            if value.kind not in "{[":
                starting.setdefault(self._token_at(value.start), []).append(value)
        guide, spread = self._index.guide(), {}
        for at, token in enumerate(self._tokens):
            for value in starting.get(at, ()):
                lead = self._data[self._start(at) : value.start]
                config = -1 if guide.is_stateful else guide.index.advance_bytes(guide.config, lead)
                texts = None if config < 0 else self._texts(guide.index, config)
                spread[value] = None if texts is None else self._spread(value, texts)
            if not guide.advance(token):
                break
        return spread

    def _field(self, value: Value, members: list[dict[str, Any]] | None) -> Field:
        first, last = self._token_at(value.start), self._token_at(value.end - 1)
        ends_outside = value.kind in _DIGITS and last < len(self._ends) and self._ends[last] == value.end
        if ends_outside or self._choices is not None:
            last += 1
        own = range(first, min(last + 1, len(self._tokens)))
        logarithms = [self._places[at].likeliest.get(self._tokens[at]) for at in own]
        masses = [self._places[at].log_mass for at in own]
        probability = _sum(logarithms)
        return Field(None if probability is None else round(math.exp(probability), _ROUND), _sum(masses), members)

    def _spread(self, value: Value, texts: Sequence[bytes]) -> list[dict[str, Any]]:
        """The members of the enumeration with these ``texts``; see the module's docstring."""
        names = {text: _name(text, is_json=self._choices is None) for text in texts}
        known = {name: Known(0.0, 0.0) for name in names.values()}
        left, share = list(texts), 1.0
        for at in range(self._token_at(value.start), len(self._tokens)):
            sampled, likeliest = self._tokens[at], self._places[at].likeliest
            fitting = {token: self._that_fit(value, at, token, left) for token in likeliest}
            mine = fitting.get(sampled)
            if mine is None:
                break
            chances = {token: math.exp(likeliest[token]) for token, kept in fitting.items() if kept is not None}
            unknown = max(0.0, 1 - sum(map(math.exp, likeliest.values())))
            total = sum(chances.values()) + unknown
            for token, chance in chances.items():
                belongs = {names[text] for text in fitting[token] or ()}
                if len(belongs) == 1:
                    known[belongs.pop()].least += share * chance / total
                elif token != sampled:
                    _give(known, belongs, share * chance / total)
            _give(known, {names[text] for text in left}, share * unknown / total)
            if len({names[text] for text in mine}) == 1:
                return _members(known)
            left, share = mine, share * chances[sampled] / total
        _give(known, {names[text] for text in left}, share)
        return _members(known)

    def _that_fit(self, value: Value, at: int, token: int, members: list[bytes]) -> list[bytes] | None:
        """The ``members`` that the value may still be if ``token`` is the token at ``at``; None if ``token`` writes
        another text before the value."""
        data, start = self._vocabulary.token_bytes(token), self._start(at)
        lead, before = self._data[start : value.start], self._data[value.start : start]
        if data is None and lead:
            return None
        text = data or b""
        if lead and not lead.startswith(text[: len(lead)]):
            return None
        if len(text) < len(lead):
            return members
        text = before + text[len(lead) :]
        if self._choices is None and not before:
            text = text.lstrip(_SPACE)
        return [member for member in members if _fits(member, text, ended=data is None)] or members

    def _token_at(self, byte: int) -> int:
        """The token that holds a byte of the text."""
        return bisect_right(self._ends, byte)

    def _start(self, at: int) -> int:
        return self._ends[at - 1] if at else 0


def _sum(logarithms: Sequence[float | None]) -> float | None:
    known = [logarithm for logarithm in logarithms if logarithm is not None and math.isfinite(logarithm)]
    return round(math.fsum(known), _ROUND) if len(known) == len(logarithms) else None


@dataclass
class Known:
    """Bounds of a member's probability: it is at least ``least``, and at most ``more`` higher."""

    least: float
    more: float


def _give(known: Mapping[str, Known], names: Iterable[str], more: float) -> None:
    """Raise the upper bound of each of ``names`` by ``more``."""
    for name in names:
        known[name].more += more


def _name(text: bytes, *, is_json: bool) -> str:
    """The value of ``text`` as JSON in one spelling: 1 may be written 1.0."""
    value = json.loads(text) if is_json else text.decode()
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value, ensure_ascii=False)


def _members(known: Mapping[str, Known]) -> list[dict[str, Any]]:
    return [
        {"value": json.loads(name), "probability": round(bounds.least, _ROUND) if bounds.more <= TOLERANCE else None}
        for name, bounds in known.items()
    ]
