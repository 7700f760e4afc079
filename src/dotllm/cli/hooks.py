"""``dotllm hooks``: says which of dotllm's hooks fit the source files of the installed vLLM.

dotllm hooks
dotllm hooks --apply        # import vLLM and apply them, as a server does: half a minute
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dotllm.cli import vllm_metadata
from dotllm.cli.subcommands import CommandParser
from dotllm.vllm_plugin import tiers

if TYPE_CHECKING:
    from dotllm.vllm_plugin.registry import Entry


def main(argv: list[str]) -> int:
    """Status 0: every required hook holds. 1: a required hook does not, code that hooks rely on has changed, or there
    is no vLLM. 2: ``DOTLLM_HOOKS`` is wrong."""
    parser = CommandParser("hooks", __doc__)
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    parser.add_argument("--apply", action="store_true", help="import vLLM and apply them, in this process")
    arguments = parser.parse_args(argv)
    version = vllm_metadata.vllm_version()
    if version is None:
        print("vLLM is not installed", file=sys.stderr)
        return 1
    try:
        tiers.chosen()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    rows = [row(entry, fault) for entry, fault in (applied() if arguments.apply else by_sources()).items()]
    unsigned = drift(version)
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        print(f"vLLM {version}", *table(rows), sep="\n")
    for line in unsigned:
        print(line, file=sys.stderr)
    return int(bool(unsigned) or any(hook["required"] and not hook["ok"] for hook in rows))


def by_sources() -> dict[Entry, str]:
    """Why each hook does not fit the source files of the installed vLLM; "" if it does."""
    from dotllm.cli import hook_sources
    from dotllm.vllm_plugin import registry

    source, faults = hook_sources.installed_source(), {}
    for entry in registry.entries():
        try:
            faults[entry] = "; ".join(hook_sources.faults_of(entry.hook(), source))
        except Exception as error:  # its module cannot be imported with this vLLM
            faults[entry] = f"{type(error).__name__}: {error}"
    return faults


def applied() -> dict[Entry, str]:
    """Why each hook does not hold in this process; "" if it does. Imports vLLM."""
    vllm_metadata.patch_version()
    from dotllm.vllm_plugin import registry

    return registry.apply_all()


def drift(version: str) -> list[str]:
    """A line for each thing that hooks rely on and that differs from what somebody has read and signed (`ledger`)."""
    from dotllm.cli import hook_sources, ledger
    from dotllm.vllm_plugin import registry

    signed, source = ledger.read(), hook_sources.installed_source()
    release = ledger.of_release(version, signed)
    changes = ledger.changes(version, ledger.names(registry.hooks()), source, signed)
    return [f"not as signed for {release}: {change.name}: {change.how}" for change in changes]


def row(entry: Entry, fault: str) -> dict[str, Any]:
    """The printed fields of a hook."""
    from dotllm.vllm_plugin import registry

    required, without_it = registry.is_required(entry)
    try:
        summary = entry.hook().summary
    except Exception:  # its module cannot be imported with this vLLM
        summary = ""
    return {
        "hook": entry.name,
        "tier": entry.tier,
        "process": entry.process,
        "required": required,
        "ok": not fault,
        "error": fault,
        "summary": summary,
        "without_it": without_it,
    }


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The lines of all hooks, by tier."""
    by_tier: Mapping[str, list[dict[str, Any]]] = {
        tier: [hook for hook in rows if hook["tier"] == tier] for tier in tiers.TIERS
    }
    for tier, meant_for in tiers.TIERS.items():
        yield f"{tier}: {meant_for}" + ("" if by_tier[tier] else f" (off: {tiers.VARIABLE})")
        for hook in by_tier[tier]:
            need = "required" if hook["required"] else "optional"
            state = "ok" if hook["ok"] else "FAILED"
            yield f"  {state:<7} {hook['hook']:<20} {hook['process']:<12} {need:<9} {hook['summary']}"
            if hook["error"]:
                yield f"          {hook['error']}\n          without it: {hook['without_it']}"
    yield f"{sum(hook['ok'] for hook in rows)} of {len(rows)} hooks hold"
