"""Simplifies search expressions: a repetition beside "any text" needs only its least number of matches.

A search for ``[a-z]+`` is ``.*[a-z]+.*``, and that is ``.*[a-z].*``: any further letters are part of the text beside
them. So is all of ``([A-Z]+)?``, which every text contains. It spares the automaton a choice at every character.
"""

from __future__ import annotations

from dotllm.charset import ANY_CHAR
from dotllm.languages.regex.measure import has_looks
from dotllm.languages.regex.syntax import ANY_TEXT, Node, Repeat, Seq, charset_of, repeat, seq


def simplify_search(node: Node) -> Node:
    """``node``, with the parts of a sequence that stand beside `ANY_TEXT` repeated no more often than they must be."""
    if not isinstance(node, Seq):
        return node
    forwards = _after_any_text(list(node.parts), 1)
    return seq(_after_any_text(forwards[::-1], -1)[::-1])


def _after_any_text(parts: list[Node], step: int) -> list[Node]:
    """``parts`` in which what follows `ANY_TEXT` is shortened; ``step`` is -1 when they stand in reverse, else 1."""
    kept: list[Node] = []
    todo = parts[::-1]
    while todo:
        part = todo.pop()
        if kept and _is_any_text(kept[-1]) and isinstance(part, Repeat) and not has_looks(part):
            if part.minimum == 0:
                continue
            if part.maximum != part.minimum:
                least = repeat(part.body, part.minimum, part.minimum)
                todo.extend(least.parts[::-step] if isinstance(least, Seq) else (least,))
                continue
        kept.append(part)
    return kept


def _is_any_text(node: Node) -> bool:
    return node is ANY_TEXT or (
        isinstance(node, Repeat) and node.minimum == 0 and node.maximum is None and charset_of(node.body) == ANY_CHAR
    )
