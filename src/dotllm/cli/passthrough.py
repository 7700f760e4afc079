"""Everything that is vLLM's: its own ``main()`` with the user's arguments, and our plugin in all its processes."""

from __future__ import annotations

import os
import sys

from dotllm import __version__
from dotllm.cli import config_file, options, vllm_metadata
from dotllm.cli.subcommands import available
from dotllm.vllm_plugin import releases

USAGE = """usage: dotllm [--version] [--help] SUBCOMMAND ...
       dotllm serve MODEL [every flag of `vllm serve`] [--dotllm-...]
       dotllm --model MODEL ...                        (bare flags mean `serve`)

vLLM with exact, free and lossless structured output. Subcommands of dotllm itself:
"""


def main(argv: list[str]) -> int:
    """Run vLLM's command line with ``argv`` (without the program's name). Returns the exit status."""
    if argv in (["--version"], ["-v"]):
        print(f"dotllm {__version__} (vLLM {vllm_metadata.vllm_version() or 'not installed'})")
        return 0
    is_help = argv in ([], ["--help"], ["-h"], ["help"])
    if is_help:
        print(help_text())
        argv = ["--help"]
    version = vllm_metadata.vllm_version()
    if version is None:
        # Help of our own subcommands is still help; anything else needs the server.
        print(
            "vLLM is not installed: `pip install '.[cuda]'` or `make install` (CPU) in a checkout of dotllm.",
            file=sys.stderr,
        )
        return 0 if is_help else 1
    fault = releases.too_old(version)
    if fault:
        print(f"dotllm: {fault}", file=sys.stderr)
        return 1
    argv = options.export(config_file.take(rewrite(argv), os.environ), os.environ)  # flags win
    if argv[:1] == ["serve"] and options.wants_help(argv):
        print(options.help_text())
    problem = options.refused(os.environ) if argv[:1] == ["serve"] else None
    if problem is not None:
        print(f"dotllm: {problem}", file=sys.stderr)
        return 2

    from dotllm.compilation.accounting.metrics import DIRECTORY_VARIABLE

    # A server started by a process that has metrics of its own (offline use, a test) must not share their directory.
    os.environ.pop(DIRECTORY_VARIABLE, None)
    vllm_metadata.patch_version()
    from vllm.entrypoints.cli.main import main as vllm_main

    sys.argv = ["dotllm", *argv]
    vllm_main()
    return 0


def rewrite(argv: list[str]) -> list[str]:
    """Bare flags mean ``serve``, and its ``--model X`` is the positional argument that vLLM's ``serve`` asks for."""
    if not argv or not argv[0].startswith("-") or argv[0] in ("--help", "-h", "--version", "-v"):
        return argv
    rest = list(argv)
    for index, argument in enumerate(rest):
        if argument == "--model" and index + 1 < len(rest):
            model = rest[index + 1]
            del rest[index : index + 2]
            return ["serve", model, *rest]
        if argument.startswith("--model="):
            del rest[index]
            return ["serve", argument.removeprefix("--model="), *rest]
    return ["serve", *rest]


def help_text() -> str:
    """What ``dotllm --help`` prints before vLLM's own help."""
    lines = [f"  {name:<18} {sub.summary}" for name, sub in available().items()]
    return USAGE + "\n".join(lines) + "\n\nEverything below is vLLM's own command line, which dotllm takes as it is:\n"
