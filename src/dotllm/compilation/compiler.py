"""The engine as compilation sees it: which constructor takes which kind, and what an index costs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dotllm import cancellation
from dotllm.compilation.compiled import Engine
from dotllm.compilation.specification import Kind, Specification
from dotllm.errors import InvalidSpecError

if TYPE_CHECKING:
    from dotllm.grammar import Grammar
    from dotllm.languages.token_names import TokenNames


MODULES = ("api", "index.draft_rows", "index.running", "languages.cfg", "languages.choice",
           "languages.json_schema.build", "languages.regex.build", "languages.structural_tag.build")  # fmt: skip
"""The modules that compile and walk. They and their imports contain every kernel."""


def prepare() -> None:
    """Load the engine and its languages, and build what all specifications share. Importing the modules compiles their
    kernels if this machine has no machine code for them yet; see `dotllm.jit`."""
    for module in MODULES:
        importlib.import_module(f"dotllm.{module}")
    from dotllm import jit
    from dotllm.languages.json_schema.strings.formats import registry as formats

    formats.build_ahead()
    jit.imported()


def compile_specification(specification: Specification, vocabulary: Any) -> Any:
    """The index of a specification, with its first mask found. Raises `dotllm.errors.SpecError` if it is refused."""
    index = build(specification, vocabulary)
    cancellation.check()
    # The first mask is found here, on the compile thread, so that the first token does not wait for it.
    _ = index.guide().mask_row
    return index


def build(specification: Specification, vocabulary: Any) -> Any:
    """The index of a specification, with no state or mask found yet. Raises `dotllm.errors.SpecError` if it is
    refused."""
    from dotllm.api import Index
    from dotllm.languages.token_names import TokenNames

    grammar = grammar_of(specification, lambda: TokenNames.of(vocabulary))
    return Index.from_grammar_object(grammar, vocabulary)


def grammar_of(specification: Specification, token_names: Callable[[], TokenNames | None]) -> Grammar:
    """The language of a specification; ``token_names`` gives the tokens that it may name, and is called only if needed.
    Raises `dotllm.errors.SpecError` if the specification is refused."""
    from dotllm.languages import cfg, choice, json_schema, regex
    from dotllm.languages.structural_tag.build import structural_tag_to_grammar

    text, options = specification.text, dict[str, Any](specification.options)
    match specification.kind:
        case Kind.JSON_SCHEMA:
            return json_schema.json_schema_to_grammar(text, **options)
        case Kind.JSON_OBJECT:
            return json_schema.json_object_to_grammar(**options)
        case Kind.REGEX:
            return regex.regex_to_grammar(text, **options)
        case Kind.CHOICE:
            return choice.choice_to_grammar(_choices(text))
        case Kind.GRAMMAR:
            return cfg.grammar_to_grammar(text, token_names=token_names(), **options)
    tag_options = json_schema.Options(**options)
    return structural_tag_to_grammar(text, token_names=token_names(), options=tag_options)


def load_index(data: bytes, vocabulary: Any) -> Any:
    """The index that `Index.to_bytes` saved as ``data``. Raises ValueError if it cannot be used."""
    from dotllm.api import Index

    return Index.from_bytes(data, vocabulary)


def shared_bytes(vocabulary: Any) -> int:
    """Bytes of the mask rows that all indexes of ``vocabulary`` share. (The tables of character sets do not count: no
    eviction of an index frees them, and they have a bound of their own.)"""
    from dotllm.index.token_space import TokenSpace

    return TokenSpace.of(vocabulary).row_bytes


def most_shared_bytes(vocabulary: Any) -> int:
    """Bytes of mask rows above which ``vocabulary`` has little room for more."""
    from dotllm.index.token_space import MOST_FILLED, TokenSpace

    return int(TokenSpace.of(vocabulary).rows.nbytes * MOST_FILLED)


def collect(vocabulary: Any) -> int:
    """Free the mask rows that no living index knows, and return how many."""
    from dotllm.index.token_space import EPOCH_S, TokenSpace

    return TokenSpace.of(vocabulary).collect(EPOCH_S)


def warmth(index: Any) -> int:
    """Number of states and configurations that an index has found so far."""
    return int(index.states + index.configurations)


def _choices(text: str) -> list[str]:
    try:
        choices = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSpecError(f"choice is not a JSON list: {error}", code="not_json") from None
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise InvalidSpecError("choice must be a list of strings")
    return choices


ENGINE = Engine(compile_specification, load_index, shared_bytes, most_shared_bytes, collect, warmth, prepare)
