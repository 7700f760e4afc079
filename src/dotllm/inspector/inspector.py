"""Answers the page's questions, as JSON objects, for the inspector's server, for a snapshot and for a vLLM server.

Every question carries the specification and the text, so only compiled indexes are remembered between questions. Sizes
and times have bounds.
"""

from __future__ import annotations

import json
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from dotllm.api import Index
from dotllm.cancellation import Cancelled, cancellable
from dotllm.compilation import Kind, Specification, compiler
from dotllm.diagnosis.why import explain, explain_schema
from dotllm.errors import EngineFault, Pointer, SpecError
from dotllm.index import Guide
from dotllm.inspector.confidence import UNKNOWN, Place, confidence
from dotllm.inspector.continuations import allowed, continuations, sample, shown
from dotllm.inspector.outline import JsonPlace, outline
from dotllm.vocabulary import Vocabulary

MOST_TOKENS = 4096
MOST_BYTES = 1 << 20
"""The most bytes of a question."""
COMPILE_S = 10.0
SAMPLES = 3
_REMEMBERED = 16
_JSON_KINDS = (Kind.JSON_SCHEMA, Kind.JSON_OBJECT)
_OPTIONS = (
    *("any_whitespace", "additional_properties", "number_digits", "order"),
    *("source", "whitespace", "whitespace_pattern"),
)


class BadQuestion(ValueError):
    """The question has a form that cannot be answered."""


class Inspector:
    """Answers questions about any specification, with one vocabulary. Thread-safe: one question at a time."""

    def __init__(self, vocabulary: Vocabulary, tokenizer: str = "") -> None:
        """``tokenizer``: the tokenizer's name; "" if the tokens are single bytes."""
        self.vocabulary = vocabulary
        self.tokenizer = tokenizer
        self._names = {number: name for name, number in vocabulary.special_tokens.items()}
        self._indexes: OrderedDict[Specification, Index] = OrderedDict()
        self._lock = threading.Lock()
        self._questions = {"walk": self.walk, "position": self.position, "samples": self.samples, "why": self.why}

    def answer(self, question: str, body: Any) -> dict[str, Any]:
        """The answer to the question of that name; for a refused specification ``{"error": …}``. Raises BadQuestion."""
        if question not in self._questions:
            raise BadQuestion(f"no question {question!r}; there are {', '.join(self._questions)}")
        if not isinstance(body, dict):
            raise BadQuestion("expected a JSON object")
        try:
            with self._lock:
                return self._questions[question](body)
        except SpecError as error:
            return {"error": described(error), "outline": outline(_specification(body))}
        except EngineFault as error:
            return {"error": {"message": f"a bug of the engine: {error}"}, "outline": []}
        except Cancelled:
            return {"error": {"message": f"compiling takes longer than {COMPILE_S:g} s"}, "outline": []}

    def answer_text(self, question: str, body: bytes) -> str:
        """`answer` for the body of a request, in JSON."""
        if len(body) > MOST_BYTES:
            raise BadQuestion(f"a question has at most {MOST_BYTES} bytes")
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            raise BadQuestion("the body is not JSON") from None
        return json.dumps(self.answer(question, asked))

    def walk(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The text as tokens, each with what its position allows (``steps``; the last is for the end of the text), the
        number of the first token that does not fit (``bad``, or null), and the outline."""
        specification, guide, tokens, bad = self._read(body)
        place = JsonPlace() if specification.kind in _JSON_KINDS else None
        steps = []
        for number, token in enumerate([*tokens, None]):
            step = self._shown(token)
            steps.append(step)
            if bad is not None and number > bad:
                continue
            step |= {"allowed": int(np.bitwise_count(allowed(guide)).sum()), "end": guide.can_finish}
            step |= {"path": place.pointer, "where": place.where} if place else {}
            if token is not None and number != bad:
                data = self.vocabulary.token_bytes(token) or b""
                step["forced"] = step["allowed"] == 1 or (bool(data) and guide.forced_bytes().startswith(data))
                guide.advance(token)
                if place:
                    place.feed(data)
        return {"steps": steps, "bad": bad, "finished": guide.is_finished, "outline": outline(specification)}

    def position(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The continuations before the token with number ``at``: ``groups``, ``forced`` text, whether the text may
        ``end``.

        Raises:
            BadQuestion: there is no such position.
        """
        specification, guide, tokens, bad = self._read(body)
        at = body.get("at")
        if not isinstance(at, int) or not 0 <= at <= (len(tokens) if bad is None else bad):
            raise BadQuestion("at: expected the number of a position in the text, up to the first that does not fit")
        place = JsonPlace()
        for token in tokens[:at]:
            guide.advance(token)
            place.feed(self.vocabulary.token_bytes(token) or b"")
        is_json = specification.kind in _JSON_KINDS
        groups = continuations(guide, place.meaning if is_json else lambda char: "")
        return {
            "at": at,
            "groups": [group._asdict() for group in groups],
            "forced": shown(guide.forced_bytes()),
            "end": guide.can_finish,
            "allowed": sum(group.tokens for group in groups),
            "path": place.pointer if is_json else None,
            "where": place.where if is_json else "",
        }

    def samples(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A few random ``texts``, and whether each is ``whole``; another ``seed`` gives other texts."""
        index = self._index(_specification(body))
        random = Random(str(body.get("seed", 0)))
        drawn = [sample(index, random) for _ in range(SAMPLES)]
        return {"texts": [{"text": shown(text), "whole": whole} for text, whole in drawn]}

    def why(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Why the text does not fit: ``reason``, ``help``, the keywords that are ``blamed``; all empty if it fits."""
        specification, text = _specification(body), _text(body)
        if specification.kind is Kind.JSON_SCHEMA:
            try:
                json.loads(text)
            except (ValueError, RecursionError):  # perhaps it is only the beginning of a JSON text
                place = JsonPlace()
                place.feed(text.encode(errors="replace"))
                text += place.closing
            reason = explain_schema(specification.text, text, **dict[str, Any](specification.options))
        else:
            reason = explain(lambda: compiler.build(specification, self.vocabulary), text)
        return (
            {"reason": "", "help": "", "blamed": []}
            if reason is None
            else reason._asdict() | {"blamed": [blame._asdict() for blame in reason.blamed]}
        )

    def confidence(
        self, specification: Specification, tokens: Sequence[int], places: Sequence[Place]
    ) -> dict[str, Any] | None:
        """The fields of an answer by JSON Pointer (`dotllm.inspector.confidence`), as JSON; None if the answer is
        neither a choice nor in JSON.

        Raises:
            SpecError: the specification is refused.
            Cancelled: compiling takes longer than `COMPILE_S`.
        """
        with self._lock:
            return self.fields(specification, tokens, places)

    def fields(
        self, specification: Specification, tokens: Sequence[int], places: Sequence[Place]
    ) -> dict[str, Any] | None:
        """`confidence` for callers that hold the lock."""
        kind, index = specification.kind, self._index(specification)
        if kind is Kind.CHOICE:
            by_pointer = confidence(index, tokens, places, choices=json.loads(specification.text))
        elif kind is Kind.STRUCTURAL_TAG:
            by_pointer = confidence(index, tokens, places, begins=list(_begins_of_json(json.loads(specification.text))))
        elif kind in _JSON_KINDS:
            by_pointer = confidence(index, tokens, places)
        else:
            return None
        return {name: field._asdict() for name, field in by_pointer.items()}

    def _read(self, body: Mapping[str, Any]) -> tuple[Specification, Guide, list[int], int | None]:
        """(The specification, a guide at its beginning, the text's tokens, the number of the first token that does not
        fit). That token is split where it stops fitting."""
        specification = _specification(body)
        guide = self._index(specification).guide()
        tokens = self._tokens(body)
        number = guide.accepts(tokens)
        if number == len(tokens):
            return specification, guide, tokens, None
        ahead = guide.fork()
        for token in tokens[:number]:
            ahead.advance(token)
        data = self.vocabulary.token_bytes(tokens[number]) or b""
        for fitting in range(len(data) - 1, 0, -1):
            pieces = self.vocabulary.encode(data[:fitting])
            if ahead.accepts(pieces) == len(pieces):
                tokens[number : number + 1] = [*pieces, *self.vocabulary.encode(data[fitting:])]
                return specification, guide, tokens, number + len(pieces)
        return specification, guide, tokens, number

    def _tokens(self, body: Mapping[str, Any]) -> list[int]:
        """The tokens of the field ``tokens`` (ids), or of the field ``document`` (a text)."""
        tokens = body.get("tokens")
        if tokens is None:
            try:
                tokens = self.vocabulary.encode(_text(body).encode(errors="replace"))
            except ValueError as error:
                raise BadQuestion(str(error)) from None
        if not isinstance(tokens, list) or not all(
            isinstance(token, int) and 0 <= token < self.vocabulary.size for token in tokens
        ):
            raise BadQuestion("tokens: expected a list of ids of the vocabulary")
        return tokens[:MOST_TOKENS]

    def _index(self, specification: Specification) -> Index:
        index: Index | None = self._indexes.pop(specification, None)
        if index is None:
            too_long = threading.Event()
            timer = threading.Timer(COMPILE_S, too_long.set)
            timer.daemon = True
            timer.start()
            try:
                with cancellable(too_long):
                    index = compiler.compile_specification(specification, self.vocabulary)
            finally:
                timer.cancel()
        self._indexes[specification] = index
        while len(self._indexes) > _REMEMBERED:
            self._indexes.popitem(last=False)
        return index

    def _shown(self, token: int | None) -> dict[str, Any]:
        """The part of a token's step that does not depend on the token's place; None is the end of the text."""
        if token is None:
            return {"text": ""}
        data = self.vocabulary.token_bytes(token)
        text = self._names.get(token, "") if data is None else shown(data)
        return {"id": token, "text": text, "special": data is None}


def described(error: SpecError) -> dict[str, Any]:
    """A refusal with its place: a ``pointer`` into JSON, or an ``offset`` or ``line`` and ``column`` in a text, and
    the ``related`` places of JSON."""
    place = {"pointer": error.pointer} | (error.span._asdict() if error.span else {})
    related = [
        {"message": other.message, "pointer": other.location.path}
        for other in error.related
        if isinstance(other.location, Pointer)
    ]
    about = {"message": error.message, "keyword": error.keyword, "code": error.code, "help": error.help}
    return about | place | {"related": related}


def _begins_of_json(part: Any) -> Iterator[str]:
    """The texts after which a structural tag has JSON."""
    inside = list(part.values()) if isinstance(part, dict) else part if isinstance(part, list) else []
    if isinstance(part, dict) and isinstance(part.get("begin"), str):
        content = part.get("content", part)  # (the older form has the schema next to its begin)
        if isinstance(content, dict) and {"json_schema", "schema"} & content.keys():
            yield part["begin"]
    for child in inside:
        yield from _begins_of_json(child)


def _text(body: Mapping[str, Any]) -> str:
    """The text of a question. Raises BadQuestion."""
    text = body.get("document", "")
    if not isinstance(text, str):
        raise BadQuestion("document: expected a text")
    return text


def _specification(body: Mapping[str, Any]) -> Specification:
    """The specification of a question. Raises BadQuestion."""
    kind, text, options = body.get("kind", Kind.JSON_SCHEMA.value), body.get("text", ""), body.get("options") or {}
    if kind not in set(Kind) or not isinstance(text, str) or not isinstance(options, dict):
        raise BadQuestion(f"expected kind (one of {', '.join(kind.value for kind in Kind)}), text and options")
    known = {name: value for name, value in options.items() if name in _OPTIONS and isinstance(value, bool | str)}
    takes_options = kind in (*_JSON_KINDS, Kind.STRUCTURAL_TAG)
    return Specification.create(
        kind, text.removesuffix("\n") if kind == Kind.REGEX else text, known if takes_options else None
    )


# The constrained requests of a server, as the inspector follows them: their specifications, and their tokens so far.


MOST_REQUESTS = 32
"""Number of requests that are kept, the most recent ones."""


@dataclass
class Live:
    """One request."""

    specification: Specification
    answer_of: Callable[[list[int]], list[int]]
    """Picks the tokens under the constraint out of all tokens; there are none before the reasoning ends."""
    tokens: list[int] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    """What is known about each of the tokens."""
    end: str = ""
    """Why the request has ended; "" while it runs."""


class LiveInspector(Inspector):
    """An `Inspector` that also knows requests, and answers ``requests`` and ``request``."""

    def __init__(self, vocabulary: Vocabulary, tokenizer: str, live: OrderedDict[str, Live]) -> None:
        """``live``: `begin` and `take` fill it, even before there is an inspector."""
        super().__init__(vocabulary, tokenizer)
        self._live = live
        self._questions |= {"requests": self.requests, "request": self.request}

    def requests(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """All known requests, the newest first."""
        return {
            "requests": [
                {"id": name, "kind": live.specification.kind.value, "text": live.specification.text[:80],
                 "tokens": len(live.tokens), "end": live.end}
                for name, live in reversed(list(self._live.items()))
            ]
        }  # fmt: skip

    def request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The request with this ``id``: its specification, its tokens, and their masses (null: not known); once it has
        ended, the confidence of its fields, too.

        Raises:
            BadQuestion: the request is not known, or no longer known.
        """
        answer = self._live.get(str(body.get("id")))
        if answer is None:
            raise BadQuestion("this request is not known any more")
        tokens = answer.answer_of(list(answer.tokens))[:MOST_TOKENS]
        places = answer.places[len(answer.tokens) - len(answer.answer_of(list(answer.tokens))) :][: len(tokens)]
        known = [place.log_mass for place in places]
        masses = [mass if mass is not None and math.isfinite(mass) else None for mass in known]
        fields = self.fields(answer.specification, tokens, places) if answer.end and any(known) else None
        return answer.specification.to_json() | {"tokens": tokens, "mass": masses, "fields": fields, "end": answer.end}


def begin(live: OrderedDict[str, Live], name: str, request: Live) -> None:
    """Add a request, and forget the oldest if there are too many."""
    live[name] = request
    while len(live) > MOST_REQUESTS:
        live.popitem(last=False)


def take(
    live: OrderedDict[str, Live], name: str, tokens: Sequence[int], end: object, places: Sequence[Place] = ()
) -> None:
    """Add ``tokens`` of a request, what is known about them, and its ``end`` if it has ended. Does nothing if the
    request is not known."""
    request = live.get(name)
    if request is not None:
        new = tokens[: max(0, 2 * MOST_TOKENS - len(request.tokens))]
        request.tokens += new
        request.places += [*places, *[UNKNOWN] * len(new)][: len(new)]
        request.end = "" if end is None else str(end)
