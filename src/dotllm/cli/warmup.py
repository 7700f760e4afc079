"""``dotllm warmup``: does work in an image build that would delay the first start of a server by about a minute.

Compiles the engine's kernels into the cache directory and, with ``--tokenizer``, builds the tables of that vocabulary.
Set ``DOTLLM_CACHE_DIR`` to a directory that is part of the image.
"""

from __future__ import annotations

import sys
import time

from dotllm.cli.specifications import add_tokenizer, vocabulary_of
from dotllm.cli.subcommands import CommandParser
from dotllm.system import user_cache_directory


def main(argv: list[str]) -> int:
    """Status 0; 1 if the machine code could not be kept."""
    parser = CommandParser("warmup", __doc__)
    add_tokenizer(parser, "the model to be served")
    arguments = parser.parse_args(argv)

    start = time.perf_counter()
    from dotllm import jit
    from dotllm.compilation.compiler import compile_specification, prepare
    from dotllm.compilation.specification import Specification
    from dotllm.vocabulary import Vocabulary

    # Importing their modules compiles the kernels; a walk shows that they work.
    prepare()
    tiny = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=256)
    for kind, text in (("regex", "[a-z]+é?"), ("choice", '["yes", "no"]'), ("json_object", "")):
        guide = compile_specification(Specification.create(kind, text), tiny).guide()
        guide.advance(ord("{") if kind == "json_object" else ord("n"))
        _ = guide.mask_row, guide.forced_bytes()
    print(f"kernels ready in {time.perf_counter() - start:.1f} s, {time.process_time():.1f} s of CPU")
    if arguments.tokenizer:
        start = time.perf_counter()
        vocabulary = vocabulary_of(arguments.tokenizer, arguments.vocab_size)
        vocabulary.prepare()
        print(f"{vocabulary!r} ready in {time.perf_counter() - start:.1f} s")
    if not jit.is_kept():
        print(
            f"dotllm: a start will compile again what {user_cache_directory()} could not keep: make room there, make "
            "it writable, or set DOTLLM_CACHE_DIR",
            file=sys.stderr,
        )
        return 1
    print(f"all of it is in {user_cache_directory()}")
    return 0
