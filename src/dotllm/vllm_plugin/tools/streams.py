"""Saves calls that vLLM's parsers find in a whole answer but lose in a stream.

Three parsers have separate code for streams, which depends on how the text is divided into tokens and chunks. Llama's
parser loses arguments that are ``{}``, a call after text, and the end of a call whose brace shares a token with what
follows. The parsers of DeepSeek V3 and V3.1 lose arguments if a chunk has several tokens, as with speculative decoding.
If a constraint says how calls are written, these streams are held from the first call on, and the calls are read when
the answer is whole, by the code for whole answers. Text before the first call is sent as it comes.

Parsers that are one engine for reasoning and calls are given only new text. With two of them (granite, seed_oss), vLLM
reads the JSON of demanded calls from all the text, so it finds nothing: HTTP 200 without a call.

Hermes and two other parsers write a call's name and its first arguments as two entries of one event if their tokens
come together, as on a busy server. Instructor reads only the first entry. So a call has one entry here, as with vLLM's
newer parsers.
"""

from __future__ import annotations

import json
from typing import Any

from dotllm.vllm_plugin.enforce import engine_info
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.tools import cut_calls, marks_in_text, mistral_calls
from dotllm.vllm_plugin.tools.tag_rewrite import BARE_CALL

_PARSER = "vllm.parser.abstract_parser"
_DEEPSEEK_CALLS = "<｜tool▁calls▁begin｜>"
_OPENINGS = {
    "Llama3JsonToolParser": BARE_CALL,
    "DeepSeekV3ToolParser": _DEEPSEEK_CALLS,
    "DeepSeekV31ToolParser": _DEEPSEEK_CALLS,
}
"""For the tool parsers whose streams are held: what no text before the first call contains."""

HOOK = Hook(
    summary="calls that vLLM's parsers find in a complete answer are not lost in a stream",
    targets=(
        Target("vllm.tool_parsers.abstract_tool_parser", "ToolParser.extract_tool_calls"),
        Target("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionRequest.extract_structured_outputs"),
        Target("vllm.entrypoints.openai.responses.protocol", "ResponsesRequest.extract_structured_outputs"),
        Target("vllm.reasoning.abs_reasoning_parsers", "ReasoningParser.engine_based_streaming"),
        Target(_PARSER, "Parser._engine_based"),
        Target(_PARSER, "StreamState.engine_based"),
        Target(_PARSER, "StreamState.tool_call_text_started"),
        Target(_PARSER, "StreamState.previous_text"),
    ),
    without_it="in streams, calls in the notations of Llama and DeepSeek V3 come without arguments or not at all, "
    "and tool_choice 'required' with the parsers granite and seed_oss gives nothing",
)


def _opening(parser: Any, request: Any) -> str | None:
    """What begins the first call in this stream, if it is held; None if it is not."""
    opening = _OPENINGS.get(type(parser._tool_parser).__name__)
    if opening is None or request.tool_choice == "none" or not engine_info.serves():
        return None
    tag = getattr(request.structured_outputs, "structural_tag", None)
    return opening if tag and json.dumps(opening)[1:-1] in tag else None


def _free(text: str, opening: str) -> int:
    """How many characters of ``text`` stand before ``opening``, or before what may become one."""
    if opening in text:
        return text.index(opening)
    return next(n for n in range(max(0, len(text) - len(opening) + 1), len(text) + 1) if opening.startswith(text[n:]))


@HOOK.replaces(f"{_PARSER}:DelegatingParser.extract_tool_calls_streaming")
def _extract_tool_calls_streaming(
    self: Any, previous_text: str, current_text: str, delta_text: str, previous_token_ids: Any, current_token_ids: Any,
    delta_token_ids: Any, request: Any, *, original: Original,
) -> Any:  # fmt: skip
    opening = _opening(self, request)
    if opening is None:
        texts, ids = (previous_text, current_text, delta_text), (previous_token_ids, current_token_ids, delta_token_ids)
        told = original(self, *texts, *ids, request)
        if told is not None and mistral_calls.reads_lists(self._tool_parser) and engine_info.serves():
            mistral_calls.leave_colon_out(self._tool_parser, told)
        return told
    from vllm.entrypoints.generate.base.protocol import DeltaMessage

    free = current_text[_free(previous_text, opening) : _free(current_text, opening)]
    return DeltaMessage(content=free) if free else None


@HOOK.replaces(f"{_PARSER}:DelegatingParser.finalize_generation")
def _finalize_generation(self: Any, delta_message: Any, request: Any, state: Any, *, original: Original) -> Any:
    delta = original(self, delta_message, request, state)
    opening = _opening(self, request) if state.tool_call_text_started else None
    held = "" if opening is None else state.previous_text[_free(state.previous_text, opening) :]
    if not held:
        return delta
    from vllm.entrypoints.generate.base.protocol import DeltaFunctionCall, DeltaMessage, DeltaToolCall

    delta = delta or DeltaMessage()
    read = self._tool_parser.extract_tool_calls(state.previous_text, request)
    if not read.tools_called and not cut_calls.is_forced(request):
        delta.content = (delta.content or "") + held
    delta.tool_calls = []
    for i, call in enumerate(read.tool_calls):
        function = DeltaFunctionCall(name=call.function.name, arguments=call.function.arguments)
        delta.tool_calls.append(DeltaToolCall(index=i, id=call.id, type="function", function=function))
    return delta


@HOOK.replaces(f"{_PARSER}:DelegatingParser.parse_delta")
def _parse_delta(
    self: Any, delta_text: str, delta_token_ids: list[int], request: Any, prompt_token_ids: list[int] | None = None, *,
    finished: bool, original: Original,
) -> Any:  # fmt: skip
    if not hasattr(self, "_dotllm_in_step"):
        marks_in_text.leave_text_alone(self, request)
        self._dotllm_in_step = marks_in_text.in_step(self, request)
    if self._dotllm_in_step is None:
        return _parse_part(self, delta_text, delta_token_ids, request, prompt_token_ids, finished, original)
    told, parts = None, self._dotllm_in_step.parts(delta_text, delta_token_ids, finished=finished)
    for number, (text, tokens) in enumerate(parts, 1):
        last = finished and number == len(parts)
        told = _joined(told, _parse_part(self, text, tokens, request, prompt_token_ids, last, original))
    return told


def _parse_part(
    self: Any, delta_text: str, delta_token_ids: list[int], request: Any, prompt_token_ids: list[int] | None,
    finished: bool, original: Original,
) -> Any:  # fmt: skip
    state = self._stream_state
    if request.tool_choice == "required" and getattr(self._tool_parser, "supports_required_and_named", False):
        state.engine_based = False  # all the text is kept and passed on
    marks = cut_calls.marks_of(request) if not hasattr(self, "_dotllm_marks") and engine_info.serves() else None
    marks = self.__dict__.setdefault("_dotllm_marks", marks)
    if marks is None:
        told = original(self, delta_text, delta_token_ids, request, prompt_token_ids, finished=finished)
        return _joined(told) if cut_calls.is_forced(request) else told
    told = original(self, delta_text, delta_token_ids, request, prompt_token_ids, finished=False)
    if state.reasoning_ended or self._reasoning_parser is None:
        self._dotllm_text = getattr(self, "_dotllm_text", "") + delta_text
    if not finished:
        return _joined(told)
    rest = original(self, "", [], request, prompt_token_ids, finished=True)
    written = cut_calls.calls_in(marks, getattr(self, "_dotllm_text", ""))
    if rest is not None and (written.is_cut or not written.ended):
        rest.tool_calls = []  # they would close what is open
        if cut_calls.is_forced(request):
            rest.content = None
    return _joined(told, rest)


def _joined(told: Any, rest: Any = None) -> Any:
    """Two consecutive messages as one, with one entry for each call."""
    first, then = (rest, None) if told is None else (told, rest)
    for field in ("content", "reasoning") if then else ():
        if (more := getattr(then, field)) is not None:
            setattr(first, field, (getattr(first, field) or "") + more)
    entries: list[Any] = []
    for part in (*((first and first.tool_calls) or ()), *((then and then.tool_calls) or ())):
        before = entries[-1] if entries and entries[-1].index == part.index else None
        if before is None or before.function is None or part.function is None or part.function.name:
            entries.append(part)
        elif part.function.arguments is not None:
            before.function.arguments = (before.function.arguments or "") + part.function.arguments
    if entries:
        first.tool_calls = entries
    return first
