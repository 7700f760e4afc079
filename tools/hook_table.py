"""The table of hooks in ``docs/vllm.md``, from the hooks themselves (`registry.HOOKS`).

    python -m tools.hook_table

writes it into the page. A test compares the page with what this would write. Of a hook's targets the functions of
vLLM's are listed, which are what a reader looks for; ``tools/check_hooks.py`` also looks at attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.registry import HOOKS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "vllm.md"
BEGIN, END = "<!-- hooks: begin -->\n", "<!-- hooks: end -->\n"


def table(hooks: Iterable[Hook]) -> str:
    """One row for each hook; required ones are bold."""
    rows = ["| hook | functions | what it does | without it |", "|---|---|---|---|"]
    for hook in hooks:
        name = f"**{hook.name}**" if hook.required else hook.name
        cells = (name, functions(hook.targets) or "none", hook.summary, hook.without_it)
        rows.append("| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


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
    """``page`` with its table renewed."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + table(hooks) + END + after


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
