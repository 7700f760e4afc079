"""dotllm: exact, lossless and nearly free structured generation, as a library and as the engine of ``dotllm serve``.

    from dotllm import Index, Vocabulary

    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    guide = Index.from_regex(r"[0-9]{4}-[0-9]{2}", vocabulary).guide()

Importing this package is cheap and imports neither vLLM nor torch: the public names below are loaded when first used
(PEP 562). vLLM finds our plugin by its entry point, in every process; if ``VLLM_PLUGINS`` lists the plugins that vLLM
may load, this package adds ours.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dotllm._version import __version__
from dotllm.allowed_plugins import allow_plugin as _allow_plugin

if TYPE_CHECKING:
    from dotllm.api import Index
    from dotllm.compilation.in_process import Compiler
    from dotllm.errors import (
        BudgetExceededError,
        InvalidSpecError,
        SpecError,
        SpecWarning,
        TooFewTokensError,
        UnsupportedError,
    )
    from dotllm.index import Guide
    from dotllm.logits_processor import logits_processor_factory
    from dotllm.vocabulary import Vocabulary

_HOME = {
    "BudgetExceededError": "dotllm.errors",
    "Compiler": "dotllm.compilation.in_process",
    "InvalidSpecError": "dotllm.errors",
    "SpecError": "dotllm.errors",
    "SpecWarning": "dotllm.errors",
    "TooFewTokensError": "dotllm.errors",
    "UnsupportedError": "dotllm.errors",
    "Guide": "dotllm.index",
    "Index": "dotllm.api",
    "Vocabulary": "dotllm.vocabulary",
    "logits_processor_factory": "dotllm.logits_processor",
}

__all__ = [
    "BudgetExceededError",
    "Compiler",
    "Guide",
    "Index",
    "InvalidSpecError",
    "SpecError",
    "SpecWarning",
    "TooFewTokensError",
    "UnsupportedError",
    "Vocabulary",
    "__version__",
    "logits_processor_factory",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


_allow_plugin()
