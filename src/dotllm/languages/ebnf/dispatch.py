"""Free text until a tag appears, then what the tag calls for: TagDispatch, on characters and on tokens.

The free text is the automaton of Aho and Corasick ("Efficient string matching", CACM 18(6), 1975) over the tags and the
excluded strings: its states are the prefixes of these; completing a tag leads to its rule, completing an excluded
string is no edge. The text may end in any state of the free text.
"""

from __future__ import annotations

from collections.abc import Sequence

from dotllm.automata.charset import CharSet
from dotllm.grammar import Expression, Grammar

Edge = tuple[int, Expression, int]


def tag_dispatch(
    grammar: Grammar, tags: Sequence[tuple[str, Expression]], excluded: Sequence[str], *, loop: bool
) -> Expression:
    """Any text, in which ``expression`` follows wherever its ``tag`` has appeared; ``loop``: more text may follow that.

    No tag and no excluded string may be empty. A tag ends the free text as soon as it is complete.
    """
    children, tag_at, excluded_at = _trie([tag for tag, _ in tags], excluded)
    states = len(children)
    fail = _failures(children)
    # What is complete in a state is complete in its longest proper suffix, too; parents come first.
    for state in _breadth_first(children):
        tag_at[state] = tag_at[state] + tag_at[fail[state]]
        excluded_at[state] = excluded_at[state] or excluded_at[fail[state]]
    done = states
    edges: list[Edge] = []
    goto: list[dict[str, int]] = [{} for _ in range(states)]
    for state in [0, *_breadth_first(children)]:
        goto[state] = {**(goto[fail[state]] if state else {}), **children[state]}
        if tag_at[state] or excluded_at[state]:
            continue
        by_target: dict[int, list[str]] = {}
        for character, target in goto[state].items():
            by_target.setdefault(target, []).append(character)
        edges.append((state, grammar.chars(~CharSet.of("".join(goto[state]))), 0))
        for target, characters in by_target.items():
            read = grammar.chars(CharSet.of("".join(characters)))
            if tag_at[target]:
                after = 0 if loop else done
                edges += [(state, grammar.seq([read, tags[tag][1]]), after) for tag in tag_at[target]]
            elif not excluded_at[target]:
                edges.append((state, read, target))
    free = [state for state in range(states) if not tag_at[state] and not excluded_at[state]]
    return grammar.network(states + 1, 0, [*free, done], edges)


def token_tag_dispatch(
    grammar: Grammar, tags: Sequence[tuple[int, Expression]], excluded: Sequence[int], *, loop: bool
) -> Expression:
    """The same with tokens: any tokens but the excluded ones, and an expression behind each token that is a tag."""
    free = grammar.tokens([*(tag for tag, _ in tags), *excluded], exclude=True)
    edges: list[Edge] = [(0, free, 0)]
    for tag, expression in tags:
        edges.append((0, grammar.seq([grammar.tokens([tag]), expression]), 0 if loop else 1))
    return grammar.network(2, 0, [0, 1], edges)


def _trie(
    tags: Sequence[str], excluded: Sequence[str]
) -> tuple[list[dict[str, int]], list[tuple[int, ...]], list[bool]]:
    """Children of every prefix; the tags and whether an excluded string end there."""
    children: list[dict[str, int]] = [{}]
    ends: list[int] = []
    for word in (*tags, *excluded):
        state = 0
        for character in word:
            if character not in children[state]:
                children[state][character] = len(children)
                children.append({})
            state = children[state][character]
        ends.append(state)
    tag_at: list[tuple[int, ...]] = [()] * len(children)
    excluded_at = [False] * len(children)
    for i, state in enumerate(ends):
        if i < len(tags):
            tag_at[state] = (*tag_at[state], i)
        else:
            excluded_at[state] = True
    return children, tag_at, excluded_at


def _breadth_first(children: Sequence[dict[str, int]]) -> list[int]:
    """All states but the root, by depth."""
    order = list(children[0].values())
    for state in order:
        order += children[state].values()
    return order


def _failures(children: Sequence[dict[str, int]]) -> list[int]:
    """For every state that of its longest proper suffix."""
    fail = [0] * len(children)
    for state in _breadth_first(children):
        for character, child in children[state].items():
            suffix = fail[state]
            while suffix and character not in children[suffix]:
                suffix = fail[suffix]
            fail[child] = children[suffix].get(character, 0)
    return fail
