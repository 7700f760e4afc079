"""Rewrites an expression before it is lowered: anchors, atomic groups, searches. Explains what cannot match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from dotllm.automata.dfa import Budget
from dotllm.charset import ANY_CHAR, CharSet
from dotllm.errors import BudgetExceededError, InvalidSpecError, Offset, Related, SpecError, UnsupportedError
from dotllm.languages.regex.lengths import first_chars, has_looks, union_of_chars
from dotllm.languages.regex.lookaround import plain_automaton
from dotllm.languages.regex.syntax import (
    ANY_TEXT,
    EMPTY,
    NEVER,
    NO_CHARS,
    Alt,
    Assertion,
    AssertionKind,
    Atomic,
    Empty,
    Look,
    Never,
    Node,
    Repeat,
    Seq,
    Text,
    alt,
    charset_of,
    children,
    repeat,
    seq,
    with_children,
)

# Resolves ``^`` and ``$`` outside look-around in the syntax tree; they need no automaton.
#
# An anchor holds if nothing is read before it. Anywhere else its branch matches nothing: ``(^a|b)c`` is ``ac|bc`` at
# the start of the text and ``bc`` after it. So a tree has two versions, *at the edge* and *inside*. A sequence at the
# edge is its first part at the edge followed by the rest inside or, if the first part can be empty, the rest at the
# edge. The inside version accepts no text that the edge version rejects, so a first part that happens to be empty
# does no harm.
#
# This describes ``^``; ``$`` is the mirror image.


# An anchor after parts that can be empty costs a copy of everything that follows each of them; the copies nest.
_MAX_SPLITS = 50
# The most parts and characters of all sequences built.
_MAX_WORK = 2_000_000


def resolve_anchors(node: Node) -> Node:
    """``node``, matched against a whole text, without `START` and `END` outside look-around; raises
    BudgetExceededError."""
    return _Resolver(AssertionKind.END).edge(_Resolver(AssertionKind.START).edge(node))


def contains(node: Node, kind: AssertionKind) -> bool:
    """Whether ``node`` contains an anchor outside look-around."""
    if isinstance(node, Assertion):
        return node.kind is kind
    return any(contains(child, kind) for child in children(node))


class _Resolver:
    def __init__(self, kind: AssertionKind) -> None:
        self.kind = kind
        self.step = 1 if kind is AssertionKind.START else -1  # direction from the edge inwards
        self.splits = 0
        self.work = 0

    def _seq(self, parts: list[Node]) -> Node:
        """The sequence of ``parts``, which are given from the edge inwards, in the order of the text.

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
                f"a regular expression may not have anchors after more than {_MAX_SPLITS} parts that can be empty",
                keyword="anchor",
            )
        return alt(choices)

    def edge(self, node: Node) -> Node:
        """The version of ``node`` at the edge: nothing precedes it."""
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
        # The rounds before the first one that reads something may be empty, but they count.
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
        inside = at_edge  # the versions of parts[i + 1 :], at the edge and inside
        for part in reversed(parts[: last + 1]):
            edge = self.edge(part)
            if isinstance(part, (Assertion, Look)):
                at_edge = self._seq([edge, at_edge])
            else:
                something = self._seq([edge, inside])
                nothing = self.nothing(part)
                if at_edge is inside or isinstance(nothing, Never):
                    at_edge = something
                else:
                    at_edge = self._split([something, self._seq([nothing, at_edge])])
            inside = self._seq([self.inside(part), inside])
        return at_edge

    def inside(self, node: Node) -> Node:
        """The version of ``node`` inside: something precedes it."""
        if isinstance(node, Assertion):
            return NEVER if node.kind is self.kind else node
        return with_children(node, [self.inside(child) for child in children(node)])

    def nothing(self, node: Node) -> Node:
        """The condition under which ``node`` matches the empty text at the edge."""
        if isinstance(node, (Empty, Look)):
            return node
        if isinstance(node, Assertion):
            return EMPTY if node.kind is self.kind else node
        if isinstance(node, (Seq, Alt)):
            return with_children(node, [self.nothing(child) for child in children(node)])
        if isinstance(node, Repeat):
            return EMPTY if node.minimum == 0 else self.nothing(node.body)
        return NEVER


# Drops atomic groups and possessive quantifiers where they cannot change the language, and refuses them where they
# can.
#
# ``(?>x)`` keeps the first match of its body, which depends on the order of backtracking. An automaton has no such
# order. The group changes nothing if only one match of the body can lead to a match of the whole:
#
# * the body's language is prefix-free, so at any place at most one of its words matches (``(?>GET|POST)``); or
# * backtracking tries the longest match of the body first, and no text that can follow begins with a character that
#   continues a match (``"[^"]*+"``, ``(?>[0-9]+(?:\.[0-9]+)?);``): after a match that is not the longest comes a
#   character that nothing can read. The longest match comes first if the next character alone decides between the
#   alternatives, and between another round of a repetition and its end. The body must be written like that: an
#   expression that was simplified to it may try its matches in another order (``(?>a+?)``, ``(?:|a)*+``,
#   ``(?>(?:a{2,3}){1,2})``, which stops after three of four).

STEPS_OF_A_RANGE = 20
"""Steps of a budget for each range of the characters that can follow a part. (Many optional parts have many.)"""
_STEPS_AT_ONCE = 5
"""The same where the ranges of all following parts are united at once."""


def without_atomic(node: Node, follow: CharSet, budget: Budget) -> Node:
    """An equivalent of ``node`` without `Atomic`.

    ``follow``: the characters that may come after a match of ``node``.

    Raises:
        UnsupportedError: an atomic group may change which texts match.
        BudgetExceededError: this takes too much work.
    """
    holding: set[int] = set()
    _find_atomic(node, holding)
    return _without_atomic(node, follow, holding, budget)


def _find_atomic(node: Node, holding: set[int]) -> bool:
    """Add the identities of all nodes with an `Atomic` in them to ``holding``; return whether ``node`` is among
    them."""
    inside = [_find_atomic(part, holding) for part in ((node.body,) if isinstance(node, Look) else children(node))]
    if isinstance(node, Atomic) or any(inside):
        holding.add(id(node))
    return id(node) in holding


def _without_atomic(node: Node, follow: CharSet, holding: set[int], budget: Budget) -> Node:
    """`without_atomic`; only the nodes of ``holding`` are looked into."""
    if id(node) not in holding:
        return node
    if isinstance(node, Atomic):
        body = _without_atomic(node.body, follow, holding, budget)
        if not _is_harmless(node, body, follow, budget):
            raise UnsupportedError(
                "unsupported in a regular expression: an atomic group or possessive quantifier may change what matches",
                location=Offset(node.offset),
                keyword="atomic group",
                help="use an ordinary group or quantifier",
            )
        return body
    if isinstance(node, Seq):
        parts: list[Node] = []
        end = len(node.parts)
        for at in range(end - 1, -1, -1):
            part = node.parts[at]
            if id(part) in holding:
                follow, end = _first_of(node.parts[at + 1 : end], follow, budget), at + 1
                part = _without_atomic(part, follow, holding, budget)
            parts.append(part)
        return seq(parts[::-1])
    if isinstance(node, Alt):
        return alt([_without_atomic(choice, follow, holding, budget) for choice in node.choices])
    if isinstance(node, Repeat):
        again = first_chars(node.body)[0] if node.maximum is None or node.maximum > 1 else NO_CHARS
        return repeat(_without_atomic(node.body, again | follow, holding, budget), node.minimum, node.maximum)
    assert isinstance(node, Look)
    # Anything may follow a look-ahead, and a look-behind is read from its end.
    return Look(_without_atomic(node.body, ANY_CHAR, holding, budget), node.ahead, node.negated)


def _first_of(parts: Sequence[Node], follow: CharSet, budget: Budget) -> CharSet:
    """The characters that a match of ``parts``, and what comes after them, can begin with."""
    if not parts:
        return follow
    first, empty = first_chars(Seq(tuple(parts)))
    budget.spend(_STEPS_AT_ONCE * (1 + len(first.ranges) + len(follow.ranges)), "atomic groups")
    return first | follow if empty else first


def _is_harmless(node: Atomic, body: Node, follow: CharSet, budget: Budget) -> bool:
    """Whether ``node`` can be replaced by ``body``, which is its body without `Atomic`."""
    if has_looks(body):
        return False
    # The order shows in ``node``: without `Atomic`, a choice that is empty may have become an optional repetition.
    if node.ordered and _longest_first(node.body, NO_CHARS, budget) and not _continuing(body) & follow:
        return True
    dfa = plain_automaton(body, budget)
    return not any(dfa.accepting[state] and any(row) for state, row in enumerate(dfa.rows))


def _longest_first(node: Node, follow: CharSet, budget: Budget) -> bool:
    """Whether backtracking tries the longest match first, because the next character decides every choice.

    ``follow``: the characters that may come after ``node`` within the atomic group.
    """
    if isinstance(node, Seq):
        for part in reversed(node.parts):
            budget.spend(STEPS_OF_A_RANGE * (1 + len(follow.ranges)), "atomic groups")
            if not _longest_first(part, follow, budget):
                return False
            first, empty = first_chars(part)
            follow = first | follow if empty else first
        return True
    if isinstance(node, Alt):
        firsts = [first_chars(choice) for choice in node.choices]
        if any(empty for _, empty in firsts[:-1]):
            return False
        seen = union_of_chars([first for first, _ in firsts])
        if seen.size < sum(first.size for first, _ in firsts) or (firsts[-1][1] and seen & follow):
            return False
        return all(_longest_first(choice, follow, budget) for choice in node.choices)
    if isinstance(node, Repeat):
        first, empty = first_chars(node.body)
        if empty or (node.maximum != node.minimum and first & follow):
            return False
        return _longest_first(node.body, follow if node.maximum == 1 else first | follow, budget)
    return not isinstance(node, Atomic) or _longest_first(node.body, follow, budget)


def _continuing(node: Node) -> CharSet:
    """The characters that can come after a match of ``node`` in a longer match."""
    if isinstance(node, Seq):
        continuing = follow = NO_CHARS
        for part in reversed(node.parts):
            first, empty = first_chars(part)
            continuing = continuing | follow | _continuing(part)
            follow = follow | first
            if not empty:
                return continuing
        return continuing | follow
    charsets = [_continuing(child) for child in children(node)]
    first, empty = first_chars(node)
    if empty or (isinstance(node, Repeat) and node.maximum != node.minimum):
        charsets.append(first)
    return union_of_chars(charsets)


# Simplifies search expressions: a repetition next to "any text" needs only its least number of matches.
#
# A search for ``[a-z]+`` is ``.*[a-z]+.*``, and that is ``.*[a-z].*``: any further letters are part of the neighbouring
# text. All of ``([A-Z]+)?`` can go: every text contains a match. This saves the automaton a choice at every
# character.


def simplify_search(node: Node) -> Node:
    """``node`` with the parts of a sequence next to `ANY_TEXT` repeated no more often than necessary."""
    if not isinstance(node, Seq):
        return node
    forwards = _after_any_text(list(node.parts), 1)
    return seq(_after_any_text(forwards[::-1], -1)[::-1])


def _after_any_text(parts: list[Node], step: int) -> list[Node]:
    """``parts``, with those after `ANY_TEXT` shortened; ``step`` is -1 if they are in reverse order, else 1."""
    kept: list[Node] = []
    todo = parts[::-1]
    while todo:  # bounded: by the parts of the pattern
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


# Says why no text matches a regular expression: it names the assertion that can never hold.
#
# A request's expression matches the whole text, so nothing precedes or follows the match: ``(?<=a)b`` and ``a^b``
# match no text. The assertion at fault is the first one without which some text matches. If several are at fault,
# as in ``(?<=a)b(?=c)``, it is the first one that cannot hold even if the others are left out.

_TRIED = 16
_ASSERTION = re.compile(
    r"(?P<skipped>\\[^bBAZz]|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?#[^)]*\))|(?P<group>\(\?<?[=!])|(?P<anchor>\\[bBAZz]|[$^])",
    re.DOTALL,
)
# A surrogate that is not half of a pair, as in patterns for UTF-16: ``[\ud800-\udbff]``.
_SURROGATE = re.compile(
    r"\\u[dD][89a-bA-B][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89a-bA-B][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_Place: TypeAlias = tuple[int, int, str]
"""Where an assertion begins and ends, and its name."""
_NAMES = {"(?=": "look-ahead", "(?!": "look-ahead", "(?<=": "look-behind", "(?<!": "look-behind"}
_BEFORE = "the expression matches the whole text, so nothing comes before its beginning"
_BEHIND = "the expression matches the whole text, so nothing comes after its end"
_HELP = {"^": _BEFORE, "\\A": _BEFORE, "$": _BEHIND, "\\Z": _BEHIND, "\\z": _BEHIND}


def impossible(pattern: str, matches: Callable[[str], bool]) -> InvalidSpecError:
    """The refusal of a ``pattern`` that no text matches. ``matches`` tells whether any text matches a pattern. The
    assertion is a related place, because the whole expression is refused."""
    message = "no text matches the regular expression"
    fault = _at_fault(pattern, list(_assertions(pattern)), matches)
    if fault is None:
        help = "texts contain no lone surrogates; write the characters, or \\u{…}" if _SURROGATE.search(pattern) else ""
        return InvalidSpecError(message, keyword="regex", code="unsatisfiable", help=help)
    begin, end, name = fault
    help = _HELP.get(name, "")
    if name == "look-behind" and begin == 0:
        help = _BEFORE
    elif name == "look-ahead" and end == len(pattern):
        help = _BEHIND
    what = f"the {name} {_shortened(pattern[begin:end])!r}" if name not in _HELP else repr(name)
    related = (Related(Offset(begin), "it can never hold here"),)
    message = f"{message}: {what} at offset {begin} can never hold"
    return InvalidSpecError(message, keyword="regex", code="unsatisfiable", help=help, related=related)


def _at_fault(pattern: str, assertions: list[_Place], matches: Callable[[str], bool]) -> _Place | None:
    """The first of ``assertions`` without which some text matches, or that cannot hold even without the others."""

    def possible(dropped: list[_Place], left: _Place = (0, 0, "")) -> bool | None:
        """Whether any text matches without ``dropped``, but with all of ``left``; None: that is refused."""
        parts, at = [], 0
        for begin, end, _ in dropped:
            if begin >= at and not left[0] <= begin < left[1]:
                parts.append(pattern[at:begin])
                at = end
        try:
            return matches("(?:)".join([*parts, pattern[at:]]))
        except SpecError:
            return None

    for assertion in assertions:
        if possible([assertion]):
            return assertion
    if len(assertions) > 1 and possible(assertions):
        for assertion in assertions:
            if possible(assertions, assertion) is False:
                return assertion
    return None


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"


def _assertions(pattern: str) -> Iterator[_Place]:
    """(Begin, end, name) of the first few assertions of ``pattern``."""
    count = 0
    for match in _ASSERTION.finditer(pattern):
        if match.lastgroup == "skipped":
            continue
        count += 1
        if count > _TRIED:
            return
        if match.lastgroup == "anchor":
            word = {"\\b": "word boundary", "\\B": "word boundary"}
            yield match.start(), match.end(), word.get(match[0], match[0])
        else:
            yield match.start(), _end_of_group(pattern, match.end()), _NAMES[match[0]]


def _end_of_group(pattern: str, at: int) -> int:
    """The offset after the parenthesis that closes the group whose content begins at ``at``."""
    depth = 1
    for match in re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]", re.DOTALL).finditer(pattern, at):
        depth += (match[0] == "(") - (match[0] == ")")
        if not depth:
            return match.end()
    return len(pattern)
