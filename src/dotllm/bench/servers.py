"""The servers to compare, as listed in variants.json or in a user's file of the same form.

``engines``: dotllm and vLLM's own backends. ``ablations``: dotllm as it is, with one optimisation off at a time, and
with coalescence, which is off by default. A server that does not start (because its version does not know an option,
say) is not skipped: the report has the last lines of its log.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dotllm.demo.server import PROGRAM, Server

FILE = Path(__file__).with_name("variants.json")
PROGRAMS = {"dotllm": PROGRAM, "vllm": (str(Path(__file__).with_name("plain_vllm.py")),)}


@dataclass(frozen=True)
class Variant:
    """One server: ``program`` is a key of `PROGRAMS`."""

    name: str
    program: str
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    compact: bool = True
    """Whether it starts with ``disable_any_whitespace``, which some of vLLM's backends refuse."""

    def start(self, model: str, log: Path, flags: Sequence[str]) -> Server:
        """Start its server for ``model``."""
        return Server(
            model,
            log,
            name=model,
            flags=(*self.flags, *flags),
            environment=self.environment,
            program=PROGRAMS[self.program],
            on_cpu=not has_gpu(),
        )


def read(group: str, names: Sequence[str] = (), path: Path = FILE) -> list[Variant]:
    """The variants of a group, or only those with these names, in the names' order. ValueError for an unknown name."""
    groups = json.loads(path.read_text(encoding="utf-8"))
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


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU, found without importing torch."""
    return Path("/dev/nvidia0").exists() or Path("/proc/driver/nvidia/gpus").exists()
