"""Caches of functions of users' texts are bounded in bytes, not only in entries: a text may be as long as users like."""

from __future__ import annotations

import gc
import random
import sys
import types
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from dotllm import Vocabulary
from dotllm.compilation import spec_warnings, validation_cache
from dotllm.compilation.compiler import build
from dotllm.compilation.memory import FailureCache
from dotllm.compilation.specification import Specification
from dotllm.errors import SpecError, without_frames
from dotllm.memo import Memo

MOST = 64 << 20
"""Bytes of a cache that is full of such texts."""
_NOT_OURS = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def deep_size(root: object) -> int:
    """The bytes of all objects that ``root`` keeps alive."""
    seen, total, pending = set[int](), 0, [root]
    while pending:
        one = pending.pop()
        if id(one) in seen or isinstance(one, _NOT_OURS):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        if isinstance(one, np.ndarray) and one.base is None:
            total += max(0, one.nbytes - sys.getsizeof(one))
        pending += gc.get_referents(one)
    return total


def word(number: int, length: int) -> str:
    """Letters that differ from other numbers'."""
    return "".join(random.Random(number).choices("abcdefghijklmnopqrstuvwxyz", k=40)) * (length // 40)


def characters(number: int, count: int = 1500) -> str:
    """A class of single characters."""
    return "".join(map(chr, random.Random(number).sample(range(0x3400, 0x9FFF), count)))


LARGE: dict[str, Any] = {
    "name": lambda n: ("json_schema", {"properties": {word(n, 50_000): {"type": "string"}}}),
    "pattern": lambda n: ("json_schema", {"type": "string", "pattern": f"[{characters(n)}]+"}),
    "patterns": lambda n: (
        "json_schema",
        {"allOf": [{"pattern": f"^[{characters(n, 400)}]+$"}, {"pattern": f"[{characters(n + 50, 400)}]x"}]},
    ),
    "class": lambda n: ("regex", f"[{characters(n)}]+"),
    "look-ahead": lambda n: ("regex", f"(?![{characters(n)}])[{characters(n + 1)}]*"),
    "no effect": lambda n: ("json_schema", {"properties": {word(n, 50_000): {"minLenght": 1}}}),
    "wrong type": lambda n: ("json_schema", {"type": word(n, 50_000)}),
    "wrong place": lambda n: ("json_schema", {"properties": {word(n, 50_000): {"type": "x"}}}),
    "no rule": lambda n: ("grammar", f"start: {word(n, 50_000)}"),
    "no tag": lambda n: ("structural_tag", {"type": "structural_tag", "format": {"type": word(n, 50_000)}}),
    "no property": lambda n: ("regex", rf"\p{{{word(n, 50_000)}}}"),
}
COUNT = 4


def caches() -> Iterator[tuple[str, Any]]:
    """All caches of functions of ours, by name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("dotllm"):
            for attribute, value in list(vars(module).items()):
                is_bounded = hasattr(value, "cache_info") and value.cache_info().maxsize is not None
                if (is_bounded or isinstance(value, Memo)) and value.__module__ == name:
                    yield f"{name}.{attribute}", value


def compile_large(kind: str, vocabulary: Vocabulary, failures: FailureCache) -> None:
    for number in range(COUNT):
        specification = Specification.from_value(*LARGE[kind](number))
        try:
            build(specification, vocabulary)
        except SpecError as error:
            failures.put(str(number), without_frames(error), 0.0)
        with suppress(SpecError):
            validation_cache.check(specification)
        spec_warnings._find(specification, spec_warnings._remembered(specification.key(b"")))


@pytest.mark.parametrize("kind", LARGE)
def test_long_texts_do_not_fill_memory(kind: str) -> None:
    tokens = [bytes([byte]) for byte in range(256)]
    vocabulary = Vocabulary.from_bytes(tokens, eos_token_ids=256, size=257)
    compile_large(kind, vocabulary, FailureCache(60, 1))  # imports what it needs
    for _, cache in caches():
        (cache.clear if isinstance(cache, Memo) else cache.cache_clear)()
    failures = FailureCache(60, 4096)
    compile_large(kind, vocabulary, failures)
    sizes = {"failures": failures.limit * deep_size(failures) // COUNT}
    for name, cache in caches():
        if isinstance(cache, Memo):
            sizes[name] = cache._half * 2 + deep_size(cache) - cache.nbytes  # (what it does not count)
        elif cache.cache_info().currsize >= COUNT:
            sizes[name] = cache.cache_info().maxsize * deep_size(cache) // cache.cache_info().currsize
    assert not {name: size >> 20 for name, size in sizes.items() if size > MOST}
