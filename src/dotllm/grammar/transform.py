"""Rewrites a Grammar so that the machine can run it: without left recursion, and without loops whose body may be empty.

No parse tree is ever built, so any rewriting that keeps the language is allowed.

**Full and nonempty.** Every expression has two clean versions: ``full``, with the same texts, and ``nonempty``, with
the same texts except the empty one. A loop ``x*`` whose body may be empty becomes ``nonempty(x)*``; in ``x{2,5}`` the
minimum also becomes 0.

**Left recursion** (direct, indirect, or hidden by a nullable prefix) is removed for one whole strongly connected
component of the left-edge graph at a time. Take ``A → A α | β``: a text of A is a β, then any number of α. In general,
a text of a rule in the component begins with something that is not a left call into the component. Whenever a rule J
of the component is complete, the text may continue after any left call of J. So the component is one automaton: its
states are those of the rules' bodies and one hub per rule ("this rule is complete, and its text began where the
automaton did"); an epsilon edge leads from the hub of J to the place after every left call of J; the hub of A is final
in the automaton for A. This is the left-corner transform (Rosenkrantz and Lewis, 1970) done on automata
(`left_corners`): nothing is multiplied out, and the result has the size of the component, once for each of its rules
that is called from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from dotllm import cancellation
from dotllm.errors import BudgetExceededError, InvalidSpecError
from dotllm.grammar import kinds as K
from dotllm.grammar.analysis import EMPTY, EMPTY_PART, LEFT_RECURSION, OTHER, Analysis, analyse
from dotllm.grammar.components import strongly_connected
from dotllm.grammar.grammar import Expression, Grammar, Rule
from dotllm.grammar.kinds import UNDEFINED
from dotllm.grammar.left_corners import NOWHERE, Edge, LeftCorners

MAX_SIZE = 400_000  # numbers in `children` of the rewritten grammar: some 100,000 edges


def prepare(grammar: Grammar) -> Grammar:
    """An equivalent grammar without left recursion or nullable loop bodies: ``grammar`` itself if it has neither.

    Raises:
        InvalidSpecError: a rule that is used is not defined, a part that must not be empty can be, or no text satisfies
            the grammar.
        UnsupportedError: left recursion goes through unordered or counted parts.
        BudgetExceededError: too many rules are mutually left-recursive, so the result would be too large.
    """  # noqa: DOC501 - a function makes an error
    cancellation.check()
    analysis = analyse(grammar)
    if UNDEFINED in grammar.rule_body:
        _check_defined(grammar)
    if analysis.reasons & EMPTY_PART:
        raise InvalidSpecError(
            "a part of an unordered sequence or of a counted network may be empty", keyword="unordered"
        )
    if not analysis.derives[grammar.start]:
        raise _unsatisfiable(grammar, analysis)
    return _Rewriting(grammar, analysis).result() if analysis.reasons else grammar


def require_text(grammar: Grammar) -> None:
    """Raise InvalidSpecError if no text satisfies ``grammar``, which is then included in another."""
    analysis = analyse(grammar)
    _check_defined(grammar)
    if not analysis.derives[grammar.start]:
        raise _unsatisfiable(grammar, analysis)


def children_of(grammar: Grammar, node: int) -> Sequence[int]:
    """The expressions that a node contains; for a call, the body of its rule (none if it is undefined)."""
    kind, a, b = grammar.kind[node], grammar.a[node], grammar.b[node]
    if kind in (K.SEQ, K.ALT, K.UNORDERED):
        return grammar.children[a : a + b]
    if kind == K.REPEAT:
        return (a,)
    if kind == K.CALL:
        body = grammar.rule_body[a]
        return () if body == UNDEFINED else (body,)
    if kind == K.NETWORK:
        return grammar.children[a + 4 + grammar.children[a + 2] : a + b : 3]
    return ()


def _reachable(grammar: Grammar) -> list[int]:
    """Every node that the start reaches, in ascending order."""
    seen = {int(grammar.start)}
    agenda = [int(grammar.start)]
    while agenda:
        cancellation.check()
        for child in children_of(grammar, agenda.pop()):
            if child not in seen:
                seen.add(child)
                agenda.append(child)
    return sorted(seen)


def _check_defined(grammar: Grammar) -> None:
    for node in _reachable(grammar):
        if grammar.kind[node] == K.CALL and grammar.rule_body[grammar.a[node]] == UNDEFINED:
            name = grammar.rule_names[grammar.a[node]]
            raise InvalidSpecError(f"rule {name!r} is used but not defined", keyword=name, code="unknown_rule")


def _unsatisfiable(grammar: Grammar, analysis: Analysis) -> InvalidSpecError:
    calls = [node for node in _reachable(grammar) if grammar.kind[node] == K.CALL and not analysis.derives[node]]
    names = _names(grammar, [grammar.a[node] for node in calls])
    reason = f": {names} can never be completed" if names else ""
    return InvalidSpecError(f"no text satisfies the grammar{reason}", code="unsatisfiable")


def _names(grammar: Grammar, rules: Sequence[int]) -> str:
    names = [repr(grammar.rule_names[rule]) for rule in rules]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


class _Rewriting:
    """One run of `prepare` on a grammar that needs rewriting. ``old`` → ``new``; node numbers refer to ``old``
    unless stated otherwise."""

    def __init__(self, old: Grammar, analysis: Analysis) -> None:
        self.old = old
        self.derives = analysis.derives.tolist()
        self.left = analysis.left.tolist()
        self.new = _without_nodes(old)
        self.nodes = [node for node in _reachable(old) if self.derives[node]]
        self.component = self._components() if analysis.reasons & LEFT_RECURSION else {}
        # Rule → component, for the left-recursive rules.
        self.recursive = {old.a[node]: n for node, n in self.component.items() if old.kind[node] == K.CALL}
        self.full: dict[int, Expression] = {}
        self.nonempty: dict[int, Expression] = {}
        # For each rule of `new`: its old rule, and whether it is the `nonempty` version.
        self.versions: list[tuple[int, bool]] = []
        self.declared: dict[tuple[int, bool], Rule] = {}
        self.networks: dict[int, tuple[int, dict[int, int], list[Edge]]] = {}

    def result(self) -> Grammar:
        for node in self.nodes:  # children before parents, because they are built in that order
            self.full[node] = self._full(node)
            self.nonempty[node] = self._nonempty(node) if self.derives[node] & EMPTY else self.full[node]
        new = self.new
        new.start = self.full[self.old.start]
        seen = {int(new.start)}
        agenda = [int(new.start)]
        while agenda:
            cancellation.check()
            node = agenda.pop()
            if new.kind[node] == K.CALL and new.rule_body[new.a[node]] == UNDEFINED:
                self._define(Rule(new.a[node]))
            for child in children_of(new, node):
                if child not in seen:
                    seen.add(child)
                    agenda.append(child)
        for rule, body in enumerate(new.rule_body):
            if body == UNDEFINED:  # declared for a version of an expression that turned out not to be needed
                new.define(Rule(rule), new.never())
        new.unique_rules = [Rule(i) for i, (rule, _) in enumerate(self.versions) if rule in self.old.unique_rules]
        return new

    # --- which rules are left-recursive together

    def _components(self) -> dict[int, int]:
        """Node → number of its left-recursive component, for the nodes that are in one."""
        index = {node: i for i, node in enumerate(self.nodes)}
        graph = [
            [index[child] for child in self._left_children(node) if child in index and self.derives[child]]
            for node in self.nodes
        ]
        component = strongly_connected(graph)
        sizes = [0] * len(self.nodes)
        for number in component:
            sizes[number] += 1
        return {node: component[i] for i, node in enumerate(self.nodes) if sizes[component[i]] > 1}

    def _left_children(self, node: int) -> Sequence[int]:
        old = self.old
        kind, a, b = old.kind[node], old.a[node], old.b[node]
        if kind in (K.SEQ, K.ALT, K.NETWORK, K.UNORDERED):
            return [old.children[i] for i in range(a, a + b) if self.left[i]]
        return children_of(old, node)

    # --- full and nonempty

    def _full(self, node: int) -> Expression:
        old, new = self.old, self.new
        if not self.derives[node] & OTHER:
            return new.empty()
        kind, a, b, c = old.kind[node], old.a[node], old.b[node], old.c[node]
        if kind == K.SEQ:
            return new.seq([self.full[child] for child in old.children[a : a + b] if self.derives[child] != EMPTY])
        if kind == K.ALT:
            return new.alt([self.full[child] for child in old.children[a : a + b] if self.derives[child]])
        if kind == K.REPEAT:
            nullable = self.derives[a] & EMPTY and c != 1
            return new.repeat(
                self.nonempty[a] if nullable else self.full[a], 0 if nullable else b, None if c < 0 else c
            )
        if kind == K.CALL:
            if a not in self.recursive:
                return self._call(a, nonempty=False)
            call = self._call(a, nonempty=True)
            return new.optional(call) if self.derives[node] & EMPTY else call
        if kind == K.NETWORK:
            states, start, finals, edges = self.network(node)
            return new.network(states, start, finals, [(s, self.full[e], t) for s, e, t in edges], c)
        if kind == K.UNORDERED:
            required, once = c & 0x7FFF, c >> 15
            parts = [self.full[child] if self.derives[child] else new.never() for child in old.children[a : a + b]]
            return new.unordered(parts[1 : 1 + required], parts[1 + required : 1 + once], parts[1 + once :], parts[0])
        return new._node(kind, a, b, c)  # a leaf: the sets and texts it points to are shared

    def _nonempty(self, node: int) -> Expression:
        """Called for nullable nodes only."""
        old, new = self.old, self.new
        if not self.derives[node] & OTHER:
            return new.never()
        kind, a, b, c = old.kind[node], old.a[node], old.b[node], old.c[node]
        if kind == K.ALT:
            return new.alt([self.nonempty[child] for child in old.children[a : a + b] if self.derives[child] & OTHER])
        if kind == K.REPEAT:
            return new.repeat(self.nonempty[a], 1, None if c < 0 else c)
        if kind == K.CALL:
            return self._call(a, nonempty=True)
        if kind == K.LITERALS:
            return new.literals(old.literal_sets[a][1:])
        if kind == K.NETWORK and c:  # its start again, as a state that is not final
            first, start, finals, parts = self.network(node)
            again = [(first, e, t) for s, e, t in parts if s == start]
            every = [(s, self.full[e], t) for s, e, t in parts + again]
            return new.network(first + 1, first, finals, every, c)
        builder = LeftCorners(self, lambda part: part == node)  # SEQ or NETWORK
        target = builder.state()
        builder.begin(node, 0, NOWHERE, target)
        states, place, edges = builder.contracted()
        return new.network(states, 0, [place[target]], edges)

    def _call(self, rule: int, *, nonempty: bool) -> Expression:
        result = self.declared.get((rule, nonempty))
        if result is None:
            result = self.declared[rule, nonempty] = self.new.rule(self.old.rule_names[rule])
            self.versions.append((rule, nonempty))
        return self.new.call(result)

    def _define(self, version: Rule) -> None:
        """Give a rule of ``new`` its body."""
        rule, nonempty = self.versions[version]
        component = self.recursive.get(rule)
        if component is not None:
            states, hubs, edges = self._component_network(component)
            jumps = [jump for edge in edges for jump in self._jumps(edge, self.new.call(version), hubs[rule])]
            self.new.define(version, self.new.network(states, 0, [hubs[rule]], jumps))
            self._check_size(sorted(hubs))
        else:
            body = self.old.rule_body[rule]
            assert body != UNDEFINED  # checked by `prepare`
            self.new.define(version, self.nonempty[body] if nonempty else self.full[body])

    def _jumps(self, edge: Edge, call: Expression, hub: int) -> list[Edge]:
        """An edge of the automaton for one rule, or, if the edge calls that rule and ends in its hub, a jump to the
        start.

        The text of the inner call ends where the outer rule's hub is, and both hubs continue alike. So ``E → E + E``
        needs no stack, and its ambiguity is gone.
        """
        source, expression, target = edge
        new = self.new
        if target != hub:
            return [edge]
        if expression == call:
            return [(source, new.empty(), 0)]
        if new.kind[expression] == K.REPEAT and new.a[expression] == call and new.c[expression] == 1:
            return [(source, new.empty(), 0), (source, new.empty(), hub)]
        return [edge]

    def _component_network(self, component: int) -> tuple[int, dict[int, int], list[Edge]]:
        """The automaton of a left-recursive component: number of states, hub per rule, edges. State 0 is the start."""
        result = self.networks.get(component)
        if result is None:
            builder = LeftCorners(self, lambda part: self.component.get(part) == component)
            for rule, number in self.recursive.items():
                if number == component:
                    builder.hubs[rule] = builder.state()
            for rule, hub in builder.hubs.items():
                body = self.old.rule_body[rule]
                assert body != UNDEFINED  # checked by `prepare`
                builder.begin(body, 0, NOWHERE, hub)
            states, place, edges = builder.contracted()
            result = states, {rule: place[hub] for rule, hub in builder.hubs.items()}, edges
            self.networks[component] = result
        return result

    def _check_size(self, rules: Sequence[int]) -> None:
        if len(self.new.children) > MAX_SIZE:
            raise BudgetExceededError(
                f"removing left recursion would make the grammar too large: rules {_names(self.old, rules)}",
                keyword="left recursion",
            )

    def network(self, node: int) -> tuple[int, int, list[int], list[tuple[int, int, int]]]:
        """States, start, finals and productive edges of a NETWORK of ``old``."""
        children, at = self.old.children, self.old.a[node]
        states, start, count = children[at : at + 3]
        edges = [
            (children[i], children[i + 1], children[i + 2])
            for i in range(at + 3 + count, at + self.old.b[node], 3)
            if self.derives[children[i + 1]]
        ]
        return states, start, list(children[at + 3 : at + 3 + count]), edges


def _without_nodes(old: Grammar) -> Grammar:
    """A grammar with the texts and sets of ``old``, so that leaves can be copied by number, but without its nodes."""
    new = Grammar()
    new.data = old.data
    new.byteset_bits = old.byteset_bits
    new.charsets = old.charsets
    new.literal_sets = list(old.literal_sets)
    new.token_sets = old.token_sets
    return new
