"""The ``dotllm`` command: vLLM's own command line with dotllm's engine, and a few more subcommands.

``dotllm serve MODEL …`` and all other subcommands of ``vllm`` run vLLM's own ``main()`` with unchanged arguments; bare
flags (``dotllm --model X``) mean ``serve``. Nothing of vLLM's command line is copied.

Adding a subcommand: write ``dotllm/cli/<module>.py`` with ``def main(argv: list[str]) -> int`` (``argv`` is the
arguments after the subcommand; return the exit status) and add its line to `subcommands.SUBCOMMANDS`. Modules are
imported only when their subcommand runs, and a subcommand without a module is not listed. The names of vLLM's
subcommands (``bench``, ``serve``, …) are taken.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from io import TextIOWrapper

from dotllm.cli.subcommands import available, module_of


def main(argv: list[str] | None = None) -> int:
    """Entry point of the ``dotllm`` script. ``argv`` is without the program's name. Returns the exit status."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments and arguments[0] in available():
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # a specification may hold characters that no encoding has: "\\ud800"
                stream.reconfigure(errors="backslashreplace")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # child processes end with it
        try:
            return int(importlib.import_module(module_of(arguments[0])).main(arguments[1:]))
        except BrokenPipeError:  # the reader of the output has ended (``| head``)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more
            return 1
        except KeyboardInterrupt:
            print(f"dotllm {arguments[0]}: interrupted", file=sys.stderr)
            return 128 + signal.SIGINT
    from dotllm.cli import passthrough

    return passthrough.main(arguments)
