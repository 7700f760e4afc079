"""The engine as compilation sees it: which constructor takes which kind, and what an index costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dotllm import cancellation
from dotllm.compilation.contract import Engine
from dotllm.compilation.specification import Kind, Specification
from dotllm.errors import InvalidSpec


def prepare() -> None:
    """Load the engine and its languages, and build what all specifications share. Kernels are compiled when their
    modules are imported, if that was never done on this machine; see `dotllm.jit`."""
    import dotllm.index.draft_rows
    import dotllm.languages.cfg
    import dotllm.languages.choice
    import dotllm.languages.json_schema
    import dotllm.languages.regex
    import dotllm.languages.structural_tag  # noqa: F401  # importing is the point
    from dotllm.languages.json_schema.strings import formats

    formats.build_ahead()


def compile_specification(specification: Specification, vocabulary: Any) -> Any:
    """The index of a specification, its first mask found. Raises `dotllm.errors.SpecError` for a refused one."""
    index = build(specification, vocabulary)
    cancellation.check()
    # The first mask is found here, on the compile thread, so that the first token does not wait for it.
    _ = index.guide().mask_row
    return index


def build(specification: Specification, vocabulary: Any) -> Any:
    """The index of a specification, nothing of it found yet. Raises `dotllm.errors.SpecError` for a refused one."""
    from dotllm.api import Index

    options: dict[str, Any] = dict(specification.options)
    text = specification.text
    kind = specification.kind
    if kind is Kind.JSON_SCHEMA:
        return Index.from_json_schema(text, vocabulary, **options)
    if kind is Kind.JSON_OBJECT:
        return Index.from_json_object(vocabulary, **options)
    if kind is Kind.REGEX:
        return Index.from_regex(text, vocabulary, **options)
    if kind is Kind.CHOICE:
        return Index.from_choice(_choices(text), vocabulary, **options)
    if kind is Kind.GRAMMAR:
        return Index.from_grammar(text, vocabulary, **options)
    return Index.from_structural_tag(text, vocabulary, **options)


def load_index(source: Path | bytes, vocabulary: Any) -> Any:
    """An index that `Index.save` wrote, or what `Index.to_bytes` gave. Raises ValueError or OSError if it cannot be
    used."""
    from dotllm.api import Index

    return Index.from_bytes(source, vocabulary) if isinstance(source, bytes) else Index.load(source, vocabulary)


def shared_bytes(vocabulary: Any) -> int:
    """Bytes of the mask rows and tries that all indexes of ``vocabulary`` share."""
    from dotllm.index.token_space import TokenSpace

    return TokenSpace.of(vocabulary).nbytes


def collect(vocabulary: Any) -> int:
    """Free the mask rows that no living index knows; how many."""
    from dotllm.index.token_space import TokenSpace

    return TokenSpace.of(vocabulary).collect()


def warmth(index: Any) -> int:
    """States and configurations an index has found so far."""
    return int(index.states + index.configurations)


def _choices(text: str) -> list[str]:
    try:
        choices = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSpec(f"choice is not a JSON list: {error}") from None
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise InvalidSpec("choice must be a list of strings")
    return choices


ENGINE = Engine(compile_specification, load_index, shared_bytes, collect, warmth, prepare)
