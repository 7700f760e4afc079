"""``dotllm compile``: compiles specifications ahead of time, so that no request ever waits for a compile.

Run it in an image build, or next to the servers with the same ``--store``. The names of entries depend on
the tokenizer and on the version of dotllm: give the model (or its directory) as ``--tokenizer``, and run the version
that will serve.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dotllm.cli.specifications import add_arguments, add_tokenizer, are_no_schemas, json_options, vocabulary_of
from dotllm.cli.subcommands import CommandParser, whole
from dotllm.compilation import store
from dotllm.compilation.inputs import BadInput, NoSchema, read_inputs, read_texts
from dotllm.compilation.options import CompilationOptions
from dotllm.system import usable_cpus

if TYPE_CHECKING:
    from dotllm.compilation.ahead import Result


def main(argv: list[str]) -> int:
    """Status 0: all compiled. 1: some were refused or failed (each is named). 2: the arguments make no sense."""
    arguments = _parser().parse_args(argv)
    try:
        options = CompilationOptions.from_environment()
        if arguments.store:
            options = replace(options, store=arguments.store)
        if arguments.cache_dir:
            options = replace(options, cache_dir=arguments.cache_dir)
        if options.store:
            store.check(options.store)
        passed_over: list[NoSchema] = []
        inputs = list(read_inputs(arguments.specs, arguments.kind, json_options(arguments), passed_over))
        if passed_over:
            print(are_no_schemas(len(passed_over)), file=sys.stderr)
        if not inputs:
            raise BadInput("there is nothing to compile: the files hold no specification")
        texts = [text for path in arguments.warm for text in read_texts(path)]
        vocabulary = vocabulary_of(arguments.tokenizer, arguments.vocab_size)
    except (BadInput, OSError, ValueError, ImportError) as error:
        print(f"dotllm compile: {error}", file=sys.stderr)
        return 2
    from dotllm.compilation.ahead import compile_ahead

    results = compile_ahead(inputs, texts, vocabulary, options, min(arguments.jobs, len(inputs)))
    bad = total = stored = 0
    for result in _progress(results, len(inputs), quiet=arguments.json):
        total += 1
        bad += bool(result.error)
        stored += result.nbytes
        if arguments.json:
            print(json.dumps(result._asdict()))
        elif result.error:
            print(f"{result.name}: {result.error}", file=sys.stderr)
    if not arguments.json:
        where = options.store or options.disk_directory
        print(f"{total - bad} of {total} specifications compiled into {where}, {stored / 2**20:.1f} MiB")
    return int(bad > 0)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser("compile", __doc__)
    add_arguments(parser)
    add_tokenizer(parser, "the model served", required=True)
    parser.add_argument("--store", metavar="URL", default="", help="shared store to fill (default: $DOTLLM_STORE)")
    parser.add_argument("--cache-dir", metavar="PATH", default="", help="cache on disk to fill (default: the user's)")
    parser.add_argument(
        "--warm",
        type=Path,
        action="append",
        default=[],
        metavar="TEXTS",
        help="sample outputs: a .jsonl (one JSON value per line), another file (one output) or a directory of these",
    )
    parser.add_argument(
        "--jobs", type=whole(1, 1024), default=usable_cpus(), metavar="N", help="processes (default: CPUs)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per specification, no progress bar")
    return parser


def _progress(results: Iterator[Result], total: int, *, quiet: bool) -> Iterator[Result]:
    """The same results, with a progress bar if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield from results
        return
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:  # rich comes with vLLM; the engine alone does not have it
        for count, result in enumerate(results, 1):
            print(f"\r{count}/{total}", end="", file=sys.stderr, flush=True)
            yield result
        print(file=sys.stderr)
        return
    yield from track(results, "compiling", total, console=Console(stderr=True))
