"""dotllm as a backend of Outlines 1.x, for its Transformers models.

Outlines knows its backends by fixed names (``outlines.backends._get_backend``), so ``backend="dotllm"`` cannot be
registered. But its generators take any logits processor, and a backend makes logits processors:

    backend = DotllmBackend(model)                      # model: outlines.from_transformers(…)
    generate = outlines.Generator(model, processor=backend.get_json_schema_logits_processor(schema))
    generate("A person:", max_new_tokens=200)
"""

from __future__ import annotations

from typing import Any

from outlines.backends.base import BaseBackend
from outlines.processors.base_logits_processor import OutlinesLogitsProcessor

from dotllm.api import Index
from dotllm.transformers import StructuredLogitsProcessor
from dotllm.vocabulary import Vocabulary


class _Processor(OutlinesLogitsProcessor):
    def __init__(self, index: Index) -> None:
        super().__init__("torch")
        self._processor = StructuredLogitsProcessor(index)

    def reset(self) -> None:
        """Forget the last generation; Outlines calls this before every generation."""
        self._processor.reset()

    def process_logits(self, input_ids: Any, logits: Any) -> Any:
        return self._processor(input_ids, logits)


class DotllmBackend(BaseBackend):
    """Makes logits processors for one model. All methods refuse what cannot be enforced (`dotllm.SpecError`)."""

    def __init__(self, model: Any) -> None:
        """``model``: an Outlines model around a model of transformers.

        Raises:
            ValueError: ``model`` is something else.
        """
        if getattr(model, "tensor_library_name", None) != "torch" or not hasattr(model, "hf_tokenizer"):
            raise ValueError(f"dotllm needs an outlines.models.Transformers, not {type(model).__name__}")
        config = model.model.config.get_text_config()
        self._vocabulary = Vocabulary.from_tokenizer(model.hf_tokenizer, size=config.vocab_size)

    def get_json_schema_logits_processor(self, json_schema: str, whitespace_pattern: str | None = None) -> _Processor:
        """JSON that is valid under a schema (its text)."""
        return _Processor(Index.from_json_schema(json_schema, self._vocabulary, whitespace_pattern=whitespace_pattern))

    def get_regex_logits_processor(self, regex: str) -> _Processor:
        """Text that matches the whole of a regular expression."""
        return _Processor(Index.from_regex(regex, self._vocabulary))

    def get_cfg_logits_processor(self, grammar: str) -> _Processor:
        """Text of a grammar in Lark or EBNF."""
        return _Processor(Index.from_grammar(grammar, self._vocabulary))
