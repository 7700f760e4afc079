"""Compiler: a vocabulary and the indexes made for it, each compiled once while the cache has room.

For programs that compile as requests arrive. The server has more (processes, disk, a store: see `manager`); this is
one class, one lock and the constructors of `Index`.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from dotllm.api import Index, choices_of, schema_of
from dotllm.compilation.specification import Kind
from dotllm.vocabulary import Vocabulary


class Compiler:
    """Compiles for one tokenizer, and keeps what it has compiled: equal specifications share an `Index`.

    ``tokenizer``: as `Vocabulary.from_tokenizer` takes it, or a `Vocabulary`. ``cache_mb``: MiB that all cached indexes
    together may take; the least recently used are dropped first, and guides on them stay valid. Options are those of
    the constructors of `Index` with the same names. Thread-safe; threads that need the same index compile it once.
    """

    def __init__(self, tokenizer: Any, *, cache_mb: float = 512) -> None:
        is_vocabulary = isinstance(tokenizer, Vocabulary)
        self.vocabulary: Vocabulary = tokenizer if is_vocabulary else Vocabulary.from_tokenizer(tokenizer)
        self._limit = int(cache_mb * 2**20)
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Future[Index]] = OrderedDict()

    def from_json_schema(self, schema: Any, **options: Any) -> Index:
        """See `Index.from_json_schema`."""
        schema = schema_of(schema)
        return self._find(Kind.JSON_SCHEMA, schema, options, Index.from_json_schema)

    def from_json_object(self, **options: Any) -> Index:
        """See `Index.from_json_object`."""
        return self._find(
            Kind.JSON_OBJECT, None, options, lambda _, vocabulary, **these: Index.from_json_object(vocabulary, **these)
        )

    def from_regex(self, pattern: str, **options: Any) -> Index:
        """See `Index.from_regex`."""
        return self._find(Kind.REGEX, pattern, options, Index.from_regex)

    def from_choice(self, choices: Sequence[str] | Any) -> Index:
        """See `Index.from_choice`."""
        return self._find(Kind.CHOICE, choices_of(choices), {}, Index.from_choice)

    def from_grammar(self, text: str, **options: Any) -> Index:
        """See `Index.from_grammar`."""
        return self._find(Kind.GRAMMAR, text, options, Index.from_grammar)

    def from_structural_tag(self, spec: Any, **options: Any) -> Index:
        """See `Index.from_structural_tag`."""
        return self._find(Kind.STRUCTURAL_TAG, spec, options, Index.from_structural_tag)

    @property
    def nbytes(self) -> int:
        """Bytes of the cached indexes. (They grow while they are used, and share mask rows.)"""
        with self._lock:
            return sum(_size(future) for future in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Drop everything that has been compiled so far."""
        with self._lock:
            self._kept.clear()

    def _find(self, kind: Kind, value: Any, options: dict[str, Any], compiled: Callable[..., Index]) -> Index:
        try:
            key = json.dumps([kind.value, value, sorted(options.items())], default=repr)
        except (TypeError, ValueError, RecursionError):  # only Python has such values: other keys, cycles, great depth
            return compiled(value, self.vocabulary, **options)
        with self._lock:
            future = self._kept.get(key)
            is_new = future is None
            if future is None:
                future = self._kept[key] = Future()
            self._kept.move_to_end(key)
        if not is_new:
            return future.result()
        try:
            index = compiled(value, self.vocabulary, **options)
        except BaseException as error:
            with self._lock:
                if self._kept.get(key) is future:
                    del self._kept[key]
            future.set_exception(error)
            raise
        future.set_result(index)
        self._shrink()
        return index

    def _shrink(self) -> None:
        """Drop the least recently used indexes until the others fit; the most recent one stays, whatever its size."""
        with self._lock:
            sizes = {key: _size(future) for key, future in self._kept.items()}
            total = sum(sizes.values())
            for key in [*self._kept][:-1]:
                if total <= self._limit:
                    return
                if self._kept[key].done():
                    total -= sizes[key]
                    del self._kept[key]


def _size(future: Future[Index]) -> int:
    return future.result().nbytes if future.done() and future.exception() is None else 0
