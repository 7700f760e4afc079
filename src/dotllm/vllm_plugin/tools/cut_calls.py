"""Keeps a call that is cut (by ``max_tokens``, ``stop``, …) from becoming the text of an answer, or looking complete.

Many of vLLM's parsers find no call in the beginning of a call, and vLLM then returns it as text, marks included: a
client that has demanded a call shows ``<tool_call>{"name": "f", "argu`` to its user. Others close what is open, so
``<parameter=path>/ho`` becomes a call with the path "/ho", which a client may run. From a call in a JSON list, they
return the beginning of its arguments. Here a whole answer has only the calls that have ended. Where calls are enclosed
in marks, the end marks are counted: no string in a call contains one (`tag_rewrite`). ``finish_reason`` says why
(Responses: ``incomplete``, for ``max_tokens``).

In a stream, the arguments read so far have been sent. They are not closed (`streams`), so they are not JSON.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from dotllm.vllm_plugin.enforce import engine_info
from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.tools import marks_in_text, tag_rewrite

_PARSER = "vllm.parser.abstract_parser"

HOOK = Hook(
    summary="a call that is cut off is left out of an answer that is not streamed",
    without_it="a call that is cut off is returned as if it were complete, with its last argument cut",
)


class Marks(NamedTuple):
    """The marks that begin and end a call in a notation."""

    begin: str
    end: str


def leave_out(request: Any, answer: Any) -> None:
    """Leave the beginning of a call out of ``answer``, a whole chat or Responses answer to ``request``."""
    if not is_forced(request):
        return
    for choice in getattr(answer, "choices", ()):
        is_cut = choice.finish_reason in ("length", "repetition") or isinstance(choice.stop_reason, str)
        if is_cut and not choice.message.tool_calls:
            choice.message.content = None
            if choice.finish_reason == "tool_calls":  # vLLM says so of a required call, even if there is none
                choice.finish_reason = "stop"
    output = getattr(answer, "output", None) or []
    is_cut = bool(getattr(request, "stop", None)) and not any("call" in item.type for item in output)
    if output and (is_cut or answer.status == "incomplete"):
        answer.output = [item for item in output if item.type != "message"]


def is_forced(request: Any) -> bool:
    """Whether a request demands a call."""
    return getattr(request, "tool_choice", None) not in (None, "auto", "none")


def marks_of(request: Any) -> Marks | None:
    """The marks of calls in the constraint that vLLM made from a request's tools; None if it made none."""
    tag = _tag(request)
    names = {name for _, name, _ in tag_rewrite.functions(getattr(request, "tools", None) or ()) if name}
    for begin, end in tag_rewrite.tags(tag):
        if any(name in begin for name in names):
            first, last = tag_rewrite.first_mark(begin), tag_rewrite.first_mark(end.lstrip("}`\n "))
            return Marks(first, last) if last.startswith("<") and first != begin else None
    return None


class Scan(NamedTuple):
    """The calls in a text: how many have ended, where the last of these ends, and whether another has begun."""

    ended: int
    end: int
    is_cut: bool


def calls_in(marks: Marks, text: str) -> Scan:
    """The calls in ``text``. (An end mark may also stand in the text around calls.)"""
    scan = Scan(0, 0, False)
    while (begin := text.find(marks.begin, scan.end)) >= 0:
        end = text.find(marks.end, begin)
        if end < 0:
            return scan._replace(is_cut=True)
        scan = Scan(scan.ended + 1, end + len(marks.end), False)
    return scan


def ended(request: Any, text: str, calls: Sequence[Any]) -> list[Any]:
    """Those of ``calls`` that have ended in ``text``."""
    tag = _tag(request)
    if tag is None:
        return [*calls]
    marks = marks_of(request)
    kept = calls if marks is None else calls[: calls_in(marks, text).ended]
    return [call for call in kept if _is_json(call.arguments)]


def _tag(request: Any) -> Any:
    structured = getattr(request, "_parser_structured_outputs", None) or getattr(request, "structured_outputs", None)
    tag = getattr(structured, "structural_tag", None)
    return json.loads(tag) if tag and getattr(request, "tools", None) and request.tool_choice != "none" else None


def _is_json(text: str) -> bool:
    with contextlib.suppress(ValueError, RecursionError):  # a client cannot read what is nested too deeply either
        json.loads(text)
        return True
    return False


@HOOK.replaces(f"{_PARSER}:DelegatingParser.parse")
def _parse(self: Any, model_output: str, request: Any, *args: Any, original: Original, **kwargs: Any) -> Any:
    marks_in_text.leave_text_alone(self, request)
    reasoning, content, calls = original(self, model_output, request, *args, **kwargs)
    if not engine_info.serves():
        return reasoning, content, calls
    text = model_output.partition(reasoning)[2] if reasoning else model_output
    marks = None if calls else marks_of(request)
    written = None if marks is None else calls_in(marks, text)
    if written is not None and written.ended and written.is_cut:  # some parsers then find no call at all
        whole = model_output.removesuffix(text[written.end :])
        reasoning, content, calls = original(self, whole, request, *args, **kwargs)
    return reasoning, content, (ended(request, text, calls) or None) if calls else calls
