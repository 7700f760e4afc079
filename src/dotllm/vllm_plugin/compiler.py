"""Compiler: one engine's indexes. Equal specifications compile once, however many requests wait, and are shared.

Threads of our own, because vLLM's pool lets one slow compile hold up all others; a cache that is bounded in bytes and
drops the least recently used. (The seam to ``dotllm.compilation``: whatever has ``submit`` and ``close`` will do.)
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dotllm.compilation.compiler import compile_specification
from dotllm.compilation.specification import Specification
from dotllm.vllm_plugin.settings import number

THREADS = 4
CACHE_BYTES = 512 << 20


class Compiler:
    """Thread-safe. ``submit`` never blocks and never raises for a bad specification: its future does."""

    def __init__(self, vocabulary: Any) -> None:
        self._vocabulary = vocabulary
        self._limit = number("DOTLLM_MEMORY_BYTES", CACHE_BYTES)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="dotllm-compile")
        self._lock = threading.Lock()
        self._ready: OrderedDict[Specification, Any] = OrderedDict()
        self._pending: dict[Specification, Future[Any]] = {}

    def submit(self, specification: Specification, transform: Callable[[Any], Any]) -> Future[Any]:
        """A future of ``transform(index)``."""
        result: Future[Any] = Future()
        with self._lock:
            index = self._ready.get(specification)
            if index is not None:
                self._ready.move_to_end(specification)
            else:
                pending = self._pending.get(specification)
                if pending is None:
                    pending = self._threads.submit(compile_specification, specification, self._vocabulary)
                    self._pending[specification] = pending
        if index is not None:
            _settle(result, lambda: transform(index))
            return result

        def settle(done: Future[Any]) -> None:
            self._finish(specification, done)
            _settle(result, lambda: transform(done.result()))

        pending.add_done_callback(settle)
        return result

    def close(self) -> None:
        """Stop taking work and forget all indexes."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._ready.clear()

    def _finish(self, specification: Specification, done: Future[Any]) -> None:
        with self._lock:
            if self._pending.get(specification) is done:
                del self._pending[specification]
            if done.cancelled() or done.exception() is not None:
                return
            self._ready[specification] = done.result()
            self._ready.move_to_end(specification)
            held = sum(index.nbytes for index in self._ready.values())
            while held > self._limit and len(self._ready) > 1:
                held -= self._ready.popitem(last=False)[1].nbytes


def _settle(future: Future[Any], compute: Callable[[], Any]) -> None:
    try:
        future.set_result(compute())
    except Exception as error:
        future.set_exception(error)
