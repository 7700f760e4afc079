"""Logits processors of users: one object for each sequence, on both of vLLM's model runners and with speculation.

    @dotllm.logits_processor_factory
    def no_token_twice(params):
        return NoTokenTwice() if (params.extra_args or {}).get("no_token_twice") else None

``dotllm serve MODEL --logits-processors my_module:no_token_twice`` loads it. A factory and its objects have the form
that vLLM's `AdapterLogitsProcessor` has for the V1 runner. The V2 runner has its own interface: one object for the
batch, rows in the order of a step, and tokens on the device. This module serves both with the same adapter.

vLLM does not say which sequences have ended, only which are in a step. So an object lives while its sequence is in the
batch. Preemption, or a step without the sequence, ends it; the sequence's next object is shown all output tokens
together. An object that reads all tokens that it has not seen yet works unchanged. With speculation, a second object,
made for the step, reads the drafts, which may be rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm import SamplingParams
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor

Process = Callable[..., Any]
"""(output token ids, logits) → logits, or (prompt token ids, output token ids, logits) → logits. Ids are lists of
integers; logits are a float tensor [vocabulary] on the device, which may be changed in place."""

Factory = Callable[[SamplingParams], Process | None]


def logits_processor_factory(factory: Factory) -> type:
    """The class that vLLM's ``--logits-processors MODULE:NAME`` and ``LLM(logits_processors=[…])`` take.

    ``factory`` makes the object of a new sequence (each of ``n`` has its own), or returns None to leave the sequence
    alone. A ValueError refuses the request (HTTP 400): the front end calls the factory, too, and discards the object.
    """
    names = {"__doc__": factory.__doc__, "__module__": factory.__module__, "__qualname__": factory.__qualname__}
    return type(factory.__name__, (_PerSequence,), {**names, "factory": staticmethod(factory)})


class _PerSequence(AdapterLogitsProcessor, LogitsProcessor):  # type: ignore[misc]
    """On V1 this is vLLM's adapter. On V2 the adapter's state is by slot, and `apply` finds the tokens of each row."""

    factory: Factory

    def __init__(self, config: Any, *of_runner: Any) -> None:
        """``of_runner``: on V1 the device and whether to pin memory, on V2 the state of requests."""
        super().__init__(config, None, False)
        self._requests: Any = of_runner[0]
        self._params: dict[int, SamplingParams] = {}
        self._in_step: set[int] = set()

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Raise what the factory raises."""
        cls.factory(sampling_params)

    def is_argmax_invariant(self) -> bool:
        """False: a processor may change the most likely token."""
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Process | None:
        """The object of a sequence."""
        return self.factory(params)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """V2: a sequence enters a slot. Its object is made in `apply`, where its tokens are known."""
        self.req_info.pop(req_idx, None)
        self._params.pop(req_idx, None)
        if self.factory(sampling_params) is None:
            return False
        self._params[req_idx] = sampling_params
        return True

    def apply_staged_writes(self) -> None:
        """V2, once per step: release the objects of sequences that were not in the last step."""
        for slot in {*self.req_info} - self._in_step:
            del self.req_info[slot]
        self._in_step.clear()

    def apply(self, logits: Any, ctx: LogitsContext | None = None) -> Any:
        """Process ``logits`` [rows, vocabulary]. ``ctx``, on V2 only, tells the sequence of each row."""
        if ctx is None:
            return super().apply(logits)
        slots = ctx.expanded_idx_mapping.tolist()
        self._in_step.update(slots)
        rows = zip(slots, ctx.expanded_local_pos.tolist(), ctx.pos.tolist(), ctx.input_ids.tolist(), strict=True)
        for row, (slot, draft, position, token) in enumerate(rows):
            if slot not in self._params or position + 1 < self._requests.prefill_len.np[slot] or token < 0:
                continue  # no object, part of a prompt, or not a draft: nothing is sampled from the last two
            if draft == 0:
                tokens = self._requests.all_token_ids.gpu[slot, : position + 1].tolist()
                prompt = tokens[: self._requests.prompt_len.np[slot]]
                output = tokens[len(prompt) :]
                if slot not in self.req_info:
                    self.req_info[slot] = self._new_state(self._params[slot], prompt, [])
                process = self.req_info[slot]
                process.args[-1][:] = output
            else:
                if draft == 1:
                    process = self._new_state(self._params[slot], prompt, output)
                process.args[-1].append(token)
            logits[row] = process(logits[row])
        return logits
