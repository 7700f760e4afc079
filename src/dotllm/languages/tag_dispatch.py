"""TagDispatch, on characters and on tokens: free text until a tag appears, then the tag's rule.

The free text is the automaton of Aho and Corasick ("Efficient string matching", CACM 18(6), 1975) over the tags and
the excluded strings. Its states are the prefixes of these strings. Completing a tag leads to its rule; no edge
completes an excluded string. The text may end in any state of the free text.

Tags may overlap. If several tags end at one place, the longest counts. A complete tag may be the beginning, or in the
middle, of a longer one (``<f`` and ``<form``): the tag's rule or the rest of the longer tag follows it; free text
neither continues nor ends there, and no tag begins there.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import TypeVar

from dotllm.charset import CharSet
from dotllm.errors import BudgetExceededError, InvalidSpecError
from dotllm.grammar import Expression, Grammar

MAX_EDGES = 500_000
"""After each of n texts with different first characters, any of them may begin: n² edges."""

Edge = tuple[int, Expression, int]
Symbols = Sequence[str]
"""A text as the automaton reads it: characters, and names of special tokens, which are one symbol each."""


def symbols(text: str, special_tokens: Mapping[str, int]) -> list[str]:
    """``text`` with the name of each special token as one symbol; leftmost, longest names first, without overlaps."""
    names = [name for name in special_tokens if len(name) > 1 and name in text]
    if not names:
        return list(text)
    pattern = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) + "|.", re.DOTALL)
    return pattern.findall(text)


def literal(grammar: Grammar, text: str, special_tokens: Mapping[str, int]) -> Expression:
    """``text``, with its special tokens matched by their ids."""
    parts: list[Expression] = []
    plain = ""
    for symbol in symbols(text, special_tokens):
        if len(symbol) == 1:
            plain += symbol
            continue
        parts += [grammar.literal(plain), grammar.tokens([special_tokens[symbol]])]
        plain = ""
    return grammar.seq([*parts, grammar.literal(plain)] if plain or not parts else parts)


def tag_dispatch(
    grammar: Grammar,
    tags: Sequence[tuple[Symbols, Expression]],
    excluded: Sequence[Symbols],
    *,
    loop: bool,
    special_tokens: Mapping[str, int] | None = None,
) -> Expression:
    """Any text in which a tag, wherever it appears, is followed by its expression; ``loop``: more text may follow the
    expression.

    The text may contain a special token only where a tag begins or continues with it. No tag and no excluded string may
    be empty.

    Raises:
        BudgetExceededError: the automaton has too many edges.
    """
    ids = special_tokens or {}
    children, tags_at, excluded_at, begins_tag, order, fail = prefix_tree([tag for tag, _ in tags], excluded)
    depth, longest = [0] * len(children), [0] * len(children)  # of a prefix, and of the longest tag that ends it
    goto: list[dict[str, int]] = [children[0]] + [{} for _ in order]
    for node in [0, *order]:
        for child in children[node].values():
            depth[child] = depth[node] + 1
    for node in order:
        goto[node] = {**goto[fail[node]], **children[node]}
        # A string that is complete in a prefix is also complete in its longest proper suffix.
        longest[node] = depth[node] if tags_at[node] else longest[fail[node]]
        tags_at[node] = tags_at[node] or tags_at[fail[node]]
        excluded_at[node] = excluded_at[node] or excluded_at[fail[node]]
        begins_tag[node] = begins_tag[node] or begins_tag[fail[node]]
    done = len(children)
    # A state is a prefix and a length. After a tag, only tags that began with it or before it may go on: the suffixes
    # of the prefix that have at least this length. In free text, the length is 0.
    states = {(node, 0): node for node in range(done)}
    todo = [(node, 0) for node in [0, *order]]
    edges: list[Edge] = []
    finals = [done]

    def number(node: int, least: int) -> int:
        if (node, least) not in states:
            states[node, least] = len(states) + 1
            todo.append((node, least))
        return states[node, least]

    @cache
    def one_of(characters: str) -> Expression:
        return grammar.chars(CharSet.of(characters))

    for node, least in todo:
        state, ends = states[node, least], longest[node] >= max(least, 1)
        if excluded_at[node] and not ends:
            continue
        if ends:
            edges += [(state, tags[tag][1], 0 if loop else done) for tag in tags_at[node]]
            least = least or longest[node]
        by_target: dict[int, list[str]] = {}
        for symbol, target in goto[node].items():
            if least and depth[target] <= least:
                continue
            if len(symbol) == 1:
                by_target.setdefault(target, []).append(symbol)
            elif begins_tag[target]:
                edges.append((state, grammar.tokens([ids[symbol]]), number(target, least and least + 1)))
        for target, characters in by_target.items():
            edges.append((state, one_of("".join(characters)), number(target, least and least + 1)))
        if not least:
            edges.append((state, grammar.chars(~CharSet.of("".join(s for s in goto[node] if len(s) == 1))), 0))
            finals.append(state)
        if len(edges) > MAX_EDGES:
            raise BudgetExceededError(
                f"free text that must find these texts takes more than {MAX_EDGES:,} edges",
                keyword="triggers",
                help="let the texts begin alike, as in <tool_a>, <tool_b>",
            )
    return grammar.network(len(states) + 1, 0, finals, edges)


def refuse_excluded(tags: Iterable[str], excluded: Sequence[str]) -> None:
    """Raise InvalidSpecError for a tag that contains an excluded string, and so could never be written."""
    for tag in tags:
        for text in excluded:
            if text in tag:
                raise InvalidSpecError(f"{tag!r} contains the excluded string {text!r}", keyword="excludes")


def token_tag_dispatch(
    grammar: Grammar, tags: Sequence[tuple[int, Expression]], excluded: Sequence[int], *, loop: bool
) -> Expression:
    """`tag_dispatch` over tokens: any tokens but the excluded ones, with a tag's expression after each token that is
    a tag."""
    free = grammar.tokens([*(tag for tag, _ in tags), *excluded], exclude=True)
    edges: list[Edge] = [(0, free, 0)]
    for tag, expression in tags:
        edges.append((0, grammar.seq([grammar.tokens([tag]), expression]), 0 if loop else 1))
    return grammar.network(2, 0, [0, 1], edges)


Symbol = TypeVar("Symbol", bound=Hashable)


def prefix_tree(
    tags: Sequence[Sequence[Symbol]], excluded: Sequence[Sequence[Symbol]]
) -> tuple[list[dict[Symbol, int]], list[tuple[int, ...]], list[bool], list[bool], list[int], list[int]]:
    """The prefixes of these words, the states of the automaton of Aho and Corasick; the empty prefix is state 0.

    For each prefix: its children, the tags that end there, whether an excluded word ends there, and whether a tag
    begins with it. Then all states but the first by length, and for each prefix its longest proper suffix that is a
    prefix, too.
    """
    children: list[dict[Symbol, int]] = [{}]
    ends: list[int] = []
    begins_tag = [False]
    for i, word in enumerate((*tags, *excluded)):
        state = 0
        for character in word:
            if character not in children[state]:
                children[state][character] = len(children)
                children.append({})
                begins_tag.append(i < len(tags))
            state = children[state][character]
        ends.append(state)
    tag_at: list[tuple[int, ...]] = [()] * len(children)
    excluded_at = [False] * len(children)
    for i, state in enumerate(ends):
        if i < len(tags):
            tag_at[state] = (*tag_at[state], i)
        else:
            excluded_at[state] = True
    order, fail = [*children[0].values()], [0] * len(children)
    for state in order:  # bounded: by the states, each added once
        order += children[state].values()
        for character, child in children[state].items():
            suffix = fail[state]
            while suffix and character not in children[suffix]:  # bounded: by the length of the tags
                suffix = fail[suffix]
            fail[child] = children[suffix].get(character, 0)
    return children, tag_at, excluded_at, begins_tag, order, fail
