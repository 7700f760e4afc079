r"""Syntax tree → Grammar.

Most of an expression goes straight into `Grammar`: repetitions stay counted, so ``[a-z]{1,200}`` is two nodes. Only the
parts around assertions go through the DFA algebra, and these are kept as small as possible: a part whose assertions
look at nothing outside it (`measure.context_width`) is compiled alone, as in ``((?!-)[a-z-]{1,63}\.){1,8}``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dotllm.automata.dfa import Budget, Dfa, dfa_to_grammar
from dotllm.charset import CharSet
from dotllm.errors import BudgetExceededError
from dotllm.grammar import Expression, Grammar
from dotllm.languages.regex.lengths import context_width, has_looks, length_bounds
from dotllm.languages.regex.lookaround import automaton
from dotllm.languages.regex.syntax import Alt, Chars, Empty, Node, Repeat, Seq, Text, seq

# Most parts that go through the DFA algebra; each takes about half a millisecond.
MAX_AUTOMATA = 200

# Most states of a product with a length; above that the machine counts.
MANY_STATES = 2_000

LowerChars = Callable[[CharSet], Expression]
LowerText = Callable[[str], Expression]


class LowerDfa(Protocol):
    """The strings of an automaton with ``low`` to ``high`` characters, as an expression."""

    def __call__(self, dfa: Dfa, low: int = 0, high: int | None = None, /) -> Expression:
        """The expression; ``high`` None: no limit."""
        ...


class Lowering:
    """Adds expressions to ``grammar``; the caller says how characters are spelled: plain, or as in a JSON string."""

    def __init__(
        self,
        grammar: Grammar,
        lower_chars: LowerChars | None,
        lower_text: LowerText | None,
        lower_dfa: LowerDfa | None,
        budget: Budget,
    ) -> None:
        self.grammar = grammar
        self.budget = budget
        self._automata = 0
        self.chars = lower_chars or grammar.chars
        self.dfa: LowerDfa = lower_dfa or self._with_length
        if lower_text is not None:
            self.text = lower_text
        elif lower_chars is None:
            self.text = grammar.literal
        else:
            self.text = self._spelled

    def _with_length(self, dfa: Dfa, low: int = 0, high: int | None = None, /) -> Expression:
        counted = high if high is not None and high * len(dfa) > MANY_STATES else None
        if low or (high is not None and counted is None):
            limit = Dfa.length(low, None if counted is not None else high, self.budget)
            dfa = dfa.intersection(limit, self.budget)
        bounds = dfa.length_bounds()
        if counted is not None and (bounds is None or bounds[0] > counted):
            return self.grammar.never()
        return dfa_to_grammar(dfa, self.grammar, self.chars, counted or 0)

    def _spelled(self, text: str) -> Expression:
        return self.grammar.seq([self.chars(CharSet(((ord(char), ord(char)),))) for char in text])

    def plain(self, node: Node) -> Expression:
        """An expression without assertions."""
        if isinstance(node, Text):
            return self.text(node.text)
        if isinstance(node, Chars):
            return self.chars(node.charset)
        grammar = self.grammar
        if isinstance(node, Seq):
            return grammar.seq(list(map(self.plain, node.parts)))
        if isinstance(node, Alt):
            return grammar.alt(list(map(self.plain, node.choices)))
        if isinstance(node, Repeat):
            return grammar.repeat(self.plain(node.body), node.minimum, node.maximum)
        return grammar.empty() if isinstance(node, Empty) else grammar.never()

    def lower(self, node: Node) -> Expression:
        """An expression without anchors, whose assertions see nothing beyond it, because nothing is there or it is too
        far.

        Raises:
            BudgetExceededError: assertions stand in too many separate parts.
        """
        if not has_looks(node):
            return self.plain(node)
        if isinstance(node, Alt):
            return self.grammar.alt([self.lower(choice) for choice in node.choices])
        if isinstance(node, Seq) and len(segments := _segments(node)) > 1:
            return self.grammar.seq(list(map(self.lower, segments)))
        if isinstance(node, Repeat) and context_width(node.body) == (0, 0):
            return self.grammar.repeat(self.lower(node.body), node.minimum, node.maximum)
        self._automata += 1
        if self._automata > MAX_AUTOMATA:
            raise BudgetExceededError(f"assertions in more than {MAX_AUTOMATA} separate places", keyword="look-around")
        return self.dfa(automaton(node, self.budget))


def _segments(node: Seq) -> list[Node]:
    """``node`` cut into the shortest sequences whose assertions do not look beyond them.

    An assertion at the edge of the text may look beyond ``node``. It sees nothing there, as an automaton of the segment
    alone assumes.
    """
    parts = node.parts
    least = [length_bounds(part)[0] for part in parts]
    widths = [context_width(part) for part in parts]
    glued = [False] * len(parts)  # glued[i]: part i belongs to the segment of part i - 1
    seen = 0  # how far any part looks beyond the border on its left (then: right)
    for i in range(len(parts) - 1, 0, -1):
        seen = max(widths[i][0], seen - least[i])
        glued[i] = seen > 0
    seen = 0
    for i in range(len(parts) - 1):
        seen = max(widths[i][1], seen - least[i])
        glued[i + 1] = glued[i + 1] or seen > 0
    segments: list[list[Node]] = []
    for part, joined in zip(parts, glued, strict=True):
        if joined and segments:
            segments[-1].append(part)
        else:
            segments.append([part])
    return [seq(segment) for segment in segments]
