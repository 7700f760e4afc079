"""Which engines and which requests are coalesced: forced text has one spelling there, and may be entered.

All other requests are served exactly as with ``off``: the model spells their forced text as it likes, token by token.
So canonical masks never contradict another option of a request.
"""

from __future__ import annotations

from dotllm.vllm_plugin.engine_core.errors import logits_processors
from dotllm.vllm_plugin.settings import coalescence
from dotllm.vllm_plugin.vllm_types import Request, VllmConfig


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


def may_be(request: Request, *, keeps_generators: bool) -> bool:
    """Whether ``request`` is coalesced, in an engine that does so.

    Not where the sampler must see each token, since it counts them or tells how likely they were; nor where the request
    itself has a say in which tokens there are, since the one that spells forced text may not be among them. Stop tokens
    are looked at one by one (`RequestGrammar.forced_after`).

    keeps_generators: the runner draws for a request with a seed from a generator of its own (V1), so what is drawn
    depends on how often has been drawn before. (V2 draws by position.)
    """
    parameters = request.sampling_params
    if parameters is None or request.resumable:
        return False
    penalties = parameters.presence_penalty, parameters.frequency_penalty, parameters.repetition_penalty - 1
    return not (
        any(penalties)
        or parameters.logprobs is not None
        or parameters.prompt_logprobs is not None
        or parameters.bad_words
        or parameters.allowed_token_ids is not None
        or parameters.logit_bias
        or parameters.repetition_detection is not None
        or (keeps_generators and parameters.seed is not None)
    )
