"""The servers to compare, read from variants.json or from a user's file in the same form.

``engines``: dotllm and vLLM's own backends. ``ablations``: dotllm as it is, with one optimisation off at a time, and
with coalescence, which is off by default. A server that does not start (for an option that its version does not know,
say) is reported with its last lines, not skipped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FILE = Path(__file__).with_name("variants.json")
PROGRAMS = {"dotllm": ("-m", "dotllm"), "vllm": (str(Path(__file__).with_name("plain_vllm.py")),)}


@dataclass(frozen=True)
class Variant:
    """One server: ``program`` is a key of `PROGRAMS`."""

    name: str
    program: str
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    compact: bool = True
    """whether it starts with ``disable_any_whitespace``, which some of vLLM's backends refuse"""

    def command(self, model: str) -> list[str]:
        """The command line, without host and port."""
        return [sys.executable, *PROGRAMS[self.program], "serve", model, *self.flags]


def read(group: str, names: Sequence[str] = (), path: Path = FILE) -> list[Variant]:
    """The variants of a group, or only those with these names, in their order. ValueError: unknown name."""
    groups = json.loads(path.read_text())
    if group not in groups:
        raise ValueError(f"{path}: no group {group!r}; it has {', '.join(groups)}")
    listed = {
        row["name"]: Variant(
            row["name"], row["program"], tuple(row["flags"]), row["environment"], row.get("compact", True)
        )
        for row in groups[group]
    }
    unknown = [name for name in names if name not in listed]
    if unknown:
        raise ValueError(f"unknown variant {unknown[0]!r}; {group} are {', '.join(listed)}")
    return [listed[name] for name in names or listed]
