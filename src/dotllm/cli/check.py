"""``dotllm check``: is a specification enforced exactly, and if not, why not?

    dotllm check schema.json schemas/ rules.lark
    curl -s https://…/schema.json | dotllm check -
    dotllm check --json schemas/ > verdicts.jsonl           # for CI: a JSON object a line

The verdict is the server's. Keywords and formats that mean nothing (``requierd``) are ignored as the standard says, and
named here as warnings. Sizes and times are of this machine; without ``--tokenizer`` they are those of a vocabulary
of single bytes, which decides nothing: what is enforced there is enforced with every vocabulary that can spell it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dotllm.cli.specifications import add_arguments, json_options, vocabulary_of
from dotllm.compilation.inputs import BadInput, Input, files_of, parse, read_file
from dotllm.compilation.specification import Kind, OptionValue, Specification
from dotllm.errors import EngineFault, InvalidSpec, SpecError


class Verdict(NamedTuple):
    """What ``--json`` prints of one specification."""

    name: str
    kind: str
    enforced: bool
    reason: str = ""
    """``invalid``: it is wrong in itself. ``unsupported``: it is right, and refused. ``unreadable``: there is none.
    ``fault``: a bug of the engine."""
    keyword: str = ""
    pointer: str = ""
    message: str = ""
    automaton_nodes: int = 0
    index_bytes: int = 0
    compile_ms: float = 0.0
    """Text to index."""
    first_mask_ms: float = 0.0
    warnings: tuple[dict[str, str], ...] = ()
    """``pointer`` and ``message`` of each keyword of a JSON Schema that asserts nothing."""


def main(argv: list[str]) -> int:
    """Status 0: all are enforced. 1: some are not (each is named). 2: the arguments make no sense."""
    parser = argparse.ArgumentParser(
        prog="dotllm check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--tokenizer", metavar="MODEL", help="measure with its vocabulary: a directory or hub name")
    parser.add_argument("--vocab-size", type=int, metavar="N", help="width of its output (default: its config's)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per specification")
    arguments = parser.parse_args(argv)
    try:
        vocabulary = _vocabulary(arguments.tokenizer, arguments.vocab_size)
    except (OSError, ValueError, ImportError) as error:
        print(f"dotllm check: {error}", file=sys.stderr)
        return 2
    total = bad = 0
    for one in _inputs(arguments.specs, arguments.kind, json_options(arguments)):
        verdict = one if isinstance(one, Verdict) else judge(one, vocabulary)
        total += 1
        bad += not verdict.enforced
        print(json.dumps(verdict._asdict()) if arguments.json else "\n".join(_lines(verdict)), flush=True)
    if not arguments.json and total > 1:
        print(f"{total - bad} of {total} are enforced exactly")
    return int(bad > 0)


def judge(one: Input, vocabulary: Any) -> Verdict:
    """Compile it and find its first mask."""
    from dotllm.automata.machine import layout
    from dotllm.compilation.compiler import build

    about = Verdict(one.name, one.specification.kind.value, enforced=True, warnings=_warnings(one.specification))
    start = time.perf_counter()
    try:
        index = build(one.specification, vocabulary)
        compiled = time.perf_counter()
        _ = index.guide().mask_row
    except SpecError as error:
        reason = "invalid" if isinstance(error, InvalidSpec) else "unsupported"
        return about._replace(
            enforced=False, reason=reason, keyword=error.keyword, pointer=error.place, message=error.message
        )
    except EngineFault as error:
        return about._replace(enforced=False, reason="fault", message=str(error))
    return about._replace(
        automaton_nodes=int(index.mem[layout.H_NODES]),
        index_bytes=index.nbytes,
        compile_ms=round((compiled - start) * 1e3, 3),
        first_mask_ms=round((time.perf_counter() - compiled) * 1e3, 3),
    )


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


def _vocabulary(tokenizer: str | None, size: int | None) -> Any:
    """The vocabulary to measure with, its tables and the engine's kernels loaded."""
    from dotllm.compilation.compiler import prepare
    from dotllm.vocabulary import Vocabulary

    prepare()
    if tokenizer:
        vocabulary = vocabulary_of(tokenizer, size)
    else:
        vocabulary = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=256)
    vocabulary.prepare()
    return vocabulary


def _inputs(paths: list[Path], kind: Kind | None, options: dict[str, OptionValue]) -> Iterator[Input | Verdict]:
    """All specifications; a file or line that holds none is a verdict too, and does not hide the others."""
    for path in paths:
        if path == Path("-"):
            try:
                yield parse(sys.stdin.read(), "stdin", kind or Kind.JSON_SCHEMA, options)
            except (BadInput, UnicodeDecodeError) as error:
                yield _unreadable("stdin", error)
            continue
        try:
            files = files_of(path)
        except BadInput as error:
            yield _unreadable(str(path), error)
            continue
        for file in files:
            for found in read_file(file, kind, options):
                yield _unreadable(str(file), found) if isinstance(found, BadInput) else found


def _unreadable(name: str, error: object) -> Verdict:
    return Verdict(name, "", enforced=False, reason="unreadable", message=str(error).removeprefix(f"{name}: "))


def _lines(verdict: Verdict) -> Iterator[str]:
    if verdict.enforced:
        size = f"{verdict.automaton_nodes:,} nodes, {verdict.index_bytes / 1024:,.0f} KiB"
        times = f"compile {verdict.compile_ms:.1f} ms, first mask {verdict.first_mask_ms:.1f} ms"
        yield f"{verdict.name}: enforced ({size}; {times})"
    else:
        keyword = f" {verdict.keyword}" if verdict.keyword else ""
        where = f" at {verdict.pointer}" if verdict.pointer else ""
        yield f"{verdict.name}: {verdict.reason}{keyword}{where}: {verdict.message}"
    for warning in verdict.warnings:
        yield f"{verdict.name}: warning at {warning['pointer']}: {warning['message']}"
