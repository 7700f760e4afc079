"""Large specifications compile on a Ray cluster: ``--dotllm-compile-on ray://HOST:PORT`` or ``ray://auto``.

The vocabulary is put into the cluster once; a task gets a specification and returns the saved index as bytes, or a
refusal as data. The nodes need dotllm installed. When the cluster cannot be reached or a task is lost, the compile
falls back to this host, and a circuit breaker stops further calls for a while: a cluster helps, but nothing depends on
it. A restarted cluster has lost the task and the vocabulary, so after a failure both are sent again.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from typing import Any, NamedTuple

from dotllm.cancellation import Cancelled
from dotllm.compilation import wire
from dotllm.compilation.breaker import CircuitBreaker
from dotllm.compilation.compiler import compile_specification
from dotllm.compilation.errors import CompileTimeout
from dotllm.compilation.process import NOBODY_WAITS, POLL_S, ProcessCompiler
from dotllm.compilation.specification import Specification, engine_fingerprint

logger = logging.getLogger(__name__)

COMPILES_AT_ONCE = 32  # the cluster queues tasks itself; here, each task occupies a waiting thread


# The process of a task stays for the next task; building the vocabulary's trie takes longer than most compiles.
_vocabulary = functools.lru_cache(maxsize=2)(wire.unpack_vocabulary)


def compile_task(specification: dict[str, Any], vocabulary: bytes, engine: str, memory: int) -> dict[str, Any]:
    """The task that runs on the cluster. Returns {"index": bytes} or {"error": …}, and nothing else.

    memory: bytes that the task asked the cluster for.
    """
    if engine != engine_fingerprint():
        # Never accept another version's index under our key.
        return {"error": {"type": "VersionMismatch", "message": "the cluster has another version of dotllm"}}
    try:
        index = compile_specification(Specification.from_json(specification), _vocabulary(vocabulary))
        return {"index": index.to_bytes()}
    except Exception as error:
        return {"error": wire.pack_error(error, memory)}


class _Connection(NamedTuple):
    """The objects that a cluster holds for this process: they are lost with it, and made anew for the next cluster."""

    task: Any
    vocabulary: Any
    """The reference to the vocabulary in the cluster."""


class RayCompiler(ProcessCompiler):
    """Compiles large specifications on Ray. If the cluster cannot help, they compile in processes of this host, as all
    others do. Thread-safe."""

    level = "remote"

    def __init__(self, url: str, vocabulary: Any, **limits: Any) -> None:
        """``limits``: the keyword arguments of `ProcessCompiler`."""
        import ray  # optional: ImportError here says what --dotllm-compile-on needs

        super().__init__(vocabulary, **limits)
        self._ray: Any = ray
        self._address = "auto" if url in ("ray://auto", "ray://") else url
        self._connecting = threading.Lock()
        self._breaker = CircuitBreaker()
        self._connection: _Connection | None = None
        self.at_once = COMPILES_AT_ONCE
        self._ours = False  # whether this object, not vLLM, has connected the process

    @property
    def ready(self) -> bool:
        """True: a cluster is always worth asking."""
        return True

    def compile(self, specification: Specification, cancelled: threading.Event) -> Any:
        """The index; raises as `ProcessCompiler.compile` does."""
        if not self._breaker.allow(time.monotonic()):
            return super().compile(specification, cancelled)
        try:
            reply = self._ask(specification, cancelled)
        except (Cancelled, CompileTimeout):
            self._breaker.success()  # the cluster works
            raise
        except Exception as error:
            self._breaker.failure(time.monotonic())
            name = type(error).__name__
            logger.warning("Ray at %s did not compile (%s: %s); this server compiles", self._address, name, error)
            return super().compile(specification, cancelled)
        self._breaker.success()
        if "error" in reply:
            if reply["error"]["type"] == "VersionMismatch":
                logger.warning("Ray at %s: %s; this server compiles", self._address, reply["error"]["message"])
                return super().compile(specification, cancelled)
            raise wire.unpack_error(reply["error"])
        return self._load(reply["index"], self._vocabulary)

    def close(self) -> None:
        """Forget the cluster, and kill all processes. (The connection stays, because vLLM may use it too.)"""
        self._connection = None
        super().close()

    def _connect(self) -> _Connection:
        with self._connecting:
            if self._connection is None:
                try:
                    self._connection = self._introduced()
                except Exception:
                    if not self._ours:
                        raise
                    # The cluster of this connection is gone; perhaps there is a new one at its address.
                    self._ours = False
                    self._ray.shutdown()
                    self._connection = self._introduced()
            return self._connection

    def _introduced(self) -> _Connection:
        """A connection to the cluster as it is now."""
        if not self._ray.is_initialized():  # vLLM may have connected this process already
            self._ray.init(address=self._address, ignore_reinit_error=True, log_to_driver=False)
            self._ours = True
        vocabulary = self._ray.put(wire.pack_vocabulary(self._vocabulary))
        task = self._ray.remote(num_cpus=1, memory=self._memory, max_retries=1)(compile_task)
        return _Connection(task, vocabulary)

    def _ask(self, specification: Specification, cancelled: threading.Event) -> dict[str, Any]:
        connection = self._connect()
        try:
            return self._reply(connection, specification, cancelled)
        except (Cancelled, CompileTimeout):
            raise
        except Exception:
            with self._connecting:
                if self._connection is connection:
                    self._connection = None
            raise

    def _reply(
        self, connection: _Connection, specification: Specification, cancelled: threading.Event
    ) -> dict[str, Any]:
        reference = connection.task.remote(
            specification.to_json(), connection.vocabulary, engine_fingerprint(), self._memory
        )
        deadline = time.monotonic() + self._timeout
        while True:
            ready, _ = self._ray.wait([reference], timeout=POLL_S)
            if ready:
                reply: dict[str, Any] = self._ray.get(reference)
                return reply
            if cancelled.is_set():
                self._ray.cancel(reference, force=True)
                raise Cancelled(NOBODY_WAITS)
            if time.monotonic() >= deadline:
                self._ray.cancel(reference, force=True)
                raise CompileTimeout.beyond(self._timeout)
