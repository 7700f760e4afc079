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
import copy
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from dotllm.compilation.compiler import grammar_of
from dotllm.compilation.specification import Kind, Specification
from dotllm.errors import BudgetExceededError, SpecError, without_frames

if TYPE_CHECKING:
    from dotllm.languages.token_names import TokenNames

TIMEOUT_S = 0.5
"""Seconds that a request waits in an event loop. (Seven of MaskBench's 5,679 schemas take more than 0.1.)"""
THREADS = 2
"""They share the interpreter with the event loop, so they are few."""

NamesOfTokens = Callable[[], "TokenNames | None"]


@functools.lru_cache(maxsize=4096)
def _remembered(key: str) -> list[SpecError | None]:
    """The result for a specification of this digest: what it is refused with, or None; [] while that is not known."""
    return []


def check(specification: Specification, token_names: NamesOfTokens = lambda: None) -> None:
    """Refuse what cannot be enforced; not for event loops. ``token_names`` gives the tokens it may name, if they are
    needed. A refusal is remembered for equal specifications.

    Raises:
        SpecError: it is refused.
    """
    result = _remembered(specification.key(b""))
    if not result:
        result.append(_refusal(specification, token_names))
    refusal = copy.copy(result[0])
    if refusal is not None:
        raise refusal


async def check_beside(specification: Specification, token_names: NamesOfTokens = lambda: None) -> None:
    """`check` for event loops, on a thread, for `TIMEOUT_S`: what takes longer is left to the engine. Raises as
    `check`."""
    checked = asyncio.get_running_loop().run_in_executor(_threads, check, specification, token_names)
    with contextlib.suppress(asyncio.TimeoutError):  # one that has not begun is cancelled
        await asyncio.wait_for(checked, TIMEOUT_S)


def _refusal(specification: Specification, token_names: NamesOfTokens) -> SpecError | None:
    try:
        _check(specification, token_names)
    except SpecError as error:
        return without_frames(error)
    except RecursionError:
        # Our own code is iterative or capped; Python's JSON parser is neither.
        return BudgetExceededError("the specification is nested too deeply", code="too_deep")
    return None


def _check(specification: Specification, token_names: NamesOfTokens) -> None:
    from dotllm.automata.lowering import lower
    from dotllm.grammar.transform import prepare

    grammar = grammar_of(specification, token_names)
    if specification.kind is not Kind.CHOICE:  # nothing in its NFA can go wrong, and that of 100,000 takes long
        lower(prepare(grammar))


_threads = ThreadPoolExecutor(THREADS, "dotllm-validation")
