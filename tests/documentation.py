"""The Python code of README and docs/, page by page.

``tests/test_documentation.py`` runs each block, unless a comment on the line before says otherwise:
``<!-- server -->`` needs a server (``tests/serve/test_documentation.py``), ``<!-- client: SCRIPT -->`` is the beginning
of a script (``tests/serve/clients``), ``<!-- no-run: REASON -->`` runs nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- (server|client|no-run)(?:: (.*?))? -->\n)?```python\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """A piece of code and its place."""

    page: Path
    line: int
    mark: str
    """"", "server", "client" or "no-run"."""
    reason: str
    code: str

    def run(self, names: dict[str, object]) -> None:
        """Run the block with ``names``, and add what it defines to them. Errors show the page's line."""
        code = "\n" * self.line + self.code
        exec(compile(code, str(self.page), "exec", dont_inherit=True), names)


def blocks(mark: str) -> dict[str, list[Block]]:
    """The blocks with this mark, by page; blocks of a page belong together and run in order."""
    found = {}
    for page in PAGES:
        text = page.read_text()
        here = [
            Block(page, text[: match.start(3)].count("\n"), match[1] or "", match[2] or "", match[3])
            for match in BLOCK.finditer(text)
        ]
        assert len(here) == text.count("```python"), f"{page}: a block that this pattern does not see"
        if wanted := [block for block in here if block.mark == mark]:
            found[str(page.relative_to(ROOT))] = wanted
    return found
