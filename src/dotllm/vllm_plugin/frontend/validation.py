"""A specification that cannot be enforced is answered with HTTP 400 and the reason.

vLLM validates parameters in the front end, inside its event loop, which must not wait for a compile. So a server's are
only checked for what is cheap to see (`specification`), and the verdict is left to the engine (`endpoints`); offline,
where nobody else waits, they are checked at once (`validation_cache`). For a server on dotllm this replaces vLLM's
own, whose common checks are inline with its choice of backend: the few that apply to us are made in `specification` and
here.

And dotllm checks where vLLM asks xgrammar whatever backend the server runs on: while it parses a request, it compiles
structural tags with xgrammar, and asks xgrammar whether a constraint may be combined with tool calls. On a server of
ours neither answer is xgrammar's to give: it refuses what we enforce and passes what we refuse. A structural tag needs
no verdict there, only to be JSON (callers go on to parse it). All callers import ``validate_xgrammar_grammar`` inside
functions, so it is rebound in its module.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from dotllm.compilation import Specification
from dotllm.errors import BudgetExceeded, InvalidSpec, SpecError
from dotllm.vllm_plugin.engine_core import per_process
from dotllm.vllm_plugin.frontend import engine_info, validation_cache
from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.settings import BACKEND, is_ours
from dotllm.vllm_plugin.specification import json_text, of_sampling_params

_PARAMS = "vllm.sampling_params"
_NO_TOKENIZER = "structured outputs need a tokenizer, and the server runs with skip_tokenizer_init"

HOOK = Hook(
    name="validation",
    summary="what cannot be enforced is refused with HTTP 400 and the reason",
    targets=(Target("vllm.exceptions", "VLLMValidationError"),),
    required=True,
    without_it="no request would be given to dotllm, and none refused",
)


def validate(params: Any, model_config: Any, config: Any, tokenizer: Any) -> None:
    """Check ``params`` (a ``SamplingParams``) for an engine on dotllm and claim it for our backend.

    What has been claimed before is not compiled here: it has been checked (parameters are used for many prompts), or
    is left to the engine.

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
    try:
        specification = specification_of(params, config)
        if structured._backend != BACKEND:
            validation_cache.check(specification, functools.partial(per_process.token_names, tokenizer, model_config))
    except SpecError as error:
        raise VLLMValidationError(str(error)) from error
    claim(params, config)


def claim(params: Any, config: Any) -> None:
    """``params`` (a ``SamplingParams`` with a constraint) are for dotllm."""
    params.structured_outputs._backend = BACKEND
    params.structured_outputs._backend_was_auto = config.backend == "auto"


def specification_of(params: Any, config: Any) -> Specification:
    """The specification in a ``SamplingParams``. Raises `SpecError` for what is cheap to see."""
    structured = params.structured_outputs
    if isinstance(structured.json, dict):
        # As text it reaches the engine whatever is in it; vLLM's wire format knows no integer beyond 64 bits.
        structured.json = json_text(structured.json)
    return of_sampling_params(params, config)


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


@HOOK.replaces(f"{_PARAMS}:SamplingParams._validate_structured_outputs")
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


def check_in_place_of_xgrammar(params: Any) -> None:
    """Our check of a ``SamplingParams`` that vLLM shows to xgrammar.

    Raises:
        dotllm.errors.SpecError: refused.
    """
    structured = params.structured_outputs
    if structured is None:
        return
    if structured.structural_tag is None:
        of_sampling_params(params, engine_info.config())
        return
    try:
        tag = json.loads(structured.structural_tag)
    except RecursionError:
        raise BudgetExceeded("the structural tag is nested too deeply", keyword="nesting") from None
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"the structural tag is not JSON: {error}") from error
    if not isinstance(tag, dict):
        raise InvalidSpec("the structural tag is not a JSON object")


@HOOK.replaces("vllm.v1.structured_output.backend_xgrammar:validate_xgrammar_grammar")
def _validate_xgrammar_grammar_with(original: Any) -> Any:
    def validate_xgrammar_grammar(sampling_params: Any) -> None:
        structured = sampling_params.structured_outputs
        # vLLM's own validation has chosen a backend before it calls this; parsing has not.
        chosen = structured._backend if structured is not None else None
        if engine_info.serves(chosen):
            check_in_place_of_xgrammar(sampling_params)
        else:
            original(sampling_params)

    return validate_xgrammar_grammar
