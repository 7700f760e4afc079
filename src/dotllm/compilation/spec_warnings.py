"""Warnings about a specification that is enforced nevertheless: keywords without effect, and advice about the quality
of answers.

``dotllm check`` prints these warnings; a server puts their `texts` into a header of its answer (`response_headers`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import Any

from dotllm.compilation.specification import Kind, Specification
from dotllm.diagnosis import cost
from dotllm.errors import SpecError, escaped, shortened
from dotllm.languages.cfg import grammar_to_grammar
from dotllm.languages.json_schema.build import parse
from dotllm.languages.json_schema.options import Options, SchemaBudget
from dotllm.languages.json_schema.reading.ineffective import Ineffective, ineffective_keywords
from dotllm.languages.json_schema.vanishing import vanishing
from dotllm.languages.lark.lexer_habits import MAY_HAVE_NO_EFFECT

MOST = 8
"""The most warnings for one specification. (Guessing which keyword a misspelt one stands for takes a third of a
millisecond.)"""
LARGEST = 50_000
"""Larger specifications (in characters) are not searched for parts that nothing satisfies while an answer waits."""
_WAITING = SchemaBudget(steps=30_000, nodes=5_000, alternatives=256, edges=10_000, total_edges=50_000)
"""The budget of that search, a small part of a compile's. What exceeds it is left to ``dotllm check``."""
_HOLD_SCHEMAS = ("json_schema", "schema")
"""Fields of structural tags that hold schemas, in their two forms."""
TIMEOUT_S = 0.5
"""Seconds that an answer waits for its warnings."""
_MAY_WARN = re.compile(f"lazy|{MAY_HAVE_NO_EFFECT.pattern}")
"""Matches in all grammars that may have warnings, which their compile finds."""
MORE = "there are more warnings: `dotllm check` names them all"


def keywords(specification: Specification, most_characters: int | None = None) -> Iterator[Ineffective]:
    """Warn about parts of JSON Schemas that assert nothing: keywords, formats, and optional parts that nothing
    satisfies.

    Finding the last takes as long as a compile; a text of more than ``most_characters`` is not searched for them.

    Yields:
        Each warning, with its place in the specification; none for a text that is not JSON, which is refused.
    """
    if specification.kind is Kind.GRAMMAR and _MAY_WARN.search(specification.text):
        with suppress(SpecError):  # it is refused, or names tokens, which are not known here
            grammar = grammar_to_grammar(specification.text)
            yield from (Ineffective("", f"{said} (at {place})") for place, said in grammar.warnings.items())
    is_read = most_characters is None or len(specification.text) <= most_characters
    for place, schema in _schemas(specification):
        options = Options(**dict[str, Any](specification.options))
        if most_characters is not None:
            options = options._replace(budget=_WAITING)
        vanished = vanishing(schema, options) if is_read else ()
        for warning in itertools.chain(ineffective_keywords(schema), vanished):
            yield Ineffective(place + warning.pointer, warning.message)


def advice(specification: Specification) -> Iterator[cost.Advice]:
    """Advise on parts that are known to hurt answers (`dotllm.diagnosis.cost`).

    Yields:
        Each piece of advice once, with its place in the specification.
    """
    if specification.kind is Kind.CHOICE:
        yield from cost.prefixes("", json.loads(specification.text))
    for place, schema in _schemas(specification):
        for piece in dict.fromkeys(cost.advice(schema, dict(specification.options))):
            yield piece._replace(pointer=place + piece.pointer)


async def texts_beside(specification: Specification) -> tuple[str, ...]:
    """`texts` for event loops: remembered for equal specifications, else found on a thread, within `TIMEOUT_S`. Texts
    that take longer are ready for the next request."""
    remembered = _remembered(specification.key(b""))
    if not remembered:
        seeking = asyncio.get_running_loop().run_in_executor(_threads, _find, specification, remembered)
        await asyncio.wait((seeking,), timeout=TIMEOUT_S)
    return remembered[0] if remembered else ()


@lru_cache(maxsize=4096)
def _remembered(key: str) -> list[tuple[str, ...]]:
    """The texts for the specification with this digest, in a list; the list is empty while they are not known."""
    return []


def _find(specification: Specification, alternatives: list[tuple[str, ...]]) -> None:
    if not alternatives:
        alternatives.append(texts(specification))


def texts(specification: Specification) -> tuple[str, ...]:
    """The first `MOST` warnings, as text for people, cut in the middle if they are long; if there are more, a last text
    says so."""
    asserting_nothing = keywords(specification, LARGEST)
    both: Iterator[Ineffective | cost.Advice] = itertools.chain(asserting_nothing, advice(specification))
    said = [
        shortened(f"{warning.message} (at {warning.pointer})" if warning.pointer else warning.message)
        for warning in itertools.islice(both, MOST)
    ]
    return (*said, MORE) if next(both, None) is not None else tuple(said)


def _schemas(specification: Specification) -> Iterator[tuple[str, Any]]:
    """The JSON Schemas of a specification, each with its place."""
    if specification.kind not in (Kind.JSON_SCHEMA, Kind.STRUCTURAL_TAG):
        return
    try:
        document = parse(specification.text)
    except SpecError:  # it is refused
        return
    if specification.kind is Kind.JSON_SCHEMA:
        yield "", document
        return
    pending: list[tuple[str, Any]] = [("", document)]
    while pending:
        place, part = pending.pop()
        members = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for name, member in members:
            inside = f"{place}/{escaped(str(name))}"
            if name in _HOLD_SCHEMAS and isinstance(member, dict):
                yield inside, member
            else:
                pending.append((inside, member))


_threads = ThreadPoolExecutor(1, "dotllm-warnings")
