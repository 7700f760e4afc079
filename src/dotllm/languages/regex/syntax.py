"""The abstract syntax of regular expressions, and constructors that keep it small.

Nodes are immutable; a node may occur at several places in a tree. `seq`, `alt` and `repeat` apply only identities of
languages (dotllm decides which texts match, never what a group captures): ``(a|a)*`` becomes ``a*`` and
``(a{1,9}){1,9}`` becomes ``a{1,81}``. Nested counts cost a machine most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from dotllm.charset import ANY_CHAR, CharSet, Range


class Node:
    """A regular expression."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Empty(Node):
    """The empty string."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Never(Node):
    """No text at all."""

    __slots__ = ()


@dataclass(frozen=True, eq=False, slots=True)
class Text(Node):
    """Exactly this non-empty string."""

    text: str


@dataclass(frozen=True, eq=False, slots=True)
class Chars(Node):
    """One code point of a non-empty set."""

    charset: CharSet


@dataclass(frozen=True, eq=False, slots=True)
class Seq(Node):
    """One part after another."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Alt(Node):
    """Any one of the choices."""

    choices: tuple[Node, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Repeat(Node):
    """The body, ``minimum`` to ``maximum`` times (None: no upper limit)."""

    body: Node
    minimum: int
    maximum: int | None


class AssertionKind(Enum):
    """What an `Assertion` asserts about its place."""

    START = "^"
    END = "$"
    WORD_BOUNDARY = r"\b"
    NOT_WORD_BOUNDARY = r"\B"


@dataclass(frozen=True, eq=False, slots=True)
class Assertion(Node):
    """``^``, ``$`` or a word boundary; ``word``: the word characters, which a boundary separates from others."""

    kind: AssertionKind
    word: CharSet


@dataclass(frozen=True, eq=False, slots=True)
class Look(Node):
    """A zero-width assertion: the text after it (``ahead``) or before it matches ``body`` (``negated``: does not)."""

    body: Node
    ahead: bool
    negated: bool


@dataclass(frozen=True, eq=False, slots=True)
class Atomic(Node):
    """A body that is not backtracked into, read at ``offset``; see `rewriting.without_atomic`.

    ``ordered``: the body was written with greedy quantifiers, and its nodes say in which order backtracking tries its
    matches: alternatives from the first, and repetitions from the longest.
    """

    body: Node
    offset: int
    ordered: bool


class Lazy(Atomic):
    """A lazy repetition, if `parse` keeps those: only `lexer_habits` asks which of its matches comes first."""

    __slots__ = ()


COUNT_LIMIT = 1 << 30
"""The counts of `Grammar.repeat` are below this."""

NO_CHARS = CharSet(())
EMPTY = Empty()
NEVER = Never()
ANY = Chars(ANY_CHAR)
ANY_TEXT = Repeat(ANY, 0, None)


def children(node: Node) -> tuple[Node, ...]:
    """The expressions that ``node`` consists of, without those inside look-around."""
    if isinstance(node, Seq):
        return node.parts
    if isinstance(node, Alt):
        return node.choices
    return (node.body,) if isinstance(node, (Repeat, Atomic)) else ()


def with_children(node: Node, parts: Sequence[Node]) -> Node:
    """``node`` with other `children`."""
    if isinstance(node, Repeat):
        return repeat(parts[0], node.minimum, node.maximum)
    return seq(parts) if isinstance(node, Seq) else alt(parts) if isinstance(node, Alt) else node


def chars(charset: CharSet) -> Node:
    """One code point of ``charset``."""
    if not charset:
        return NEVER
    ranges = charset.ranges
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return Text(chr(ranges[0][0]))
    return Chars(charset)


def charset_of(node: Node) -> CharSet | None:
    """The set of a node that matches one code point; None for other nodes."""
    if isinstance(node, Chars):
        return node.charset
    if isinstance(node, Text) and len(node.text) == 1:
        return CharSet(((ord(node.text), ord(node.text)),))
    return None


def seq(parts: Sequence[Node]) -> Node:
    """``parts`` one after another."""
    if len(parts) == 1:
        return parts[0]
    flat: list[Node] = []
    texts = 0  # number of texts at the end of ``flat``
    for part in parts:
        if isinstance(part, Text):
            texts += 1
            flat.append(part)
            continue
        if texts > 1:
            _join(flat, texts)
        texts = 0
        if isinstance(part, Seq):
            flat.extend(part.parts)
        elif isinstance(part, Never):
            return NEVER
        elif not isinstance(part, Empty):
            flat.append(part)
    if texts > 1:
        _join(flat, texts)
    if len(flat) < 2:
        return flat[0] if flat else EMPTY
    return Seq(tuple(flat))


def _join(parts: list[Node], count: int) -> None:
    """Join the last ``count`` parts, which are texts, into one."""
    text = "".join(part.text for part in parts[-count:] if isinstance(part, Text))
    parts[-count:] = [Text(text)]


def alt(choices: Sequence[Node]) -> Node:
    """Any one of ``choices``; single code points are merged into one set."""
    if len(choices) == 1:
        return choices[0]
    flat: list[Node] = []
    ranges: list[Range] = []  # of the choices that are single code points; their set is put at ``place``
    place = -1
    empty = False
    for choice in choices:
        for option in choice.choices if isinstance(choice, Alt) else (choice,):
            charset = charset_of(option)
            if charset is not None:
                if place < 0:
                    place = len(flat)
                    flat.append(option)
                ranges.extend(charset.ranges)
            elif isinstance(option, Empty):
                empty = True
            elif not isinstance(option, Never):
                flat.append(option)
    if place >= 0:
        flat[place] = chars(CharSet.of(*ranges))
    if not flat:
        return EMPTY if empty else NEVER
    nonempty = flat[0] if len(flat) == 1 else Alt(tuple(flat))
    return repeat(nonempty, 0, 1) if empty else nonempty


def repeat(body: Node, minimum: int, maximum: int | None) -> Node:
    """``body`` repeated; ``(x{a,b}){c,d}`` becomes ``x{ac,bd}`` if the counts that it allows leave no gap."""
    if maximum is not None and maximum < minimum:
        return NEVER
    if maximum == 0 or isinstance(body, Empty):
        return EMPTY
    if minimum == maximum == 1:
        return body
    if isinstance(body, Never):
        return NEVER if minimum else EMPTY
    if isinstance(body, Repeat):
        low, high = body.minimum, body.maximum
        # c..d times the interval [a, b]: the intervals for k and k + 1 times leave no gap if (k + 1) a <= k b + 1, a
        # condition that only gets weaker as k grows.
        gapless = minimum == maximum or (minimum + 1) * low <= 1
        if not gapless and minimum > 0:
            gapless = high is None or (minimum + 1) * low <= minimum * high + 1
        top = None if maximum is None or high is None else high * maximum
        if gapless and max(low * minimum, top or 0) < COUNT_LIMIT:
            return repeat(body.body, low * minimum, top)
    return Repeat(body, minimum, maximum)
