"""H2: a specification that cannot be enforced is answered with HTTP 400 and the reason, before it reaches the engine.

vLLM validates parameters in the front end, inside its event loop, which must not wait for a judgement: a server's have
been judged by then, or are later (`early_refusal`, `late_verdict`, `judged`). Verdicts are remembered (`verdicts`). For
a server on dotllm it replaces vLLM's own, whose common checks are inline with its choice of backend:
the few that apply to us are made in `requests` and here.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from dotllm.compilation import Specification
from dotllm.errors import SpecError
from dotllm.vllm_plugin.engine_core import warm_start
from dotllm.vllm_plugin.frontend import late_verdict, verdicts
from dotllm.vllm_plugin.frontend import specification as requests
from dotllm.vllm_plugin.hook import Hook, Target, replace_once
from dotllm.vllm_plugin.settings import BACKEND, is_ours

_PARAMS = "vllm.sampling_params"
_NO_TOKENIZER = "structured outputs need a tokenizer, and the server runs with skip_tokenizer_init"

_judged: ContextVar[bool] = ContextVar("dotllm_judged", default=False)


def validate(params: Any, model_config: Any, config: Any, tokenizer: Any) -> None:
    """Check ``params`` (a ``SamplingParams``) for an engine on dotllm and claim it for our backend.

    Raises:
        vllm.exceptions.VLLMValidationError: refused; the message is for the user.
    """
    from vllm.exceptions import VLLMValidationError

    structured = params.structured_outputs
    refuse_model(model_config)
    if tokenizer is None:
        raise VLLMValidationError(_NO_TOKENIZER)
    if structured._backend not in (None, BACKEND) and not structured._backend_was_auto:
        raise VLLMValidationError(
            f"the backend is chosen for the whole server ({config.backend}); remove '_backend' ({structured._backend})"
        )
    special_tokens = functools.partial(warm_start.special_tokens, tokenizer, model_config)
    judge(params, config, special_tokens, may_wait=not _judged.get())
    if (late := late_verdict.current()) is not None:
        late.soon()
    structured._backend = BACKEND
    structured._backend_was_auto = config.backend == "auto"


def refuse_model(model_config: Any) -> None:
    """Refuse every constraint, if this model can have none.

    Raises:
        vllm.exceptions.VLLMValidationError: refused.
    """
    from vllm.exceptions import VLLMValidationError

    if getattr(model_config, "is_diffusion", False):
        raise VLLMValidationError(
            "structured outputs need a model that writes from left to right; this one is a diffusion model"
        )
    if getattr(model_config, "skip_tokenizer_init", False):
        raise VLLMValidationError(_NO_TOKENIZER)


def judge(params: Any, config: Any, special_tokens: Callable[[], Mapping[str, int]], *, may_wait: bool = True) -> None:
    """Refuse a ``SamplingParams`` whose constraint cannot be enforced, now or a little later (`late_verdict`); without
    ``may_wait`` only if that is known.

    Raises:
        vllm.exceptions.VLLMValidationError: refused; the message is for the user.
    """
    late = late_verdict.current()
    try:
        specification = _specification_of(params, config)
        if verdicts.check_known(specification):
            return
        if late is not None:
            late.put_off(specification, special_tokens)
        elif may_wait:
            verdicts.check(specification, special_tokens)
    except SpecError as error:
        raise late_verdict.as_refusal(error) from error


async def settle(params: Any, config: Any, special_tokens: Callable[[], Mapping[str, int]]) -> None:
    """`judge`, beside the event loop, and no longer than `verdicts.VERDICT_TIMEOUT_S`.

    Raises:
        vllm.exceptions.VLLMValidationError: refused; the message is for the user.
    """
    try:
        await verdicts.settle(_specification_of(params, config), special_tokens)
    except SpecError as error:
        raise late_verdict.as_refusal(error) from error


@contextlib.contextmanager
def judged() -> Iterator[None]:
    """What is validated meanwhile by who is in this context has been judged, as far as it will be before it is sent."""
    token = _judged.set(True)
    try:
        yield
    finally:
        _judged.reset(token)


def _specification_of(params: Any, config: Any) -> Specification:
    structured = params.structured_outputs
    if isinstance(structured.json, dict):
        # As text it reaches the engine whatever is in it; vLLM's wire format knows no integer beyond 64 bits.
        structured.json = requests.json_text(structured.json)
    return requests.of_sampling_params(params, config)


def _validate_structured_outputs_with(original: Any) -> Any:
    def _validate_structured_outputs(
        self: Any, model_config: Any, structured_outputs_config: Any, tokenizer: Any
    ) -> None:
        if (
            structured_outputs_config is None
            or self.structured_outputs is None
            or not is_ours(structured_outputs_config.backend)
        ):
            original(self, model_config, structured_outputs_config, tokenizer)
            return
        validate(self, model_config, structured_outputs_config, tokenizer)

    return _validate_structured_outputs


def _apply() -> None:
    from vllm.sampling_params import SamplingParams

    replace_once(SamplingParams, "_validate_structured_outputs", _validate_structured_outputs_with)


HOOK = Hook(
    name="validation",
    summary="what cannot be enforced is refused with HTTP 400 and the reason",
    targets=(
        Target(
            _PARAMS,
            "SamplingParams._validate_structured_outputs",
            ("self", "model_config", "structured_outputs_config", "tokenizer"),
        ),
        Target(_PARAMS, "SamplingParams.structured_outputs:"),
        *(
            Target(_PARAMS, f"StructuredOutputsParams.{field}:")
            for field in (
                "json",
                "json_object",
                "regex",
                "choice",
                "grammar",
                "structural_tag",
                "disable_any_whitespace",
                "disable_additional_properties",
                "whitespace_pattern",
                "_backend",
                "_backend_was_auto",
            )
        ),
        Target("vllm.exceptions", "VLLMValidationError"),
    ),
    apply=_apply,
    required=True,
    without_it="no request would be given to dotllm, and none refused",
)
