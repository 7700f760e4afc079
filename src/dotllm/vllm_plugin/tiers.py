"""Tiers and processes: what a hook is for, and the process to which it belongs. `registry` gives both for each hook.

``DOTLLM_HOOKS=enforce,speed`` turns the hooks of all other tiers off. ``enforce`` alone enforces constraints. Every
other tier can be turned off, to find out what causes a fault, or to run on a vLLM release that the tier does not fit.
"""

from __future__ import annotations

import os

ENFORCE, SPEED, API, TOOLS, EXTRA, WORKAROUND = "enforce", "speed", "api", "tools", "extra", "workaround"

TIERS = {
    ENFORCE: "constraints are enforced, or refused with the reason",
    SPEED: "the same masks, in less time",
    API: "errors of a request are reported as its API reports errors, before the answer begins",
    TOOLS: "tool calls that vLLM's parsers read back completely",
    EXTRA: "features that vLLM does not have; if one does not fit, it is left out",
    WORKAROUND: "fixes for bugs of vLLM that affect constrained requests",
}
"""The purpose of each tier."""

NEEDS = {SPEED: (ENFORCE,), API: (ENFORCE,), TOOLS: (ENFORCE, API), EXTRA: (ENFORCE, SPEED, API)}
"""By tier, the tiers that it needs."""

FRONT_END, ENGINE_CORE, WORKER = PROCESSES = ("front end", "engine core", "worker")
"""A request passes through them in this order. One process may be all three."""
EVERY = "every process"

VARIABLE = "DOTLLM_HOOKS"


def chosen() -> frozenset[str]:
    """The tiers that are on: all, or those that ``DOTLLM_HOOKS`` lists.

    Raises:
        ValueError: a listed tier does not exist or needs one that is not listed, or ``enforce`` is not listed.
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
