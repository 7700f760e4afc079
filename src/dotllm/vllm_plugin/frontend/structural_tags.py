"""H8: constraints are judged by dotllm where vLLM asks xgrammar whatever backend the server runs on.

While it parses a request, vLLM compiles structural tags with xgrammar, and asks xgrammar whether a constraint may be
combined with tool calls. On a server of ours neither answer is xgrammar's to give: it refuses what we enforce and
passes what we refuse. All callers import ``validate_xgrammar_grammar`` inside functions, so it is rebound in its
module.

vLLM asks inside its event loop, where nobody waits for a judgement: what is not known passes, and is judged later, as
what vLLM has made of it. A structural tag needs no verdict there, only to be JSON (callers go on to parse it): the same
request meets `validation` a moment later, whose message reaches the user, while the callers here would replace it by a
general one.
"""

from __future__ import annotations

import json
from typing import Any

from dotllm.errors import BudgetExceeded, InvalidSpec
from dotllm.vllm_plugin.frontend import engine_info as front_end
from dotllm.vllm_plugin.frontend import specification as requests
from dotllm.vllm_plugin.frontend import verdicts
from dotllm.vllm_plugin.hook import Hook, Target, replace_once


def check(params: Any) -> None:
    """Our judgement of a ``SamplingParams`` that vLLM shows to xgrammar, in an event loop as far as it is known.

    Raises:
        dotllm.errors.SpecError: refused.
    """
    structured = params.structured_outputs
    if structured is None:
        return
    if structured.structural_tag is None:
        specification = requests.of_sampling_params(params, front_end.config())
        if not verdicts.in_event_loop():
            verdicts.check(specification, front_end.special_tokens)
        else:
            verdicts.check_known(specification)
        return
    try:
        tag = json.loads(structured.structural_tag)
    except RecursionError:
        raise BudgetExceeded("the structural tag is nested too deeply", keyword="nesting") from None
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"the structural tag is not JSON: {error}") from error
    if not isinstance(tag, dict):
        raise InvalidSpec("the structural tag is not a JSON object")


def _validate_xgrammar_grammar_with(original: Any) -> Any:
    def validate_xgrammar_grammar(sampling_params: Any) -> None:
        structured = sampling_params.structured_outputs
        # vLLM's own validation has chosen a backend before it calls this; parsing has not.
        chosen = structured._backend if structured is not None else None
        if front_end.serves(chosen):
            check(sampling_params)
        else:
            original(sampling_params)

    return validate_xgrammar_grammar


def _apply() -> None:
    from vllm.v1.structured_output import backend_xgrammar

    replace_once(backend_xgrammar, "validate_xgrammar_grammar", _validate_xgrammar_grammar_with)


HOOK = Hook(
    name="structural-tags",
    summary="structural tags and tool constraints are judged by dotllm, not by xgrammar",
    targets=(Target("vllm.v1.structured_output.backend_xgrammar", "validate_xgrammar_grammar", ("sampling_params",)),),
    apply=_apply,
    required=False,
    without_it="structural tags that xgrammar refuses are refused",
)
