"""``dotllm explain CODE``: explains an error code, with an example and what to write instead.

    dotllm explain unsatisfiable
    dotllm explain                                          # every code, with its first sentence

The text is that of docs/errors.md, which the package contains. Exit status: 0, or 2 for a code that does not exist.
"""

from __future__ import annotations

import re
import sys
from importlib.resources import files

from dotllm.cli.subcommands import CommandParser
from dotllm.compilation.errors import UNAVAILABLE
from dotllm.errors import CODES
from dotllm.suggestions import did_you_mean

SECTIONS = (*CODES, UNAVAILABLE)
_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")


def main(argv: list[str]) -> int:
    """Print the section of a code. Status 2 for a code that does not exist."""
    parser = CommandParser("explain", __doc__)
    parser.add_argument(
        "code", nargs="?", metavar="CODE", help='as in "error[CODE]", or "dotllm.CODE" of HTTP 400 and 503'
    )
    code = parser.parse_args(argv).code
    if code is None:
        width = max(map(len, SECTIONS))
        print("\n".join(f"{name:{width}}  {_first_sentence(section(name))}" for name in SECTIONS))
        return 0
    name = code.removeprefix("dotllm.")
    if name not in SECTIONS:
        meant = did_you_mean(name, SECTIONS) or "`dotllm explain` lists them"
        print(f"dotllm explain: there is no code {code!r}; {meant}", file=sys.stderr)
        return 2
    print(section(name))
    return 0


def section(code: str) -> str:
    """The section of docs/errors.md about ``code``, with the targets of links written out."""
    page = files("dotllm").joinpath("errors.md").read_text(encoding="utf-8")
    return _LINK.sub(_written_out, page.partition(f"\n## {code}\n")[2].partition("\n## ")[0]).strip()


def _written_out(link: re.Match[str]) -> str:
    text, target = link[1], link[2]
    return f"{text} ({target if target.startswith('http') else f'docs/{target}'})"


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")
