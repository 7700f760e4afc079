"""The tests that a full run has skipped, and how to run them: the last lines of `make test`."""

from __future__ import annotations

import re
from collections.abc import Iterable

REMEDIES = {
    "outlines|langchain|npm|no clients": "make test-clients",
    "Rust front end": "make test-sources VLLM=0.33.0",
    "[Pp]laywright|Chromium": "pip install playwright; Chromium in PATH",
    "s3fs|moto": "pip install s3fs 'moto[server]'",
    "ray": "pip install ray",
    "triton": "a machine with a GPU",
    "SAMPLER=all": "SAMPLER=all make test",
    "MASS=all": "MASS=all make test",
    "Linux": "Linux",
    "Node.js": "node in PATH",
    "suite|next to|at hand|not here|empty parameter set": "DOTLLM_SHARED_DATA=folder of their data, see docs/testing.md",
    "vLLM is not installed": "make install-dev",
    "pip could not fetch": "a package index that has it",
}
"""A pattern of reasons, and what makes the tests run. The first match counts."""
NOT_APPLICABLE = re.compile("not Lark|counts tokens|batches are not streamed|has no such token|no spelling behind")
"""Reasons of combinations that make no sense."""


def paragraph(reasons: Iterable[str]) -> str:
    """One line on the tests that were skipped for these reasons; "" if none of them can be run."""
    groups: dict[str, list[str]] = {}
    count = 0
    for reason in reasons:
        if NOT_APPLICABLE.search(reason):
            continue
        count += 1
        remedy = next((words for pattern, words in REMEDIES.items() if re.search(pattern, reason)), "")
        module = re.search(r"could not import '([^']+)'", reason)
        what = module[1].partition(".")[0] if module else reason.removeprefix("Skipped: ").partition(" (")[0]
        names = groups.setdefault(remedy or (f"pip install {what}" if module else ""), [])
        if what[:80] not in names:
            names.append(what[:80])
    listed = (", ".join(names) + (f" ({remedy})" if remedy else "") for remedy, names in groups.items())
    return f"not run ({count} skipped): {'; '.join(listed)}" if count else ""
