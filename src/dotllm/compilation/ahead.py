"""Compiles ahead of time, in parallel: every index is warmed, then stored in the local cache and the shared store.

Each process has its own copy of the vocabulary, which it receives as bytes. The pool hands out specifications and
collects results. An index is written before its result is reported, so reported results survive a kill.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any, NamedTuple

from dotllm.compilation import disk, specification, wire
from dotllm.compilation.compiled import CompiledIndex
from dotllm.compilation.compiler import compile_specification
from dotllm.compilation.disk import DiskCache
from dotllm.compilation.inputs import Input
from dotllm.compilation.metrics import Metrics
from dotllm.compilation.options import CompilationOptions
from dotllm.compilation.store import Transport, open_transport, pack
from dotllm.compilation.worker import end_with
from dotllm.errors import SpecError

# Pending specifications for each process of the pool: a directory of a million files is not read all at once.
AHEAD = 8


class Result(NamedTuple):
    """The outcome of one specification."""

    name: str
    key: str
    seconds: float
    nbytes: int
    """Size of the stored entry; 0 if there is none."""
    masks: int
    """Number of masks found while warming."""
    accepted: int
    """Number of texts that the specification accepts to their end."""
    error: str = ""
    refused: bool = False
    """Whether the error is a named refusal of the specification."""


def compile_ahead(
    inputs: Iterable[Input], texts: list[str], vocabulary: Any, options: CompilationOptions, processes: int
) -> Iterator[Result]:
    """Compile each of ``inputs``, warm it with its examples and ``texts``, and store it; results as they come."""
    packed = wire.pack_vocabulary(vocabulary)
    # Texts are tokenised by the process that has the tokenizer.
    common = [tuple(vocabulary.encode(text.encode())) for text in texts]
    tasks = ((entry, [tuple(vocabulary.encode(text.encode())) for text in entry.examples] + common) for entry in inputs)
    context = specification.context(vocabulary.fingerprint)
    if processes <= 1:
        _start(packed, options, context)
        for task in tasks:
            yield _compile_one(*task)
        return
    about = (packed, options, context, os.getpid())
    with ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), initializer=_start, initargs=about
    ) as pool:
        try:
            yield from _results(pool, tasks, AHEAD * processes)
        except BaseException:  # usually an interrupt: no result is needed any more
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def _results(pool: ProcessPoolExecutor, tasks: Iterable[tuple[Any, ...]], ahead: int) -> Iterator[Result]:
    """Yield the results of all tasks, in the order of completion; at most ``ahead`` tasks are pending at a time."""
    pending: set[Future[Result]] = set()
    for task in tasks:
        pending.add(pool.submit(_compile_one, *task))
        if len(pending) >= ahead:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)


class _Process:
    """The state of one compiling process."""

    def __init__(self, packed: bytes, options: CompilationOptions, context: bytes) -> None:
        self.vocabulary = wire.unpack_vocabulary(packed)
        self.context = context
        self.secret = options.store_secret.encode()
        self.disk = DiskCache(options.disk_directory, options.disk_bytes, secret=self.secret, metrics=Metrics())
        self.store: Transport | None = None
        if options.store and not options.store_readonly:
            self.store = open_transport(options.store, options.store_timeout)


_process: _Process | None = None
_starting = threading.Lock()


def _start(packed: bytes, options: CompilationOptions, context: bytes, parent: int | None = None) -> None:
    """Prepare this process. It ends when ``parent``, the process of the pool, ends."""
    global _process
    if parent is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends this process
        end_with(parent)
    logging.basicConfig(level=logging.WARNING)
    with _starting:
        _process = _Process(packed, options, context)


def _compile_one(entry: Input, token_lists: list[tuple[int, ...]]) -> Result:
    process = _process
    assert process is not None
    key = entry.specification.key(process.context)
    start = time.perf_counter()
    try:
        index = compile_specification(entry.specification, process.vocabulary)
        masks, accepted = warm(index, token_lists)
        nbytes = _store(process, key, index)
    except SpecError as error:
        return Result(entry.name, key, time.perf_counter() - start, 0, 0, 0, f"{type(error).__name__}: {error}", True)
    except Exception as error:
        return Result(entry.name, key, time.perf_counter() - start, 0, 0, 0, f"{type(error).__name__}: {error}")
    return Result(entry.name, key, time.perf_counter() - start, nbytes, masks, accepted)


def warm(index: CompiledIndex, token_lists: Iterable[Iterable[int]]) -> tuple[int, int]:
    """Walk outputs (token ids) through an index so that it knows their states and masks.

    Returns (masks looked up, outputs accepted to their end). An output that the index rejects is walked up to the token
    it rejects.
    """
    masks = accepted = 0
    for tokens in token_lists:
        guide = index.guide()
        for token in tokens:
            _ = guide.mask_row
            masks += 1
            if not guide.advance(token):
                break
        else:
            _ = guide.mask_row
            masks += 1
            accepted += bool(guide.can_finish)
    return masks, accepted


def _store(process: _Process, key: str, index: CompiledIndex) -> int:
    """Write an entry to disk and to the store; return its size. Raises if the store (without one: the disk) fails."""
    entry = disk.seal(index.to_bytes(), key, process.secret)
    path = process.disk.put(key, entry)
    if process.store is not None:
        packed = pack(entry)
        process.store.write(key, packed)
        return len(packed)
    if path is None:
        raise OSError("it was compiled, but neither the cache on disk nor a store could take it")
    return len(entry)
