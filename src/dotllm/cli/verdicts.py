"""The verdicts of ``dotllm check`` on a specification, and on a document."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dotllm.compilation.inputs import BadInput, Input
from dotllm.compilation.specification import Kind, Specification
from dotllm.diagnosis import frames
from dotllm.errors import EngineFault, InvalidSpecError, LineColumn, Location, Pointer, SpecError, UnsupportedError

if TYPE_CHECKING:
    from dotllm.api import Index
    from dotllm.index import GrammarIndex
    from dotllm.vocabulary import Vocabulary

_MOST_PLACES = 5
_GIVE_TOKENIZER = "give the model's: --tokenizer MODEL, a directory or hub name"
_JSON_KINDS = (Kind.JSON_SCHEMA, Kind.STRUCTURAL_TAG, Kind.CHOICE)


class Verdict(NamedTuple):
    """The verdict on one specification, as ``--json`` prints it."""

    name: str
    kind: str
    enforced: bool
    reason: str = ""
    """``invalid``: the specification is wrong. ``unsupported``: it is right, but refused. ``unreadable``: there is no
    specification. ``fault``: a bug in the engine."""
    code: str = ""
    """One of `dotllm.errors.CODES`."""
    keyword: str = ""
    pointer: str | None = None
    """JSON Pointer (RFC 6901) of the refused value; "" is the whole document, and None means that the place is not in a
    JSON value."""
    line: int | None = None
    """Line in the file; ``column`` likewise; both count from 1."""
    column: int | None = None
    message: str = ""
    help: str = ""
    """The remedy."""
    url: str = ""
    automaton_nodes: int = 0
    index_bytes: int = 0
    compile_ms: float = 0.0
    """Time from text to index."""
    first_mask_ms: float = 0.0
    states: int = 0
    """States of the automaton that the first mask has visited."""
    fewest_tokens: int | None = None
    """Size of the shortest answer, including the end token; None if it is not known (see `diagnosis.cost`)."""
    fewest_bytes: int | None = None
    is_unbounded: bool = False
    """Whether answers can grow without bound."""
    grows_at: tuple[dict[str, str], ...] = ()
    """``pointer`` and ``reason`` of places of a JSON Schema where answers grow without bound."""
    advice: tuple[dict[str, str], ...] = ()
    """``pointer``, ``message`` and ``page`` of parts that are known to hurt answers."""
    warnings: tuple[dict[str, str], ...] = ()
    """``pointer`` and ``message`` of each keyword of a JSON Schema (also in a structural tag) that asserts nothing."""


class Judged(NamedTuple):
    """A verdict, and the data needed to show it to people."""

    verdict: Verdict
    source: frames.SourceText
    error: SpecError | None = None
    is_missing: bool = False

    def lines(self, *, strict: bool, colour: bool) -> Iterator[str]:
        """The verdict as text for people. ``strict``: keywords that assert nothing are errors."""
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
        tokens = (
            "1 token, the end token"
            if verdict.fewest_tokens == 1
            else f"{verdict.fewest_tokens:,} tokens with the end token"
        )
        size = "1 byte" if verdict.fewest_bytes == 1 else f"{verdict.fewest_bytes:,} bytes"
        yield f"  shortest answer: {tokens}, {size}"
    if verdict.is_unbounded:
        places = [f"{place['pointer'] or '/'} ({place['reason']})" for place in verdict.grows_at]
        more = f", and {len(places) - _MOST_PLACES} more places" if len(places) > _MOST_PLACES else ""
        yield f"  grows without bound{': ' if places else ''}{', '.join(places[:_MOST_PLACES])}{more}"


def build(specification: Specification, vocabulary: Vocabulary | None) -> Index:
    """The index of a specification; without a vocabulary, for single bytes.

    Raises:
        SpecError: the specification is refused.
        UnsupportedError: it names a token, and there is no vocabulary.
    """
    from dotllm.compilation import compiler
    from dotllm.diagnosis.why import byte_vocabulary

    try:
        index: Index = compiler.build(specification, byte_vocabulary() if vocabulary is None else vocabulary)
        return index
    except SpecError as error:
        if vocabulary is not None or error.code != "unknown_token":
            raise
        wrong = "it names a token, and tokens are those of a tokenizer"
        raise UnsupportedError(
            wrong, location=error.location, keyword=error.keyword, code="unknown_token", help=_GIVE_TOKENIZER
        ) from None


def judge(given: Input, vocabulary: Vocabulary | None) -> Judged:
    """Compile the specification, find its first mask, and judge it. ``vocabulary``: None means single bytes."""
    from dotllm.automata.machine import layout
    from dotllm.compilation import spec_warnings

    kind = given.specification.kind
    source = frames.SourceText(given.path or given.name, given.text, is_json=kind in _JSON_KINDS)
    warnings = tuple(warning._asdict() for warning in spec_warnings.keywords(given.specification))
    about = Verdict(given.name, kind.value, enforced=True, warnings=warnings)
    start = time.perf_counter()
    try:
        index = build(given.specification, vocabulary)
        compiled = time.perf_counter()
        _ = index.guide().mask_row
        allowed = {*index.guide().allowed_tokens()}
        first_mask_ms = round((time.perf_counter() - compiled) * 1e3, 3)
    except SpecError as error:
        return Judged(_refused(about, error, source), source, error)
    except EngineFault as error:
        return Judged(about._replace(enforced=False, reason="fault", message=str(error)), source)
    if allowed <= {*index.vocabulary.eos_token_ids}:
        warnings = (*warnings, {"pointer": "", "message": "only the empty text is left: no answer can say anything"})
    verdict = about._replace(
        warnings=warnings,
        **_cost(given.specification, index),
        automaton_nodes=int(index.mem[layout.H_NODES]),
        index_bytes=index.nbytes,
        compile_ms=round((compiled - start) * 1e3, 3),
        first_mask_ms=first_mask_ms,
    )
    return Judged(verdict, source)


def _cost(specification: Specification, index: GrammarIndex) -> dict[str, Any]:
    """The fields of a verdict about the cost and the quality of answers."""
    from dotllm.compilation import spec_warnings
    from dotllm.diagnosis import cost
    from dotllm.languages.json_schema.build import parse as parse_schema

    least, is_unbounded = cost.shortest(index), cost.is_unbounded(index)
    grows: list[cost.Growth] = []
    if specification.kind is Kind.JSON_SCHEMA and is_unbounded:
        schema = parse_schema(specification.text)
        grows = [*dict.fromkeys(cost.growth(schema, dict(specification.options)))]
    return {
        "states": index.states,
        "fewest_tokens": least.tokens,
        "fewest_bytes": least.bytes,
        "is_unbounded": is_unbounded,
        "grows_at": tuple(place._asdict() for place in grows),
        "advice": tuple(result._asdict() for result in spec_warnings.advice(specification)),
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
    """Line and column of ``location`` in ``source``; None for both if it is not there."""
    if isinstance(location, LineColumn):
        return location.line, location.column
    mark = source.mark(location)
    return (None, None) if mark is None else source.line_and_column(mark.begin)


class Fit(NamedTuple):
    """The verdict on a document and a specification, as ``--json`` prints it. Places count from 1."""

    name: str
    document: str
    fits: bool
    line: int | None = None
    column: int | None = None
    pointer: str | None = None
    """JSON Pointer of the value at fault."""
    allowed: str = ""
    forced: str = ""
    reason: str = ""
    help: str = ""
    blamed: tuple[dict[str, Any], ...] = ()
    """``pointer``, ``value``, ``line`` and ``column`` of the keywords that forbid it."""


class Fitted(NamedTuple):
    """A `Fit`, and its text for people."""

    fit: Fit
    text: str


def fit(given: Input, name: str, document: str, vocabulary: Vocabulary | None, *, colour: bool) -> Fitted:
    """Whether ``document``, from the file ``name``, fits a specification. (A JSON Schema names no tokens, so it is
    compiled for single bytes.)

    Raises:
        SpecError: the specification is refused.
    """
    from dotllm.diagnosis.why import explain, explain_schema

    options = dict(given.specification.options)
    if given.specification.kind is Kind.JSON_SCHEMA:
        why = explain_schema(given.specification.text, document, **options)
    else:
        why = explain(lambda: build(given.specification, vocabulary), document)
    if why is None:
        return Fitted(Fit(given.name, name, fits=True), f"{name}: fits {given.name}")
    source, schema = frames.SourceText(name, document), frames.SourceText(given.path or given.name, given.text)
    line, column = source.line_and_column(why.offset)
    marks = [frames.Mark(why.offset, why.offset + 1, f"allowed here: {why.allowed}")]
    lines = [frames.head("error", "", why.reason or f"it does not fit {given.name}", colour)]
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
    return Fitted(Fit(given.name, name, False, line, column, *about), "\n".join(lines))
