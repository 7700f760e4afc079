"""One file per engine; `load` imports only the requested one."""

from __future__ import annotations

import importlib

from benchmarks.adapters.base import Engine, Options
from benchmarks.tokens import Tokens

ENGINES = {
    "dotllm": ("benchmarks.adapters.dotllm", "Dotllm"),
    "dotllm-any-order": ("benchmarks.adapters.dotllm", "DotllmAnyOrder"),
    "glrmask": ("benchmarks.adapters.glrmask", "Glrmask"),
    "llguidance": ("benchmarks.adapters.llguidance", "Llguidance"),
    "xgrammar": ("benchmarks.adapters.xgrammar", "Xgrammar"),
}


NO_COMPACT_JSON = {"glrmask"}
"""Engines whose JSON always has flexible white space."""


def load(name: str, tokens: Tokens, options: Options) -> Engine:
    """Set up an engine by name. Raises KeyError for an unknown name, ImportError if it is not installed."""
    module, factory = ENGINES[name]
    engine: Engine = getattr(importlib.import_module(module), factory)(tokens, options)
    return engine
