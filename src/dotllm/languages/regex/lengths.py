"""A regular expression and bounds on the length of the text, without an automaton where the syntax tree allows it.

``pattern`` beside ``maxLength`` is an intersection, and its automaton has a state per character of the bound. But most
patterns have at most one repetition of single characters beside parts of a few lengths, as in ``^[A-Z]{2}[a-z0-9-]*$``;
then the bounds become the counts of that repetition, whatever their size.
"""

from __future__ import annotations

from dotllm.languages.regex.measure import length_bounds
from dotllm.languages.regex.syntax import EMPTY, NEVER, Alt, Node, Repeat, Seq, alt, charset_of, repeat, seq

# Ways to read the parts of fixed length, one branch each.
_MAX_WAYS = 16

# A way to match: parts of fixed length, and the place of the single repetition (-1: none) among them.
_Way = tuple[int, list[Node], int]


def with_length(node: Node, minimum: int, maximum: int | None) -> Node | None:
    """``node`` restricted to texts of ``minimum`` to ``maximum`` code points; None: this needs an automaton.

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
    ways: list[_Way] = [(0, [], -1)]
    for part in node.parts if isinstance(node, Seq) else (node,):
        longer = _extended(ways, part)
        if longer is None:
            return None
        ways = longer
    return alt([_bounded(way, minimum, maximum) for way in ways])


def without_implied_limits(node: Node, maximum: int) -> Node:
    """``node`` without the limits of repetitions that no text of at most ``maximum`` characters can reach.

    The automaton of ``(?:\\S+\\s+){0,199}\\S+`` has a state for each word; in 300 characters there are never 200 words.
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


def _extended(ways: list[_Way], part: Node) -> list[_Way] | None:
    """``ways`` followed by ``part``; None where there would be too many, or a second repetition."""
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
    """``node`` as alternatives of one length each; None where that is not simple."""
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
        found: dict[int, list[Node]] = {}
        for choice in node.choices:
            options = _by_length(choice)
            if options is None:
                return None
            for length, option in options:
                found.setdefault(length, []).append(option)
        return [(length, alt(options)) for length, options in found.items()]
    return None


def _bounded(way: _Way, minimum: int, maximum: int | None) -> Node:
    """One way, with its repetition counted so that the whole keeps the bounds."""
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
