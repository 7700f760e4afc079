"""Tiers and processes: the purpose of a hook, and the process to which it belongs. `registry` gives both for each hook.

``DOTLLM_HOOKS=enforce,speed`` leaves the hooks of all other tiers off. Constraints are enforced with ``enforce`` alone;
every other tier can be taken away, to find out what causes a fault, or to run on a release of vLLM that it does not
fit.
"""

from __future__ import annotations

import os

ENFORCE, SPEED, API, TOOLS, EXTRA, WORKAROUND = "enforce", "speed", "api", "tools", "extra", "workaround"

TIERS = {
    ENFORCE: "constraints are enforced, or refused with the reason",
    SPEED: "the same masks, in less time",
    API: "what is wrong with a request is said in its API's own way, before the answer begins",
    TOOLS: "tool calls that vLLM's parsers read back whole",
    EXTRA: "features of our own; one that fails is left out",
    WORKAROUND: "bugs of vLLM that constrained requests meet",
}
"""The purpose of each tier."""

NEEDS = {SPEED: (ENFORCE,), API: (ENFORCE,), TOOLS: (ENFORCE, API), EXTRA: (ENFORCE, SPEED, API)}
"""The tiers without which another one does not work."""

FRONT_END, ENGINE_CORE, WORKER = PROCESSES = ("front end", "engine core", "worker")
"""A request comes to them in this order. One process may be all three."""

VARIABLE = "DOTLLM_HOOKS"


def chosen() -> frozenset[str]:
    """The tiers that are on: all, or those that ``DOTLLM_HOOKS`` lists.

    Raises:
        ValueError: one of them does not exist, or needs another.
    """
    value = os.environ.get(VARIABLE, "").strip().lower()
    if not value or value == "all":
        return frozenset(TIERS)
    named = frozenset(name.strip() for name in value.split(",") if name.strip())
    unknown = sorted(named.difference(TIERS))
    if unknown:
        raise ValueError(f"{VARIABLE}={value!r}: there is no tier {unknown[0]!r}; the tiers are {', '.join(TIERS)}")
    for tier in (tier for tier in TIERS if tier in named):
        missing = [needed for needed in NEEDS.get(tier, ()) if needed not in named]
        if missing:
            raise ValueError(f"{VARIABLE}={value!r}: {tier} needs {' and '.join(missing)}; add it, or leave {tier} out")
    if ENFORCE not in named:
        raise ValueError(
            f"{VARIABLE}={value!r}: without {ENFORCE} nothing is constrained; to turn dotllm off, "
            "set DOTLLM_DEFAULT_BACKEND=vllm"
        )
    return named
