"""The workers' side: sums the rows of requests that ask, before their mask is applied and after it.

Both model runners mask logits in a function of the same name (`worker_hooks`), whatever form the masks have. The sums
are made on the device, which writes their differences to the host. vLLM waits for the tokens of the step, which come
after the sums on the same stream, or on one that waits for it. So nothing waits for the sums. A step in which no
request asks runs as usual.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from dotllm.arrays import Int32
from dotllm.device_masks.message import positions
from dotllm.vllm_plugin import vllm_types
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.speed.worker_hooks import first_rows

if TYPE_CHECKING:
    import torch

    from dotllm.device_masks.log_sums import LogSums

logger = logging.getLogger(__name__)

HOOK = Hook(
    name="mass-sums",
    summary="a worker finds how much probability each mask leaves to the requests that ask",
    targets=(
        Target("vllm.v1.outputs", "AsyncModelRunnerOutput.get_output", ("self",)),
        Target("vllm.v1.outputs", "ModelRunnerOutput.req_ids"),
    ),
    without_it="answers do not say how much probability the masks left (the engine core looks at this hook, too)",
)

ASKED = "dotllm_mass_asked"
"""The attribute of a ``GrammarOutput``: for each request that asks, how many positions it has in the step."""
MASSES = "dotllm_masses"
"""The attribute of a ``ModelRunnerOutput``: for each request that asks, the masses of its positions."""
_SUMS = "_dotllm_log_sums"  # attribute of what a model runner keeps for as long as it lives


class Step:
    """A step in which some requests ask for masses."""

    def __init__(self, asked: Mapping[str, int]) -> None:
        self.asked = asked
        self._counts: dict[str, int] = {}
        self._where: Int32 = np.zeros(0, np.int32)
        self._sums: LogSums | None = None
        self._masses: torch.Tensor | None = None

    def before(
        self, holder: object, logits: torch.Tensor, first: Mapping[str, int], counts: Mapping[str, int], *starts: Any
    ) -> Any:
        """Sums of the rows before the mask. first: the first row of each request in the batch. counts: the number of
        rows of each request that asks. starts: see `kernels.log_sums`."""
        self._counts = {name: count for name, count in counts.items() if name in first}
        if not self._counts:
            return None
        numbers = np.array(list(self._counts.values()), np.int32)
        self._where = positions(numbers, [first[name] for name in self._counts])
        return self._log_sums(holder, logits)(logits, self._where, *starts)

    def after(self, logits: torch.Tensor, before: Any, *starts: Any) -> None:
        """Find what the mask, which has been applied, left of ``before``."""
        if before is not None and self._sums is not None:
            self._masses = self._sums.masses(before, self._sums(logits, self._where, *starts))

    def _log_sums(self, holder: object, logits: torch.Tensor) -> LogSums:
        made: LogSums | None = getattr(holder, _SUMS, None)
        if made is None or made.device != logits.device:
            from vllm.platforms import current_platform

            from dotllm.device_masks.log_sums import LogSums

            made = LogSums(logits.device, by_kernel=logits.is_cuda and current_platform.is_pin_memory_available())
            setattr(holder, _SUMS, made)
        self._sums = made
        return made

    def told(self, output: Any) -> Any:
        """vLLM's ``output``, with the masses; an output that is still being computed gets them when it comes."""
        from vllm.v1.outputs import AsyncModelRunnerOutput

        if self._masses is None or output is None:
            return output
        if isinstance(output, AsyncModelRunnerOutput):
            return _on_its_way()(self, output)
        setattr(output, MASSES, self.found())
        return output

    def found(self) -> dict[str, list[float]]:
        """By request, the masses of its positions, once the device has written them."""
        assert self._masses is not None
        masses = iter(self._masses.tolist())
        return {name: list(islice(masses, count)) for name, count in self._counts.items()}


@cache
def _on_its_way() -> Any:
    """The class of a step's results that are still being computed, with masses."""
    from vllm.v1.outputs import AsyncModelRunnerOutput

    class WithMasses(AsyncModelRunnerOutput):
        def __init__(self, step: Step, output: Any) -> None:
            self._step, self._output = step, output

        def get_output(self) -> Any:
            output = self._output.get_output()  # (waits for the device)
            setattr(output, MASSES, self._step.found())
            return output

        def get_kv_connector_output(self) -> Any:  # since 0.33
            return self._output.get_kv_connector_output()

    return WithMasses


_step: ContextVar[Step | None] = ContextVar("dotllm_mass_step", default=None)


@HOOK.replaces("vllm.v1.worker.gpu_worker:Worker.sample_tokens")
def _sample_tokens(self: object, grammar_output: Any, *, original: Original) -> Any:
    asked = getattr(grammar_output, ASKED, None)
    if asked is None:
        return original(self, grammar_output)
    step = Step(asked)
    token = _step.set(step)
    try:
        return step.told(original(self, grammar_output))
    finally:
        _step.reset(token)


@HOOK.replaces("vllm.v1.structured_output.utils:apply_grammar_bitmask")
def _v1(
    scheduler_output: vllm_types.SchedulerOutput,
    grammar_output: vllm_types.GrammarOutput,
    input_batch: vllm_types.InputBatchV1,
    logits: torch.Tensor,
    *,
    original: Original,
) -> None:
    step = _step.get()
    if step is None:
        original(scheduler_output, grammar_output, input_batch, logits)
        return
    first, drafts = first_rows(input_batch, scheduler_output), scheduler_output.scheduled_spec_decode_tokens
    counts = {name: 1 + len(drafts.get(name, ())) for name in step.asked}  # (drafts may have been trimmed)
    before = _contained(step.before, input_batch, logits, first, counts)
    original(scheduler_output, grammar_output, input_batch, logits)
    _contained(step.after, logits, before)


@HOOK.replaces("vllm.v1.worker.gpu.structured_outputs:StructuredOutputsWorker.apply_grammar_bitmask")
def _v2(
    self: vllm_types.StructuredOutputsWorker,
    logits: torch.Tensor,
    input_batch: vllm_types.InputBatchV2,
    grammar_req_ids: list[str],
    grammar_bitmask: Any,
    *,
    original: Original,
) -> None:
    step = _step.get()
    if step is None:
        original(self, logits, input_batch, grammar_req_ids, grammar_bitmask)
        return
    most = self.mask_stride
    first = {name: i * most for i, name in enumerate(input_batch.req_ids)}
    starts = (input_batch.cu_num_logits, most)
    before = _contained(step.before, self, logits, first, step.asked, *starts)
    original(self, logits, input_batch, grammar_req_ids, grammar_bitmask)
    _contained(step.after, logits, before, *starts)


def _contained(measure: Any, *arguments: Any) -> Any:
    """What ``measure`` returns; an error is logged, and the answers say that nothing is known."""
    try:
        return measure(*arguments)
    except Exception:
        logger.exception("could not measure how much probability the masks of this step leave")
        return None
