"""What can be read off a syntax tree without an automaton: lengths, first characters, how far assertions look."""

from __future__ import annotations

from dotllm.charset import ANY_CHAR, CharSet
from dotllm.languages.regex.syntax import (
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
)

Bounds = tuple[int, int | None]
"""Least and largest number, None: without limit."""


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
    if isinstance(node, Seq):
        least, most = 0, 0
        unlimited = False
        for part in node.parts:
            low, high = length_bounds(part)
            least += low
            if high is None:
                unlimited = True
            else:
                most += high
        return least, None if unlimited else most
    if isinstance(node, Alt):
        bounds = [length_bounds(choice) for choice in node.choices]
        tops = [high for _, high in bounds]
        longest = None if None in tops else max(high for high in tops if high is not None)
        return min(low for low, _ in bounds), longest
    if isinstance(node, Atomic):
        return length_bounds(node.body)
    return 0, 0  # Empty, Never, Assertion, Look


def has_looks(node: Node) -> bool:
    """Whether assertions stand in ``node`` (`Assertion` or `Look`)."""
    if isinstance(node, (Assertion, Look)):
        return True
    if isinstance(node, (Repeat, Atomic)):
        return has_looks(node.body)
    if isinstance(node, Seq):
        return any(map(has_looks, node.parts))
    return isinstance(node, Alt) and any(map(has_looks, node.choices))


def first_chars(node: Node) -> tuple[CharSet, bool]:
    """The characters a match can begin with, and whether it can be empty; assertions are taken as true."""
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
        chars = NO_CHARS
        for part in node.parts:
            more, empty = first_chars(part)
            chars = chars | more
            if chars == ANY_CHAR or not empty:
                return chars, empty
        return chars, True
    if isinstance(node, Alt):
        chars, empty = NO_CHARS, False
        for choice in node.choices:
            more, also_empty = first_chars(choice)
            chars, empty = chars | more, empty or also_empty
        return chars, empty
    return NO_CHARS, True


UNLIMITED = 1 << 60
"""A width that no text is long enough for."""


def context_width(node: Node) -> tuple[int, int]:
    """How many characters before and after a match of ``node`` its assertions may look at, `UNLIMITED` for any number.

    (0, 0): whether a text matches depends on the text alone, so ``node`` can be compiled by itself.
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
