"""What the engine needs before its first structured request, prepared while vLLM loads the model.

Loading Numba's compiled kernels takes a fraction of a second (compiling them, once per machine, some seconds) and the
vocabulary of a tokenizer as long. Both run in a thread that the engine core starts first of all, and the backend waits
for it when the first request comes.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from functools import wraps
from typing import Any

from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.settings import is_ours

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_vocabularies: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()


def vocabulary(tokenizer: Any, size: int) -> Any:
    """The `Vocabulary` of ``tokenizer``, padded to ``size`` ids (a model's output may be wider); made once per process.

    Raises:
        dotllm.errors.SpecError: the bytes of this tokenizer's tokens cannot be known.
    """
    from dotllm.vocabulary import Vocabulary

    with _lock:
        sizes = _vocabularies.setdefault(tokenizer, {})
        if size not in sizes:
            sizes[size] = Vocabulary.from_tokenizer(tokenizer, size=size)
        return sizes[size]


def prepare(vllm_config: Any) -> None:
    """Load the kernels and make the vocabulary of the engine's tokenizer. A failure is left to the first request."""
    from vllm.tokenizers import cached_tokenizer_from_config

    started = time.monotonic()
    try:
        model_config = vllm_config.model_config
        from dotllm.index import Index

        tokens = vocabulary(cached_tokenizer_from_config(model_config=model_config), model_config.get_vocab_size())
        Index.from_choice(["ready"], tokens).guide()
    except Exception:
        logger.warning("dotllm could not get ready ahead of the first request", exc_info=True)
        return
    logger.info("dotllm is ready: %r, %.1f s", tokens, time.monotonic() - started)


def _apply() -> None:
    from vllm.v1.engine.core import EngineCore

    original = EngineCore.__init__
    if getattr(original, "is_dotllm", False):
        return

    @wraps(original)
    def __init__(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        config = vllm_config.structured_outputs_config
        if is_ours(config.backend) and not vllm_config.model_config.skip_tokenizer_init:
            threading.Thread(target=prepare, args=(vllm_config,), name="dotllm-prepare", daemon=True).start()
        original(self, vllm_config, *args, **kwargs)

    __init__.is_dotllm = True  # type: ignore[attr-defined]  # marks the wrapper
    EngineCore.__init__ = __init__


HOOK = Hook(
    name="warm-start",
    summary="kernels and vocabulary are prepared while the model loads",
    targets=(
        Target("vllm.v1.engine.core", "EngineCore.__init__", ("self", "vllm_config")),
        Target("vllm.tokenizers", "cached_tokenizer_from_config"),
    ),
    apply=_apply,
    required=False,
    without_it="the first structured request after a start takes some seconds longer",
)
