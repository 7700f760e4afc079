"""The compile process: ``python -m dotllm.compilation.worker VOCABULARY MEMORY PARENT``, spoken to by `process`.

VOCABULARY is the number of an open file, MEMORY a number of bytes, PARENT the process that started this one.
One JSON line in: {"specification": …}; one JSON line out: {"bytes": n} and behind it the n bytes of the index, or
{"error": …}. It ends when its input does, and when its parent is gone: nobody has to clean up after it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from typing import Any, BinaryIO

from dotllm.compilation import faults, wire
from dotllm.compilation.compiler import compile_specification
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


def limit_memory(extra: int) -> None:
    """Let this process have ``extra`` bytes of private memory beyond what it has now.

    RLIMIT_DATA counts anonymous mappings since Linux 4.7; RLIMIT_AS would count reserved address space, which LLVM and
    NumPy take by the gigabyte.
    """
    with open("/proc/self/status") as status:
        used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + extra, used + extra))


def serve(requests: BinaryIO, replies: BinaryIO, vocabulary: Any) -> None:
    """Answer request after request until the input ends."""
    injected = faults.from_environment()
    for line in requests:
        request = json.loads(line)
        index = b""
        try:
            specification = Specification.from_json(request["specification"])
            faults.strike(injected, specification)
            index = compile_specification(specification, vocabulary).to_bytes()
            reply: dict[str, Any] = {"bytes": len(index)}
        except Exception as error:
            reply = {"error": wire.pack_error(error)}
        replies.write(json.dumps(reply).encode() + b"\n" + index)
        replies.flush()


def main(argv: list[str]) -> None:
    """See the module."""
    end_with(int(argv[2]))
    # Ctrl-C in the server's terminal is for the server, which then closes our input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)
    # Whatever prints must not end up between our replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # The processes share the file's position, so nobody moves it.
    file = int(argv[0])
    vocabulary = wire.unpack_vocabulary(os.pread(file, os.fstat(file).st_size, 0))
    os.close(file)
    # The kernels are loaded (from their cache) before the limit counts.
    compile_specification(Specification.create("regex", "a"), vocabulary)
    limit_memory(int(argv[1]))
    replies.write(b'{"ready": true}\n')
    replies.flush()
    serve(sys.stdin.buffer, replies, vocabulary)


if __name__ == "__main__":
    main(sys.argv[1:])
