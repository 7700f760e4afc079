"""``dotllm inspect``: shows in the browser what a specification allows at each position in a text.

    dotllm inspect                                          # begins with an example
    dotllm inspect schema.json --text answer.json --tokenizer Qwen/Qwen3-8B
    dotllm inspect rules.lark --text query.txt --snapshot page.html

The page is served to this machine only. It shows the specification in an editor, the text as tokens, the continuations
at each token, and samples. ``--snapshot`` writes the page with all its answers to a file, which needs no server (for a
bug report, for example).
"""

from __future__ import annotations

import argparse
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Any

from dotllm.cli.subcommands import CommandParser, whole
from dotllm.compilation.inputs import KIND_OF_SUFFIX
from dotllm.compilation.specification import Kind


def main(argv: list[str]) -> int:
    """Status 0; 2: the arguments make no sense."""
    parser = CommandParser("inspect", __doc__)
    parser.add_argument("spec", nargs="?", type=Path, metavar="SPEC", help=f"a file ({', '.join(KIND_OF_SUFFIX)})")
    parser.add_argument(
        "--kind", type=Kind, metavar="KIND", help=f"what it is: {', '.join(kind.value for kind in Kind)}"
    )
    parser.add_argument("--text", type=Path, metavar="FILE", help="the text to follow, or its beginning")
    parser.add_argument("--tokenizer", metavar="MODEL", help="a directory or hub name (default: bytes are the tokens)")
    parser.add_argument("--snapshot", type=Path, metavar="FILE", help="write the page with its answers, and exit")
    parser.add_argument("--port", type=whole(0, 65535), default=0, help="port of the page (default: a free one)")
    parser.add_argument("--no-open", action="store_true", help="do not open the browser")
    arguments = parser.parse_args(argv)
    try:
        return _show(arguments)
    except (OSError, ValueError, ImportError) as error:
        print(f"dotllm inspect: {error}", file=sys.stderr)
        return 2


def _show(arguments: argparse.Namespace) -> int:
    from dotllm.compilation.compiler import prepare
    from dotllm.inspector.inspector import Inspector
    from dotllm.inspector.server import InspectorServer, snapshot

    start = _start(arguments)
    prepare()
    inspector = Inspector(_vocabulary(arguments.tokenizer), arguments.tokenizer or "")
    if arguments.snapshot and start:
        arguments.snapshot.write_text(snapshot(inspector, start), encoding="utf-8")
        return 0
    with InspectorServer(inspector, start, arguments.port) as server:
        print(f"{server.url}   (Ctrl-C stops it)", flush=True)
        if not arguments.no_open:
            webbrowser.open(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def _start(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """The first content of the page: the file's text as it is, even if it is wrong. Raises OSError, ValueError."""
    if arguments.spec is None:
        if arguments.text or arguments.snapshot:
            raise ValueError(
                "--text and --snapshot need a SPEC, as in `dotllm inspect schema.json --snapshot page.html`"
            )
        return None
    kind = arguments.kind or KIND_OF_SUFFIX.get(arguments.spec.suffix)
    if kind is None:
        raise ValueError(f"{arguments.spec}: unknown ending; give --kind (known endings: {', '.join(KIND_OF_SUFFIX)})")
    text = arguments.text.read_text(encoding="utf-8") if arguments.text else ""
    return {"kind": kind.value, "text": arguments.spec.read_text(encoding="utf-8"), "options": {}, "document": text}


def _vocabulary(tokenizer: str | None) -> Any:
    if not tokenizer:
        from dotllm.diagnosis.why import byte_vocabulary

        return byte_vocabulary()
    from transformers import AutoTokenizer

    from dotllm import Vocabulary

    return Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(tokenizer))
