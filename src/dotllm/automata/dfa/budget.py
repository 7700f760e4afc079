"""How much work a computation may do: a count, not a clock, so the same input always ends the same way."""

from __future__ import annotations

from dotllm import cancellation
from dotllm.errors import BudgetExceededError

# Entries of one transition table, which minimising holds several times over.
_MAX_ENTRIES = 2_000_000


class Budget:
    """Limits of the DFA algebra. ``steps`` is spent, operation by operation; ``states`` holds per automaton.

    A step is one elementary move of a kernel (a transition looked at), some nanoseconds; the default stops a
    determinisation that explodes after about 30 ms. Give one instance to all operations that serve one pattern, or one
    combination of patterns. (A specification may have thousands of these, each within its budget: what they take
    together is ended by the time limit of a compile, so this is where that is asked for.)
    """

    __slots__ = ("states", "steps")

    def __init__(self, states: int = 20_000, steps: int = 10_000_000) -> None:
        cancellation.check()
        self.states = states
        self.steps = steps

    def states_over(self, classes: int) -> int:
        """How many states an automaton over so many character classes may have."""
        return min(self.states, _MAX_ENTRIES // classes)

    def spend(self, steps: int, what: str) -> None:
        """Take ``steps`` out of the budget; raises BudgetExceededError when it is gone."""
        cancellation.check()
        self.steps -= steps
        if self.steps < 0:
            self.steps = 0
            raise self.exceeded(what)

    def exceeded(self, what: str) -> BudgetExceededError:
        """The error for an operation that ran out of states or steps."""
        return BudgetExceededError(
            f"the automaton of {what} grows beyond its budget (at most {self.states:,} states); simplify the pattern",
            keyword="budget",
        )
