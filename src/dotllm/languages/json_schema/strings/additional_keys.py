"""The keys that an object may have in addition to those that its schema names: all strings except some.

Nearly every object has such keys, with names of its own, so they are written many at a time: a key is a rule call
(`keys_except`), and one kernel defines all these rules of a schema when its other rules are defined (`define`).

An additional key never begins with a declared key: after ``"summary`` a model means the key that the schema declares,
and if this key is not allowed (any more), the model would be forced to continue with ``"summary_``… So the prefix tree
ends before the last character of such a name.

A rule is the prefix tree of the names with a default edge at each node: any character that leads to no other node,
then the rest of the string. All keys of a grammar share the rules of the default edges, so the machine reaches the
same states again. These rules end with the closing quote, so the quote shows the machine when to return.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm.automata.dfa import Dfa
from dotllm.charset import MAX_CODE_POINT, CharSet
from dotllm.grammar.grammar import Expression
from dotllm.languages.json_input import is_unicode
from dotllm.languages.json_schema.context import Context
from dotllm.languages.json_schema.strings.key_kernels import key_networks
from dotllm.languages.json_schema.strings.spelling import (
    MUST_ESCAPE,
    after_backslash,
    any_canonical_character,
    one_of,
    spelled,
    spelling,
)
from dotllm.languages.json_schema.strings.string_network import copied

Array = NDArray[Any]

_RAW_ASCII = (1 << 0x80) - (1 << 0x20) - (1 << 0x22) - (1 << 0x5C)
_BEYOND_ASCII = spelled(0, CharSet.of((0x80, MAX_CODE_POINT)))
_WORD = (1 << 64) - 1


def build_ahead(context: Context) -> None:
    """Build what nearly every schema needs: the ASCII characters, and the default edges of prefix-tree nodes with at
    most one child."""
    characters = [char for char in map(chr, range(0x20, 0x7F)) if char not in '"\\']
    _spell(context, characters)
    _make_default_edges(context, [0, *(1 << ord(char) for char in characters)])


def keys_except(context: Context, names: frozenset[str], beginnings: tuple[str, ...] = ()) -> Expression:
    """Every key, quotes included, but ``names`` and keys that begin with one of ``beginnings``, a subset of
    ``names``: a call of a rule that `define` defines."""
    result = context.keys_except.get((names, beginnings))
    if result is None:
        grammar = context.grammar
        rule = grammar.rule("key")
        result = context.keys_except[names, beginnings] = grammar.call(rule)
        text = _text(names, beginnings)
        if text is None:
            grammar.define(rule, grammar.seq([grammar.literal(b'"'), _by_automaton(context, names, beginnings)]))
        else:
            context.undefined.append((rule, text))
    return result


def define(context: Context) -> None:
    """Define the rules that `keys_except` has declared."""
    undefined = context.undefined
    if not undefined:
        return
    context.undefined = []
    grammar = context.grammar
    quote = grammar.literal(b'"')
    networks = _written(context, [text for _, text in undefined])
    bodies = grammar.each_seq(2, [part for network in networks for part in (quote, network)])
    for (rule, _), body in zip(undefined, bodies, strict=True):
        grammar.define(rule, body)


def after_quote(context: Context, names: frozenset[str]) -> Expression:
    """The text after the opening quote of every string but ``names``."""
    text = _text(names)
    return _by_automaton(context, names) if text is None else _written(context, [text])[0]


def _text(names: frozenset[str], beginnings: tuple[str, ...] = ()) -> str | None:
    """The names in the form that `key_networks` takes; None if not all of them are plain ASCII."""
    joined = "".join(names)
    if not (joined.isascii() and joined.isprintable() and '"' not in joined and "\\" not in joined):
        return None
    if len(beginnings) in (0, len(names)):
        end = "\1" if beginnings else "\0"
        return end.join(sorted(names)) + end
    begin = {*beginnings}
    return "".join([name + ("\1" if name in begin else "\0") for name in sorted(names)])


def _by_automaton(context: Context, names: frozenset[str], beginnings: tuple[str, ...] = ()) -> Expression:
    """`after_quote` for any names."""
    words = frozenset(filter(is_unicode, names))
    beginnings = tuple(filter(is_unicode, beginnings))
    if not words:
        return rest_of_string(context)
    text, grammar = _text(words, beginnings), context.grammar
    if text is not None:
        return _written(context, [text])[0]
    others = ~Dfa.literals(words)
    if beginnings:
        others -= Dfa.literals(beginnings) + Dfa.anything()
    return grammar.seq([copied(grammar, others), grammar.literal(b'"')])


def _written(context: Context, texts: list[str]) -> Sequence[Expression]:
    """`after_quote` for several texts of names."""
    grammar, text = context.grammar, "".join(texts)
    letters = set(text) - context.spelled
    if letters:
        _spell(context, letters)
    groups = np.array([*accumulate(map(len, texts))], np.int32)
    data = np.frombuffer(bytearray(text, "ascii"), np.uint8)
    quote = grammar.literal(b'"')
    layout, starts, left_open = key_networks(data, groups, context.letters, context.single_default_edges, quote)
    ways = [low & _WORD | high << 64 for low, high in left_open[:, 1:].tolist()]
    new = [way for way in dict.fromkeys(ways) if way not in context.default_edges]
    if new:
        _make_default_edges(context, new)
    layout[left_open[:, 0]] = [context.default_edges[way] for way in ways]
    return grammar.flat_networks(layout.tobytes(), starts.tolist())


def rest_of_string(context: Context) -> Expression:
    """Any characters, canonically spelled, and the closing quote: one rule of the grammar."""
    result = context.memo.get("rest of string")
    if result is None:
        grammar = context.grammar
        rule = grammar.rule("rest of string")
        context.memo["rest of string"] = result = grammar.call(rule)
        characters = grammar.repeat(any_canonical_character(grammar))
        grammar.define(rule, grammar.seq([characters, grammar.literal(b'"')]))
    return result


def _spell(context: Context, characters: Iterable[str]) -> None:
    """Make the expressions of some ASCII characters."""
    for char in characters:
        if char not in "\0\1":
            context.letters[ord(char)] = context.grammar.literal(char)
    context.spelled.update(characters)


def _make_default_edges(context: Context, new: list[int]) -> None:
    """Make a rule for each set of ASCII characters, given as bits: a character outside the set, then the rest."""
    grammar = context.grammar
    rest, unusual = rest_of_string(context), _unusual(context)
    usual = grammar.each_byteset([_RAW_ASCII & ~children for children in new])
    usual = grammar.each_seq(2, [part for edge in usual for part in (edge, rest)])
    bodies = grammar.each_alt(2, [part for edge in usual for part in (edge, unusual)])
    calls = grammar.each_rule("another string", bodies)
    for children, call in zip(new, calls, strict=True):
        context.default_edges[children] = call
        if children.bit_count() < 2:
            context.single_default_edges[max(0, children.bit_length() - 1)] = call


def _unusual(context: Context) -> Expression:
    """A character that is written as an escape or beyond ASCII, then the rest: one rule of the grammar."""
    unusual = context.memo.get("unusual character")
    if unusual is None:
        grammar = context.grammar
        escape = grammar.seq([grammar.literal(b"\\"), after_backslash(grammar, spelling(MUST_ESCAPE))])
        rule = grammar.rule("another string")
        grammar.define(
            rule, grammar.seq([grammar.alt([escape, one_of(grammar, _BEYOND_ASCII)]), rest_of_string(context)])
        )
        context.memo["unusual character"] = unusual = grammar.call(rule)
    return unusual
