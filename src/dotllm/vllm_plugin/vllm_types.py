"""The vLLM objects that dotllm reads: a `Protocol` for each class, with only the members that the code uses.

The protocols serve readers and mypy, for which vLLM itself is ``Any``. ``tools/check_hooks.py`` compares them with the
classes for which they stand, in every release that we support. It finds them by the module after ``class …:``; a final
V1 or V2 in a name is the model runner's, and not part of vLLM's name. vLLM's properties are attributes here. Members
that exist only in some releases are not here: code reads them with ``getattr``, and says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableSequence, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch


class ModelConfig(Protocol):  # vllm.config.model
    hf_config: Any
    is_attention_free: bool
    is_diffusion: bool
    is_hybrid: bool
    is_moe: bool
    logprobs_mode: str
    max_logprobs: int
    max_model_len: int
    model: str
    logits_processors: Sequence[str | type] | None
    return_sampling_mask: bool
    runner_type: str
    skip_tokenizer_init: bool
    uses_mrope: bool

    def get_hidden_size(self) -> int: ...
    def get_vocab_size(self) -> int: ...
    def try_get_generation_config(self) -> dict[str, Any]: ...


class ParallelConfig(Protocol):  # vllm.config.parallel
    _api_process_rank: int
    data_parallel_size: int
    distributed_executor_backend: object
    enable_batch_sharded_sampling: bool
    node_rank_within_dp: int
    pipeline_parallel_size: int
    prefill_context_parallel_size: int
    worker_cls: str


class SchedulerConfig(Protocol):  # vllm.config.scheduler
    async_scheduling: bool


class CompilationConfig(Protocol):  # vllm.config.compilation
    cudagraph_mode: Any
    max_cudagraph_capture_size: int | None


class SpeculativeConfig(Protocol):  # vllm.config.speculative
    num_speculative_tokens_per_batch_size: object


class StructuredOutputsConfig(Protocol):  # vllm.config.structured_outputs
    backend: str
    disable_additional_properties: bool
    disable_any_whitespace: bool
    reasoning_parser: str


class VllmConfig(Protocol):  # vllm.config.vllm
    aux_output_config: Any
    compilation_config: CompilationConfig
    kv_transfer_config: object
    model_config: ModelConfig
    num_speculative_tokens: int
    parallel_config: ParallelConfig
    scheduler_config: SchedulerConfig
    speculative_config: SpeculativeConfig | None
    structured_outputs_config: StructuredOutputsConfig
    use_v2_model_runner: bool


class StructuredOutputsParams(Protocol):  # vllm.sampling_params
    json: str | dict[str, object] | None
    json_object: bool | None
    regex: str | None
    choice: list[str] | None
    grammar: str | None
    structural_tag: str | None
    disable_any_whitespace: bool
    disable_additional_properties: bool
    whitespace_pattern: str | None
    _backend: str | None
    _backend_was_auto: bool

    def all_constraints_none(self) -> bool: ...


class SamplingParams(Protocol):  # vllm.sampling_params
    all_stop_token_ids: set[int]
    allowed_token_ids: list[int] | None
    bad_words: list[str] | None
    extra_args: dict[str, Any] | None
    ignore_eos: bool
    flat_logprobs: bool
    logprobs: int | None
    num_logprobs: int | None
    seed: int | None
    structured_outputs: StructuredOutputsParams | None


class StructuredOutputRequest(Protocol):  # vllm.v1.structured_output.request
    params: StructuredOutputsParams
    grammar: Any  # as ``_grammar``, but None for a future that is not done
    _grammar: Any  # a grammar, a future of one, the exception that prevented one, or None
    reasoning_ended: bool | None


class Request(Protocol):  # vllm.v1.request
    all_token_ids: Sequence[int]
    drop_stale_output: bool
    has_encoder_inputs: bool
    is_prefill_chunk: bool
    max_tokens: int
    num_computed_tokens: int
    num_in_flight_tokens: int
    num_output_placeholders: int
    num_output_tokens: int
    num_preemptions: int
    num_stale_output_tokens: int
    num_tokens: int
    prompt_token_ids: list[int] | None
    request_id: str
    resumable: bool
    sampling_params: Any  # `SamplingParams`; None for a pooling request
    status: Enum  # a ``RequestStatus``
    structured_output_request: StructuredOutputRequest | None
    use_structured_output: bool

    def is_finished(self) -> bool: ...


class StructuredOutputManager(Protocol):  # vllm.v1.structured_output
    _use_async_grammar_compilation: bool
    backend: Any  # a ``StructuredOutputBackend``; None before the first constrained request
    accept_tokens: Any  # a method
    enable_in_reasoning: bool
    reasoner_cls: type | None
    tokenizer: object
    vllm_config: VllmConfig

    def _get_constraint_bounds(self, request: Request, spec_tokens: Sequence[int]) -> tuple[int, int]: ...
    def _get_reasoner(self, request: Request) -> Any: ...


class Scheduler(Protocol):  # vllm.v1.core.sched.scheduler
    connector: object
    ec_connector: object
    is_encoder_decoder: bool
    max_model_len: int
    max_num_running_reqs: int
    need_mamba_block_aligned_split: bool
    num_spec_tokens: int
    parallel_config: ParallelConfig
    prev_step_scheduled_req_ids: set[str]
    requests: dict[str, Request]
    running: MutableSequence[Request]
    structured_output_manager: StructuredOutputManager
    vllm_config: VllmConfig
    waiting: object  # a queue; true if it is not empty

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None: ...


class SchedulerOutput(Protocol):  # vllm.v1.core.sched.output
    has_structured_output_requests: bool
    num_scheduled_tokens: dict[str, int]
    scheduled_new_reqs: list[Any]
    scheduled_spec_decode_tokens: dict[str, list[int]]
    total_num_scheduled_tokens: int


class ModelRunnerOutput(Protocol):  # vllm.v1.outputs
    req_ids: list[str]
    sampled_token_ids: list[list[int]]
    kv_connector_output: Any  # None, or has invalid_block_ids


class DraftTokenIds(Protocol):  # vllm.v1.outputs
    req_ids: list[str]
    draft_token_ids: list[list[int]]


class EngineCoreOutput(Protocol):  # vllm.v1.engine
    finish_reason: object
    kv_transfer_params: dict[str, Any] | None
    new_logprobs: Any
    new_token_ids: list[int]
    request_id: str
    stop_reason: int | str | None


class CompletionOutput(Protocol):  # vllm.outputs
    finish_reason: str | None
    index: int
    logprobs: Any
    token_ids: Sequence[int]
    stop_reason: int | str | None


class RequestOutput(Protocol):  # vllm.outputs
    finished: bool
    outputs: list[CompletionOutput]
    request_id: str


class RequestOutputCollector(Protocol):  # vllm.v1.engine.output_processor
    output: RequestOutput | Exception | None
    ready: asyncio.Event
    request_id: str


class AsyncLLM(Protocol):  # vllm.v1.engine.async_llm
    vllm_config: VllmConfig

    async def abort(self, request_id: str, internal: bool = False) -> None: ...


class GrammarOutput(Protocol):  # vllm.v1.core.sched.output
    grammar_bitmask: Any  # int32 [positions, words], or `device_masks.message.MaskRows`
    structured_output_request_ids: list[str]


class InputBatchV1(Protocol):  # vllm.v1.worker.gpu_input_batch
    req_ids: list[str]


class AsyncOutput(Protocol):  # vllm.v1.worker.gpu.async_utils
    copy_event: torch.cuda.Event
    model_runner_output: ModelRunnerOutput
    num_sampled_tokens_np: npt.NDArray[np.int32]  # [requests]
    sampled_token_ids: npt.NDArray[np.int64]  # [requests, 1 + drafts]


class InputBatchV2(Protocol):  # vllm.v1.worker.gpu.input_batch
    cu_num_logits: torch.Tensor
    req_ids: list[str]


class StructuredOutputsWorker(Protocol):  # vllm.v1.worker.gpu.structured_outputs
    mask_stride: int
