"""Passes all other commands to vLLM: its own ``main()`` with the user's arguments, and dotllm's plugin in all its
processes."""

from __future__ import annotations

import os
import sys
import textwrap

from dotllm import __version__
from dotllm.cli import options, vllm_metadata
from dotllm.cli.subcommands import available
from dotllm.suggestions import did_you_mean
from dotllm.vllm_plugin import releases

USAGE = """usage: dotllm [--version] [--help] COMMAND ...
       dotllm serve MODEL [every flag of `vllm serve`] [--dotllm-...]
       dotllm --model MODEL ...                        (bare flags mean `serve`)

vLLM with exact, lossless and nearly free structured output. dotllm's own commands:
"""
_STATUSES = """
Exit status: 0, done; 1, something is refused, invalid or has failed; 2, the arguments make no sense or a file cannot be
read; 128 + N, ended by signal N. vLLM's commands end with vLLM's status.

`dotllm COMMAND --help` describes a command; `dotllm --help=all` prints this text and vLLM's own help.
"""
VERSION = (["--version"], ["-v"], ["-V"])
HELP: tuple[list[str], ...] = ([], ["--help"], ["-h"], ["help"])


def main(argv: list[str]) -> int:
    """Run vLLM's command line with ``argv`` (without the program's name). Returns the exit status."""
    if argv in VERSION:
        print(f"dotllm {__version__} (vLLM {vllm_metadata.vllm_version() or 'not installed'})")
        return 0
    if argv in HELP or argv == ["--help=all"]:
        print(help_text())
        if argv in HELP:
            return 0
        argv = ["--help"]
    unknown = _unknown(argv)
    if unknown:
        print(f"dotllm: {unknown}", file=sys.stderr)
        return 2
    version = vllm_metadata.vllm_version()
    if version is None:
        print(
            "vLLM is not installed: `pip install '.[cuda]'` or `make install` (CPU) in a checkout of dotllm.",
            file=sys.stderr,
        )
        return 1
    fault = vllm_metadata.fault(version)
    if fault:
        print(f"dotllm: {fault}", file=sys.stderr)
        return 1
    if not vllm_metadata.is_tried(version):
        print(
            f"dotllm: warning: dotllm is tested with vLLM {' and '.join(releases.SUPPORTED)}, and {version} is "
            "installed; `dotllm hooks` says which of dotllm's hooks do not fit it.",
            file=sys.stderr,
        )
    argv = options.export(options.take_from_file(rewrite(argv), os.environ), os.environ)  # flags win
    if argv[:1] == ["serve"] and options.wants_help(argv):
        print(options.help_text())
    # Each of vLLM's commands loads plugins, and would end with a traceback.
    problem = None if options.wants_help(argv) else options.refused(os.environ)
    if problem is not None:
        print(f"dotllm: {problem}", file=sys.stderr)
        return 2

    from dotllm.compilation.metrics import DIRECTORY_VARIABLE

    # The process that starts this server may have its own metrics (offline use, a test): they must not share a
    # directory.
    os.environ.pop(DIRECTORY_VARIABLE, None)
    vllm_metadata.patch_version()
    from vllm.entrypoints.cli.main import main as vllm_main

    sys.argv = ["dotllm", *argv]
    vllm_main()
    return 0


def _unknown(argv: list[str]) -> str:
    """The error for a command that neither dotllm nor the installed vLLM has; "" if the command exists."""
    theirs = vllm_metadata.vllm_commands()
    if not theirs or not argv or argv[0].startswith("-") or argv[0] in theirs:
        return ""
    known = [*available(), *theirs]
    return f"there is no command {argv[0]!r}; {did_you_mean(argv[0], known) or 'dotllm --help lists them'}"


def rewrite(argv: list[str]) -> list[str]:
    """Bare flags mean ``serve``, and ``--model X`` becomes the positional argument that vLLM's ``serve`` asks for."""
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
    """The text of ``dotllm --help``, without importing vLLM."""
    lines = [f"  {name:<18} {line}" for name, line in available().items()]
    theirs = textwrap.fill(
        ", ".join(vllm_metadata.vllm_commands()) or "(vLLM is not installed)", 100, break_on_hyphens=False
    )
    commands = textwrap.indent(theirs, "  ")
    return f"{USAGE}{chr(10).join(lines)}\n\nvLLM's commands, passed on unchanged:\n{commands}\n{_STATUSES}"
