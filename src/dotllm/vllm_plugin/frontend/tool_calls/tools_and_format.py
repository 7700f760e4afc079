"""Tools together with a constraint on the answer: nothing of the constraint is lost on the way into the structural tag.

With ``tool_choice: auto`` and a strict tool vLLM makes one structural tag of the tools and the constraint. Two things
get lost there: how the request wants its JSON written (``disable_any_whitespace`` and the like), and a Lark grammar,
which is given to xgrammar to be translated; what xgrammar's dialect lacks is refused, or means something else. (Since
0.33 a parser that has its notation from the model's ``response_template`` makes such a tag of any constraint.)

And a call that ``tool_choice`` demands is enforced or refused: some of vLLM's tool parsers describe no notation that a
constraint could be made of, and with them vLLM lets the model write what it likes. So it does with a ``tool_choice`` of
Responses that names a set of tools or one of OpenAI's own. And where a chat's is null, which says ``auto`` as if the
field were not there, vLLM forgets what is strict about the tools, and the calls.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from dotllm.vllm_plugin.frontend import engine_info as front_end
from dotllm.vllm_plugin.frontend import unread_fields
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

_MODULE = "vllm.parser.abstract_parser"
_OF_TEMPLATES = "vllm.parser.response_template"  # since 0.32
_OPTIONS = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")


def keep_options(before: Any, after: Any) -> None:
    """What ``before`` says about the writing of JSON goes for ``after``, which replaces it (both
    ``StructuredOutputsParams`` or None)."""
    if before is None or after is None or before is after:
        return
    for option in _OPTIONS:
        if getattr(before, option) and not getattr(after, option):
            setattr(after, option, getattr(before, option))


def refuse_unforced(request: Any, params: Any) -> None:
    """Refuse an OpenAI request whose ``tool_choice`` demands a call that nothing in its ``SamplingParams`` enforces.

    Raises:
        vllm.exceptions.VLLMValidationError: refused.
    """
    choice = getattr(request, "tool_choice", None)
    kind = getattr(choice, "type", None)
    if not getattr(request, "tools", None) or not front_end.serves():
        return
    if kind not in (None, "function", "custom"):
        _refusal(
            f"a tool_choice of type {kind!r} is not enforced: "
            "use 'required' or a named function, and leave out what is not to be called"
        )
    if (choice == "required" or kind is not None) and params.structured_outputs is None:
        _refusal(
            "tool_choice demands a call, and the server's tool parser describes no notation to enforce one in: "
            "use 'auto', and a prompt that asks for the call"
        )


def _refusal(message: str) -> None:
    from vllm.exceptions import VLLMValidationError

    raise VLLMValidationError(message, parameter="tool_choice")


def _adjust_request_with(original: Any) -> Any:
    def adjust_request(self: Any, request: Any) -> Any:
        if front_end.serves() and self._tool_parser is not None and request.tools and request.tool_choice is None:
            request.tool_choice = "auto"
        unread_fields.refuse_no_schema(request)  # vLLM reads the format here where there are tools
        before = request.structured_outputs
        adjusted = original(self, request)
        if front_end.serves():
            # 0.33's parsers of templates put theirs beside what a Responses request says itself
            after = getattr(adjusted, "_parser_structured_outputs", None) or adjusted.structured_outputs
            keep_options(before, after)
        return adjusted

    return adjust_request


def _structured_outputs_to_format_with(original: Any) -> Any:
    def structured_outputs_to_format(params: Any) -> Any:
        if params.grammar is not None and front_end.serves():
            from xgrammar.structural_tag import GrammarFormat

            return GrammarFormat(grammar=params.grammar)  # ours reads both notations
        return original(params)

    return structured_outputs_to_format


def _apply() -> None:
    module: Any = importlib.import_module(_MODULE)
    # First what a vLLM may lack: there nothing is replaced.
    replace_once(module, "structured_outputs_to_format", _structured_outputs_to_format_with)
    replace_once(module.DelegatingParser, "adjust_request", _adjust_request_with)
    if importlib.util.find_spec(_OF_TEMPLATES) is not None:
        replace_once(
            importlib.import_module(_OF_TEMPLATES).ResponseTemplateParser, "adjust_request", _adjust_request_with
        )


HOOK = Hook(
    name="tools-and-format",
    summary="a constraint beside tools keeps its options and its grammar's notation",
    targets=(
        Target(_MODULE, "DelegatingParser.adjust_request", ("self", "request")),
        Target(_MODULE, "structured_outputs_to_format", ("params",)),
    ),
    apply=_apply,
    required=False,
    without_it="beside strict tools, whitespace options are lost and Lark grammars are translated by xgrammar",
)
