"""EngineBackend: vLLM's ``StructuredOutputBackend``, the compiler of one engine."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum

import torch
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar

from dotllm.compilation import Compiled, Specification
from dotllm.device_masks.sender import StepMasks
from dotllm.index.token_space import TokenSpace
from dotllm.vllm_plugin.answer_limit import AnswerLimit
from dotllm.vllm_plugin.engine_core import coalesced, per_process
from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar
from dotllm.vllm_plugin.vllm_types import Request


@dataclass
class EngineBackend(StructuredOutputBackend):
    """Compiles specifications to `RequestGrammar`s; equal specifications share one index."""

    ends_of_model: bool = True
    """Whether all tokens that the model's generation config names end a text, or the tokenizer's own alone."""
    searched: Specification | None = None  # what `compile_grammar` compiles

    def __post_init__(self) -> None:
        self._ends = per_process.further_ends(self.vllm_config.model_config) if self.ends_of_model else ()
        self.vocabulary = per_process.vocabulary(self.tokenizer, self.vocab_size, self._ends)
        self.compiler = per_process.compiler(self.vocabulary, self)
        self._enters_text = not coalesced.why_not(self.vllm_config)
        self.step_masks: StepMasks | None = None
        """Chosen at the first step (see `gpu_masks.manager_hook`): a `RowSender`, or `Bitmasks`."""

    def begin(
        self, specification: Specification, request: Request, limit: AnswerLimit | None = None
    ) -> Future[RequestGrammar]:
        """Start compiling for ``request``; the future yields its `RequestGrammar` or raises why there is none.

        Dropping the future withdraws the request: its compile is not started, or cancelled.
        """
        keeps_generators = not self.vllm_config.use_v2_model_runner
        spells = self._enters_text and coalesced.may_be(request, keeps_generators=keeps_generators)
        stops, vocabulary = tuple(request.sampling_params.all_stop_token_ids), self.vocabulary
        max_model_len = self.vllm_config.model_config.max_model_len

        def make(compiled: Compiled) -> RequestGrammar:
            if limit is not None:
                limit.begin(request, max_model_len, compiled.index.guide().tokens_to_finish)
            return RequestGrammar(compiled, stops, vocabulary, spells_forced_text=spells, limit=limit)

        return self.compiler.submit(specification, make)

    def compile_grammar(self, request_type: Enum, grammar_spec: str) -> StructuredOutputGrammar:
        """vLLM's own way in, used by beam search: compile now. (What vLLM passes lacks the options of the request.)

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
        """Stop compiling, if no other backend of this process does (offline beam search has its own)."""
        per_process.close_compiler(self.vocabulary, self)

    @property
    def token_space(self) -> TokenSpace:
        """The table of mask rows that all grammars share."""
        return TokenSpace.of(self.vocabulary)
