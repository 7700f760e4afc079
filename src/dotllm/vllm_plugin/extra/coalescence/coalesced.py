"""Which engines and which requests are coalesced: forced text has one spelling there, and may be entered.

All other requests are served exactly as with ``off``: the model spells their forced text as it likes, token by token.
So canonical masks never contradict another option of a request.
"""

from __future__ import annotations

from collections.abc import Callable

from dotllm.vllm_plugin.enforce.errors import logits_processors
from dotllm.vllm_plugin.enforce.extras import SpellingOf
from dotllm.vllm_plugin.enforce.parameters import beyond
from dotllm.vllm_plugin.extra.coalescence.forced_tokens import ForcedSpelling
from dotllm.vllm_plugin.settings import coalescence
from dotllm.vllm_plugin.vllm_types import Request, VllmConfig

_HARMLESS = frozenset(
    {
        *("n", "temperature", "top_p", "top_k", "min_p", "max_tokens", "min_tokens", "structured_outputs"),
        # How it ends; and how its text is written, which is the front end's.
        *("stop", "stop_token_ids", "ignore_eos", "_eos_token_id", "_all_stop_token_ids", "include_stop_str_in_output"),
        *("detokenize", "skip_special_tokens", "spaces_between_special_tokens", "output_kind", "stream_interval"),
        *("output_text_buffer_length", "skip_clone", "skip_reading_prefix_cache", "flat_logprobs"),
        # Others' are for logits processors, with which no request of an engine is coalesced.
        *("extra_args", "_watermarking_skipped"),
    }
)
"""Parameters of a request that forced text may be entered with, whatever they are."""

_HARMLESS_EMPTY = ("bad_words", "_bad_words_token_ids", "logit_bias", "watermarking")
"""Those that ask for nothing where they are empty, or false."""


def why_not(config: VllmConfig) -> str:
    """Why no request of an engine is coalesced; "" if they are. Raises ValueError for a mode that does not exist."""
    model, parallel = config.model_config, config.parallel_config
    checks = (
        (coalescence() == "off", "switched off"),
        (config.speculative_config is not None, "speculative decoding: forced text is left to its drafts"),
        (parallel.pipeline_parallel_size > 1, "pipeline stages"),
        (parallel.prefill_context_parallel_size > 1, "prefill context parallelism"),
        (config.kv_transfer_config is not None, "a KV connector"),
        (model.is_diffusion, "the model is a diffusion model"),
        (model.is_hybrid or model.is_attention_free, "the model has a recurrent state"),
        # (The V2 runner knows the positions of a prompt's tokens alone, which those of other tokens follow.)
        (config.use_v2_model_runner and model.uses_mrope, "the model's positions have several dimensions"),
        (bool(logits_processors(model)), "logits processors of the user's, which must see every token"),
        (bool(model.return_sampling_mask or config.aux_output_config.enabled), "something is returned of every step"),
    )
    return next((reason for applies, reason in checks if applies), "")


def spelling(config: VllmConfig) -> Callable[[Request], SpellingOf | None]:
    """By request of an engine how its forced text is spelt; None where the model spells it as it likes."""
    coalesces = not why_not(config)

    def of(request: Request) -> SpellingOf | None:
        may = coalesces and may_be(request, keeps_generators=not config.use_v2_model_runner)
        return ForcedSpelling.of if may else None

    return of


def may_be(request: Request, *, keeps_generators: bool) -> bool:
    """Whether ``request`` is coalesced, in an engine that does so: only `_HARMLESS` parameters are set.

    Not where the sampler must see each token, since it counts them or tells how likely they were; nor if the request
    restricts tokens itself (bad_words, allowed_token_ids, logit_bias): the canonical token may be excluded. A parameter
    that a later vLLM adds is unknown, and so not harmless. Stop tokens are examined one by one
    (`RequestGrammar.forced_after`).

    keeps_generators: the runner draws for a request with a seed from a generator of its own (V1), so what is drawn
    depends on how often has been drawn before. (V2 draws by position.)
    """
    parameters = request.sampling_params
    if parameters is None or request.resumable:
        return False
    return all(
        (name in _HARMLESS_EMPTY and not value) or (name == "seed" and not keeps_generators)
        for name, value in beyond(_HARMLESS, parameters)
    )
