"""`dotllm.compilation.worker` on the fake engine; a specification may also ask it to fill memory or to die.

Run by file name: ``ProcessCompiler(command=…)``.
"""

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import fake_engine

from dotllm import system
from dotllm.compilation import wire, worker

compiler = fake_engine.Compiler()
kept = []


def compile_specification(specification, vocabulary):
    if specification.kind.value == "regex":  # the worker's warm-up
        return None
    request = json.loads(specification.text)
    if "eat" in request:
        hoard = [bytearray(1 << 20) for _ in range(request["eat"])]
        assert len(hoard) == request["eat"]
    if "keep" in request:
        kept.append(bytearray(request["keep"]))
    if "map" in request:
        system.reserved(request["map"], "u1")
    if "die" in request:
        os.kill(os.getpid(), getattr(signal, request["die"]))
    if "say" in request:
        print(request["say"])
    return compiler(specification, vocabulary)


worker.compile_specification = compile_specification
worker.prepare = lambda: None  # no kernel runs here, and loading them all takes seconds
wire.unpack_vocabulary = lambda data: fake_engine.FakeVocabulary()
worker.main(sys.argv[1:])
