"""The ``dotllm`` command: vLLM's own command line with our engine in it, plus a few subcommands of ours.

``dotllm serve MODEL …``, and every other subcommand and flag of ``vllm``, is vLLM's own ``main()`` with its arguments
untouched; bare flags (``dotllm --model X``) mean ``serve``. Nothing of vLLM's command line is copied.

Adding a subcommand: write ``dotllm/cli/<module>.py`` with ``def main(argv: list[str]) -> int`` (``argv`` is what stands
after the subcommand; return the exit status) and add its line to ``SUBCOMMANDS`` below. Modules are imported only when
their subcommand runs, and one whose module is not there is not listed. A name that vLLM has (``bench``, ``serve``, …)
is not free to take.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
from typing import NamedTuple


class Subcommand(NamedTuple):
    """One of our own subcommands: where it lives and its line in ``dotllm --help``."""

    module: str
    summary: str


SUBCOMMANDS: dict[str, Subcommand] = {
    "hooks": Subcommand("dotllm.cli.hooks", "apply our hooks to the installed vLLM and say which of them hold"),
    "demo": Subcommand("dotllm.cli.demo", "make a small demo model, serve it and ask it a structured request"),
    "check": Subcommand("dotllm.cli.check", "say whether a specification is enforced exactly, and if not, why not"),
    "compile": Subcommand("dotllm.cli.compile", "compile specifications ahead of time into a store"),
    "warmup": Subcommand("dotllm.cli.warmup", "compile the engine's kernels into the cache (for an image build)"),
    "bench-structured": Subcommand(
        "dotllm.cli.bench_structured", "benchmark structured output: many schemas × requests"
    ),
}


def available() -> dict[str, Subcommand]:
    """Our subcommands whose module exists."""
    return {name: sub for name, sub in SUBCOMMANDS.items() if importlib.util.find_spec(sub.module) is not None}


def main(argv: list[str] | None = None) -> int:
    """Entry point of the ``dotllm`` script. ``argv`` is without the program's name. Returns the exit status."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    own = available()
    if arguments and arguments[0] in own:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended
        try:
            return int(importlib.import_module(own[arguments[0]].module).main(arguments[1:]))
        except BrokenPipeError:  # whoever read our output has enough (``| head``)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more
            return 1
        except KeyboardInterrupt:
            print(f"dotllm {arguments[0]}: interrupted", file=sys.stderr)
            return 128 + signal.SIGINT
    from dotllm.cli import passthrough

    return passthrough.main(arguments)
