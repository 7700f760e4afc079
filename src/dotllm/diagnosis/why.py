"""Explains where a document stops fitting a specification, what was allowed there, and which keyword is to blame.

The document is followed byte by byte until a mask forbids a byte. The keyword without which that byte is allowed is to
blame: the schema is compiled without each keyword in turn, which mostly takes a millisecond. If no single keyword is to
blame, it is the smallest set of keywords that must be left out together. A document may also be valid and yet never be
generated in this form (keys in another order, another spelling of a number): this is checked first.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from dotllm.api import Index
from dotllm.diagnosis.json_places import places, value_at
from dotllm.errors import SpecError, escaped
from dotllm.index import Guide
from dotllm.languages.json_input import is_unicode
from dotllm.languages.json_schema.build import json_schema_to_grammar, parse
from dotllm.languages.json_schema.reading.dialect import ARRAYS, OBJECTS, REFERENCES, dialect_named
from dotllm.languages.json_schema.reading.subschemas import Path, assertions, pointer, reached, smallest, without
from dotllm.suggestions import closest
from dotllm.vocabulary import Vocabulary

# What to write instead of a value that a keyword of JSON Schema forbids.

_LIMITS = {
    "minimum": "write a number of at least {}",
    "maximum": "write a number of at most {}",
    "exclusiveMinimum": "write a number above {}",
    "exclusiveMaximum": "write a number below {}",
    "multipleOf": "write a multiple of {}",
    "minLength": "write at least {} characters",
    "maxLength": "write at most {} characters",
    "pattern": "write a text that matches {}",
    "format": "write a text of the format {}",
    "minItems": "write at least {} items",
    "maxItems": "write at most {} items",
    "uniqueItems": "write no two equal items",
    "minProperties": "write at least {} properties",
    "maxProperties": "write at most {} properties",
    "minContains": "write at least {} items allowed by contains",
    "maxContains": "write at most {} items allowed by contains",
}
_TYPES = ((bool, "boolean"), (str, "string"), (int, "integer"), (float, "number"), (list, "array"), (dict, "object"))


_ARTICLES = {name: f"an {name}" if name[0] in "aio" else f"a {name}" for _, name in _TYPES} | {"null": "null"}


CLOSING = ("additionalProperties", "unevaluatedProperties")
"""Keywords whose value false forbids an object further properties."""


def instance_at(keyword: str, pointer: str, document: Any) -> tuple[str, Any]:
    """The value that ``keyword`` is about, after its JSON Pointer: the value at ``pointer``, or the object or array
    around it."""
    kind: type | None = None
    if keyword in OBJECTS or keyword in ("unevaluatedProperties", "dependentSchemas"):
        kind = dict
    elif keyword in ARRAYS or keyword == "unevaluatedItems":
        kind = list
    while True:
        (value,) = reached(document, pointer) or (None,)  # (of a key that occurs twice there is only one value)
        if kind is None or not pointer or isinstance(value, kind):
            return pointer, value
        pointer = pointer.rpartition("/")[0]


def remedy(keyword: str, wanted: Any, instance: Any, schema: dict[str, Any], forced: str) -> str:
    """What to write instead of ``instance``, which ``keyword`` with its value ``wanted`` forbids. ``schema`` has the
    keyword; ``forced`` is the text that must come next."""
    if keyword in _LIMITS:
        text = _LIMITS[keyword].format(_json(wanted))
        if wanted == 1 and wanted is not True:
            for plural, singular in (("characters", "character"), ("items", "item"), ("properties", "property")):
                text = text.replace(plural, singular)
        return text
    if keyword == "type":
        names = [wanted] if isinstance(wanted, str) else wanted
        return f"write {_listed([_ARTICLES[name] for name in names])}, or allow {_json(_type_of(instance))} in type"
    if keyword in ("enum", "const"):
        values = wanted if keyword == "enum" else [wanted]
        meant = (
            closest(instance, [member for member in values if isinstance(member, str)])
            if isinstance(instance, str)
            else None
        )
        return f"did you mean {_json(meant)}?" if meant else f"write {_listed([_json(member) for member in values])}"
    if keyword == "required" and isinstance(instance, dict):
        missing = [name for name in wanted if name not in instance]
        if missing:
            misspelt = closest(missing[0], instance.keys() - schema.get("properties", {}).keys())
            meant = f"; is {_json(misspelt)} a misspelling of {_json(missing[0])}?" if misspelt else ""
            return f"add {', '.join(_json(name) for name in missing[:5])}{meant}"
    if keyword in CLOSING and isinstance(instance, dict):
        return _about_extra_keys(instance, schema)
    if forced:
        return f"continue with {_json(forced)}"
    return "change the value, or the keyword"


def _about_extra_keys(instance: dict[str, Any], schema: dict[str, Any]) -> str:
    declared, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra = [name for name in instance if name not in declared and not any(_matches(other, name) for other in patterns)]
    for name in extra:
        near = closest(name, [other for other in declared if other not in instance])
        if near:
            return f"did you mean {_json(near)} instead of {_json(name)}?"
    return f"leave out {_json(extra[0])}, or name it in properties" if extra else "leave out the property"


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # ECMA-262 has syntax that Python lacks
        return False


def _type_of(value: Any) -> str:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "null")


def _listed(names: list[str]) -> str:
    return (
        names[0]
        if len(names) == 1
        else f"{', '.join(names[:7])}{' …' if len(names) > 7 else ''}".replace(f", {names[-1]}", f" or {names[-1]}")
    )


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:60] + "…"


MOST_COMPILES = 200
MOST_SECONDS = 1.0
_MOST_READINGS = 64
"""The most readings of a document (a token's name may mean the token or its text) that are followed together."""
_EOS = 256
_FREEST = {"order": "any", "whitespace": "any", "additional_properties": "open", "number_digits": "any"}
"""The options of JSON Schema under which the most documents fit."""


class Blame(NamedTuple):
    """A keyword of the schema: its JSON Pointer (RFC 6901) and its value."""

    pointer: str
    value: Any


class Why(NamedTuple):
    """Where and why a document does not fit."""

    offset: int
    """Characters of the document that fit; its length if it ends too early."""
    pointer: str | None
    """The JSON Pointer of the value in the document that has begun there; None for texts that are not JSON."""
    allowed: str
    """What may come next instead, in words."""
    forced: str
    """The text that must come next; "" if there is a choice."""
    reason: str
    """The explanation as a sentence; "" if none was found."""
    help: str
    """What to write instead; "" if that is not known."""
    blamed: tuple[Blame, ...] = ()
    """If all of these keywords were left out, the document would get past this place; usually it is a single one."""
    is_minimal: bool = True
    """Whether leaving out fewer keywords does not suffice; False if the search ended at its limit."""
    compiles: int = 0


def explain(build: Callable[[], Index], document: str) -> Why | None:
    """Where ``document`` stops fitting the index that ``build`` makes; None if it fits. Names of tokens in it may stand
    for the tokens.

    Raises:
        SpecError: the specification is refused.
    """
    walk = _Walk(build(), document.encode())
    return None if walk.fits else walk.stop(document)


def explain_schema(schema: Any, document: str, **options: Any) -> Why | None:
    """`explain` for a JSON Schema (a dict, a bool or JSON text) with ``options`` of `json_schema_to_grammar`; also
    names the keyword to blame.

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
    """A walk of a document on an index, as far as the document fits.

    A token's name in the document may mean the token or its text: both readings are followed.
    """

    def __init__(self, index: Index, data: bytes) -> None:
        self.data = data
        self.taken = 0
        vocabulary = index.vocabulary
        self._names = {
            number: name
            for names in (vocabulary.special_tokens, vocabulary.added_tokens)
            for name, number in names.items()
        }
        self.guide: Guide = index.guide()
        standing = [self.guide]
        for piece, tokens in self._pieces():
            after: dict[int, Guide] = {}
            reached: list[tuple[int, Guide]] = []
            for guide in standing:
                for token in tokens:
                    by_id = guide.fork()
                    if by_id.advance(token):
                        after.setdefault(_standing(by_id), by_id)
                taken = _take(guide, piece)
                reached.append((taken, guide))
                if taken == len(piece):
                    after.setdefault(_standing(guide), guide)
            if not after:
                furthest, self.guide = max(reached, key=lambda pair: pair[0])
                self.taken += furthest
                return
            self.taken += len(piece)
            standing = [*after.values()][:_MOST_READINGS]
        self.guide = next((guide for guide in standing if guide.can_finish), standing[0])

    def _pieces(self) -> list[tuple[bytes, list[int]]]:
        """The document in parts, each with the tokens of that name."""
        numbers: dict[bytes, list[int]] = {}
        for number, name in self._names.items():
            if name:
                numbers.setdefault(name.encode("utf-8", "surrogatepass"), []).append(number)
        if not numbers:
            return [(self.data, [])]
        pattern = b"|".join(map(re.escape, sorted(numbers, key=len, reverse=True)))
        return [(piece, numbers.get(piece, [])) for piece in re.split(b"(" + pattern + b")", self.data)]

    @property
    def fits(self) -> bool:
        """Whether the index allows the document."""
        return self.taken == len(self.data) and self.guide.can_finish

    def is_beyond(self, other: _Walk) -> bool:
        """Whether this walk gets past the place where ``other`` ends."""
        return self.taken > other.taken or self.fits

    def stop(self, document: str, **about: Any) -> Why:
        """Describe the place where the walk ends."""
        offset = len(self.data[: self.taken].decode(errors="ignore"))
        forced = self.guide.forced_bytes().decode(errors="ignore")
        allowed = in_words(*self._following(), may_end=self.guide.can_finish)
        reason = "the document ends too early" if self.taken == len(self.data) else ""
        return Why(offset, None, allowed, forced, reason, "")._replace(**about)

    def _following(self) -> tuple[list[int], list[str]]:
        """The bytes that may come next, and the names of tokens that only their ids allow."""
        vocabulary = self.guide.index.vocabulary
        following = set[int]()
        names: list[str] = []
        for token in self.guide.allowed_tokens():
            if token in vocabulary.eos_token_ids:
                continue
            if token in self._names and not self.guide.fork().accept_string(self._names[token]):
                names.append(self._names[token])
            else:
                following.update((vocabulary.token_bytes(token) or b"")[:1])
        return sorted(following), names


def _standing(guide: Guide) -> int:
    """A number that is equal for guides of one index that stand at the same place."""
    return id(guide) if guide.is_stateful else guide.config


def _take(guide: Guide, data: bytes) -> int:
    """Take as many bytes of ``data`` as are allowed, and return their number."""
    if guide.is_stateful:
        return next((at for at in range(len(data)) if not guide.accept_string(data[at : at + 1])), len(data))
    if guide.accept_string(data):
        return len(data)
    # One call of a kernel walks a whole text, so halving is quicker than single bytes.
    low, high = 0, len(data)
    while high - low > 1:
        middle = (low + high) // 2
        if guide.accept_string(data[low:middle]):
            low = middle
        else:
            high = middle
    return low


def in_words(allowed: list[int], names: list[str] | None = None, *, may_end: bool) -> str:
    """A set of next bytes, and names of tokens, for people: 'a digit, "}" or the end'."""
    groups: list[str] = [*(names or ())][:12]
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
    quoted = [["'\"'" if byte == ord('"') else f'"{chr(byte)}"' for byte in run] for run in runs]
    return [text for run in quoted for text in ([f"{run[0]} to {run[-1]}"] if len(run) > 3 else run)]


class _Ablation:
    """The search for the reason why one document does not fit a schema."""

    def __init__(self, schema: Any, document: str, options: dict[str, Any]) -> None:
        self.schema = schema
        self.document = document
        self.options = options
        self.data = document.encode()
        self.compiles = 0
        self._paths: dict[str, Path] = {}
        self.until = float("inf")

    def walk(self, schema: Any, options: dict[str, Any]) -> _Walk:
        """Walk the document on ``schema``."""
        self.compiles += 1
        return _Walk(_index_of(schema, options), self.data)

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
        except SpecError:  # (order "any" may need an automaton that is too large)
            free, free_options = strict, self.options
        if free.fits:
            why = self._because_of_options(strict, free_options)
        else:
            why = self._because_of_spelling(free, free_options, value) or self._because_of_keywords(free, free_options)
        begun = value_at(self.document, why.offset)
        if not why.blamed:
            return why._replace(pointer=begun, compiles=self.compiles)
        keyword = why.blamed[0].pointer.rpartition("/")[2]
        if why.blamed[0].value is False and keyword not in CLOSING:
            keyword = ""  # a sub-schema that is false; what looks like a keyword may be the name of a property
        place, instance = instance_at(keyword, begun, value)
        help = remedy(keyword, why.blamed[0].value, instance, self._beside(why.blamed[0].pointer), why.forced)
        return why._replace(pointer=place, help=help, compiles=self.compiles)

    def _beside(self, keyword: str) -> dict[str, Any]:
        """The schema that has the keyword at this pointer."""
        holder: dict[str, Any] = _value_at(self.schema, self._paths[keyword][:-1])
        return holder

    def _because_of_options(self, strict: _Walk, free_options: dict[str, Any]) -> Why:
        """The reason why the document, although valid, is never generated: an option forbids it."""
        for name, reason, help in _OPTIONS:
            tried = {key: value for key, value in self.options.items() if key != name}
            if name in free_options:
                tried[name] = free_options[name]
            if self.walk(self.schema, tried).is_beyond(strict):
                return strict.stop(self.document, reason=reason, help=help)
        return strict.stop(self.document, reason="the document is valid, but the options forbid its form")

    def _because_of_spelling(self, free: _Walk, options: dict[str, Any], value: Any) -> Why | None:
        """The reason if only another spelling of the document fits."""
        spelt = json.dumps(value, ensure_ascii=False)
        index = _index_of(self.schema, options)
        if not is_unicode(spelt) or not _Walk(index, spelt.encode()).fits:
            return None
        return free.stop(
            self.document,
            reason="the document is valid, but never generated in this spelling",
            help=f"write {spelt if len(spelt) <= 80 else spelt[:80] + '…'}",
        )

    def _because_of_keywords(self, free: _Walk, options: dict[str, Any]) -> Why:
        dialect = dialect_named(options["default_dialect"])
        parts = assertions(self.schema, dialect)
        keys = {token for place in places(self.document) for token in place.split("/")[1:]}
        # Inner keywords say more than those around them, and a referenced schema more than its reference. Keywords
        # about properties that the document lacks come last.
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
        blames = tuple(Blame(pointer(path), _value_at(self.schema, path)) for path in blamed)
        return free.stop(
            self.document,
            blamed=blames,
            is_minimal=not self.is_over,
            reason=_sentence(blames),
        )


_OPTIONS = (
    (
        "order",
        "keys come in the order in which the schema declares them",
        'reorder the keys, or allow any order (here --property-order any, in a request "dotllm_property_order": "any")',
    ),
    ("whitespace", "white space is written as formatters write it", 'write it so, or allow whitespace="any"'),
    (
        "number_digits",
        "a number is longer than readers accept, or they read it as another number (infinite, 0)",
        'write fewer digits, or allow number_digits="any"',
    ),
    ("any_whitespace", "no white space is written", "leave it out, or allow any_whitespace=True"),
    ("whitespace_pattern", "the whitespace_pattern forbids this white space", "leave it out, or widen the pattern"),
    (
        "additional_properties",
        "objects have no properties except those that the schema lists",
        "list it in properties, or say additionalProperties: true in the schema (or allow it for all objects: here "
        '--additional-properties open, in a request "dotllm_additional_properties": "open")',
    ),
)


def _number(text: str) -> int | float:
    """A number as it is written with no needless fraction or exponent."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _concerns(path: Path, keys: set[str]) -> bool:
    """Whether the keyword at ``path`` may be about a document with these ``keys`` (as tokens of JSON Pointers)."""
    return all(escaped(str(path[i + 1])) in keys for i, token in enumerate(path[:-2]) if token == "properties")


def _rank(path: Path) -> tuple[int, int, bool]:
    """The order in which keywords are tried: the larger the rank, the later."""
    kind = 2 if _is_condition(path) else int(path[-1] in (*REFERENCES, "contains"))
    return kind, -len(path), path[-1] in ("properties", "items", "prefixItems")


def _is_condition(path: Path) -> bool:
    """Whether the keyword at ``path`` is in a condition, not in a schema that the document must satisfy."""
    return path[-1] == "if" or not {"if", "not", "contains"}.isdisjoint(path[:-1])


def _value_at(schema: Any, path: Path) -> Any:
    for token in path:
        schema = schema[token]
    return schema


def _sentence(blamed: tuple[Blame, ...]) -> str:
    texts = [f'"{blame.pointer.rpartition("/")[2]}": {_json(blame.value)}' for blame in blamed[:4]]
    if len(texts) == 1:
        keyword = blamed[0].pointer.rpartition("/")[2]
        asks = keyword.startswith(("min", "required", "contains", "dependent")) and keyword != "minimum"
        return f"{texts[0]} {'asks for more' if asks else 'forbids it'}"
    return f"{', '.join(texts[:-1])} and {texts[-1]} forbid it"


def _index_of(schema: Any, options: dict[str, Any]) -> Index:
    """The index of a schema, without warnings: many variations of it are compiled."""
    return Index.from_grammar_object(json_schema_to_grammar(schema, **options), byte_vocabulary())
