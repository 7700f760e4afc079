"""The table of differences in docs/grammars.md, from `differences.json`.

``python -m tests.languages.difference_table`` writes it into the page.
"""

from __future__ import annotations

from pathlib import Path

from tests.languages.grammar_cases import DIFFERENCES

PAGE = Path(__file__).parent.parent.parent / "docs" / "grammars.md"
BEGIN, END = "<!-- differences: begin -->\n", "<!-- differences: end -->\n"


def table() -> str:
    """One row per reason: which engine differs, in which cases of the corpus, and who is right."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for key, entry in DIFFERENCES.items():
        case, peer = key.split("/")
        reasons.setdefault((peer, entry["right"], entry["why"]), []).append(case)
    rows = ["| engine | what it does differently | cases | verdict |", "|---|---|---|---|"]
    for (peer, right, why), names in sorted(reasons.items()):
        rows.append(f"| {peer} | {why.replace('|', chr(92) + '|')} | {', '.join(names)} | {right} |")
    return "\n".join(rows) + "\n"


def page_with_table(page: str) -> str:
    """``page`` with its table rewritten."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + table() + END + after


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
