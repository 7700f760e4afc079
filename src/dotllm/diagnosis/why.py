"""Where a document stops fitting a specification, what was allowed there, and which keyword of a schema is to blame.

The mask is followed byte by byte until it forbids one. To blame is the keyword without which that byte is allowed:
the schema is compiled without each one in turn, which takes a millisecond for most. Where no single keyword is to
blame, it is the fewest that are left out together. A document may also be valid and never be written that way (keys
in another order, another spelling of a number): that is looked at first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from dotllm.api import Index
from dotllm.diagnosis import remedies
from dotllm.diagnosis.json_places import places, value_at
from dotllm.errors import SpecError, escaped
from dotllm.languages.json_schema.build import parse
from dotllm.languages.json_schema.reading.dialect import dialect_named
from dotllm.languages.json_schema.reading.keyword_groups import REFERENCES
from dotllm.languages.json_schema.reading.subschemas import Path, assertions, pointer, smallest, without
from dotllm.languages.surrogates import is_unicode
from dotllm.vocabulary import Vocabulary

MOST_COMPILES = 200
MOST_SECONDS = 1.0
_EOS = 256
_FREEST = {"order": "any", "whitespace": "any"}
"""The options of JSON Schema under which most documents fit."""


class Blame(NamedTuple):
    """A keyword of the schema: its JSON Pointer (RFC 6901) and its value."""

    pointer: str
    value: Any


class Why(NamedTuple):
    """Where and why a document does not fit."""

    offset: int
    """Characters of the document that fit; its length where it ends too early."""
    pointer: str | None
    """The JSON Pointer of the value in the document that has begun there; None for texts that are no JSON."""
    allowed: str
    """What may come next instead, in words."""
    forced: str
    """The text that must come next; "" if there is a choice."""
    reason: str
    """A sentence; "" where nothing was found."""
    help: str
    """What to write instead."""
    blamed: tuple[Blame, ...] = ()
    """The keywords without which the document would get past this place: all of them together, mostly one."""
    is_minimal: bool = True
    """Whether no fewer keywords would do; False where the search has ended at its limit."""
    compiles: int = 0


def explain(build: Callable[[], Index], document: str) -> Why | None:
    """Where ``document`` stops fitting the index that ``build`` makes over `byte_vocabulary`; None if it fits.

    Raises:
        SpecError: the specification is refused.
    """
    walk = _Walk(build(), document.encode())
    return None if walk.fits else walk.stop(document)


def explain_schema(schema: Any, document: str, **options: Any) -> Why | None:
    """The same for a JSON Schema (a dict, a bool or JSON text) with ``options`` of `Index.from_json_schema`, with the
    keyword to blame.

    Raises:
        SpecError: the schema is refused.
    """
    search = _Ablation(parse(schema) if isinstance(schema, str) else schema, document, options)
    if search.walk(search.schema, options).fits:
        return None
    return search.why()


@cache
def byte_vocabulary() -> Vocabulary:
    """The vocabulary of the 256 bytes and an end token."""
    return Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=_EOS)


class _Walk:
    """A document on an index, as far as it fits."""

    def __init__(self, index: Index, data: bytes) -> None:
        self.guide = index.guide()
        self.data = data
        self.taken = 0
        if self.guide.is_stateful:
            while self.taken < len(data) and self.guide.advance(data[self.taken]):
                self.taken += 1
            return
        # A kernel walks a text at once, so halving is quicker than single bytes.
        low, high, begin = 0, len(data), self.guide.config
        after = index.advance_bytes(begin, data)
        while after < 0 and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if index.advance_bytes(begin, data[:middle]) >= 0 else (low, middle)
        self.taken = low if after < 0 else len(data)
        self.guide.move(after if after >= 0 else index.advance_bytes(begin, data[:low]))

    @property
    def fits(self) -> bool:
        """Whether the document is one the index allows."""
        return self.taken == len(self.data) and self.guide.can_finish

    def is_beyond(self, other: _Walk) -> bool:
        """Whether this walk gets past the place where ``other`` ends."""
        return self.taken > other.taken or self.fits

    def stop(self, document: str, **about: Any) -> Why:
        """Where the walk ends."""
        offset = len(self.data[: self.taken].decode(errors="ignore"))
        forced = self.guide.forced_bytes().decode(errors="ignore")
        following = [token for token in self.guide.allowed_tokens() if token != _EOS]
        allowed = in_words(following, may_end=self.guide.can_finish)
        reason = "the document ends too early" if self.taken == len(self.data) else ""
        return Why(offset, None, allowed, forced, reason, "")._replace(**about)


def in_words(allowed: list[int], *, may_end: bool) -> str:
    """A set of next bytes for people: 'a digit, "}" or the end'."""
    groups: list[str] = []
    left = set(allowed)
    if len(left) > 100:
        return "nearly any character" + (", or the end" if may_end else "")
    for name, members in (("white space", b" \t\n\r"), ("a digit", b"0123456789")):
        if len(left & set(members)) > 1:
            left -= set(members)
            groups.append(name)
    plain = _runs(sorted(byte for byte in left if 0x20 <= byte < 0x7F))
    groups = plain[:12] + (["…"] if len(plain) > 12 else []) + groups
    if any(byte >= 0x80 for byte in left):
        groups.append("a character beyond ASCII")
    if may_end:
        groups.append("the end")
    if not groups:
        return "nothing"
    return groups[0] if len(groups) == 1 else f"{', '.join(groups[:-1])} or {groups[-1]}"


def _runs(characters: list[int]) -> list[str]:
    """ASCII characters, ascending, in quotes; neighbours as a range: '"A" to "Z"'."""
    runs: list[list[int]] = []
    for character in characters:
        if runs and character == runs[-1][-1] + 1 and chr(character).isalnum() and chr(runs[-1][-1]).isalnum():
            runs[-1].append(character)
        else:
            runs.append([character])
    quoted = [["'\"'" if one == ord('"') else f'"{chr(one)}"' for one in run] for run in runs]
    return [text for run in quoted for text in ([f"{run[0]} to {run[-1]}"] if len(run) > 3 else run)]


class _Ablation:
    """The search for what keeps one document out of a schema."""

    def __init__(self, schema: Any, document: str, options: dict[str, Any]) -> None:
        self.schema = schema
        self.document = document
        self.options = options
        self.data = document.encode()
        self.compiles = 0
        self._paths: dict[str, Path] = {}
        self.until = float("inf")

    def walk(self, schema: Any, options: dict[str, Any]) -> _Walk:
        """The document on ``schema``."""
        self.compiles += 1
        return _Walk(Index.from_json_schema(schema, byte_vocabulary(), **options), self.data)

    @property
    def is_over(self) -> bool:
        return self.compiles >= MOST_COMPILES or time.monotonic() > self.until

    def why(self) -> Why:
        """Where the document stops fitting, and why."""
        strict = self.walk(self.schema, self.options)
        try:
            value = json.loads(self.document, parse_float=_number)
        except (ValueError, RecursionError) as error:
            why = strict.stop(self.document, reason=f"the document is not JSON: {error}")
            return why._replace(pointer=value_at(self.document, why.offset), compiles=self.compiles)
        free_options = {"default_dialect": self.options.get("default_dialect", "2020-12"), **_FREEST}
        try:
            free = self.walk(self.schema, free_options)
        except SpecError:  # (order "any" may take too large an automaton)
            free, free_options = strict, self.options
        if free.fits:
            why = self._because_of_options(strict, free_options)
        else:
            why = self._because_of_spelling(free, free_options, value) or self._because_of_keywords(free, free_options)
        begun = value_at(self.document, why.offset)
        if not why.blamed:
            return why._replace(pointer=begun, compiles=self.compiles)
        keyword = why.blamed[0].pointer.rpartition("/")[2]
        if why.blamed[0].value is False and keyword not in remedies.CLOSING:
            keyword = ""  # a sub-schema that is false; it may be a property of any name
        place, instance = remedies.instance(keyword, begun, value)
        help = remedies.remedy(keyword, why.blamed[0].value, instance, self._beside(why.blamed[0].pointer), why.forced)
        return why._replace(pointer=place, help=help, compiles=self.compiles)

    def _beside(self, keyword: str) -> dict[str, Any]:
        """The schema that has the keyword at this pointer."""
        found: dict[str, Any] = _value_at(self.schema, self._paths[keyword][:-1])
        return found

    def _because_of_options(self, strict: _Walk, free_options: dict[str, Any]) -> Why:
        """The document is valid; an option is why it is never written."""
        for name, reason, help in _OPTIONS:
            tried = {key: value for key, value in self.options.items() if key != name}
            if name in free_options:
                tried[name] = free_options[name]
            if self.walk(self.schema, tried).is_beyond(strict):
                return strict.stop(self.document, reason=reason, help=help)
        return strict.stop(self.document, reason="the document is valid, and the options forbid how it is written")

    def _because_of_spelling(self, free: _Walk, options: dict[str, Any], value: Any) -> Why | None:
        """Another spelling of the document fits."""
        spelt = json.dumps(value, ensure_ascii=False)
        index = Index.from_json_schema(self.schema, byte_vocabulary(), **options)
        if not is_unicode(spelt) or not _Walk(index, spelt.encode()).fits:
            return None
        return free.stop(
            self.document,
            reason="the document is valid, and never spelt like this",
            help=f"write {spelt if len(spelt) <= 80 else spelt[:80] + '…'}",
        )

    def _because_of_keywords(self, free: _Walk, options: dict[str, Any]) -> Why:
        dialect = dialect_named(options["default_dialect"])
        parts = assertions(self.schema, dialect)
        keys = {token for place in places(self.document) for token in place.split("/")[1:]}
        # Inner keywords say more than those around them, and what they refer to more than references. Such as are about
        # properties that the document does not have come last.
        ordered = sorted(parts, key=lambda path: (not _concerns(path, keys), *_rank(path)))
        self.until = time.monotonic() + MOST_SECONDS

        def admits(removed: list[Path]) -> bool:
            if self.is_over:
                return False
            try:
                return self.walk(without(self.schema, removed), options).is_beyond(free)
            except SpecError:
                return False

        blamed = next(([path] for path in ordered if admits([path])), None)
        if blamed is None:
            blamed = smallest(parts, admits, MOST_COMPILES)
        elif not _is_condition((*blamed[0], "")):
            around = blamed[0]
            inner = [path for path in parts if path[: len(around)] == around != path and not _is_condition(path)]
            blamed = (smallest(inner, admits, MOST_COMPILES) if inner else None) or blamed
        if not blamed:
            return free.stop(self.document, is_minimal=False)
        self._paths = {pointer(path): path for path in blamed}
        found = tuple(Blame(pointer(path), _value_at(self.schema, path)) for path in blamed)
        return free.stop(
            self.document,
            blamed=found,
            is_minimal=not self.is_over,
            reason=_sentence(found),
        )


_OPTIONS = (
    (
        "order",
        "keys come in the order in which the schema declares them",
        'reorder the keys, or allow any order (here --property-order any, in a request "dotllm_property_order": "any")',
    ),
    ("whitespace", "white space is written as formatters do", 'write it so, or allow whitespace="any"'),
    ("any_whitespace", "no white space is written", "leave it out, or allow any_whitespace=True"),
    ("whitespace_pattern", "the whitespace_pattern forbids this white space", "leave it out, or widen the pattern"),
    ("additional_properties", "objects have no properties but those that the schema names", "name it in properties"),
)


def _number(text: str) -> int | float:
    """A number as it is written without a needless fraction or exponent."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _concerns(path: Path, keys: set[str]) -> bool:
    """Whether the keyword at ``path`` may be about a document with these ``keys`` (as tokens of JSON Pointers)."""
    return all(escaped(str(path[i + 1])) in keys for i, token in enumerate(path[:-2]) if token == "properties")


def _rank(path: Path) -> tuple[int, int, bool]:
    """How late the keyword at ``path`` is tried."""
    kind = 2 if _is_condition(path) else int(path[-1] in (*REFERENCES, "contains"))
    return kind, -len(path), path[-1] in ("properties", "items", "prefixItems")


def _is_condition(path: Path) -> bool:
    """Whether the keyword at ``path`` is in a schema that is asked about, not one that the document must satisfy."""
    return path[-1] == "if" or not {"if", "not", "contains"}.isdisjoint(path[:-1])


def _value_at(schema: Any, path: Path) -> Any:
    for token in path:
        schema = schema[token]
    return schema


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:60] + "…"


def _sentence(blamed: tuple[Blame, ...]) -> str:
    texts = [f'"{one.pointer.rpartition("/")[2]}": {_shown(one.value)}' for one in blamed[:4]]
    if len(texts) == 1:
        keyword = blamed[0].pointer.rpartition("/")[2]
        asks = keyword.startswith(("min", "required", "contains", "dependent")) and keyword != "minimum"
        return f"{texts[0]} {'asks for more' if asks else 'forbids it'}"
    return f"{', '.join(texts[:-1])} and {texts[-1]} forbid it"
