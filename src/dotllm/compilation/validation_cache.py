"""Validates a specification in the front end, and remembers the result.

Validation is the first half of a compile: the text becomes a `Grammar`, and the Grammar an NFA. This finds everything
that is refused (syntax, unsupported keywords, parts that nothing can satisfy). It needs no vocabulary, builds no mask,
and the budgets of the front ends bound its work. The second half can find one more fault: a vocabulary that cannot
spell a byte that the specification demands. The engine then ends the request, with the same kind of message.

Most requests of a server need no validation: the engine compiles every specification, and its refusal comes before the
response begins (`endpoints`). Validation is for offline requests, which are refused before anything runs, and for
responses that begin before the engine has compiled: streamed reasoning, and background responses.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from dotllm.cancellation import Cancelled, cancellable
from dotllm.compilation.compiler import grammar_of
from dotllm.compilation.specification import Kind, Specification
from dotllm.errors import BudgetExceededError, SpecError, without_frames

if TYPE_CHECKING:
    from dotllm.languages.token_names import TokenNames

TIMEOUT_S = 5.0
"""Seconds that a check may take in an event loop. (Seven of MaskBench's 5,679 schemas take more than 0.1.)"""
QUEUE_S = 20.0
"""Seconds that a request waits for a thread."""
LARGE = 1 << 15
"""Specifications of at least this many characters have their own threads, so that the others do not wait for them."""

NamesOfTokens = Callable[[], "TokenNames | None"]


@functools.lru_cache(maxsize=4096)
def _remembered(key: str) -> list[SpecError | None]:
    """The result for the specification with this digest, in a list: its refusal, or None. The list is empty until the
    result is known."""
    return []


def check(specification: Specification, token_names: NamesOfTokens = lambda: None) -> None:
    """Refuse a specification that cannot be enforced; not for event loops. ``token_names`` gives the tokens that it may
    name, and is called only if needed. The result is remembered for equal specifications.

    Raises:
        SpecError: the specification is refused.
    """
    result = _remembered(specification.key(b""))
    if not result:
        result.append(_refusal(specification, token_names))
    refusal = copy.copy(result[0])
    if refusal is not None:
        raise refusal


async def check_beside(specification: Specification, token_names: NamesOfTokens = lambda: None) -> None:
    """`check` for event loops: waits `QUEUE_S` for a free thread, and `TIMEOUT_S` for its result. A check that takes
    longer is left to the engine. Raises what `check` raises."""
    if _remembered(specification.key(b"")):
        check(specification)
        return
    loop, begun, unwanted = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def run() -> None:
        loop.call_soon_threadsafe(begun.set)
        with cancellable(unwanted), contextlib.suppress(Cancelled):
            check(specification, token_names)

    threads = _threads if specification.size < LARGE else _threads_of_large
    checked = loop.run_in_executor(threads, contextvars.copy_context().run, run)
    try:
        await asyncio.wait_for(begun.wait(), QUEUE_S)
        await asyncio.wait_for(checked, TIMEOUT_S)
    except asyncio.TimeoutError:
        pass
    finally:
        checked.cancel()  # if it has not begun
        unwanted.set()


def _refusal(specification: Specification, token_names: NamesOfTokens) -> SpecError | None:
    try:
        _check(specification, token_names)
    except SpecError as error:
        return without_frames(error)
    except RecursionError:
        # dotllm's own code is iterative or bounded in depth; Python's JSON parser is neither.
        return BudgetExceededError("the specification is nested too deeply", code="too_deep")
    return None


def _check(specification: Specification, token_names: NamesOfTokens) -> None:
    from dotllm.automata.lowering import lower
    from dotllm.grammar.transform import prepare

    grammar = grammar_of(specification, token_names)
    if specification.kind is not Kind.CHOICE:  # (its NFA cannot fail, and takes long to build for 100,000 choices)
        lower(prepare(grammar))


# Few threads, because they share the interpreter with the event loop.
_threads = ThreadPoolExecutor(2, "dotllm-validation")
_threads_of_large = ThreadPoolExecutor(1, "dotllm-validation-large")
