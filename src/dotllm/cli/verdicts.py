"""What ``dotllm check`` finds out about one specification, and about a document and a specification."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dotllm.compilation.inputs import BadInput, Input
from dotllm.compilation.specification import Kind, Specification
from dotllm.diagnosis import frames
from dotllm.errors import EngineFault, InvalidSpecError, LineColumn, Location, Pointer, SpecError

if TYPE_CHECKING:
    from dotllm.index import GrammarIndex

_MOST_PLACES = 5
_JSON_KINDS = (Kind.JSON_SCHEMA, Kind.STRUCTURAL_TAG, Kind.CHOICE)


class Verdict(NamedTuple):
    """What ``--json`` prints of one specification."""

    name: str
    kind: str
    enforced: bool
    reason: str = ""
    """``invalid``: it is wrong in itself. ``unsupported``: it is right, and refused. ``unreadable``: there is none.
    ``fault``: a bug of the engine."""
    code: str = ""
    """One of `dotllm.errors.CODES`."""
    keyword: str = ""
    pointer: str | None = None
    """JSON Pointer (RFC 6901) of what is refused; "" is the whole, and None a place in no JSON value."""
    line: int | None = None
    """In the file, as ``column``; both count from 1."""
    column: int | None = None
    message: str = ""
    help: str = ""
    """What to do."""
    url: str = ""
    automaton_nodes: int = 0
    index_bytes: int = 0
    compile_ms: float = 0.0
    """Text to index."""
    first_mask_ms: float = 0.0
    states: int = 0
    """Of the automaton, that the first mask has visited."""
    fewest_tokens: int | None = None
    """Of an answer, the end token included; None where it is not known (see `diagnosis.cost`)."""
    fewest_bytes: int | None = None
    is_unbounded: bool = False
    """Whether there is no longest answer."""
    grows_at: tuple[dict[str, str], ...] = ()
    """``pointer`` and ``reason`` of places of a JSON Schema where answers grow without bound."""
    advice: tuple[dict[str, str], ...] = ()
    """``pointer``, ``message`` and ``page`` of what is known to hurt answers."""
    warnings: tuple[dict[str, str], ...] = ()
    """``pointer`` and ``message`` of each keyword of a JSON Schema that asserts nothing."""


class Judged(NamedTuple):
    """A verdict, and what is needed to show it to people."""

    verdict: Verdict
    source: frames.SourceText
    error: SpecError | None = None
    is_missing: bool = False

    def lines(self, *, strict: bool, colour: bool) -> Iterator[str]:
        """The verdict for people. ``strict``: what means nothing is an error."""
        verdict, source = self.verdict, self.source
        if self.error is not None:
            yield frames.error_frame(self.error, source, colour=colour)
        elif verdict.enforced:
            size = f"{verdict.automaton_nodes:,} nodes, {verdict.index_bytes / 1024:,.0f} KiB"
            times = f"compile {verdict.compile_ms:.1f} ms, first mask {verdict.first_mask_ms:.1f} ms"
            yield f"{verdict.name}: enforced ({size}; {times})"
            yield from _cost_lines(verdict)
        else:
            yield f"{verdict.name}: {verdict.reason}: {verdict.message}"
        for warning in verdict.warnings:
            level = "error" if strict else "warning"
            yield frames.warning_frame(warning["message"], source, warning["pointer"], level=level, colour=colour)
        for hint in verdict.advice:
            message = f"{hint['message']} ({hint['page']})"
            yield frames.warning_frame(message, source, hint["pointer"], colour=colour)


def _cost_lines(verdict: Verdict) -> Iterator[str]:
    if verdict.fewest_bytes is not None:
        yield f"  shortest answer: {verdict.fewest_tokens:,} tokens with the end token, {verdict.fewest_bytes:,} bytes"
    if verdict.is_unbounded:
        places = [f"{place['pointer'] or '/'} ({place['reason']})" for place in verdict.grows_at]
        more = f", and {len(places) - _MOST_PLACES} more places" if len(places) > _MOST_PLACES else ""
        yield f"  grows without bound{': ' if places else ''}{', '.join(places[:_MOST_PLACES])}{more}"


def judge(one: Input, vocabulary: Any) -> Judged:
    """Compile it and find its first mask."""
    from dotllm.automata.machine import layout
    from dotllm.compilation.compiler import build

    kind = one.specification.kind
    source = frames.SourceText(one.path or one.name, one.text, is_json=kind in _JSON_KINDS)
    about = Verdict(one.name, kind.value, enforced=True, warnings=_warnings(one.specification))
    start = time.perf_counter()
    try:
        index = build(one.specification, vocabulary)
        compiled = time.perf_counter()
        _ = index.guide().mask_row
        first_mask_ms = round((time.perf_counter() - compiled) * 1e3, 3)
    except SpecError as error:
        return Judged(_refused(about, error, source), source, error)
    except EngineFault as error:
        return Judged(about._replace(enforced=False, reason="fault", message=str(error)), source)
    verdict = about._replace(
        **_cost(one.specification, index),
        automaton_nodes=int(index.mem[layout.H_NODES]),
        index_bytes=index.nbytes,
        compile_ms=round((compiled - start) * 1e3, 3),
        first_mask_ms=first_mask_ms,
    )
    return Judged(verdict, source)


def _cost(specification: Specification, index: GrammarIndex) -> dict[str, Any]:
    """The fields of a verdict about what answers cost and what hurts them."""
    from dotllm.diagnosis import cost
    from dotllm.languages.json_schema.build import parse as parse_schema

    least, is_unbounded = cost.shortest(index), cost.is_unbounded(index)
    grows: list[cost.Growth] = []
    advice: list[cost.Advice] = []
    if specification.kind is Kind.JSON_SCHEMA:
        schema = parse_schema(specification.text)
        grows = [*dict.fromkeys(cost.growth(schema))] if is_unbounded else []
        advice = [*dict.fromkeys(cost.advice(schema, dict(specification.options)))]
    elif specification.kind is Kind.CHOICE:
        advice = [*cost.prefixes("", json.loads(specification.text))]
    return {
        "states": index.states,
        "fewest_tokens": least.tokens,
        "fewest_bytes": least.bytes,
        "is_unbounded": is_unbounded,
        "grows_at": tuple(place._asdict() for place in grows),
        "advice": tuple(found._asdict() for found in advice),
    }


def unreadable(name: str, error: Exception) -> Judged:
    """The verdict about a file or line that holds no specification."""
    message = str(error).removeprefix(f"{name}: ")
    verdict = Verdict(name, "", enforced=False, reason="unreadable", message=message)
    if not isinstance(error, BadInput) or error.location is None:
        return Judged(verdict, frames.SourceText(name, ""), None, getattr(error, "is_missing", True))
    source = frames.SourceText(error.path, error.text)
    wrong = InvalidSpecError(message, location=error.location, code="not_json")
    verdict = verdict._replace(code=wrong.code, line=error.location.line, column=error.location.column, url=wrong.url)
    return Judged(verdict, source, wrong)


def _refused(about: Verdict, error: SpecError, source: frames.SourceText) -> Verdict:
    line, column = line_and_column(source, error.location)
    return about._replace(
        enforced=False,
        reason="invalid" if isinstance(error, InvalidSpecError) else "unsupported",
        code=error.code,
        keyword=error.keyword,
        pointer=error.pointer,
        line=line,
        column=column,
        message=error.message,
        help=error.help,
        url=error.url,
    )


def line_and_column(source: frames.SourceText, location: Location | None) -> tuple[int | None, int | None]:
    """Where ``location`` is in ``source``; two None if it is nowhere there."""
    if isinstance(location, LineColumn):
        return location.line, location.column
    mark = source.mark(location)
    return (None, None) if mark is None else source.line_and_column(mark.begin)


def _warnings(specification: Specification) -> tuple[dict[str, str], ...]:
    """Of a JSON Schema; none of one that is no JSON, which the verdict says."""
    from dotllm.languages.json_schema.build import parse as parse_schema
    from dotllm.languages.json_schema.reading.unknown_keywords import unknown_keywords

    if specification.kind is not Kind.JSON_SCHEMA:
        return ()
    try:
        return tuple(found._asdict() for found in unknown_keywords(parse_schema(specification.text)))
    except SpecError:
        return ()


class Fit(NamedTuple):
    """What ``--json`` prints of one document and one specification. Places count from 1."""

    name: str
    document: str
    fits: bool
    line: int | None = None
    column: int | None = None
    pointer: str | None = None
    """JSON Pointer of the value that is at fault."""
    allowed: str = ""
    forced: str = ""
    reason: str = ""
    help: str = ""
    blamed: tuple[dict[str, Any], ...] = ()
    """``pointer``, ``value``, ``line`` and ``column`` of the keywords that forbid it."""


class Fitted(NamedTuple):
    """A `Fit`, and the text of it for people."""

    fit: Fit
    text: str


def fit(one: Input, name: str, document: str, *, colour: bool) -> Fitted:
    """Whether ``document``, of the file ``name``, fits a specification.

    Raises:
        SpecError: the specification is refused.
    """
    from dotllm.compilation.compiler import build
    from dotllm.diagnosis.why import byte_vocabulary, explain, explain_schema

    options = dict(one.specification.options)
    if one.specification.kind is Kind.JSON_SCHEMA:
        why = explain_schema(one.specification.text, document, **options)
    else:
        why = explain(lambda: build(one.specification, byte_vocabulary()), document)
    if why is None:
        return Fitted(Fit(one.name, name, fits=True), f"{name}: fits {one.name}")
    source, schema = frames.SourceText(name, document), frames.SourceText(one.path or one.name, one.text)
    line, column = source.line_and_column(why.offset)
    marks = [frames.Mark(why.offset, why.offset + 1, f"allowed here: {why.allowed}")]
    lines = [frames.head("error", "", why.reason or f"it does not fit {one.name}", colour)]
    lines += frames.code_frame(source, marks, why.pointer, colour=colour)
    blamed = []
    for blame in why.blamed:
        place = Pointer(blame.pointer)
        mark = schema.mark(place)
        if mark is None:
            lines.append(f"  --> {schema.name}  ({blame.pointer})")
        else:
            lines += frames.code_frame(schema, [mark], blame.pointer, colour=colour)
        where = line_and_column(schema, place)
        blamed.append({"pointer": blame.pointer, "value": blame.value, "line": where[0], "column": where[1]})
    if not why.is_minimal:
        lines.append("  = note: the search ended at its limit; there may be more to it")
    if why.help:
        lines.append(f"  = help: {why.help}")
    about = (why.pointer, why.allowed, why.forced, why.reason, why.help, tuple(blamed))
    return Fitted(Fit(one.name, name, False, line, column, *about), "\n".join(lines))
