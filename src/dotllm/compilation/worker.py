"""The compile process of `process`: ``python -m dotllm.compilation.worker VOCABULARY MEMORY PARENT``.

VOCABULARY is the number of an open file, MEMORY a number of bytes, PARENT the process that started this one.
One JSON line in: {"specification": …}. One JSON line out: {"bytes": n}, followed by the n bytes of the index, or
{"error": …}; the last reply also has "last". The process ends when its input ends, and when its parent ends, so it is
never orphaned.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

from dotllm.compilation import wire
from dotllm.compilation.compiler import compile_specification, prepare
from dotllm.compilation.specification import Specification


def end_with(parent: int) -> None:
    """End this process when ``parent`` is no longer its parent, even in the middle of a compile.

    (PR_SET_PDEATHSIG would be sent when the *thread* that started us ends, and compile threads come and go.)
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def private_bytes() -> int:
    """The bytes of this process that RLIMIT_DATA counts."""
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))


@contextlib.contextmanager
def memory_limit(extra: int) -> Iterator[None]:
    """Let this process have ``extra`` bytes of private memory more than it has now; beyond that, allocations raise
    `MemoryError`.

    This is the limit of one compile. RLIMIT_DATA counts anonymous mappings since Linux 4.7; RLIMIT_AS would count
    reserved address space, which LLVM and NumPy take by the gigabyte.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = private_bytes() + extra
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def serve(requests: BinaryIO, replies: BinaryIO, vocabulary: Any, memory: int) -> None:
    """Answer requests until the input ends, or until too much memory is kept between requests (masks, tables of
    character sets). The last reply says that it is the last, so that a new process can take over.

    memory: bytes that a compile may have.
    """
    enough = private_bytes() + memory // 2
    for line in requests:
        index = b""
        try:
            with memory_limit(memory):
                specification = Specification.from_json(json.loads(line)["specification"])
                index = compile_specification(specification, vocabulary).to_bytes()
            reply: dict[str, Any] = {"bytes": len(index)}
        except Exception as error:
            reply = {"error": wire.pack_error(error, memory)}
        if private_bytes() > enough:
            reply["last"] = True
        replies.write(json.dumps(reply).encode() + b"\n" + index)
        replies.flush()
        if "last" in reply:
            return


def main(argv: list[str]) -> None:
    """Run a compile process; see the module's docstring."""
    end_with(int(argv[2]))
    # Ctrl-C in the server's terminal is for the server, which then closes this process's input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)
    # What libraries print must not end up between the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # The processes share the file's position, so no process moves it.
    file = int(argv[0])
    vocabulary = wire.unpack_vocabulary(os.pread(file, os.fstat(file).st_size, 0))
    os.close(file)
    # All kernels are loaded (from their cache) before a limit holds, because without memory LLVM ends the process.
    prepare()
    compile_specification(Specification.create("regex", "a"), vocabulary)
    replies.write(b'{"ready": true}\n')
    replies.flush()
    serve(sys.stdin.buffer, replies, vocabulary, int(argv[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
