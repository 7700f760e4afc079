"""Makes a vLLM imported in this process accept the backend ``dotllm``, without importing vLLM ourselves.

vLLM loads its plugins while it builds an engine, but ``LLM(structured_outputs_config={"backend": "dotllm"})``
validates that configuration before it does so. ``import dotllm`` therefore leaves a finder in ``sys.meta_path`` that
waits for the one module holding the configuration, and widens its list of backends as soon as it has been executed
(the post-import hooks that PEP 369 describes). Where vLLM was imported first, that happens at once. Everything else is
done by the plugin entry point (``register``) in each of vLLM's processes.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import os
import sys
from collections.abc import Sequence
from types import ModuleType

CONFIG_MODULE = "vllm.config.structured_outputs"
PLUGIN_NAME = "dotllm"

logger = logging.getLogger(__name__)


def install() -> None:
    """Prepare this process; idempotent and cheap."""
    if CONFIG_MODULE in sys.modules:
        _prepare(sys.modules[CONFIG_MODULE])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def allow_plugin() -> None:
    """Add ourselves to ``VLLM_PLUGINS`` where the user lists vLLM's plugins: who imports or runs dotllm means us."""
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and PLUGIN_NAME not in allowed.split(","):
        os.environ["VLLM_PLUGINS"] = ",".join(name for name in (*allowed.split(","), PLUGIN_NAME) if name)


def _prepare(module: ModuleType) -> None:
    from dotllm.vllm_plugin.engine_core import backend_name

    allow_plugin()
    try:
        backend_name.apply(module.StructuredOutputsConfig)
        backend_name.allow_options(module.StructuredOutputsConfig)
    except Exception:
        # Importing vLLM must not fail for this. The plugin applies the same hooks again and reports what does not hold.
        logger.debug("could not widen vLLM's structured-outputs configuration", exc_info=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds only ``CONFIG_MODULE``, through the finders behind it, and wraps its loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != CONFIG_MODULE:
            return None
        for finder in sys.meta_path:
            if finder is self or isinstance(finder, _Finder):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Executes the module with its own loader, then prepares it."""

    def __init__(self, original: importlib.abc.Loader) -> None:
        self._original = original

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._original.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its ordinary loader (``inspect.getsource`` and pickling by reference look at it).
        module.__loader__ = self._original
        if module.__spec__ is not None:
            module.__spec__.loader = self._original
        self._original.exec_module(module)
        _prepare(module)
