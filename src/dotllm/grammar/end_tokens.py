"""End tokens that a grammar names: they are allowed where a text can end, and nowhere else.

The server stops at an end token, even if the grammar asks for more. An end token inside a text would cut the answer
off, and the cut answer would look complete. So a token set that must be followed by something loses its end tokens. If
a specification needs only the text of an end token (the ``end`` of a structural tag), ordinary tokens write that text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dotllm import cancellation
from dotllm.errors import InvalidSpecError
from dotllm.grammar import kinds as K
from dotllm.grammar.analysis import EMPTY, analyse
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.grammar.transform import children_of


def keep_last(grammar: Grammar, ends: Mapping[int, str], texts: Mapping[Expression, Expression] | None = None) -> None:
    """Change the expressions of ``grammar`` that its start reaches, so that they ask for end tokens only where a text
    can end after them. If the grammar names an end token, this takes time linear in its size.

    ``ends``: the names of end tokens by id; ``texts``: what replaces a token expression where more must follow.

    Raises:
        InvalidSpecError: more must follow an expression that asks only for end tokens and is not in ``texts``.
    """
    named = {i for i, (ids, exclude) in enumerate(grammar.token_sets) if not exclude and not ids.isdisjoint(ends)}
    if not named:
        return
    for node in _inside(grammar):
        if grammar.kind[node] != K.TOKENS or (number := grammar.a[node]) not in named:
            continue
        text = (texts or {}).get(Expression(node))
        ids = grammar.token_sets[number][0]
        if text is not None:
            grammar.kind[node], grammar.a[node], grammar.b[node] = grammar.kind[text], grammar.a[text], grammar.b[text]
        elif ids.issubset(ends):
            names = " or ".join(sorted(ends[identifier] for identifier in ids))
            raise InvalidSpecError(
                f"an end token cannot appear inside an answer, because the server stops there: put {names} last, "
                "or write it as a string",
                keyword="end token",
            )
        else:
            grammar.token_sets[number] = ids.difference(ends), False


def _inside(grammar: Grammar) -> set[int]:
    """The nodes that occur in at least one place where more must follow."""
    can_be_empty = (analyse(grammar).derives & EMPTY).tolist()
    agenda = [(int(grammar.start), True)]
    seen = {*agenda}
    while agenda:
        cancellation.check()
        for place in _places(grammar, *agenda.pop(), can_be_empty):
            if place not in seen:
                seen.add(place)
                agenda.append(place)
    return {node for node, is_last in seen if not is_last}


def _places(grammar: Grammar, node: int, is_last: bool, can_be_empty: Sequence[int]) -> Iterator[tuple[int, bool]]:
    """The children of ``node``, each with whether a text can end after it; ``is_last``: the same for ``node``."""
    kind, a, b = grammar.kind[node], grammar.a[node], grammar.b[node]
    if kind == K.SEQ:
        for child in reversed(children_of(grammar, node)):
            yield child, is_last
            is_last = is_last and bool(can_be_empty[child])
    elif kind == K.NETWORK:
        finals = _final_states(grammar, node, can_be_empty)
        children = grammar.children
        for edge in range(a + 3 + children[a + 2], a + b, 3):
            yield children[edge + 1], is_last and children[edge + 2] in finals
    else:
        for child in children_of(grammar, node):
            yield child, is_last and kind != K.UNORDERED
            if kind == K.REPEAT and b > 1 and not can_be_empty[child]:
                yield child, False


def _final_states(grammar: Grammar, node: int, can_be_empty: Sequence[int]) -> set[int]:
    """The states of a network that can reach a final state without reading anything."""
    children, a, b = grammar.children, grammar.a[node], grammar.b[node]
    edges = a + 3 + children[a + 2]
    before: dict[int, list[int]] = {}
    for edge in range(edges, a + b, 3):
        if can_be_empty[children[edge + 1]]:
            before.setdefault(children[edge + 2], []).append(children[edge])
    result = set(children[a + 3 : edges])
    agenda = [*result]
    while agenda:  # bounded: by the states, each added once
        new = {*before.get(agenda.pop(), ())} - result
        result |= new
        agenda += new
    return result
