"""``dotllm hooks``: apply every hook to the installed vLLM and say which of them hold."""

from __future__ import annotations

import argparse
import json
import sys

from dotllm.cli import vllm_metadata


def main(argv: list[str]) -> int:
    """Status 0: every required hook holds. 1: one does not, or there is no vLLM."""
    parser = argparse.ArgumentParser(prog="dotllm hooks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    arguments = parser.parse_args(argv)
    version = vllm_metadata.vllm_version()
    if version is None:
        print("vLLM is not installed", file=sys.stderr)
        return 1
    vllm_metadata.patch_version()
    from dotllm.vllm_plugin import registry

    outcomes = registry.apply_all()
    failed = [outcome for outcome in outcomes if not outcome.ok]
    if arguments.json:
        rows = [
            {"hook": o.hook.name, "required": o.hook.required, "ok": o.ok, "error": o.error, "summary": o.hook.summary}
            for o in outcomes
        ]
        print(json.dumps(rows, indent=2))
    else:
        print(f"vLLM {version}")
        for outcome in outcomes:
            hook = outcome.hook
            need = "required" if hook.required else "optional"
            print(f"  {'ok' if outcome.ok else 'FAILED':<7} {hook.name:<20} {need:<9} {hook.summary}")
            if not outcome.ok:
                print(f"          {outcome.error}\n          without it: {hook.without_it}")
        print(f"{len(outcomes) - len(failed)} of {len(outcomes)} hooks hold")
    return int(any(outcome.hook.required for outcome in failed))
