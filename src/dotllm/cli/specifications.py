"""The common arguments of ``dotllm compile`` and ``dotllm check``: the specifications, and how their JSON is
written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dotllm.compilation.inputs import SUFFIXES
from dotllm.compilation.specification import Kind, OptionValue
from dotllm.suggestions import did_you_mean

_KINDS = ", ".join(kind.value for kind in Kind)


def add_arguments(parser: argparse.ArgumentParser, *, least: str = "+") -> None:
    """Add the arguments for specifications (at least one; with ``least`` "*" none is needed) and the options of JSON
    kinds."""
    parser.add_argument(
        "specs", nargs=least, type=Path, metavar="SPEC", help=f"files ({', '.join(SUFFIXES)}), directories; - is stdin"
    )
    parser.add_argument(
        "--kind", type=_kind, metavar="KIND", help=f"what single files are, instead of their ending: {_KINDS}"
    )
    parser.add_argument("--disable-any-whitespace", action="store_true", help="as the server's flag of that name")
    parser.add_argument(
        "--disable-additional-properties", action="store_true", help="as the server's flag of that name"
    )
    parser.add_argument(
        "--whitespace", choices=("formatted", "any"), default="formatted", help="as the server's --dotllm-whitespace"
    )
    parser.add_argument(
        "--number-digits", choices=("bounded", "any"), default="bounded", help="as the server's --dotllm-number-digits"
    )
    parser.add_argument("--whitespace-pattern", metavar="REGEX", help="as the request's field of that name")
    parser.add_argument(
        "--property-order",
        choices=("declared", "any"),
        default="declared",
        help="as the server's --dotllm-property-order",
    )
    parser.add_argument(
        "--additional-properties",
        choices=("closed", "open"),
        default="closed",
        help="as the server's --dotllm-additional-properties",
    )


def _kind(name: str) -> Kind:
    known = [kind.value for kind in Kind]
    if name not in known:
        raise argparse.ArgumentTypeError(f"{name!r}: {did_you_mean(name, known) or f'use one of {_KINDS}'}")
    return Kind(name)


def json_options(arguments: argparse.Namespace) -> dict[str, OptionValue]:
    """The options of JSON kinds, as the server's plugin names them (`dotllm.vllm_plugin.specification`)."""
    options: dict[str, OptionValue] = {}
    if arguments.disable_any_whitespace:
        options["any_whitespace"] = False
    if arguments.disable_additional_properties:
        options["additional_properties"] = False
    elif arguments.additional_properties != "closed":
        options["additional_properties"] = arguments.additional_properties
    if arguments.whitespace_pattern is not None:
        options["whitespace_pattern"] = arguments.whitespace_pattern
    if arguments.whitespace != "formatted":
        options["whitespace"] = arguments.whitespace
    if arguments.number_digits != "bounded":
        options["number_digits"] = arguments.number_digits
    if arguments.property_order != "declared":
        options["order"] = arguments.property_order
    return options


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
    """The message about JSON files of a directory that are passed over."""
    which, it = ("1 file is not a schema", "it") if files == 1 else (f"{files} files are not schemas", "one")
    return f"{which}: name {it} to have it judged"
