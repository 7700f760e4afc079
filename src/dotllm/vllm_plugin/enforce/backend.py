"""EngineBackend: vLLM's ``StructuredOutputBackend``, the compiler of one engine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar

from dotllm.compilation import Compiled, Specification
from dotllm.device_masks.sender import StepMasks
from dotllm.vllm_plugin.enforce import per_process
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar, SpellingOf
from dotllm.vllm_plugin.vllm_types import Request


@dataclass
class EngineBackend(StructuredOutputBackend):
    """Compiles specifications to `RequestGrammar`s; equal specifications share one index."""

    ends_of_model: bool = True
    """Whether all end tokens of the model's generation config end a text, or only the tokenizer's own."""
    spelling_of: Callable[[Request], SpellingOf | None] = lambda request: None  # of forced text (`Given`)
    searched: Specification | None = None  # what `compile_grammar` compiles

    def __post_init__(self) -> None:
        self._ends = per_process.further_ends(self.vllm_config.model_config) if self.ends_of_model else ()
        self.vocabulary = per_process.vocabulary(self.tokenizer, self.vocab_size, self._ends)
        self.compiler = per_process.compiler(self.vocabulary, self)
        self.step_masks: StepMasks | None = None
        """Chosen at the first step (see `manager_hook`): a `RowSender`, or `Bitmasks`."""

    def begin(self, specification: Specification, request: Request, limit: Any = None) -> Future[RequestGrammar]:
        """Start compiling for ``request``; the future yields its `RequestGrammar` or raises the reason why there is
        none. ``limit``: as `RequestGrammar` takes it.

        Dropping the future withdraws the request: its compile is not started, or is cancelled.
        """
        stops, vocabulary = tuple(request.sampling_params.all_stop_token_ids), self.vocabulary
        spelling_of = self.spelling_of(request)
        max_model_len = self.vllm_config.model_config.max_model_len

        def make(compiled: Compiled) -> RequestGrammar:
            guide = compiled if limit is None else limit.guide(compiled, request, max_model_len)
            return RequestGrammar(guide, stops, vocabulary, spelling_of=spelling_of, limit=limit)

        return self.compiler.submit(specification, make, slow=limit is not None)

    def compile_grammar(self, request_type: Enum, grammar_spec: str) -> StructuredOutputGrammar:
        """vLLM's entry point, for beam search: compile `searched` now. (vLLM's arguments lack the request's options.)

        Raises:
            dotllm.errors.SpecError: the specification is refused.
        """
        assert self.searched is not None
        compiled: Compiled = self.compiler.submit(self.searched).result()
        return RequestGrammar(compiled, self._ends, self.vocabulary)

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        """int32 [max_num_seqs, ceil(vocab_size / 32)], all tokens allowed."""
        return torch.full((max_num_seqs, self.vocabulary.words), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """Close the compiler, unless another backend of this process uses it (offline beam search has one)."""
        per_process.close_compiler(self.vocabulary, self)
