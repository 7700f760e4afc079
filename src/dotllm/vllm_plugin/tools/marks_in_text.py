"""Which marks in an answer vLLM's parsers may read: only those that the model wrote as marks, and at their place.

*Answers without calls.* vLLM's parsers look for calls in every answer, even if the client has sent no tools or excluded
them. If the answer has a format and a string in it contains ``<tool_call>``, some parsers leave out what follows, so
the client gets text that breaks its schema. Such an answer is not searched for calls. (Without a format, vLLM decides.)

*Streams of requests with stop strings.* Because the last characters may begin a stop string, vLLM holds them back, so a
token's text comes later than the token. Parsers see ``</think>`` among the tokens, and cut the text that has come so
far: reasoning becomes content, and the beginning of a call is read twice. smolagents always sends stop strings. Here
the parsers get a mark separately, together with its text.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin.enforce import engine_info


def leave_text_alone(parser: Any, request: Any) -> None:
    """Have ``parser``, made for ``request``, not look for calls in an answer that has a form and no calls."""
    may_call = request.tools and request.tool_choice != "none"
    if parser._tool_parser is None or may_call or not engine_info.serves():
        return
    if request.extract_structured_outputs() is not None:
        parser._tool_parser = None
        by_engine = parser._reasoning_parser is None or parser._reasoning_parser.engine_based_streaming
        parser._engine_based = parser._stream_state.engine_based = by_engine


class InStep:
    """Divides the stream of one answer at its marks."""

    def __init__(self, marks: dict[int, str]) -> None:
        self._marks, self._text, self._tokens = marks, "", list[int]()

    def parts(self, text: str, tokens: list[int], *, finished: bool) -> list[tuple[str, list[int]]]:
        """The parts that can be passed on, each with its tokens. What follows a mark waits for the mark's text."""
        self._text, self._tokens, result = self._text + text, self._tokens + tokens, list[tuple[str, list[int]]]()
        while True:
            marks = ((number, self._marks[token]) for number, token in enumerate(self._tokens) if token in self._marks)
            number, mark = next(marks, (len(self._tokens), ""))
            at = self._text.find(mark)
            if at < 0 or not mark:
                break
            result += [(self._text[:at], self._tokens[:number]), (mark, self._tokens[number : number + 1])]
            self._text, self._tokens = self._text[at + len(mark) :], self._tokens[number + 1 :]
        if finished:
            number, mark = len(self._tokens), ""
        kept = next(n for n in range(len(self._text) + 1) if mark.startswith(self._text[n:]))
        result.append((self._text[:kept], self._tokens[:number]))
        self._text, self._tokens = self._text[kept:], self._tokens[number:]
        return [part for part in result if any(part)] or (result if finished else [])


def in_step(parser: Any, request: Any) -> InStep | None:
    """For a stream whose text may come later than its tokens; None for others."""
    if not request.stop or not engine_info.serves():
        return None
    tokenizer = parser.model_tokenizer
    untold = {*tokenizer.all_special_ids} if request.skip_special_tokens else set()
    return InStep({token: text for text, token in tokenizer.get_added_vocab().items() if token not in untold})
