"""The list of hooks in ``docs/vllm.md``, from the hooks themselves (`registry.HOOKS`).

    python -m tools.hook_list

writes it into the page. A test compares the page with what this would write. It lists the functions among a hook's
targets, which a reader looks for; ``tools/check_hooks.py`` also looks at attributes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.registry import HOOKS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "vllm.md"
BEGIN, END = "<!-- hooks: begin -->\n", "<!-- hooks: end -->\n"
WRAPPER = textwrap.TextWrapper(100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def entry(hook: Hook) -> str:
    """The lines of one hook; the name of a required one is bold."""
    name = f"**{hook.name}**" if hook.required else f"*{hook.name}*"
    parts = (f"{name}: {hook.summary}.", f"Without it: {hook.without_it}.", f"{functions(hook.targets) or 'None'}.")
    lines = (f"{'  ' if i else '* '}{part}".replace("<", "&lt;") for i, part in enumerate(parts))
    return "\n".join(WRAPPER.fill(line) for line in lines) + "\n"


def functions(targets: Iterable[Target]) -> str:
    """The functions among ``targets``, each once; methods behind the name of their class."""
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


def page_with_table(page: str, hooks: Iterable[Hook] = HOOKS) -> str:
    """``page`` with its list renewed."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "".join(map(entry, hooks)) + END + after


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
