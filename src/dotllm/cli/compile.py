"""``dotllm compile``: compile specifications ahead of time, so that no request ever waits for one.

Put it into an image build, or run it beside the servers with the same ``--store``. Keys depend on the tokenizer and on
the version of dotllm: give the model (or its directory) as ``--tokenizer``, and run the version that will serve.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dotllm.compilation.ahead import Result, compile_ahead
from dotllm.compilation.inputs import SUFFIXES, BadInput, read_inputs, read_texts
from dotllm.compilation.options import CompilationOptions
from dotllm.compilation.specification import Kind, OptionValue


def main(argv: list[str]) -> int:
    """Status 0: all compiled. 1: some were refused or failed (each is named). 2: the arguments make no sense."""
    arguments = _parser().parse_args(argv)
    options = CompilationOptions.from_environment()
    if arguments.store:
        options = replace(options, store=arguments.store)
    if arguments.cache_dir:
        options = replace(options, cache_dir=arguments.cache_dir)
    try:
        inputs = list(read_inputs(arguments.specs, arguments.kind, _json_options(arguments)))
        texts = [text for path in arguments.warm for text in read_texts(path)]
        vocabulary = vocabulary_of(arguments.tokenizer, arguments.vocab_size)
    except (BadInput, OSError, ValueError, ImportError) as error:
        print(f"dotllm compile: {error}", file=sys.stderr)
        return 2
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
    parser = argparse.ArgumentParser(
        prog="dotllm compile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "specs", nargs="+", type=Path, metavar="SPEC", help=f"files ({', '.join(SUFFIXES)}), directories"
    )
    parser.add_argument("--tokenizer", required=True, metavar="MODEL", help="the model served: a directory or hub name")
    parser.add_argument(
        "--vocab-size", type=int, metavar="N", help="width of the model's output (default: its config's)"
    )
    parser.add_argument("--store", metavar="URL", default="", help="shared store to fill (default: $DOTLLM_STORE)")
    parser.add_argument("--cache-dir", metavar="PATH", default="", help="cache on disk to fill (default: the user's)")
    parser.add_argument("--kind", type=Kind, choices=list(Kind), help="what single files are, instead of their ending")
    parser.add_argument("--warm", type=Path, action="append", default=[], metavar="TEXTS", help="sample outputs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: CPUs)")
    parser.add_argument("--disable-any-whitespace", action="store_true", help="as the server's flag of that name")
    parser.add_argument(
        "--disable-additional-properties", action="store_true", help="as the server's flag of that name"
    )
    parser.add_argument("--whitespace-pattern", metavar="REGEX", help="as the request's field of that name")
    parser.add_argument("--json", action="store_true", help="print one JSON object per specification, no progress bar")
    return parser


def _json_options(arguments: argparse.Namespace) -> dict[str, OptionValue]:
    """The options of JSON kinds, as the server's plugin names them (`dotllm.vllm_plugin.requests`)."""
    options: dict[str, OptionValue] = {}
    if arguments.disable_any_whitespace:
        options["any_whitespace"] = False
    if arguments.disable_additional_properties:
        options["additional_properties"] = False
    if arguments.whitespace_pattern is not None:
        options["whitespace_pattern"] = arguments.whitespace_pattern
    return options


def vocabulary_of(model: str, size: int | None) -> Any:
    """The vocabulary a server of ``model`` has: its tokenizer's, as wide as the model's output."""
    from transformers import AutoConfig, AutoTokenizer

    from dotllm.vocabulary import Vocabulary

    if size is None:
        try:
            size = int(AutoConfig.from_pretrained(model).get_text_config().vocab_size)
        except (OSError, ValueError) as error:
            raise ValueError(f"{model}: no model configuration ({error}); give --vocab-size") from None
    return Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(model), size=size)


def _progress(results: Iterator[Result], total: int, *, quiet: bool) -> Iterator[Result]:
    """The same results, with a progress bar on the terminal where there is one."""
    if quiet or not sys.stderr.isatty():
        yield from results
        return
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:  # rich comes with vLLM; the engine alone does without
        for count, result in enumerate(results, 1):
            print(f"\r{count}/{total}", end="", file=sys.stderr, flush=True)
            yield result
        print(file=sys.stderr)
        return
    yield from track(results, "compiling", total, console=Console(stderr=True))
