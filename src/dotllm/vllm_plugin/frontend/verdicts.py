"""Judging a specification in vLLM's front end: beside its event loop, bounded, and remembered.

The check is the first half of a compile: the text becomes a `Grammar`, and the Grammar an NFA, which is where
everything that is refused is found out (syntax, unsupported keywords, what nothing can satisfy). It needs no
vocabulary, builds no mask, and its work is bounded by the budgets of the front ends. What only the second half can
find (a vocabulary that cannot spell a byte the specification demands) ends the request in the engine, with the same
kind of message.

The budgets count work, so that a verdict is the same on every machine, and there are many of them: a specification that
keeps within each can still take seconds. An event loop answers everybody, so it never waits for a judgement: it awaits
one on a thread (`settle`), and that for `VERDICT_TIMEOUT_S` only, or takes what is known already (`check_known`). What
has no verdict then is left to the engine, which compiles beside its loop, and ends what it refuses.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from dotllm.compilation.specification import Kind, Specification
from dotllm.errors import BudgetExceeded, SpecError
from dotllm.vllm_plugin.frontend.verdict_pool import VerdictPool

REMEMBERED = 4096
"""Verdicts kept (a digest and, for a refusal, its message)."""
VERDICT_TIMEOUT_S = 0.5
"""Seconds that a request waits for a verdict. (Seven of MaskBench's 5,679 schemas take more than 0.1.)"""


def check(specification: Specification, special_tokens: Callable[[], Mapping[str, int]] = dict) -> None:
    """Refuse what cannot be enforced; not for event loops. ``special_tokens`` gives the tokenizer's special tokens, if
    they are needed.

    Raises:
        dotllm.errors.SpecError: refused; remembered for equal specifications.
    """
    key = specification.key(b"")
    if not _memory.knows(key):
        _judge_and_remember(key, specification, special_tokens)


def in_event_loop() -> bool:
    """Whether who asks holds up everybody while they wait."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def check_known(specification: Specification) -> bool:
    """Whether ``specification`` has been found good.

    Raises:
        dotllm.errors.SpecError: it has been refused.
    """
    return _memory.knows(specification.key(b""))


async def settle(
    specification: Specification,
    special_tokens: Callable[[], Mapping[str, int]] = dict,
    timeout_s: float | None = VERDICT_TIMEOUT_S,
) -> bool:
    """`check` for event loops, on a thread. Whether there is a verdict; one that comes later is remembered.

    Raises:
        dotllm.errors.SpecError: refused.
    """
    key = specification.key(b"")

    def work() -> None:
        if not _memory.has(key):  # by now the engine may have compiled it
            with suppress(SpecError):  # it is remembered
                _judge_and_remember(key, specification, special_tokens)

    return _memory.knows(key) or (await _pool.run(key, work, timeout_s) and _memory.knows(key))


def _judge_and_remember(
    key: str, specification: Specification, special_tokens: Callable[[], Mapping[str, int]]
) -> None:
    try:
        _judge(specification, special_tokens)
    except SpecError as error:
        _memory.remember(key, error)
        raise
    except RecursionError:
        # Our own code is iterative or capped; Python's JSON parser is neither.
        refusal = BudgetExceeded("the specification is nested too deeply")
        _memory.remember(key, refusal)
        raise refusal from None
    _memory.remember(key, None)


def is_known(specification: Specification) -> bool:
    """Whether there is a verdict on ``specification``, good or bad."""
    return _memory.has(specification.key(b""))


def accept(specification: Specification) -> None:
    """Take ``specification`` for good: the engine has compiled it."""
    _memory.remember(specification.key(b""), None)


def _judge(specification: Specification, special_tokens: Callable[[], Mapping[str, int]]) -> None:
    from dotllm.automata.lowering import lower
    from dotllm.grammar.transform import prepare

    text, options = specification.text, dict[str, Any](specification.options)
    kind = specification.kind
    if kind is Kind.JSON_SCHEMA:
        from dotllm.languages.json_schema import json_schema_to_grammar

        grammar = json_schema_to_grammar(text, **options)
    elif kind is Kind.JSON_OBJECT:
        from dotllm.languages.json_schema import json_object_to_grammar

        grammar = json_object_to_grammar(**options)
    elif kind is Kind.REGEX:
        from dotllm.languages.regex import regex_to_grammar

        grammar = regex_to_grammar(text, **options)
    elif kind is Kind.CHOICE:
        from dotllm.languages.choice import choice_to_grammar

        choice_to_grammar(json.loads(text))
        return  # nothing in its NFA can go wrong, and that of 100,000 choices would keep the event loop busy
    elif kind is Kind.GRAMMAR:
        from dotllm.languages.cfg import grammar_to_grammar

        grammar = grammar_to_grammar(text, special_tokens=special_tokens(), **options)
    else:
        from dotllm.languages.json_schema import Options
        from dotllm.languages.structural_tag import structural_tag_to_grammar

        grammar = structural_tag_to_grammar(text, special_tokens=special_tokens(), options=Options(**options))
    lower(prepare(grammar))


class _Memory:
    """The last `REMEMBERED` verdicts. Only messages are kept of refusals: an exception holds on to its whole
    traceback.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[type[SpecError], str, str, str] | None] = OrderedDict()

    def knows(self, key: str) -> bool:
        """True: found good before. Raises the refusal again if it was refused."""
        with self._lock:
            if key not in self._known:
                return False
            self._known.move_to_end(key)
            verdict = self._known[key]
        if verdict is not None:
            error_class, message, pointer, keyword = verdict
            raise error_class(message, pointer=pointer, keyword=keyword)
        return True

    def has(self, key: str) -> bool:
        """Whether anything is known."""
        with self._lock:
            return key in self._known

    def remember(self, key: str, error: SpecError | None) -> None:
        verdict = None if error is None else (type(error), error.message, error.pointer, error.keyword)
        with self._lock:
            self._known[key] = verdict
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)


_memory = _Memory()
_pool = VerdictPool()
