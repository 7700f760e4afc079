"""Whether a grammar has any text at all."""

from __future__ import annotations

from dotllm.grammar.grammar import Expression, Grammar, Kind


def is_productive(grammar: Grammar, start: Expression) -> bool:
    """Whether some text satisfies ``start``: a least fixed point over expressions and rules, iteratively.

    Expressions are numbered bottom-up, so one pass in order decides all but what waits for a rule.
    """
    kind, a, b, children = grammar.kind, grammar.a, grammar.b, grammar.children
    n = len(kind)
    known = bytearray(n)
    changed = True
    while changed and not known[start]:
        changed = False
        for e in range(n):
            if known[e]:
                continue
            k = kind[e]
            if k == Kind.SEQ:
                yes = all(known[i] for i in children[a[e] : a[e] + b[e]])
            elif k == Kind.ALT:
                yes = any(known[i] for i in children[a[e] : a[e] + b[e]])
            elif k == Kind.REPEAT:
                yes = b[e] == 0 or bool(known[a[e]])
            elif k == Kind.CALL:
                body = grammar.rule_body[a[e]]
                yes = body is not None and bool(known[body])
            elif k == Kind.NETWORK:
                yes = _reaches_final(children[a[e] : a[e] + b[e]], known)
            else:
                yes = k != Kind.NEVER
            if yes:
                known[e] = 1
                changed = True
    return bool(known[start])


def _reaches_final(layout: object, known: bytearray) -> bool:
    numbers = list(layout)  # type: ignore[call-overload]  # an array slice
    finals = set(numbers[3 : 3 + numbers[2]])
    edges: dict[int, list[int]] = {}
    for i in range(3 + numbers[2], len(numbers), 3):
        if known[numbers[i + 1]]:
            edges.setdefault(numbers[i], []).append(numbers[i + 2])
    reached, pending = {numbers[1]}, [numbers[1]]
    while pending:
        state = pending.pop()
        if state in finals:
            return True
        for target in edges.get(state, ()):
            if target not in reached:
                reached.add(target)
                pending.append(target)
    return False
