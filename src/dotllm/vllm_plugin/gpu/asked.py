"""Engine core: vLLM does not ask the grammars about tokens that they are known to have taken.

vLLM asks after each token of each request, and to find out that `walk` has taken it already is to look at three objects
of the request's that lie in no near cache: a hundred microseconds of a step at 256 requests, as long as taking the
tokens. After a step that was walked it is known of whom vLLM has to ask: those whose token the tables did not lead on
(an end, a token that is not allowed) or may have ended the reasoning, and those whose results do not count. For the
duration of that one call the manager's answer about all others is at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar

MIN_REQUESTS_TO_ASK = 4  # requests of a step; to ask of fewer takes less than all this
# What vLLM asks a ``StructuredOutputManager`` about each request (until 0.29; since 0.30), and what it hears of one
# whose grammar has taken its token.
_ANSWERS = {"should_advance": False, "accept_tokens": True}


class Asked:
    """A context in which vLLM looks at the results of a step. One per scheduler."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self.about: set[str] | None = None
        """the requests of whom vLLM has to ask in the next step it looks at; None: of all"""
        self._failures = RequestGrammar.failures
        self._before: dict[str, Any] = {}

    def after(self, requests: Iterable[str], grammars: Iterable[RequestGrammar | None]) -> None:
        """After this step vLLM must call the grammar of ``requests``; for all others it gets the known answer.

        grammars: those that the GPU follows; while one of them has failed vLLM asks of all.
        """
        if RequestGrammar.failures != self._failures:
            if any(grammar is not None and grammar.failed for grammar in grammars):
                return
            self._failures = RequestGrammar.failures
        self.about = set(requests)

    def __enter__(self) -> None:
        if self.about is None:
            return
        mine = vars(self._manager)
        self._before = {name: mine[name] for name in _ANSWERS if name in mine}
        for name, answer in _ANSWERS.items():
            original = getattr(self._manager, name, None)
            if original is not None:
                mine[name] = _unless_in(self.about, original, answer) if self.about else _ALWAYS[answer]

    def __exit__(self, *_: object) -> None:
        if self.about is None:
            return
        mine = vars(self._manager)
        for name in _ANSWERS:
            mine.pop(name, None)
        mine.update(self._before)
        self.about = None


_ALWAYS: dict[bool, Any] = {True: lambda *_, **__: True, False: lambda *_, **__: False}


def _unless_in(requests: set[str], original: Any, answer: bool) -> Any:
    def asked(request: Any, *tokens: Any, **named: Any) -> Any:  # (by name from 0.27 to 0.29)
        return original(request, *tokens, **named) if request.request_id in requests else answer

    return asked
