"""The workers' side: sums the rows of requests that ask, before their mask is applied and after it.

Both model runners mask logits in a function of the same name (`worker_hooks`), whatever form the masks have. The sums
are made on the device, which writes their differences to the host. vLLM waits for the tokens of the step, which come
after the sums on the same stream, or on one that waits for it. So nothing waits for the sums. A step in which no
request asks runs as usual.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from dotllm.arrays import Int32
from dotllm.vllm_plugin import vllm_types
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.speed.worker_hooks import rows_v1, rows_v2

if TYPE_CHECKING:
    import torch

    from dotllm.device_masks.log_sums import LogSums

logger = logging.getLogger(__name__)
_FAILED = "could not measure how much probability the masks of this step leave"

HOOK = Hook(
    summary="a worker computes the probability that each mask leaves, for the requests that ask",
    targets=(
        Target("vllm.v1.outputs", "AsyncModelRunnerOutput.get_output", ("self",)),
        Target("vllm.v1.outputs", "ModelRunnerOutput.req_ids"),
    ),
    without_it="answers do not say how much probability the masks left (the engine core checks this hook, too)",
)

ASKED = "dotllm_mass_asked"
"""The attribute of a ``GrammarOutput``: the names of the requests that ask, and how many positions each has in the
step (int32 [names]; None: one each)."""
MASSES = "dotllm_masses"
"""The attribute of a ``ModelRunnerOutput``: for each request that asks, the mass of its position, or a list of those of
its positions."""
_SUMS = "_dotllm_log_sums"  # attribute of what a model runner keeps for as long as it lives


class Step:
    """A step in which some requests ask for masses."""

    def __init__(self, names: list[str], counts: Int32 | None) -> None:
        self.names, self.counts = names, counts
        self._masses: torch.Tensor | None = None

    def measure(
        self, holder: object, logits: torch.Tensor, where: Int32, mask: Callable[[], None], *starts: Any
    ) -> None:
        """Call ``mask``, and find what it leaves of the rows at ``where``; starts: see `LogSums`. An error is logged,
        and the answers say that nothing is known."""
        sums, before = None, None
        try:
            sums = self._log_sums(holder, logits)
            before = sums(logits, where, *starts)
        except Exception:
            logger.exception(_FAILED)
        mask()
        try:
            if sums is not None and before is not None:
                self._masses = sums.masses(before, sums(logits, where, *starts))
        except Exception:
            logger.exception(_FAILED)

    def _log_sums(self, holder: object, logits: torch.Tensor) -> LogSums:
        made: LogSums | None = getattr(holder, _SUMS, None)
        if made is None or made.device != logits.device:
            from vllm.platforms import current_platform

            from dotllm.device_masks.log_sums import LogSums

            made = LogSums(logits.device, by_kernel=logits.is_cuda and current_platform.is_pin_memory_available())
            setattr(holder, _SUMS, made)
        return made

    def told(self, output: Any) -> Any:
        """vLLM's ``output``, with the masses; an output that is still being computed gets them when it comes."""
        from vllm.v1.outputs import AsyncModelRunnerOutput

        if self._masses is None or output is None:
            return output
        if isinstance(output, AsyncModelRunnerOutput):
            return _on_its_way()(self, output)
        setattr(output, MASSES, self.masses())
        return output

    def masses(self) -> dict[str, float | list[float]]:
        """What `MASSES` has, once the device has written it."""
        assert self._masses is not None
        masses = self._masses.tolist()
        if self.counts is None:
            return dict(zip(self.names, masses, strict=True))
        rest = iter(masses)
        return {name: list(islice(rest, count)) for name, count in zip(self.names, self.counts.tolist(), strict=True)}


@cache
def _on_its_way() -> Any:
    """The class of a step's results that are still being computed, with masses."""
    from vllm.v1.outputs import AsyncModelRunnerOutput

    class WithMasses(AsyncModelRunnerOutput):
        def __init__(self, step: Step, output: Any) -> None:
            self._step, self._output = step, output

        def get_output(self) -> Any:
            output = self._output.get_output()  # (waits for the device)
            setattr(output, MASSES, self._step.masses())
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
    step = Step(*asked)
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
    mask = partial(original, scheduler_output, grammar_output, input_batch, logits)
    where = rows_v1(step.names, step.counts, input_batch, scheduler_output)
    step.measure(input_batch, logits, where, mask)


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
    mask = partial(original, self, logits, input_batch, grammar_req_ids, grammar_bitmask)
    most = self.mask_stride
    where = rows_v2(step.names, step.counts, input_batch, most)
    step.measure(self, logits, where, mask, input_batch.cu_num_logits, most)
