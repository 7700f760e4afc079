"""The list of hooks in ``docs/vllm.md``, by tier, from the hooks themselves (`registry.ENTRIES`).

    python -m tools.hook_list

writes it into the page. A test compares the page with what this would write. The list has the functions among a hook's
targets, because readers look for them; ``tools/check_hooks.py`` also checks attributes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.registry import ENTRIES, Entry
from dotllm.vllm_plugin.tiers import NEEDS, TIERS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "vllm.md"
BEGIN, END = "<!-- hooks: begin -->\n", "<!-- hooks: end -->\n"
WRAPPER = textwrap.TextWrapper(100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def tier_list(tier: str, entries: Iterable[Entry]) -> str:
    """The lines of a tier and its hooks."""
    needs = f" It needs {' and '.join(f'`{needed}`' for needed in NEEDS[tier])}." if tier in NEEDS else ""
    heading = WRAPPER.fill(f"`{tier}`: {TIERS[tier]}.{needs}")
    return f"{heading}\n\n" + "".join(
        lines(entry.name, entry.hook(), entry.process) for entry in entries if entry.tier == tier
    )


def lines(name: str, hook: Hook, process: str) -> str:
    """The lines of one hook; the name of a required one is bold."""
    name = f"**{name}**" if hook.required else f"*{name}*"
    parts = (
        f"{name} ({process}): {hook.summary}.",
        f"Without it: {hook.without_it}.",
        f"{functions(hook.targets) or 'It replaces and calls no function'}.",
    )
    written = (f"{'  ' if i else '* '}{part}".replace("<", "&lt;") for i, part in enumerate(parts))
    return "\n".join(WRAPPER.fill(line) for line in written) + "\n"


def functions(targets: Iterable[Target]) -> str:
    """The functions among ``targets``, each once; methods follow the name of their class."""
    by_class: dict[str, list[str]] = {}
    for target in targets:
        owner, _, name = target.name.rpartition(".")
        if target.parameters is not None:
            names = by_class.setdefault(owner, [])
            if name not in names:
                names.append(name)
    written = []
    for owner, names in by_class.items():
        listed = ", ".join(f"`{name}`" for name in names)
        written.append(f"`{owner}`: {listed}" if owner else listed)
    return "; ".join(written)


def page_with_table(page: str, entries: Iterable[Entry] = ENTRIES) -> str:
    """``page`` with its list renewed."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n".join(tier_list(tier, entries) for tier in TIERS) + END + after


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
