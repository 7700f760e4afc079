"""Validation of a specification in the front end, remembered.

It is the first half of a compile: the text becomes a `Grammar`, and the Grammar an NFA, which is where everything that
is refused is found out (syntax, unsupported keywords, what nothing can satisfy). It needs no vocabulary, builds no
mask, and its work is bounded by the budgets of the front ends. What only the second half can find (a vocabulary that
cannot spell a byte the specification demands) ends the request in the engine, with the same kind of message.

A server needs none of it: its engine compiles every specification, and its refusal comes before the response begins
(`endpoints`). It is for offline requests, which are refused before anything runs, and for what begins before the engine
has compiled: reasoning that is streamed, and responses in the background.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from dotllm.compilation.specification import Kind, Specification
from dotllm.errors import BudgetExceeded, Location, SpecError

if TYPE_CHECKING:
    from dotllm.languages.token_names import TokenNames

REMEMBERED = 4096
"""Results kept (a digest and, for a refusal, its message)."""
TIMEOUT_S = 0.5
"""Seconds that a request waits in an event loop. (Seven of MaskBench's 5,679 schemas take more than 0.1.)"""
THREADS = 2
"""They share the interpreter with the event loop, so they are few."""

NamesOfTokens = Callable[[], "TokenNames | None"]


def check(specification: Specification, token_names: NamesOfTokens = lambda: None) -> None:
    """Refuse what cannot be enforced; not for event loops. ``token_names`` gives the tokens it may name, if they are
    needed.

    Raises:
        dotllm.errors.SpecError: refused; remembered for equal specifications.
    """
    key = specification.key(b"")
    if _memory.knows(key):
        return
    try:
        _check(specification, token_names)
    except SpecError as error:
        _memory.remember(key, error)
        raise
    except RecursionError:
        # Our own code is iterative or capped; Python's JSON parser is neither.
        refusal = BudgetExceeded("the specification is nested too deeply")
        _memory.remember(key, refusal)
        raise refusal from None
    _memory.remember(key, None)


async def check_beside(specification: Specification, token_names: NamesOfTokens = lambda: None) -> None:
    """`check` for event loops, on a thread, for `TIMEOUT_S`: what takes longer is left to the engine.

    Raises:
        dotllm.errors.SpecError: refused.
    """
    checked = asyncio.get_running_loop().run_in_executor(_threads, check, specification, token_names)
    with contextlib.suppress(TimeoutError):  # one that has not begun is cancelled
        await asyncio.wait_for(checked, TIMEOUT_S)


def _check(specification: Specification, token_names: NamesOfTokens) -> None:
    from dotllm.automata.lowering import lower
    from dotllm.grammar.transform import prepare
    from dotllm.languages import cfg, choice, json_schema, regex, structural_tag

    text, options = specification.text, dict[str, Any](specification.options)
    match specification.kind:
        case Kind.JSON_SCHEMA:
            grammar = json_schema.json_schema_to_grammar(text, **options)
        case Kind.JSON_OBJECT:
            grammar = json_schema.json_object_to_grammar(**options)
        case Kind.REGEX:
            grammar = regex.regex_to_grammar(text, **options)
        case Kind.CHOICE:
            choice.choice_to_grammar(json.loads(text))
            return  # nothing in its NFA can go wrong, and that of 100,000 choices takes long
        case Kind.GRAMMAR:
            grammar = cfg.grammar_to_grammar(text, token_names=token_names(), **options)
        case Kind.STRUCTURAL_TAG:
            grammar = structural_tag.structural_tag_to_grammar(
                text, token_names=token_names(), options=json_schema.Options(**options)
            )
    lower(prepare(grammar))


class _Memory:
    """The last `REMEMBERED` results; of refusals only messages, as an exception holds on to its whole traceback."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[type[SpecError], str, Location | None, str] | None] = OrderedDict()

    def knows(self, key: str) -> bool:
        """True: found good before. Raises the refusal again if it was refused."""
        with self._lock:
            if key not in self._known:
                return False
            self._known.move_to_end(key)
            known = self._known[key]
        if known is not None:
            error_class, message, location, keyword = known
            raise error_class(message, location=location, keyword=keyword)
        return True

    def remember(self, key: str, error: SpecError | None) -> None:
        known = None if error is None else (type(error), error.message, error.location, error.keyword)
        with self._lock:
            self._known[key] = known
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)


_memory = _Memory()
_threads = ThreadPoolExecutor(THREADS, "dotllm-validation")
