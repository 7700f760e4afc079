"""The common arguments of ``dotllm compile`` and ``dotllm check``: the specifications, and how their JSON is
written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dotllm.cli.subcommands import MOST_TOKENS, whole
from dotllm.compilation import specification
from dotllm.compilation.inputs import SUFFIXES
from dotllm.compilation.options import flag_of
from dotllm.compilation.specification import Kind, OptionValue
from dotllm.suggestions import did_you_mean
from dotllm.vllm_plugin.settings import ADDITIONAL, DIGITS, HOW_JSON_IS_WRITTEN, ORDER, WHITESPACE

_KINDS = ", ".join(kind.value for kind in Kind)
_OPTIONS = {"additional_properties": ADDITIONAL, "whitespace": WHITESPACE, "number_digits": DIGITS, "order": ORDER}


def add_arguments(parser: argparse.ArgumentParser, *, least: str = "+") -> None:
    """Add the arguments for specifications (at least one; with ``least`` "*" none is needed) and the options of JSON
    kinds."""
    parser.add_argument(
        "specs", nargs=least, type=Path, metavar="SPEC", help=f"files ({', '.join(SUFFIXES)}), directories; - is stdin"
    )
    parser.add_argument(
        "--kind", type=_kind, metavar="KIND", help=f"the kind of single files, whatever their endings: {_KINDS}"
    )
    parser.add_argument("--disable-any-whitespace", action="store_true", help="as the server's flag of that name")
    parser.add_argument(
        "--disable-additional-properties", action="store_true", help="as the server's flag of that name"
    )
    parser.add_argument("--whitespace-pattern", metavar="REGEX", help="as the request's field of that name")
    for variable, values in HOW_JSON_IS_WRITTEN.items():
        flag, about = flag_of(variable).replace("dotllm-", ""), f"as the server's {flag_of(variable)}"
        parser.add_argument(flag, choices=values, default=values[0], dest=variable, help=about)


def add_tokenizer(parser: argparse.ArgumentParser, about: str, *, required: bool = False) -> None:
    """Add the arguments of `vocabulary_of`."""
    parser.add_argument("--tokenizer", required=required, metavar="MODEL", help=f"{about}: a directory or hub name")
    parser.add_argument(
        "--vocab-size", type=whole(1, MOST_TOKENS), metavar="N", help="width of its output (default: its config's)"
    )


def _kind(name: str) -> Kind:
    known = [kind.value for kind in Kind]
    if name not in known:
        raise argparse.ArgumentTypeError(f"{name!r}: {did_you_mean(name, known) or f'use one of {_KINDS}'}")
    return Kind(name)


def json_options(arguments: argparse.Namespace) -> dict[str, OptionValue]:
    """The options of JSON kinds, as the server's plugin names them (`dotllm.vllm_plugin.specification`)."""
    options: dict[str, OptionValue] = {}
    for option, variable in _OPTIONS.items():
        value = getattr(arguments, variable)
        if value != HOW_JSON_IS_WRITTEN[variable][0]:
            options[option] = value
    return options | specification.json_options(vars(arguments))


def vocabulary_of(model: str, size: int | None) -> Any:
    """The vocabulary that a server of ``model`` has: the tokenizer's, as wide as the model's output, with the EOS
    tokens that the generation config names.

    Raises:
        ValueError: ``model`` has no configuration, and ``size`` is None; or the tokenizer names no EOS.
    """
    from transformers import AutoConfig, AutoTokenizer

    from dotllm.vocabulary import Vocabulary

    if size is None:
        try:
            size = int(AutoConfig.from_pretrained(model).get_text_config().vocab_size)
        except (OSError, ValueError) as error:
            raise ValueError(f"{model}: no model configuration ({error}); give --vocab-size") from None
    tokenizer = AutoTokenizer.from_pretrained(model)
    return Vocabulary.from_tokenizer(tokenizer, further_eos_token_ids=_ends(model), size=size)


def _ends(model: str) -> tuple[int, ...]:
    """The EOS ids that vLLM finds for ``model``, from the same files; none if there is only a tokenizer."""
    from transformers import AutoConfig, GenerationConfig

    from dotllm.vocabulary.content import ids_of

    try:
        generation = GenerationConfig.from_pretrained(model)
    except OSError:
        try:
            generation = GenerationConfig.from_model_config(AutoConfig.from_pretrained(model))
        except (OSError, ValueError):
            return ()
    return ids_of(generation.eos_token_id)


def are_no_schemas(files: int) -> str:
    """The message about JSON files of a directory that are skipped."""
    which, it = ("1 file is not a schema", "it") if files == 1 else (f"{files} files are not schemas", "one")
    return f"{which}: name {it} to have it checked"
