"""The engine core's side: a step tells the workers which requests ask for masses, and its outputs have the masses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dotllm.vllm_plugin.enforce.scheduler import MASS, Part, takes_part
from dotllm.vllm_plugin.extra.mass import worker
from dotllm.vllm_plugin.extra.mass.wire import asks, carrier
from dotllm.vllm_plugin.extra.mass.worker import ASKED, MASSES
from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.vllm_types import GrammarOutput, ModelRunnerOutput, Request, Scheduler, SchedulerOutput


class Masses(Part):
    """See the module."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._asking: set[str] = set()

    def scheduled(self, step: SchedulerOutput) -> None:
        """Remember the requests that ask; ``step`` brings new ones."""
        self._asking.update(new.req_id for new in step.scheduled_new_reqs if asks(new.sampling_params))

    def masks_found(self, step: SchedulerOutput, masks: GrammarOutput | None) -> None:
        """Tell the workers which requests ask, with the masks of ``step``."""
        if not self._asking or masks is None:
            return
        names = [name for name in masks.structured_output_request_ids if name in self._asking]
        if names:
            drafts = step.scheduled_spec_decode_tokens
            counts = np.array([1 + len(drafts.get(name, ())) for name in names], np.int32) if drafts else None
            setattr(masks, ASKED, (names, counts))

    def answered(self, output: ModelRunnerOutput, outputs: Mapping[int, Any]) -> None:
        """Put the masses of the tokens before vLLM's ``outputs``, by client."""
        masses: dict[str, float | list[float]] | None = getattr(output, MASSES, None)
        if masses is None:
            return
        for client in outputs.values():
            own = {
                answer.request_id: masses[answer.request_id] for answer in client.outputs if answer.request_id in masses
            }
            if own:
                client.outputs.insert(0, carrier(own))

    def ended(self, request: Request) -> None:
        """``request`` no longer asks."""
        self._asking.discard(request.request_id)


def _require_workers_that_sum() -> None:
    worker.HOOK.check()
    takes_part(MASS, Masses)()


HOOK = Hook(
    summary="if a request asks, its answer says how much probability each mask left",
    targets=(
        Target("vllm.v1.engine", "EngineCoreOutput.kv_transfer_params"),
        Target("vllm.v1.engine", "EngineCoreOutputs.outputs"),
        Target("vllm.v1.core.sched.output", "NewRequestData.sampling_params"),
    ),
    apply=_require_workers_that_sum,
    without_it="answers do not say how much probability the masks left",
)
