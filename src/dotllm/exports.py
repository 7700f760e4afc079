"""Names that a package takes from its modules, loaded on first use (PEP 562).

A package that imports its own modules while it is imported itself can lose names. An import of ``a.b`` holds the lock
of ``a.b`` and waits for the lock of ``a``; another thread that imports ``a`` holds the lock of ``a`` and waits for the
lock of ``a.b``. Python sees the deadlock and hands out a module that is only half initialised
(``importlib._bootstrap._ModuleLock``). A server imports from several threads, so none of our packages does this
(`tests/test_imports.py`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any


def exports(package: str, **names_of: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of ``package``. ``names_of[M]``: names in its module M, separated by spaces."""
    home = {name: f"{package}.{module}" for module, names in names_of.items() for name in names.split()}

    def __getattr__(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__, lambda: sorted({*home, *vars(sys.modules[package])})
