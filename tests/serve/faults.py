"""Faults for live servers: chosen compiles are slow, fail or are refused.

`environment` makes a directory that installs this file as another plugin of vLLM's: every process that vLLM starts
loads it (`install`). A fault is {"needle": text, "do": "sleep" | "fail" | "refuse", "seconds": s}. It affects each
specification whose text contains the needle, when a thread of the engine core compiles it.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

VARIABLE = "FAULTS"
PLUGIN = "dotllm_faults"


def environment(directory: Path, faults: list[dict[str, Any]]) -> dict[str, str]:
    """The variables that inject ``faults`` into a server; the plugin is made in ``directory``."""
    info = directory / f"{PLUGIN}-0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(__file__, directory / f"{PLUGIN}.py")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{PLUGIN} = {PLUGIN}:install\n")
    path = filter(None, (str(directory), os.environ.get("PYTHONPATH")))
    return {VARIABLE: json.dumps(faults), "PYTHONPATH": os.pathsep.join(path)}


def install() -> None:
    """Inject the faults into this process's compilation managers (vLLM may call this more than once)."""
    from dotllm.compilation.compiler import ENGINE
    from dotllm.compilation.manager import CompilationManager

    faults = json.loads(os.environ[VARIABLE])

    def compile(specification: Any, vocabulary: Any) -> Any:
        for fault in faults:
            if fault["needle"] in specification.text:
                strike(fault["do"], fault.get("seconds", 0.0))
        return ENGINE.compile(specification, vocabulary)

    defaults = CompilationManager.__init__.__kwdefaults__
    assert defaults is not None
    defaults["engine"] = ENGINE._replace(compile=compile)


def strike(kind: str, seconds: float) -> None:
    from dotllm.errors import UnsupportedError

    if kind == "sleep":  # like work without the GIL
        time.sleep(seconds)
    elif kind == "fail":
        raise RuntimeError("injected failure")
    elif kind == "refuse":
        raise UnsupportedError("injected refusal", keyword="injected")
    else:
        raise ValueError(f"unknown fault {kind!r}")
