"""Atomic groups and possessive quantifiers: dropped where they cannot change the language, refused where they can.

``(?>x)`` keeps the first match of its body, which depends on the order of backtracking. An automaton has no such order.
The group changes nothing if only one match of the body can lead to a match of the whole:

* the body's language is prefix-free, so at any place at most one of its words can be read (``(?>GET|POST)``); or
* the body repeats one character set greedily and what can follow begins with another character (``"[^"]*+"``): a
  shorter run than the longest would leave a character that nothing can read. Only where it is written like that: what
  was simplified to such a repetition may have tried its ways in another order (``(?>a+?)``, ``(?:|a)*+``,
  ``(?>(?:a{2,3}){1,2})``, which stops after three of four).
"""

from __future__ import annotations

from dotllm.automata.dfa import Budget
from dotllm.charset import ANY_CHAR, CharSet
from dotllm.errors import Offset, UnsupportedError
from dotllm.languages.regex.measure import first_chars, has_looks
from dotllm.languages.regex.syntax import NO_CHARS, Alt, Atomic, Look, Node, Repeat, Seq, alt, charset_of, repeat, seq
from dotllm.languages.regex.thompson import plain_automaton


def without_atomic(node: Node, follow: CharSet, budget: Budget) -> Node:
    """``node`` without `Atomic`, which means the same.

    ``follow``: the characters that may come after a match of ``node``.

    Raises:
        UnsupportedError: a group matches otherwise when it is not backtracked into.
    """
    if isinstance(node, Atomic):
        body = without_atomic(node.body, follow, budget)
        if not _is_harmless(body, follow, budget):
            raise UnsupportedError(
                "unsupported in a regular expression: this atomic group or possessive quantifier changes which texts "
                "match; use an ordinary group or quantifier",
                location=Offset(node.offset),
                keyword="atomic group",
            )
        return body
    if isinstance(node, Seq):
        parts: list[Node] = []
        for part in reversed(node.parts):
            parts.append(without_atomic(part, follow, budget))
            first, empty = first_chars(part)
            follow = first | follow if empty else first
        return seq(parts[::-1])
    if isinstance(node, Alt):
        return alt([without_atomic(choice, follow, budget) for choice in node.choices])
    if isinstance(node, Repeat):
        again = first_chars(node.body)[0] if node.maximum is None or node.maximum > 1 else NO_CHARS
        body = without_atomic(node.body, again | follow, budget)
        return node if body is node.body else repeat(body, node.minimum, node.maximum)
    if isinstance(node, Look):
        # Behind a look-ahead anything may stand, and a look-behind is read from its end.
        return Look(without_atomic(node.body, ANY_CHAR, budget), node.ahead, node.negated)
    return node


def _is_harmless(body: Node, follow: CharSet, budget: Budget) -> bool:
    if has_looks(body):
        return False
    if isinstance(body, Repeat) and body.run:
        charset = charset_of(body.body)
        if charset is not None and not charset & follow:
            return True
    dfa = plain_automaton(body, budget)
    return not any(dfa.accepting[state] and any(row) for state, row in enumerate(dfa.rows))
