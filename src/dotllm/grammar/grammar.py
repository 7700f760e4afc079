"""Grammar: rules over bytes, built bottom-up, kept in flat arrays.

The front end of every language (regex, JSON Schema, Lark, …) calls the methods below; `automata.lowering` turns the
result into the NFA that the machine determinises while it runs. An expression is an int, the number of its node, and
may be used many times (each use is expanded; make it a rule to share it). Building the grammar takes most of the time
from a request to its first mask, so flat arrays replace node objects: a node costs a few appends, and the passes over
the grammar are kernels.

A rule call is a push on the machine's stack; a call in tail position is a jump, so right recursion costs nothing. Left
recursion must be rewritten before lowering (`grammar.transform`); a grammar that still has it is refused.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NewType

import numpy as np

from dotllm.arrays import Int32
from dotllm.charset import CharSet
from dotllm.errors import BudgetExceededError, InvalidSpecError
from dotllm.grammar import kinds as K
from dotllm.grammar.kinds import UNDEFINED

Expression = NewType("Expression", int)
Rule = NewType("Rule", int)


_NOTHING: Int32 = np.zeros(0, np.int32)
MAX_UNORDERED = (1 << 15) - 1
"""Maximum number of parts of an unordered sequence: two such numbers share an int32."""


class Grammar:
    """A set of rules and a start expression. Use one instance per specification; it is not thread-safe."""

    def __init__(self) -> None:
        self.kind = array("i", (K.EMPTY, K.NEVER))
        self.a, self.b, self.c = array("i", (0, 0)), array("i", (0, 0)), array("i", (0, 0))
        self.children = array("i")
        self.data = bytearray()
        self.byteset_bits = bytearray()  # 32 bytes for each set, see `byteset_mask`
        self.charsets: list[CharSet] = []
        self.literal_sets: list[list[bytes]] = []
        self.token_sets: list[tuple[frozenset[int], bool]] = []
        self.rule_names: list[str] = []
        self.rule_body = array("i")  # UNDEFINED, or an expression
        self.unique_rules: list[Rule] = []  # see `unique_open`
        self._empty, self._never = Expression(0), Expression(1)
        self.start = self._empty
        self._memo: dict[object, Expression] = {0: self._never}  # by `byteset`'s mask, …
        self._calls = array("i")  # by rule: its call, -1 if there is none yet
        # The memo of the grammar that this one began with, consulted when `_memo` has no entry.
        self._begun: dict[object, Expression] = {}
        self.warnings: dict[object, str] = {}
        """Warnings about parts that have no effect, by their places in the text of the specification."""
        self.may_warn = False
        """Whether there may be further warnings, which the front end has not looked for because few callers ask."""
        self.analysis: tuple[tuple[int, ...], Any] | None = None  # see `grammar.analysis`

    def _node(self, kind: int, a: int = 0, b: int = 0, c: int = 0) -> Expression:
        kinds = self.kind
        node = len(kinds)
        kinds.append(kind)
        self.a.append(a)
        self.b.append(b)
        self.c.append(c)
        return node  # type: ignore[return-value]  # Expression(node) would be a fifth of the time

    def empty(self) -> Expression:
        """The empty string."""
        return self._empty

    def never(self) -> Expression:
        """An expression that no text satisfies. Alternatives that need it are pruned; a grammar that needs it is
        refused."""
        return self._never

    def literal(self, text: bytes | str) -> Expression:
        """Exactly these bytes (a str is encoded as UTF-8). Raises `InvalidSpecError` for a lone surrogate."""
        try:
            raw = text.encode() if isinstance(text, str) else text
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise InvalidSpecError(f"{half} is a lone surrogate, which no Unicode text contains") from None
        if not raw:
            return self._empty
        result = self._memo.get(raw) or self._begun.get(raw)
        if result is None:
            result = self._memo[raw] = self._node(K.LITERAL, len(self.data), len(raw))
            self.data += raw
        return result

    def bytes_in(self, members: Iterable[int]) -> Expression:
        """One byte out of ``members`` (0..255)."""
        mask = 0
        for byte in members:
            mask |= 1 << byte
        return self.byteset(mask)

    def byteset(self, mask: int) -> Expression:
        """One byte out of those whose bits are set in ``mask``."""
        result = self._memo.get(mask) or self._begun.get(mask)
        if result is None:
            result = self._memo[mask] = self._node(K.BYTES, len(self.byteset_bits) >> 5)
            self.byteset_bits += mask.to_bytes(32, "little")
        return result

    def sets(self, sets: Sequence[int | CharSet]) -> list[Expression]:
        """`byteset` for each mask, and `chars` for each set of characters, none of which is empty. Making them
        together takes a third of the time."""
        memo, begun = self._memo, self._begun
        for key in sets:
            if key not in memo and key not in begun:
                memo[key] = len(self.kind)  # type: ignore[assignment]  # as in `_node`
                if isinstance(key, int):
                    self.kind.append(K.BYTES)
                    self.a.append(len(self.byteset_bits) >> 5)
                    self.byteset_bits += key.to_bytes(32, "little")
                else:
                    self.kind.append(K.CHARS)
                    self.a.append(len(self.charsets))
                    self.charsets.append(key)
        nothing = bytes(4 * (len(self.kind) - len(self.b)))
        self.b.frombytes(nothing)
        self.c.frombytes(nothing)
        return [memo.get(key) or begun[key] for key in sets]

    def byteset_mask(self, number: int) -> int:
        """The bytes of a BYTES node whose ``a`` is ``number``, as bits."""
        return int.from_bytes(self.byteset_bits[32 * number : 32 * number + 32], "little")

    def chars(self, charset: CharSet) -> Expression:
        """One code point out of ``charset``, as UTF-8."""
        if not charset:
            return self._never
        result = self._memo.get(charset) or self._begun.get(charset)
        if result is None:
            result = self._memo[charset] = self._node(K.CHARS, len(self.charsets))
            self.charsets.append(charset)
        return result

    def seq(self, parts: Sequence[Expression]) -> Expression:
        """All of ``parts``, one after another."""
        if len(parts) < 2:
            return parts[0] if parts else self._empty
        at = len(self.children)
        self.children.extend(parts)
        return self._node(K.SEQ, at, len(parts))

    def alt(self, choices: Sequence[Expression]) -> Expression:
        """Any one of ``choices``; none at all is `never`."""
        if len(choices) < 2:
            return choices[0] if choices else self._never
        at = len(self.children)
        self.children.extend(choices)
        return self._node(K.ALT, at, len(choices))

    def repeat(self, body: Expression, minimum: int = 0, maximum: int | None = None) -> Expression:
        """``body`` between ``minimum`` and ``maximum`` times (None: no limit). It is counted, not unrolled: its size
        does not depend on the numbers, which must be below 2**30."""
        if maximum is not None and maximum < minimum:
            return self._never
        if maximum == 0:
            return self._empty
        if minimum == maximum == 1:
            return body
        return self._node(K.REPEAT, body, minimum, -1 if maximum is None else maximum)

    def once(self, key: tuple[str, object], make: Callable[[], Expression]) -> Expression:
        """The expression that ``make`` returned when ``key`` was first requested."""
        result = self._memo.get(key) or self._begun.get(key)
        if result is None:
            result = self._memo[key] = make()
        return result

    def each_literal(self, texts: bytes, lengths: Sequence[int]) -> Sequence[Expression]:
        """`literal` for each of several non-empty texts. Making them together takes a tenth of the time."""
        first = len(self.kind)
        self._nodes(K.LITERAL, accumulate(lengths[:-1], initial=len(self.data)), lengths)
        self.data += texts
        return range(first, first + len(lengths))  # type: ignore[return-value]  # numbers of nodes

    def each_seq(self, length: int, parts: Sequence[Expression]) -> Sequence[Expression]:
        """`seq` for each run of ``length`` > 1 parts."""
        first, at = len(self.kind), len(self.children)
        self.children.extend(parts)
        n = len(parts) // length
        self._nodes(K.SEQ, range(at, at + len(parts), length), array("i", (length,)) * n)
        return range(first, first + n)  # type: ignore[return-value]  # numbers of nodes

    def each_alt(self, length: int, choices: Sequence[Expression]) -> Sequence[Expression]:
        """`alt` for each run of ``length`` > 1 choices."""
        first = self.each_seq(length, choices)
        self.kind[first[0] :] = array("i", (K.ALT,)) * len(first)
        return first

    def each_byteset(self, masks: Sequence[int]) -> Sequence[Expression]:
        """`byteset` for each of ``masks``, none of them 0."""
        first, at = len(self.kind), len(self.byteset_bits) >> 5
        self._nodes(K.BYTES, range(at, at + len(masks)), [0] * len(masks))
        self.byteset_bits += b"".join([mask.to_bytes(32, "little") for mask in masks])
        return range(first, first + len(masks))  # type: ignore[return-value]  # numbers of nodes

    def each_rule(self, name: str, bodies: Sequence[Expression]) -> Sequence[Expression]:
        """Calls of new rules with these bodies."""
        first, rule, n = len(self.kind), len(self.rule_body), len(bodies)
        self._nodes(K.CALL, range(rule, rule + n), [0] * n)
        calls = range(first, first + n)
        self.rule_names.extend([name] * n)
        self.rule_body.extend(bodies)
        self._calls.extend(calls)
        return calls  # type: ignore[return-value]  # numbers of nodes

    def _nodes(self, kind: int, a: Iterable[int], b: Sequence[int]) -> None:
        n = len(b)
        self.kind.extend(array("i", (kind,)) * n)
        self.a.extend(a)
        self.b.extend(b)
        self.c.frombytes(bytes(4 * n))

    def optional(self, body: Expression) -> Expression:
        """``body`` or nothing."""
        return self.repeat(body, 0, 1)

    def literals(self, texts: Iterable[bytes]) -> Expression:
        """Any one of many byte strings. They become a prefix tree, so there may be 100,000 of them."""
        words = sorted(set(texts))
        if len(words) < 2:
            return self.literal(words[0]) if words else self._never
        self.literal_sets.append(words)
        return self._node(K.LITERALS, len(self.literal_sets) - 1)

    def network(
        self,
        states: int,
        start: int,
        finals: Sequence[int],
        edges: Iterable[tuple[int, Expression, int]],
        most_edges: int = 0,
    ) -> Expression:
        """An automaton with expressions on its edges, ``(source, expression, target)``; `empty` is an epsilon edge.

        It accepts the words read on a path from ``start`` to one of ``finals``, and may be nondeterministic and cyclic.
        Members of objects, items of arrays and results of the DFA algebra are networks. Layout in ``children``:
        states, start, len(finals), finals…, then (source, expression, target)….

        ``most_edges``, if not 0 (and below 2**30), limits the paths to that many edges. The machine counts them, so the
        size does not depend on the limit. No edge of a counted network may carry an expression that can be empty.
        """
        if not finals:
            return self._never
        if most_edges:
            edges = sorted(edges)  # makes the edges of a state consecutive
        at = len(self.children)
        self.children.extend((states, start, len(finals), *finals, *chain.from_iterable(edges)))
        return self._node(K.NETWORK, at, len(self.children) - at, most_edges)

    def flat_network(self, layout: bytes, most_edges: int = 0) -> Expression:
        """`network` for a layout that already exists, as native int32; large networks are built as arrays. With
        ``most_edges``, the edges must be sorted by their sources."""
        at = len(self.children)
        self.children.frombytes(layout)
        return self._node(K.NETWORK, at, len(self.children) - at, most_edges)

    def flat_networks(self, layouts: bytes, starts: Sequence[int]) -> Sequence[Expression]:
        """`flat_network` for each of several layouts in one array. ``starts`` says where each begins and where the
        last ends."""
        first, at, n = len(self.kind), len(self.children), len(starts) - 1
        self.children.frombytes(layouts)
        lengths = [end - start for start, end in pairwise(starts)]
        self._nodes(K.NETWORK, [at + start for start in starts[:-1]], lengths)
        return range(first, first + n)  # type: ignore[return-value]  # numbers of nodes

    def unordered(
        self,
        required: Sequence[Expression],
        optional: Sequence[Expression],
        repeatable: Sequence[Expression],
        separator: Expression,
    ) -> Expression:
        """At least one part, ``separator`` between any two, in any order: each of ``required`` once, each of
        ``optional`` at most once, each of ``repeatable`` any number of times.

        Used for the members of an object and the items of a set. The size is linear, because the machine remembers the
        parts used; a network would need a state for every subset. No part may be empty; the separator may. Layout in
        ``children``: separator, required, optional, repeatable; ``c``: len(required) | len(required + optional) << 15.

        Raises:
            BudgetExceededError: there are more than `MAX_UNORDERED` parts.
        """
        once = len(required) + len(optional)
        if once + len(repeatable) > MAX_UNORDERED:
            raise BudgetExceededError(
                f"{once + len(repeatable):,} parts may come in any order; the limit is {MAX_UNORDERED:,}",
                keyword="unordered",
                help="use fewer, or declare the properties and ask for keys in declared order",
            )
        at = len(self.children)
        self.children.extend((separator, *required, *optional, *repeatable))
        return self._node(K.UNORDERED, at, len(self.children) - at, len(required) | once << 15)

    def tokens(self, ids: Iterable[int], *, exclude: bool = False) -> Expression:
        """One token out of ``ids`` (``exclude``: one token that is not in ``ids``), matched by id, whatever its
        bytes."""
        self.token_sets.append((frozenset(ids), exclude))
        return self._node(K.TOKENS, len(self.token_sets) - 1)

    def rule(self, name: str) -> Rule:
        """Declare a rule; `define` it later (recursion needs the name first). Names are for people, and need not be
        unique."""
        self.rule_names.append(name)
        self.rule_body.append(UNDEFINED)
        self._calls.append(-1)
        return Rule(len(self.rule_names) - 1)

    def add_rules(self, names: Sequence[str], bodies: Int32) -> None:
        """Add rules with these bodies."""
        self.rule_names.extend(names)
        self.rule_body.frombytes(bodies.tobytes())
        self._calls.extend([-1] * len(names))

    def abandon(self, first: int) -> None:
        """Define the rules from ``first`` on that have no body as `never`, because the code that declared them has
        failed."""
        for rule in range(first, len(self.rule_body)):
            if self.rule_body[rule] == UNDEFINED:
                self.rule_body[rule] = self.never()

    def define(self, rule: Rule, body: Expression) -> None:
        """Give a declared rule its body. Raises ValueError if it has one."""
        if self.rule_body[rule] != UNDEFINED:
            raise ValueError(f"rule {self.rule_names[rule]!r} is already defined")
        self.rule_body[rule] = body

    def call(self, rule: Rule) -> Expression:
        """A call of a rule."""
        result: Expression = self._calls[rule]  # type: ignore[assignment]  # or -1
        if result < 0:
            result = self._calls[rule] = self._node(K.CALL, rule)
        return result

    def unique_open(self, bracket: bytes = b"[") -> Expression:
        """The opening bracket of a JSON array in which no two items are equal, or (``{``) of an object in which no two
        keys are equal.

        The grammar does not express this; the guides of an index remember the items (`index.unique`).
        """

        def make() -> Expression:
            rule = self.rule("array without equal items" if bracket == b"[" else "object without equal keys")
            self.define(rule, self.literal(bracket))
            self.unique_rules.append(rule)
            return self.call(rule)

        return self.once(("unique open", bracket), make)

    def arrays(self) -> tuple[Int32, ...]:
        """kind, a, b, c, children and rule_body for a kernel. The grammar cannot grow while these arrays are
        referenced."""
        return tuple(
            [
                np.frombuffer(x, np.int32) if x else _NOTHING
                for x in (self.kind, self.a, self.b, self.c, self.children, self.rule_body)
            ]
        )

    @property
    def is_new(self) -> bool:
        """Whether nothing has been built yet."""
        return len(self.kind) == 2 and not self.rule_names

    def begin_with(self, other: Grammar) -> None:
        """Make this grammar, which must be new, a copy of ``other`` without its start. Expressions and rules keep their
        numbers. ``other`` must not grow any more. A copy takes a few microseconds, because whole arrays are copied."""
        assert self.is_new
        self.kind, self.a, self.b, self.c = other.kind[:], other.a[:], other.b[:], other.c[:]
        self.children, self.rule_body = other.children[:], other.rule_body[:]
        self.data, self.byteset_bits = other.data[:], other.byteset_bits[:]
        self.charsets, self.literal_sets = other.charsets[:], other.literal_sets[:]
        self.token_sets, self.rule_names = other.token_sets[:], other.rule_names[:]
        self.unique_rules = other.unique_rules[:]
        self._calls = other._calls[:]
        self._begun = {**other._begun, **other._memo} if other._begun else other._memo
        self.analysis = other.analysis

    def include(self, other: Grammar) -> Expression:
        """Copy all of ``other`` in, and return its start as an expression of this grammar. Nothing is shared
        afterwards."""
        nodes, rules, children = len(self.kind), len(self.rule_body), len(self.children)
        data, bytesets, charsets = len(self.data), len(self.byteset_bits) >> 5, len(self.charsets)
        words, tokens = len(self.literal_sets), len(self.token_sets)
        first_operand = {
            K.LITERAL: data, K.BYTES: bytesets, K.CHARS: charsets, K.SEQ: children, K.ALT: children,
            K.REPEAT: nodes, K.CALL: rules, K.LITERALS: words, K.NETWORK: children, K.TOKENS: tokens,
            K.UNORDERED: children,
        }  # fmt: skip
        moved = array("i", other.children)
        for kind, a, b, c in zip(other.kind, other.a, other.b, other.c, strict=True):
            self._node(kind, a + first_operand.get(kind, 0), b, c)
            if kind in (K.SEQ, K.ALT, K.UNORDERED):
                for i in range(a, a + b):
                    moved[i] += nodes
            elif kind == K.NETWORK:
                for i in range(a + 3 + other.children[a + 2] + 1, a + b, 3):
                    moved[i] += nodes
        self.children.extend(moved)
        self.data += other.data
        self.byteset_bits += other.byteset_bits
        self.charsets += other.charsets
        self.literal_sets += other.literal_sets
        self.token_sets += other.token_sets
        self.unique_rules += [Rule(rule + rules) for rule in other.unique_rules]
        self.rule_names += other.rule_names
        self._calls.extend([-1] * len(other.rule_body))
        self.rule_body.extend(body if body == UNDEFINED else body + nodes for body in other.rule_body)
        return Expression(other.start + nodes)

    def __len__(self) -> int:
        return len(self.kind)
