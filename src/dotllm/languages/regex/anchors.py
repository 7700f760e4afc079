"""``^`` and ``$`` outside look-around, resolved in the syntax tree: no automaton is needed for them.

An anchor holds where nothing has been read before (or nothing is read after) it; anywhere else its branch matches
nothing: ``(^a|b)c`` is ``ac|bc`` at the start of the text and ``bc`` after it. So a tree has two versions, *at the
edge* and *inside*. A sequence is: its first part at the edge and the rest inside, or, if the first part can be empty,
the rest at the edge. The inside version accepts nothing that the edge version does not, which is why a first part
that is empty by chance does no harm.

Described for ``^``; ``$`` is the mirror image.
"""

from __future__ import annotations

from dotllm.errors import BudgetExceededError
from dotllm.languages.regex.syntax import (
    EMPTY,
    NEVER,
    Alt,
    Assertion,
    AssertionKind,
    Empty,
    Look,
    Never,
    Node,
    Repeat,
    Seq,
    Text,
    alt,
    repeat,
    seq,
)

# An anchor behind parts that can be empty costs a copy of what follows each of them, nested as deep as there are.
_MAX_SPLITS = 50
# Parts and characters of all sequences built.
_MAX_WORK = 2_000_000


def resolve_anchors(node: Node) -> Node:
    """``node``, matched against a whole text, without `START` and `END` outside look-around; raises
    BudgetExceededError."""
    return _Resolver(AssertionKind.END).edge(_Resolver(AssertionKind.START).edge(node))


def contains(node: Node, kind: AssertionKind) -> bool:
    """Whether an anchor stands in ``node`` outside look-around."""
    if isinstance(node, Assertion):
        return node.kind is kind
    if isinstance(node, Repeat):
        return contains(node.body, kind)
    if isinstance(node, Seq):
        return any(contains(part, kind) for part in node.parts)
    return isinstance(node, Alt) and any(contains(choice, kind) for choice in node.choices)


class _Resolver:
    def __init__(self, kind: AssertionKind) -> None:
        self.kind = kind
        self.step = 1 if kind is AssertionKind.START else -1  # direction from the edge inwards
        self.splits = 0
        self.work = 0

    def _seq(self, parts: list[Node]) -> Node:
        """``parts`` from the edge inwards, in the order of the text.

        Raises:
            BudgetExceededError: there are too many anchors.
        """
        for part in parts:
            self.work += len(part.parts) if isinstance(part, Seq) else len(part.text) if isinstance(part, Text) else 1
        if self.work > _MAX_WORK:
            raise BudgetExceededError("too many anchors", keyword="anchor")
        return seq(parts[:: self.step])

    def _split(self, choices: list[Node]) -> Node:
        self.splits += 1
        if self.splits > _MAX_SPLITS:
            raise BudgetExceededError(
                f"anchors behind more than {_MAX_SPLITS} parts that can be empty", keyword="anchor"
            )
        return alt(choices)

    def edge(self, node: Node) -> Node:
        """What ``node`` matches where nothing stands before it."""
        if isinstance(node, Assertion):
            return EMPTY if node.kind is self.kind else node
        if isinstance(node, Alt):
            return alt([self.edge(choice) for choice in node.choices])
        if not isinstance(node, (Seq, Repeat)) or not contains(node, self.kind):
            return node
        if isinstance(node, Seq):
            return self._edge_of_seq(node.parts[:: self.step])
        first = self.edge(node.body)
        again = self.inside(node.body)
        below = None if node.maximum is None else node.maximum - 1
        nothing = self.nothing(node.body)
        # Rounds before the one that reads something at the edge may read nothing, and still count.
        least = 0 if isinstance(nothing, Empty) else max(node.minimum - 1, 0)
        choices = [self._seq([first, repeat(again, least, below)])]
        if least > 0 and not isinstance(nothing, Never):
            choices.append(self._seq([nothing, first, repeat(again, 0, None if below is None else below - 1)]))
        if node.minimum == 0:
            choices.append(EMPTY)
        return alt(choices)

    def _edge_of_seq(self, parts: tuple[Node, ...]) -> Node:
        last = max(i for i, part in enumerate(parts) if contains(part, self.kind))
        at_edge: Node = self._seq(list(parts[last + 1 :]))
        inside = at_edge  # what parts[i + 1 :] match, at the edge and inside
        for part in reversed(parts[: last + 1]):
            here = self.edge(part)
            if isinstance(part, (Assertion, Look)):
                at_edge = self._seq([here, at_edge])
            else:
                some = self._seq([here, inside])
                nothing = self.nothing(part)
                if at_edge is inside or isinstance(nothing, Never):
                    at_edge = some
                else:
                    at_edge = self._split([some, self._seq([nothing, at_edge])])
            inside = self._seq([self.inside(part), inside])
        return at_edge

    def inside(self, node: Node) -> Node:
        """What ``node`` matches where something stands before it."""
        if isinstance(node, Assertion):
            return NEVER if node.kind is self.kind else node
        if isinstance(node, Seq):
            return seq([self.inside(part) for part in node.parts])
        if isinstance(node, Alt):
            return alt([self.inside(choice) for choice in node.choices])
        if isinstance(node, Repeat):
            return repeat(self.inside(node.body), node.minimum, node.maximum)
        return node

    def nothing(self, node: Node) -> Node:
        """The condition under which ``node`` matches the empty text at the edge."""
        if isinstance(node, (Empty, Look)):
            return node
        if isinstance(node, Assertion):
            return EMPTY if node.kind is self.kind else node
        if isinstance(node, Seq):
            return seq([self.nothing(part) for part in node.parts])
        if isinstance(node, Alt):
            return alt([self.nothing(choice) for choice in node.choices])
        if isinstance(node, Repeat):
            return EMPTY if node.minimum == 0 else self.nothing(node.body)
        return NEVER
