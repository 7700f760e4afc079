"""Options of our own on ``dotllm serve``: each is a ``--dotllm-…`` flag and an environment variable.

The flag is taken out of the arguments before vLLM parses them and becomes the environment variable, because settings
must reach every process vLLM starts (API servers, engine core, workers), and the environment is what those inherit.
`dotllm.vllm_plugin.settings` reads it there. To add an option, add its line to ``OPTIONS``.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import NamedTuple, NoReturn


class Option(NamedTuple):
    """``--dotllm-NAME VALUE``; ``switch`` options take no value and mean "1"."""

    flag: str
    variable: str
    metavar: str
    help: str
    switch: bool = False


OPTIONS: tuple[Option, ...] = (
    Option("--dotllm-take-auto", "DOTLLM_TAKE_AUTO", "{0,1}", "1 (default): the backend 'auto' means dotllm"),
    Option("--dotllm-log-compiles", "DOTLLM_LOG_COMPILES", "", "log one line per compiled specification", switch=True),
)


def export(argv: list[str], environment: MutableMapping[str, str]) -> list[str]:
    """Move our options from ``argv`` into ``environment``. An unknown ``--dotllm-…`` flag ends the program (status 2)."""
    by_flag = {option.flag: option for option in OPTIONS}
    kept: list[str] = []
    arguments = iter(argv)
    for argument in arguments:
        if not argument.startswith("--dotllm-"):
            kept.append(argument)
            continue
        flag, equals, value = argument.partition("=")
        option = by_flag.get(flag)
        if option is None:
            _fail(f"unknown option {flag}; known: {', '.join(by_flag)}")
        if option.switch:
            if equals:
                _fail(f"{flag} takes no value")
            value = "1"
        elif not equals:
            following = next(arguments, None)
            if following is None:
                _fail(f"{flag} needs a value {option.metavar}")
            value = following
        environment[option.variable] = value
    return kept


def wants_help(argv: list[str]) -> bool:
    """Whether vLLM is going to print its help for this command."""
    return any(argument in ("-h", "--help") or argument.startswith("--help=") for argument in argv)


def help_text() -> str:
    """Our options, for ``dotllm serve --help``."""
    lines = ["dotllm options (each also an environment variable):"]
    lines += [f"  {f'{o.flag} {o.metavar}'.strip():<34} {o.help}  [${o.variable}]" for o in OPTIONS]
    return "\n".join(lines) + "\n"


def refused(environment: MutableMapping[str, str]) -> str | None:
    """Why this server cannot enforce what it promises, or None. vLLM's Rust front end runs no Python plugin, so nothing
    would refuse a specification that cannot be enforced."""
    if environment.get("VLLM_USE_RUST_FRONTEND", "0").strip() not in ("", "0"):
        return "VLLM_USE_RUST_FRONTEND is set, but vLLM's Rust front end runs no plugins, ours included. Unset it."
    return None


def _fail(message: str) -> NoReturn:
    print(f"dotllm: {message}", file=sys.stderr)
    raise SystemExit(2)
