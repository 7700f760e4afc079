"""``dotllm check``: is a specification enforced exactly, and if not, why not? Does a document fit, and if not, why not?

    dotllm check schema.json schemas/ rules.lark
    dotllm check person.json --document answer.json         # where it stops fitting, and the keyword that forbids it
    dotllm check --regex '[a-z]+@example[.]org'
    curl -s https://…/schema.json | dotllm check -
    dotllm check --json schemas/ > verdicts.jsonl           # for CI: a JSON object a line
    dotllm check --requests log.jsonl                       # which requests of a log a server would refuse

A server has the same verdict. As the standard says, keywords and formats that mean nothing (``requierd``) are ignored;
here they are warnings, and with ``--strict`` errors. Sizes and times are measured on this machine. Without
``--tokenizer``, the vocabulary has only single bytes: what is enforced with these is enforced with every vocabulary
that can spell it. A grammar or a structural tag that names tokens (``<|im_start|>``) needs ``--tokenizer``.

JSON files of a directory that are not schemas (answers, settings) are counted and skipped; name such a file to have it
checked.

Exit status: 0, everything is enforced and every document fits; 1, something is refused or does not fit; 2, the
arguments make no sense, or a file cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dotllm.cli.specifications import add_arguments, add_tokenizer, are_no_schemas, json_options, vocabulary_of
from dotllm.cli.subcommands import CommandParser
from dotllm.cli.verdicts import Judged, fit, judge, unreadable
from dotllm.compilation.inputs import BadInput, Input, NoSchema, files_of, parse, read_file
from dotllm.compilation.specification import JSON_FIELDS, Kind, OptionValue
from dotllm.diagnosis import frames
from dotllm.diagnosis.frames import wants_colour
from dotllm.errors import SpecError

if TYPE_CHECKING:
    from dotllm.vocabulary import Vocabulary

ENFORCED, REFUSED, WRONG = 0, 1, 2
"""Exit statuses."""


def main(argv: list[str]) -> int:
    """Check what the arguments name. The status is one of `ENFORCED`, `REFUSED` and `WRONG`."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.requests:
        return _check_requests(arguments)
    if not arguments.specs and not arguments.regex:
        parser.error("name a SPEC, or give --regex or --requests")
    try:
        documents = [(str(path), path.read_text(encoding="utf-8")) for path in arguments.document]
        # Kernels take seconds to load, so they are loaded only if there is something to compile.
        inputs = [*_inputs(arguments, json_options(arguments))]
        vocabulary = None
        if any(isinstance(given, Input) for given in inputs):
            vocabulary = _vocabulary(arguments.tokenizer, arguments.vocab_size)
    except (OSError, ValueError, ImportError) as error:
        print(f"dotllm check: {error}", file=sys.stderr)
        return WRONG
    colour = wants_colour()
    total = bad = 0
    status = ENFORCED
    passed_over = 0
    for given in inputs:
        if isinstance(given, NoSchema):
            passed_over += 1
            continue
        judged = given if isinstance(given, Judged) else judge(given, vocabulary)
        total += 1
        is_bad = not judged.verdict.enforced or (arguments.strict and bool(judged.verdict.warnings))
        bad += is_bad
        status = max(status, WRONG if judged.is_missing else REFUSED if is_bad else ENFORCED)
        if isinstance(given, Input) and documents and judged.verdict.enforced:
            fitting = [*_fit_all(given, documents, vocabulary, as_json=arguments.json, colour=colour)]
            status = max(status, ENFORCED if all(fitting) else REFUSED)
            continue
        if arguments.json:
            print(json.dumps(judged.verdict._asdict()), flush=True)
        else:
            print("\n".join(judged.lines(strict=arguments.strict, colour=colour)), flush=True)
    if not arguments.json and not documents and total > 1:
        print(f"{total - bad} of {total} are enforced exactly")
    if passed_over:
        print(are_no_schemas(passed_over), file=sys.stderr if arguments.json else sys.stdout)
    return status if total else WRONG


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser("check", __doc__)
    add_arguments(parser, least="*")
    parser.add_argument("--regex", action="append", default=[], metavar="TEXT", help="a regular expression to check")
    parser.add_argument(
        "--document", type=Path, action="append", default=[], metavar="FILE", help="say whether it fits each SPEC"
    )
    parser.add_argument(
        "--requests", type=Path, action="append", default=[], metavar="FILE",
        help="say which of the requests in a .jsonl file (- is stdin) would be refused, by code; it needs vLLM",
    )  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="refuse keywords and formats that have no effect")
    add_tokenizer(parser, "use its vocabulary and its named tokens")
    parser.add_argument("--json", action="store_true", help="print one JSON object per specification or document")
    return parser


def _check_requests(arguments: argparse.Namespace) -> int:
    """Check the requests in files. The status is one of `ENFORCED`, `REFUSED` and `WRONG`."""
    from dotllm.cli import requests

    try:
        names = None
        if arguments.tokenizer:
            from dotllm.languages.token_names import TokenNames

            names = TokenNames.of(vocabulary_of(arguments.tokenizer, arguments.vocab_size))
        judge = requests.Judge({name: getattr(arguments, name) for name in JSON_FIELDS}, lambda: names)
        refused = 0
        for path in arguments.requests:
            if path == Path("-"):
                refused += requests.run(sys.stdin, judge, "stdin", as_json=arguments.json)
                continue
            with path.open(encoding="utf-8", errors="replace") as lines:
                refused += requests.run(lines, judge, path.name, as_json=arguments.json)
    except (OSError, ValueError, ImportError) as error:
        print(f"dotllm check: {error}", file=sys.stderr)
        return WRONG
    return REFUSED if refused else ENFORCED


def _fit_all(
    given: Input, documents: list[tuple[str, str]], vocabulary: Vocabulary | None, *, as_json: bool, colour: bool
) -> Iterator[bool]:
    """Print and yield whether each document fits."""
    for name, text in documents:
        try:
            fitted = fit(given, name, text.rstrip("\r\n"), vocabulary, colour=colour)
        except SpecError as error:  # refused with single bytes, for a part that the tokenizer's tokens cannot spell
            source = frames.SourceText(given.path or given.name, given.text)
            print(frames.error_frame(error, source, colour=colour), file=sys.stderr)
            yield False
            continue
        print(json.dumps(fitted.fit._asdict(), default=str) if as_json else fitted.text, flush=True)
        yield fitted.fit.fits


def _vocabulary(tokenizer: str | None, size: int | None) -> Vocabulary | None:
    """The vocabulary of a tokenizer; None without a tokenizer. Loads the vocabulary's tables (or those of single bytes)
    and the engine's kernels."""
    from dotllm import jit
    from dotllm.diagnosis.why import byte_vocabulary

    vocabulary: Vocabulary | None = vocabulary_of(tokenizer, size) if tokenizer else None
    (vocabulary or byte_vocabulary()).prepare()
    jit.imported()
    return vocabulary


def _inputs(arguments: argparse.Namespace, options: dict[str, OptionValue]) -> Iterator[Input | Judged | NoSchema]:
    """All specifications. A file or line without a specification gets a verdict, too, and does not stop the others."""
    kind: Kind | None = arguments.kind
    for text in arguments.regex:
        yield parse(text, "--regex", Kind.REGEX)
    for path in arguments.specs:
        if path == Path("-"):
            try:
                yield parse(sys.stdin.read(), "stdin", kind or Kind.JSON_SCHEMA, options)
            except (BadInput, UnicodeDecodeError) as error:
                yield unreadable("stdin", error)
            continue
        try:
            files = files_of(path)
        except BadInput as error:
            yield unreadable(str(path), error)
            continue
        for file in files:
            for given in read_file(file, kind, options, is_listed=file != path):
                yield given if isinstance(given, (Input, NoSchema)) else unreadable(str(file), given)
