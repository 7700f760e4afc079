"""Run by test_tiers.py: processes in which a module of vLLM's loads plugins, and what each has imported of ours.

python load_plugins.py JSON     JSON: for each process, the module and the value of DOTLLM_HOOKS. Prints one JSON object
for each. They are forks of one that has imported vLLM, and nothing of ours. (In a fork of `zygote`, ours is forgotten.)
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys


def is_ours(name: str) -> bool:
    """Also Numba, and vLLM's module that imports it."""
    return name.partition(".")[0] in ("dotllm", "numba") or name == "vllm.v1.spec_decode.ngram_proposer"


def load(caller: str, hooks: str) -> None:
    """Load our plugin as the module ``caller`` does, and print what that has imported."""
    os.environ["DOTLLM_HOOKS"] = hooks
    from dotllm.vllm_plugin import register

    names = {"__name__": caller, "__spec__": importlib.util.spec_from_loader(caller, None), "register": register}
    exec("def load(): register()", names)
    names["load"]()  # type: ignore[operator]
    from dotllm.vllm_plugin import registry

    modules = {
        entry.name: f"dotllm.vllm_plugin.{entry.module}" for entry in registry.ENTRIES if entry.module != "registry"
    }
    heavy = ("dotllm.index", "dotllm.automata", "dotllm.languages", "numba")
    found = {
        "hooks": [name for name, module in modules.items() if module in sys.modules],  # (all import the registry)
        "ours": sorted(name for name in sys.modules if name.startswith("dotllm.vllm_plugin.")),
        "heavy": [name for name in heavy if name in sys.modules],
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    for name in [*filter(is_ours, sys.modules)]:
        del sys.modules[name]
    for name in ("vllm.v1.engine.core", "vllm.v1.worker.worker_base"):
        importlib.import_module(name)
    assert not [*filter(is_ours, sys.modules)]
    for process in json.loads(sys.argv[1]):
        if not (pid := os.fork()):
            load(*process)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0, process
