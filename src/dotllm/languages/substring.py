"""All substrings of a sequence of chunks, as a suffix automaton: linear in the text and deterministic over chunks.

A. Blumer et al., "The smallest automaton recognizing the subwords of a text", Theoretical Computer Science 40, 1985.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dotllm.grammar import Expression, Grammar

_WORD = re.compile(r"\w+|\s+|[^\w\s]+")


def words_of(text: str) -> list[str]:
    """A text as runs of word characters, of white space, and of everything else."""
    return _WORD.findall(text)


def substring_expression(chunks: Iterable[str], grammar: Grammar) -> Expression:
    """``chunks[n:m]`` joined, for any n <= m."""
    links = [-1]  # the suffix link of every state
    lengths = [0]
    edges: list[dict[str, int]] = [{}]
    last = 0
    for chunk in chunks:
        if not chunk:
            continue
        new = len(links)
        links.append(0)
        lengths.append(lengths[last] + 1)
        edges.append({})
        state = last
        while state >= 0 and chunk not in edges[state]:  # bounded: by the text, all in all
            edges[state][chunk] = new
            state = links[state]
        if state >= 0:
            target = edges[state][chunk]
            if lengths[target] != lengths[state] + 1:  # the state stands for longer words, too: split it
                clone = len(links)
                links.append(links[target])
                lengths.append(lengths[state] + 1)
                edges.append(dict(edges[target]))
                links[target] = clone
                while state >= 0 and edges[state].get(chunk) == target:  # bounded: by the text, all in all
                    edges[state][chunk] = clone
                    state = links[state]
                target = clone
            links[new] = target
        last = new
    if last == 0:
        return grammar.empty()
    return grammar.network(
        len(links),
        0,
        range(len(links)),
        [(s, grammar.literal(chunk), t) for s, out in enumerate(edges) for chunk, t in out.items()],
    )
