"""The lengths of an expression's texts: measured, bounded, and taken out of look-aheads."""

from __future__ import annotations

from itertools import product, takewhile

from dotllm.charset import ANY_CHAR, CharSet
from dotllm.languages.regex.syntax import (
    ANY,
    ANY_TEXT,
    EMPTY,
    NEVER,
    NO_CHARS,
    Alt,
    Assertion,
    AssertionKind,
    Atomic,
    Chars,
    Look,
    Node,
    Repeat,
    Seq,
    Text,
    alt,
    charset_of,
    children,
    repeat,
    seq,
)

# Facts read off a syntax tree without an automaton: lengths, first characters, and how far assertions look.

Bounds = tuple[int, int | None]
"""The least and the largest number; None: no limit."""


def length_bounds(node: Node) -> Bounds:
    """Bounds on the number of code points of a match; assertions are taken as true, so the bounds may be loose."""
    if isinstance(node, Text):
        return len(node.text), len(node.text)
    if isinstance(node, Chars):
        return 1, 1
    if isinstance(node, Repeat):
        low, high = length_bounds(node.body)
        if high == 0:
            return 0, 0
        return low * node.minimum, None if high is None or node.maximum is None else high * node.maximum
    if isinstance(node, (Seq, Alt)):
        lows, highs = zip(*map(length_bounds, children(node)), strict=True)
        least, most = (sum, sum) if isinstance(node, Seq) else (min, max)
        return least(lows), None if None in highs else most(highs)
    if isinstance(node, Atomic):
        return length_bounds(node.body)
    return 0, 0  # Empty, Never, Assertion, Look


def has_looks(node: Node) -> bool:
    """Whether ``node`` contains assertions (`Assertion` or `Look`)."""
    return isinstance(node, (Assertion, Look)) or any(map(has_looks, children(node)))


def union_of_chars(charsets: list[CharSet]) -> CharSet:
    """Their union. Uniting them one by one takes quadratic time."""
    return CharSet.of(*(interval for charset in charsets for interval in charset.ranges))


def first_chars(node: Node) -> tuple[CharSet, bool]:
    """The characters that a match can begin with, and whether it can be empty; assertions are taken as true."""
    if isinstance(node, Text):
        return CharSet(((ord(node.text[0]), ord(node.text[0])),)), False
    if isinstance(node, Chars):
        return node.charset, False
    if isinstance(node, Repeat):
        chars, empty = first_chars(node.body)
        return chars, empty or node.minimum == 0
    if isinstance(node, Atomic):
        return first_chars(node.body)
    if isinstance(node, Seq):
        firsts, empty = [], True
        for part in node.parts:
            chars, empty = first_chars(part)
            if chars == ANY_CHAR:
                return chars, empty
            firsts.append(chars)
            if not empty:
                break
        return union_of_chars(firsts), empty
    if isinstance(node, Alt):
        choices = [first_chars(choice) for choice in node.choices]
        return union_of_chars([chars for chars, _ in choices]), any(empty for _, empty in choices)
    return NO_CHARS, True


UNLIMITED = 1 << 60
"""A width that is larger than any text."""


def context_width(node: Node) -> tuple[int, int]:
    """How many characters before and after a match of ``node`` its assertions may look at, `UNLIMITED` for any number.

    (0, 0) means that a match depends only on its own text, so ``node`` can be compiled alone.
    """
    if isinstance(node, Seq):
        lengths = [length_bounds(part)[0] for part in node.parts]
        left = right = 0
        before, after = 0, sum(lengths)
        for part, length in zip(node.parts, lengths, strict=True):
            after -= length
            more_left, more_right = context_width(part)
            left, right = max(left, more_left - before), max(right, more_right - after)
            before += length
        return left, right
    if isinstance(node, Alt):
        widths = [context_width(choice) for choice in node.choices]
        return max(left for left, _ in widths), max(right for _, right in widths)
    if isinstance(node, (Repeat, Atomic)):
        return context_width(node.body)
    if isinstance(node, Assertion):
        return int(node.kind is not AssertionKind.END), int(node.kind is not AssertionKind.START)
    if isinstance(node, Look):
        longest = length_bounds(node.body)[1]
        width = UNLIMITED if longest is None else longest
        left, right = context_width(node.body)
        return (left, width + right) if node.ahead else (width + left, right)
    return 0, 0


# Combines a regular expression with bounds on the length of the text, without an automaton where the syntax tree
# allows it.
#
# ``pattern`` with ``maxLength`` is an intersection, and its automaton has a state for each character of the bound.
# But most patterns have at most one repetition of single characters, and their other parts have only a few lengths,
# as in ``^[A-Z]{2}[a-z0-9-]*$``; then the bounds become the counts of that repetition, whatever their size.


# The most ways to match the parts other than the repetition; each way is a branch.
_MAX_WAYS = 16

# A way to match: the length of its fixed parts, all its parts, and the index of the single repetition (-1: none).
Way = tuple[int, list[Node], int]


def with_length(node: Node, minimum: int, maximum: int | None) -> Node | None:
    """``node`` restricted to texts of ``minimum`` to ``maximum`` code points; None if this needs an automaton.

    ``node`` has no assertions.
    """
    low, high = length_bounds(node)
    if low >= minimum and (maximum is None or (high is not None and high <= maximum)):
        return node
    if (maximum is not None and low > maximum) or (high is not None and high < minimum):
        return NEVER
    if isinstance(node, Alt):
        choices: list[Node] = []
        for choice in node.choices:
            bounded = with_length(choice, minimum, maximum)
            if bounded is None:
                return None
            choices.append(bounded)
        return alt(choices)
    ways = ways_of(node)
    return None if ways is None else alt([_bounded(way, minimum, maximum) for way in ways])


def ways_of(node: Node) -> list[Way] | None:
    """The ways to match ``node``, which has no assertions; None if there are too many or one has two repetitions."""
    ways: list[Way] | None = [(0, [], -1)]
    for part in node.parts if isinstance(node, Seq) else (node,):
        ways = _extended(ways, part) if ways is not None else None
    return ways


def without_implied_limits(node: Node, maximum: int) -> Node:
    """``node`` without the limits of repetitions that no text of at most ``maximum`` characters can reach.

    The automaton of ``(?:\\S+\\s+){0,199}\\S+`` has a state for each word; 300 characters never hold 200 words.
    """
    if isinstance(node, Alt):
        return alt([without_implied_limits(choice, maximum) for choice in node.choices])
    parts = node.parts if isinstance(node, Seq) else (node,)
    least = sum(length_bounds(part)[0] for part in parts)
    out: list[Node] = []
    for part in parts:
        own = length_bounds(part)[0]
        left = maximum - (least - own)  # for this part
        if isinstance(part, Repeat) and part.maximum is not None:
            if length_bounds(part.body)[0] * (part.maximum + 1) > left:
                part = repeat(part.body, part.minimum, None)
        elif isinstance(part, (Alt, Seq)):
            part = without_implied_limits(part, left)
        out.append(part)
    return seq(out)


def _extended(ways: list[Way], part: Node) -> list[Way] | None:
    """``ways`` followed by ``part``; None if there would be too many, or a second repetition."""
    low, high = length_bounds(part)
    if low == high:
        return [(length + low, [*parts, part], loop) for length, parts, loop in ways]
    if isinstance(part, Repeat) and charset_of(part.body) is not None and (high is None or high - low >= _MAX_WAYS):
        if any(loop >= 0 for _, _, loop in ways):
            return None
        return [(length, [*parts, part], len(parts)) for length, parts, _ in ways]
    options = _by_length(part)
    if options is None or len(options) * len(ways) > _MAX_WAYS:
        return None
    return [(length + more, [*parts, option], loop) for length, parts, loop in ways for more, option in options]


def _by_length(node: Node) -> list[tuple[int, Node]] | None:
    """``node`` as alternatives of one length each; None if the tree does not show them or they are too many."""
    low, high = length_bounds(node)
    if low == high:
        return [(low, node)]
    if isinstance(node, Repeat):
        body_low, body_high = length_bounds(node.body)
        if node.maximum is None or body_low != body_high or node.maximum - node.minimum >= _MAX_WAYS:
            return None
        counts = range(node.minimum, node.maximum + 1)
        return [(body_low * n, repeat(node.body, n, n) if n else EMPTY) for n in counts]
    if isinstance(node, Alt):
        by_length: dict[int, list[Node]] = {}
        for choice in node.choices:
            options = _by_length(choice)
            if options is None:
                return None
            for length, option in options:
                by_length.setdefault(length, []).append(option)
        return [(length, alt(options)) for length, options in by_length.items()]
    return None


def _bounded(way: Way, minimum: int, maximum: int | None) -> Node:
    """One way, with the counts of its repetition chosen so that the whole keeps the bounds."""
    fixed, parts, loop = way
    if loop < 0:
        return seq(parts) if minimum <= fixed and (maximum is None or fixed <= maximum) else NEVER
    repetition = parts[loop]
    assert isinstance(repetition, Repeat)
    least = max(repetition.minimum, minimum - fixed)
    tops = [top for top in (repetition.maximum, None if maximum is None else maximum - fixed) if top is not None]
    if tops and min(tops) < least:
        return NEVER
    counted = repeat(repetition.body, least, min(tops) if tops else None)
    return seq([*parts[:loop], counted, *parts[loop + 1 :]])


# Removes from an expression the look-aheads that bound the length of the rest: ``^(?=.{1,253}\.?$)…``.
#
# The automaton of such an expression is a product: a state for each place in the rest and each number of characters
# read so far. But the expression is a union of smaller ones with bounds on the length, and where the machine counts,
# lengths need no states. The body of the look-ahead is split into *ways*: parts of fixed length around one repetition
# of a set of characters. A text matches a way if it matches the way without the limits of its repetition and its
# length is in range:
#
#     (?=.{1,253}\.?$)R   is   R of 1 to 253 characters, or (?=.*\.$)R of 2 to 254
#
# Such a look-ahead stands at the start of the text or after parts of fixed length, and sees to the end. A look-ahead
# without a long repetition is left to the automaton (`lookaround`).
#
# The rest may be such a way itself, as in passwords: ``(?=.*\d)(?!.*\s).{12,64}`` is ``(?=.*\d)(?!.*\s).*`` of 12 to
# 64 characters.

MAX_PARTS = 16
_MANY = 32
"""The least count of a long repetition; states tell smaller counts apart."""

Part = tuple[Node, int, int | None]
"""An expression, and the least and the largest length (None: no limit) of its texts."""
_Option = tuple[Look | None, int, int | None]
"""One way of a look-ahead: what remains of the look-ahead (None: nothing), and the least and the largest length."""


def split_by_length(node: Node, start: int = 0) -> list[Part] | None:
    """``node``, matched to the end of the text after ``start`` or more characters, as a union; None if it has no such
    look-ahead at its start, or the union has more than `MAX_PARTS` parts."""
    if isinstance(node, Alt):
        choices = [split_by_length(choice, start) for choice in node.choices]
        if not any(choices):
            return None
        rest = alt([choice for choice, parts in zip(node.choices, choices, strict=True) if parts is None])
        known_parts = [part for parts in choices if parts is not None for part in parts]
        return _few([*known_parts, (rest, 0, None)] if len(node.choices) > sum(map(bool, choices)) else known_parts)
    if not isinstance(node, Seq):
        whole = _without_long_limits(node)
        return None if whole is None else [whole]
    looks: list[tuple[int, int, int, list[_Option]]] = []  # (the part after the look before, its own, what is between)
    begin = before = 0
    seen = _charsets_after(node.parts)
    for at, part in enumerate(node.parts):
        options = None
        if isinstance(part, Look) and part.ahead:
            options = _options(part, seen[at], before, at_start=not start + before)
        if options is not None:
            looks.append((begin, at, before, options))
            start, begin, before = start + before, at + 1, 0
            continue
        low, high = length_bounds(part)
        if low != high:
            break
        before += low
    rest = seq(node.parts[begin:])
    whole = _without_long_limits(rest)
    following = split_by_length(rest, start) if isinstance(rest, Alt) else None if whole is None else [whole]
    for begin, at, before, options in reversed(looks):
        if not following:
            following = [(seq(node.parts[at + 1 :]), 0, None)]
        following = _few([_joined(node.parts[begin:at], before, *pair) for pair in product(options, following)])
    return following


def _without_long_limits(node: Node) -> Part | None:
    """``node`` without the limits of a long repetition of single characters, and the lengths of its texts, if all
    other parts have one length. None if not, or if the repetition need not go through an automaton: no assertion is in
    it, or looks as far as it may reach."""
    parts = node.parts if isinstance(node, Seq) else (node,)
    bounds = list(map(length_bounds, parts))
    loops = [at for at, (low, high) in enumerate(bounds) if low != high]
    if len(loops) != 1:
        return None
    (at,) = loops
    loop = parts[at]
    if not isinstance(loop, Repeat) or length_bounds(loop.body) != (1, 1) or not _is_long(loop):
        return None
    looks_far = max(context_width(node)) > UNLIMITED // 2  # `UNLIMITED` less the characters in between
    if not looks_far and context_width(loop.body) == (0, 0):
        return None
    fixed = sum(low for low, _ in bounds) - loop.minimum
    whole = seq([*parts[:at], repeat(loop.body, 0, None), *parts[at + 1 :]])
    return whole, fixed + loop.minimum, None if loop.maximum is None else fixed + loop.maximum


def _charsets_after(parts: tuple[Node, ...]) -> dict[int, CharSet]:
    """The characters of all matches of the parts after each look-ahead, by its place; only of the look-aheads before
    the first part of several lengths."""
    fixed = takewhile(lambda part: len({*length_bounds(part)}) == 1, parts)
    looks = [at for at, part in enumerate(fixed) if isinstance(part, Look) and part.ahead]
    result: dict[int, CharSet] = {}
    seen, end = NO_CHARS, len(parts)
    for at in reversed(looks):
        seen, end = union_of_chars([seen, *map(_charset, parts[at + 1 : end])]), at
        result[at] = seen
    return result


def _few(parts: list[Part]) -> list[Part] | None:
    kept = [part for part in parts if part[2] is None or part[1] <= part[2]]
    return kept if len(kept) <= MAX_PARTS else None


def _joined(parts: tuple[Node, ...], before: int, option: _Option, following: Part) -> Part:
    """``parts`` (of ``before`` characters), the remainder of a look-ahead, and the expression that follows it, with
    the bounds of both."""
    look, low, high = option
    node, least, most = following
    tops = [top for top in (high, None if most is None else most + before) if top is not None]
    whole = seq([*parts, *([] if look is None else [look]), node])
    return whole, max(low, least + before), min(tops) if tops else None


def _options(look: Look, seen: CharSet, before: int, at_start: bool) -> list[_Option] | None:
    """The ways of a look-ahead after ``before`` characters, before matches of the characters ``seen``: remainders, and
    bounds on the length of the whole. None if the look-ahead is not of this kind."""
    ways_to_end: list[_Option] = []
    ways = []
    for body in look.body.choices if isinstance(look.body, Alt) else (look.body,):
        plain = _to_the_end(body, at_start)
        split = None if plain is None else ways_of(_widened(plain, seen))
        if split is None:
            return None
        ways += split
    if not any(isinstance(parts[loop], Repeat) and _is_long(parts[loop]) for _, parts, loop in ways if loop >= 0):
        return None
    for fixed, parts, loop in ways:
        repetition = parts[loop] if loop >= 0 else None
        if not isinstance(repetition, Repeat):
            low, high, unlimited = fixed, fixed, seq(parts)
        else:
            low, high = fixed + repetition.minimum, None
            if repetition.maximum is not None:
                high = fixed + repetition.maximum
            unlimited = seq([*parts[:loop], repeat(repetition.body, 0, None), *parts[loop + 1 :]])
        is_any = isinstance(unlimited, Repeat) and charset_of(unlimited.body) == ANY_CHAR
        left = None if is_any else Look(seq([unlimited, Assertion(AssertionKind.END, NO_CHARS)]), True, look.negated)
        low, high = low + before, None if high is None else high + before
        if not look.negated:
            ways_to_end.append((left, low, high))
            continue
        if len(ways) > 1:  # all ways must fail
            return None
        ways_to_end += [(None, 0, low - 1)] if low else []
        ways_to_end += [] if high is None else [(None, high + 1, None)]
        ways_to_end += [] if left is None else [(left, low, high)]
    return ways_to_end


def _is_long(node: Node) -> bool:
    return isinstance(node, Repeat) and max(node.minimum, node.maximum or 0) >= _MANY


def _to_the_end(body: Node, at_start: bool) -> Node | None:
    """The texts, from a look-ahead to the end, that its body matches; None if it has other assertions."""
    parts = list(body.parts) if isinstance(body, Seq) else [body]
    if at_start and parts and _is(parts[0], AssertionKind.START):
        del parts[0]
    if parts and _is(parts[-1], AssertionKind.END):
        del parts[-1]
    else:
        parts.append(ANY_TEXT)
    plain = seq(parts)
    return None if has_looks(plain) else plain


def _is(node: Node, kind: AssertionKind) -> bool:
    return isinstance(node, Assertion) and node.kind is kind


def _charset(node: Node) -> CharSet:
    """The characters of all matches of ``node``."""
    if isinstance(node, Text):
        return CharSet.of(node.text)
    return node.charset if isinstance(node, Chars) else union_of_chars(list(map(_charset, children(node))))


def _widened(node: Node, seen: CharSet) -> Node:
    """``node`` for texts of the characters ``seen`` only: a set that holds all of them counts as any character.
    Adjacent repetitions of any character are merged."""
    parts: list[Node] = []
    for part in node.parts if isinstance(node, Seq) else (node,):
        body = part.body if isinstance(part, Repeat) else part
        charset = charset_of(body)
        low, high = (part.minimum, part.maximum) if isinstance(part, Repeat) else (1, 1)
        if charset is None or seen - charset:
            parts.append(part)
            continue
        if parts and isinstance(before := parts[-1], Repeat) and before.body is ANY:
            low += before.minimum
            high = None if high is None or before.maximum is None else high + before.maximum
            parts.pop()
        parts.append(Repeat(ANY, low, high))
    return seq(parts)
