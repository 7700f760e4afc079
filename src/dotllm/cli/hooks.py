"""``dotllm hooks``: apply every hook to the installed vLLM and say which of them hold."""

from __future__ import annotations

import json
import sys

from dotllm.cli import vllm_metadata
from dotllm.cli.subcommands import CommandParser


def main(argv: list[str]) -> int:
    """Status 0: every required hook holds. 1: one does not, or there is no vLLM."""
    parser = CommandParser("hooks", __doc__)
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    arguments = parser.parse_args(argv)
    version = vllm_metadata.vllm_version()
    if version is None:
        print("vLLM is not installed", file=sys.stderr)
        return 1
    vllm_metadata.patch_version()
    from dotllm.vllm_plugin import registry

    faults = registry.apply_all()
    failed = [hook for hook, fault in faults.items() if fault]
    if arguments.json:
        rows = [
            {"hook": hook.name, "required": hook.required, "ok": not fault, "error": fault, "summary": hook.summary}
            for hook, fault in faults.items()
        ]
        print(json.dumps(rows, indent=2))
    else:
        print(f"vLLM {version}")
        for hook, fault in faults.items():
            need = "required" if hook.required else "optional"
            print(f"  {'FAILED' if fault else 'ok':<7} {hook.name:<20} {need:<9} {hook.summary}")
            if fault:
                print(f"          {fault}\n          without it: {hook.without_it}")
        print(f"{len(faults) - len(failed)} of {len(faults)} hooks hold")
    return int(any(hook.required for hook in failed))
