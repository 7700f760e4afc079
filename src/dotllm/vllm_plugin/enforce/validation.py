"""Refuses, with HTTP 400 and the reason, a specification that cannot be enforced.

vLLM validates parameters in the front end, inside its event loop, which must not wait for a compile. So the front end
of a server makes only cheap checks (`specification`), and the engine decides about the rest (`endpoints`). Offline, no
other request waits, so parameters are checked completely here (`validation_cache`). On dotllm this check replaces
vLLM's; `specification` and this module repeat the few of vLLM's checks that apply to us.

Whatever the backend, vLLM also asks xgrammar while it parses a request: it compiles structural tags with xgrammar, and
asks xgrammar whether a constraint may be combined with tool calls. On our servers both answers would be wrong, because
xgrammar refuses some tags that dotllm enforces, and accepts some that it refuses. So dotllm answers instead. For a
structural tag it only checks that the tag is JSON, because the callers then parse it. All callers import
``validate_xgrammar_grammar`` inside functions, so it is rebound in its module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NoReturn

from dotllm.compilation import Specification, validation_cache
from dotllm.diagnosis import openai_error
from dotllm.errors import Code, InvalidSpecError, SpecError
from dotllm.languages.json_input import read_json
from dotllm.vllm_plugin.enforce import engine_info, per_process
from dotllm.vllm_plugin.enforce.request_errors import as_http
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.settings import BACKEND, is_ours
from dotllm.vllm_plugin.specification import ConstrainedParams, of_sampling_params, text_of
from dotllm.vllm_plugin.vllm_types import ModelConfig, StructuredOutputsConfig, StructuredOutputsParams

_SENT = "_dotllm_sent"  # attribute of a ``StructuredOutputsParams``: the schema and the text that was sent

HOOK = Hook(
    summary="what cannot be enforced is refused with HTTP 400 and the reason",
    targets=(Target("vllm.exceptions", "VLLMValidationError"),),
    required=True,
    without_it="dotllm would neither receive nor refuse any request",
)


def refuse(message: str, parameter: str | None = None, code: Code = "invalid_value") -> NoReturn:
    """Refuse a request because of its field ``parameter``. Raises ``vllm.exceptions.VLLMValidationError``: HTTP 400."""
    raise as_http(400, message, code, parameter)


@contextmanager
def refused_as_by_vllm(parameter: str | None = None) -> Iterator[None]:
    """A `SpecError` becomes the error of `refuse`, for the field ``parameter`` if that is known."""
    try:
        yield
    except SpecError as error:
        refuse(str(error), openai_error.beside(error) or parameter, error.code)


def validate(
    params: ConstrainedParams, model_config: ModelConfig, config: StructuredOutputsConfig, tokenizer: object
) -> None:
    """Check ``params`` for an engine on dotllm and mark them for our backend.

    A constraint that was claimed is not compiled here: it is left to the engine. One that was checked before is checked
    again, because it may have been changed. Raises as `refuse` does."""
    structured = params.structured_outputs
    if model_config.is_diffusion:
        refuse("structured outputs need a model that writes from left to right; this one is a diffusion model")
    if tokenizer is None:
        refuse("structured outputs need a tokenizer, and the server runs with skip_tokenizer_init")
    if structured._backend not in (None, BACKEND) and not structured._backend_was_auto:
        refuse(
            f"the backend is chosen for the whole server ({config.backend}); remove '_backend' ({structured._backend})"
        )
    is_claimed = structured._backend == BACKEND and structured._backend_was_auto
    with refused_as_by_vllm():
        if is_claimed and not params.extra_args:
            _send_as_text(structured, text_of(structured)[1])
        else:
            specification = specification_of(params, config)
            if not is_claimed:
                validation_cache.check(specification, partial(per_process.token_names, tokenizer, model_config))
    structured._backend, structured._backend_was_auto = BACKEND, is_claimed


def claim(structured: StructuredOutputsParams) -> None:
    """Mark a constraint as dotllm's, which is what its server's ``auto`` means, and leave its check to the engine."""
    structured._backend, structured._backend_was_auto = BACKEND, True


def specification_of(params: ConstrainedParams, config: StructuredOutputsConfig | None) -> Specification:
    """The specification in a request's parameters. Raises `SpecError` for faults that are cheap to detect."""
    specification = of_sampling_params(params, config)
    _send_as_text(params.structured_outputs, specification.text)
    return specification


def _send_as_text(structured: StructuredOutputsParams, text: str) -> None:
    """A schema reaches the engine as ``text``, whatever it holds: vLLM's wire format has no integers over 64 bits. The
    dict is kept, because the caller may change it and use the object again."""
    if isinstance(structured.json, dict):
        vars(structured)[_SENT] = structured.json, text
        structured.json = text


def _take_back_text(structured: StructuredOutputsParams) -> None:
    """Undo `_send_as_text`, unless the caller has set another schema since."""
    schema, text = vars(structured).pop(_SENT, (None, None))
    if schema is not None and structured.json is text:
        structured.json = schema


@HOOK.replaces("vllm.sampling_params:SamplingParams._validate_structured_outputs")
def _validate_structured_outputs(
    self: ConstrainedParams,
    model_config: ModelConfig,
    structured_outputs_config: StructuredOutputsConfig | None,
    tokenizer: object,
    *,
    original: Original,
) -> None:
    config, structured = structured_outputs_config, self.structured_outputs
    if structured is not None:
        _take_back_text(structured)
    if config is None or structured is None or not is_ours(config.backend):
        if structured is not None and structured._backend == BACKEND:  # (for another engine of the process)
            structured._backend, structured._backend_was_auto = None, False
        original(self, model_config, config, tokenizer)
    else:
        validate(self, model_config, config, tokenizer)


@HOOK.replaces("vllm.v1.structured_output.backend_xgrammar:validate_xgrammar_grammar")
def _validate_xgrammar_grammar(sampling_params: ConstrainedParams, *, original: Original) -> None:
    structured = sampling_params.structured_outputs
    # vLLM's own validation has chosen a backend before it calls this; parsing has not.
    if structured is None or not engine_info.serves(structured._backend):
        original(sampling_params)
    elif structured.structural_tag is None:
        of_sampling_params(sampling_params, engine_info.config())
    else:
        require_object(structured.structural_tag)


def require_object(text: str) -> None:
    """Refuse a structural tag that is not a JSON object. Raises as `read_json` does."""
    name = "structured_outputs.structural_tag"
    if not isinstance(read_json(text, name), dict):
        raise InvalidSpecError(f"{name} is not a JSON object")
