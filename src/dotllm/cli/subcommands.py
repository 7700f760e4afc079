"""dotllm's own subcommands (vLLM has others), and how they read their arguments."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from typing import NoReturn

from dotllm.suggestions import did_you_mean

SUBCOMMANDS = {
    "doctor": "say what is installed, what is ready, and what is wrong with it",
    "hooks": "say which of dotllm's hooks fit the installed vLLM",
    "demo": "serve a small trained model on a CPU and ask it three questions",
    "check": "say whether a specification is enforced exactly, and if not, why not",
    "explain": "say what an error code means, with an example and what to write instead",
    "compile": "compile specifications ahead of time into a store",
    "inspect": "show in the browser what may come at each position in a text",
    "warmup": "compile the engine's kernels into the cache (for an image build)",
    "bench-structured": "benchmark structured output: many schemas × requests",
    "bench-quality": "say how many answers are right, with a constraint and without",
}
"""The line of each in ``dotllm --help``."""


def module_of(name: str) -> str:
    """The module of a subcommand."""
    return f"{__package__}.{name.replace('-', '_')}"


def available() -> dict[str, str]:
    """The subcommands whose modules exist, with their lines."""
    return {name: line for name, line in SUBCOMMANDS.items() if importlib.util.find_spec(module_of(name)) is not None}


def whole(least: int, most: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number in this range."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > 18 or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


MOST_TOKENS = 1 << 22
"""The largest number of tokens of a vocabulary."""


class CommandParser(argparse.ArgumentParser):
    """The parser of the arguments of ``dotllm NAME``, which the docstring of its module describes.

    The error for an unknown flag suggests a similar one.
    """

    def __init__(self, name: str, description: str | None) -> None:
        super().__init__(
            prog=f"dotllm {name}",
            description=(description or "").replace("``", "`"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """End the program with status 2."""
        unknown = message.removeprefix("unrecognized arguments: ").split()[0]
        if message.startswith("unrecognized") and unknown.startswith("-"):
            meant = did_you_mean(unknown.partition("=")[0], self._option_string_actions)
            message += f"; {meant}" if meant else ""
        super().error(message)
