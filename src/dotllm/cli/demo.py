"""``dotllm demo``: from nothing to the answer of a structured request, on a CPU, in a few minutes.

Makes a small model with random weights, serves it with ``dotllm serve``, asks it for JSON under a schema with the
``openai`` client, and leaves the server up for more.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

from dotllm.cli.subcommands import CommandParser, whole
from dotllm.demo import example, model
from dotllm.demo.server import Server, ServerDied

NAME = "demo"
NEEDS = ("vllm", "torch", "transformers", "tokenizers", "openai", "jsonschema")
"""Packages."""
COMPACT = ("--structured-outputs-config.disable_any_whitespace", "true")
"""Random weights like white space."""


def main(argv: list[str]) -> int:
    """Status 0: the answer came (and, unless ``--once``, the server ran until it was interrupted)."""
    parser = CommandParser("demo", __doc__)
    parser.add_argument("--directory", type=Path, default=Path(".demo"), help="where model and log go (default: .demo)")
    parser.add_argument("--port", type=whole(0, 65535), default=8000, help="of the server (default: 8000)")
    parser.add_argument("--once", action="store_true", help="stop the server after the answer")
    parser.add_argument("--model-only", action="store_true", help="only make the model, and print where it is")
    arguments = parser.parse_args(argv)
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"dotllm demo: not installed: {', '.join(missing)}. `make install` in a checkout brings all.",
            file=sys.stderr,
        )
        return 2
    # A server needs the engine's kernels, which compile once per machine; better in a process of their own meanwhile.
    warmup = subprocess.Popen([sys.executable, "-m", "dotllm", "warmup"], stdout=subprocess.DEVNULL)
    try:
        return show(arguments, warmup)
    finally:
        warmup.terminate()


def show(arguments: argparse.Namespace, warmup: subprocess.Popen[bytes]) -> int:
    """The demo itself; ``warmup`` compiles the kernels meanwhile. Returns the exit status."""
    directory: Path = arguments.directory
    started = time.monotonic()
    say(
        "What takes how long: the model some ten seconds, vLLM's start a minute (the first one compiles kernels, too, "
        "which takes another), a request a second."
    )
    say("[1/3] a model: two layers, random weights, a tokenizer trained on the spot")
    path = model.make(directory / "model")
    say(f"      {path} ({time.monotonic() - started:.0f} s)")
    if arguments.model_only:
        return warmup.wait()

    log = directory / "server.log"
    with Server(path, log, port=arguments.port, name=NAME, flags=COMPACT) as server:
        say(f"[2/3] dotllm serve {path} --port {server.port}   (log: {log})")
        try:
            server.wait(progress=show_waiting)
        except (ServerDied, TimeoutError) as error:
            clear_line()
            print(error, file=sys.stderr)
            return 1
        clear_line()
        say(f"      up at {server.url} ({time.monotonic() - started:.0f} s)")
        schema = json.dumps(example.SCHEMA["properties"], ensure_ascii=False)
        say(f"[3/3] a request; SCHEMA has the properties {schema}\n\n{example.code(server.url, NAME)}")
        asked = time.monotonic()
        answer, reason = example.ask(server.url, NAME)
        say(f"Answer ({time.monotonic() - asked:.2f} s):\n{example.verdict(answer, reason)}\n")
        free, _ = example.ask(server.url, NAME, constrained=False)
        say(f"The same request without response_format (the model's weights are random):\n{free!r}\n")
        if arguments.once:
            return 0
        say(example.NEXT.format(url=server.url, model=NAME))
        say("The server stays up. Ctrl-C stops it.")
        try:
            server.process.wait()
        except KeyboardInterrupt:
            say("\nstopping")
            return 0
        print(f"the server ended:\n{server.log_tail()}", file=sys.stderr)
        return 1


def say(text: str) -> None:
    """Print at once: the reader may be a file or a pipe."""
    print(text, flush=True)


def show_waiting(seconds: float) -> None:
    """A line that counts the seconds; in a log a line every ten seconds."""
    if sys.stdout.isatty():
        print(f"\r      starting vLLM … {seconds:3.0f} s", end="", flush=True)
    elif seconds % 10 < 0.25 and seconds > 1:
        say(f"      starting vLLM … {seconds:.0f} s")


def clear_line() -> None:
    """Remove what `show_waiting` wrote on a terminal."""
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
