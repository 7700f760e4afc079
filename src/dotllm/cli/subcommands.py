"""dotllm's own subcommands (vLLM has others), and how they read their arguments."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from dotllm.suggestions import did_you_mean


class Subcommand(NamedTuple):
    """One of dotllm's subcommands: its module, and its line in ``dotllm --help``."""

    module: str
    summary: str


SUBCOMMANDS: dict[str, Subcommand] = {
    "doctor": Subcommand("dotllm.cli.doctor", "say what is installed, what is ready, and what is wrong with it"),
    "hooks": Subcommand("dotllm.cli.hooks", "say which of our hooks hold on the installed vLLM"),
    "demo": Subcommand("dotllm.cli.demo", "serve a small trained model on a CPU and ask it three questions"),
    "check": Subcommand("dotllm.cli.check", "say whether a specification is enforced exactly, and if not, why not"),
    "explain": Subcommand(
        "dotllm.cli.explain", "say what an error code means, with an example and what to write instead"
    ),
    "compile": Subcommand("dotllm.cli.compile", "compile specifications ahead of time into a store"),
    "inspect": Subcommand("dotllm.cli.inspect", "show in the browser what may come at each place of a text"),
    "warmup": Subcommand("dotllm.cli.warmup", "compile the engine's kernels into the cache (for an image build)"),
    "bench-structured": Subcommand(
        "dotllm.cli.bench_structured", "benchmark structured output: many schemas × requests"
    ),
    "bench-quality": Subcommand(
        "dotllm.cli.bench_quality", "say how many answers are right, with a constraint and without"
    ),
}


def available() -> dict[str, Subcommand]:
    """The subcommands whose modules exist."""
    return {name: sub for name, sub in SUBCOMMANDS.items() if importlib.util.find_spec(sub.module) is not None}


def whole(least: int, most: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number in this range."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > 18 or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


MOST_TOKENS = 1 << 22
"""The most tokens of a vocabulary."""


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
