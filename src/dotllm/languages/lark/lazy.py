"""Removes from terminals the texts that begin with a match of a lazy terminal that may start at the same place.

llguidance's lexer runs all terminals that may come next in parallel, and a lazy terminal that matches wins. So in ::

    start: tool* TEXT
    tool: head "=foo>" …
    head[lazy]: TEXT "<function"
    TEXT: /(.|\\n)*/

the free text at the end never contains ``<function``. dotllm has no lexer, so it restricts the terminals themselves:
where ``head`` may start, ``TEXT`` stands for the texts that do not begin with a text of ``head``.

Whether ``head`` may start depends on the text before it. The terminals that may start are a property of places in the
rules; places are the states of one automaton for each rule. A lazy terminal *always* meets a use of another terminal
if it may start wherever the use may: every path that leads to the use without consuming anything passes a place from
which calls alone reach the lazy terminal. It *never* meets the use if no text leads both to a place of the use and to
a place of the lazy terminal. In all other cases the grammar is refused, because one expression would have two
meanings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dotllm import cancellation
from dotllm.automata.dfa import Budget, Dfa, union_of
from dotllm.errors import BudgetExceededError
from dotllm.grammar import Expression, Grammar, Rule
from dotllm.grammar import kinds as K
from dotllm.grammar.analysis import EMPTY, analyse
from dotllm.languages.regex import regex_to_dfa
from dotllm.languages.source import Source

MAX_PLACES = 50_000  # of all rules
MAX_PAIRS = 200_000  # of places that one text may lead to
_JSON = r'[ \t\r\n]*[\[{"\-0-9tfn](.|\n)*'  # the first character of a JSON value, then anything


class Use(NamedTuple):
    """A terminal at one place of the grammar."""

    rule: Rule
    """The rule that stands for the use until its remaining texts are known."""
    expression: Expression
    name: str
    at: int
    texts: Callable[[], Dfa] | None
    """None: a special token, which has no text."""
    lazy: bool = False
    lower: Callable[[Dfa], Expression] | None = None
    """None: its texts are not a regular language."""


def json_texts() -> Dfa:
    """Texts that begin as a JSON value does: a superset of all JSON values."""
    return regex_to_dfa(_JSON, search=False)


class Uses:
    """All uses of terminals in a grammar that has lazy terminals."""

    def __init__(self, grammar: Grammar, source: Source) -> None:
        self.grammar = grammar
        self.source = source
        self.all: list[Use] = []
        self._taken: dict[int, tuple[int, ...]] = {}
        self._known_texts: dict[tuple[tuple[int, ...], bool], Dfa] = {}

    def add(
        self, expression: Expression, name: str, at: int, texts: Callable[[], Dfa] | None, *,
        lazy: bool = False, lower: Callable[[Dfa], Expression] | None = None,
    ) -> Expression:  # fmt: skip
        """The expression that replaces ``expression`` at this place of the grammar."""
        if expression == self.grammar.empty():
            if lazy:
                self.grammar.warnings[self.source.location(at)] = (
                    f"{name} is lazy and may be empty, so it matches only the empty text; "
                    'let it end with a text, as in [suffix="…"]'
                )
            return expression
        rule = self.grammar.rule(name)
        self.all.append(Use(rule, expression, name, at, texts, lazy, lower))
        return self.grammar.call(rule)

    def define(self) -> None:
        """Define every use as its remaining texts.

        Raises:
            UnsupportedError: a lazy terminal meets a use sometimes, but not always.
            BudgetExceededError: the grammar is too large to decide this.
        """
        if any(use.lazy for use in self.all):
            places = _Places(self.grammar, self.all)
            for number, bits in enumerate(places.always):
                self._taken[number] = tuple(_members(bits))
            for met in (places.met, places.met_apart(self._literal, self._may_overlap)):
                for number, bits in enumerate(met):
                    for other in _members(bits & ~places.always[number]):
                        self._check(number, other)
            followed: dict[int, int] = {}
            for number, following in places.pairs():
                if self._is_cut_text(number) and self._is_cut_text(following):
                    followed.setdefault(number, following)
            for number, following in followed.items():
                self._check_pair(number, following)
        for number, use in enumerate(self.all):
            self.grammar.define(use.rule, self._left(use, self._taken.get(number, ())))

    def _left(self, use: Use, others: tuple[int, ...]) -> Expression:
        """The remaining texts of ``use`` where these lazy uses may start."""
        if not others or use.texts is None:
            return use.expression
        budget, texts = Budget(), use.texts()
        cut = texts.intersection(self._texts_from(others, use.lazy), budget)
        if cut.is_empty():
            return use.expression
        if use.lower is None:
            raise self._refused(use, f"{use.name} cannot start where lazy terminals can, which may match within it")
        return use.lower(texts.difference(cut, budget))

    def _texts_from(self, lazy: tuple[int, ...], proper: bool) -> Dfa:
        """Texts that begin with a text of one of these lazy uses, followed by more text if ``proper``. (If two lazy
        terminals match together, both win.)"""
        language = self._known_texts.get((lazy, proper))
        if language is None:
            budget = Budget()
            heads = union_of([*{texts(): None for number in lazy if (texts := self.all[number].texts)}], budget)
            heads = heads.intersection(Dfa.length(1, None), budget)
            language = self._known_texts[lazy, proper] = heads.concat(Dfa.length(int(proper), None), budget)
        return language

    def _check(self, number: int, other: int) -> None:
        """Refuse use ``number`` if lazy use ``other``, which may start where it does, would remove texts from it."""
        use, lazy = self.all[number], self.all[other]
        if use.texts is None:
            return
        if not use.texts().intersection(self._texts_from((other,), use.lazy), Budget()).is_empty():
            raise self._refused(
                use,
                f"{use.name} can start where the lazy {lazy.name} can, and elsewhere too: let both start only at "
                "the same place, as in tool* TEXT, or remove [lazy] and exclude with '& ~' what must not be in "
                f"{use.name}",
            )

    def _is_cut_text(self, number: int) -> bool:
        """Whether a use is a text (not a token), is not lazy, and starts where lazy terminals may."""
        use = self.all[number]
        return not use.lazy and use.texts is not None and bool(self._taken.get(number))

    def _check_pair(self, number: int, following: int) -> None:
        """Refuse a restricted text that may end inside a match of its lazy terminal if another restricted text may
        complete that match: llguidance's lexer would have read the lazy terminal."""
        use, after, lazy = self.all[number], self.all[following], self._taken[number]
        assert use.texts is not None
        budget = Budget()
        begun = self._texts_from(lazy, False)
        left = use.texts().difference(begun, budget)
        if not left.concat(Dfa.length(1, None), budget).intersection(begun, budget).is_empty():
            raise self._refused(
                use,
                f"{use.name} may be followed by {after.name}, and both together may contain what the lazy "
                f"{self.all[lazy[0]].name} matches: let the free text come once, at the end, as in tool* TEXT",
            )

    def _refused(self, use: Use, message: str) -> Exception:
        return self.source.unsupported(message, use.at, "lazy")

    def _literal(self, number: int) -> Expression | None:
        """The expression of a terminal that is one fixed text; None for any other."""
        expression = self.all[number].expression
        return expression if self.grammar.kind[expression] == K.LITERAL else None

    def _may_overlap(self, left: int, right: int) -> bool:
        """Whether some text may match both terminals."""
        first, second = self.all[left], self.all[right]
        if first.expression == second.expression:
            return True
        if first.texts is None or second.texts is None:
            return first.texts is None and second.texts is None
        try:
            return not first.texts().intersection(second.texts(), Budget()).is_empty()
        except BudgetExceededError:
            return True


class _Places:
    """The rules as automata: places, and the moves, calls and texts between them.

    A move consumes nothing. It is *sure* if it is possible whatever came before; the moves at the ends of counted
    repetitions are not sure.
    """

    def __init__(self, grammar: Grammar, uses: list[Use]) -> None:
        self.size = 0
        self.moves: list[tuple[int, int, bool]] = []
        self.calls: list[tuple[int, int, int]] = []  # from, rule, to
        self.texts: list[tuple[int, int, int]] = []  # from, use, to
        self.ends: dict[int, tuple[int, int]] = {}  # begin and end of each rule
        self._build(grammar, {int(use.rule): number for number, use in enumerate(uses)})
        derives = analyse(grammar).derives
        self.empty = [bool(derives[use.expression] & EMPTY) for use in uses]
        sure, every = self._empty_rules(sure=True), self._empty_rules(sure=False)
        self.back_sure = self._backwards(sure, sure=True)
        self.back = self._backwards(every, sure=False)
        self.forward: list[list[int]] = [[] for _ in range(self.size)]
        for target, sources in enumerate(self.back):
            for source in sources:
                self.forward[source].append(target)
        # Places at which a terminal has just ended, or nothing has been read.
        self.kernels = sorted({self.first, *(target for _, _, target in self.texts)})
        leaving: dict[int, list[tuple[int, int]]] = {}
        for source, use, target in self.texts:
            leaving.setdefault(source, []).append((use, target))
        # The uses that may come next, and where they lead. Many kernels have equal sets of them, so the sets are
        # numbered.
        numbers: dict[tuple[tuple[int, int], ...], int] = {}
        self.class_of: dict[int, int] = {}
        for kernel in self.kernels:
            cancellation.check()
            moves = {text for place in _reached(kernel, self.forward) for text in leaving.get(place, ())}
            self.class_of[kernel] = numbers.setdefault(tuple(sorted(moves)), len(numbers))
        self.classes = list(numbers)
        self.lazy = sum(1 << number for number, use in enumerate(uses) if use.lazy)
        self.lazy_in = [sum({1 << use for use, _ in texts if uses[use].lazy}) for texts in self.classes]
        self.always, self.met = self._always(len(uses)), self._met(len(uses))

    def _place(self) -> int:
        self.size += 1
        if self.size > MAX_PLACES:
            raise BudgetExceededError("the grammar is too large for its lazy terminals", keyword="lazy")
        return self.size - 1

    def _build(self, grammar: Grammar, uses: dict[int, int]) -> None:
        self.first = self._place()
        todo = [(int(grammar.start), self.first, self._place())]
        while todo:
            cancellation.check()
            node, source, target = todo.pop()
            kind, a, b = grammar.kind[node], grammar.a[node], grammar.b[node]
            if kind == K.SEQ:
                for child in grammar.children[a : a + b - 1]:
                    between = self._place()
                    todo.append((child, source, between))
                    source = between
                todo.append((grammar.children[a + b - 1], source, target))
            elif kind == K.ALT:
                todo += [(child, source, target) for child in grammar.children[a : a + b]]
            elif kind == K.REPEAT:
                most, begin, end = grammar.c[node], self._place(), self._place()
                self.moves += [(source, begin, True), (end, target, b <= 1)]
                if most != 1:
                    self.moves.append((end, begin, most < 0))
                if b == 0:
                    self.moves.append((source, target, True))
                todo.append((a, begin, end))
            elif kind == K.CALL and a in uses:
                self.texts.append((source, uses[a], target))
            elif kind == K.CALL:
                if a not in self.ends:
                    self.ends[a] = self._place(), self._place()
                    todo.append((grammar.rule_body[a], *self.ends[a]))
                self.calls.append((source, a, target))
            elif kind != K.NEVER:  # the empty text, or an ignored text, which counts as empty
                self.moves.append((source, target, True))

    def _empty_rules(self, *, sure: bool) -> set[int]:
        """The rules that may consume nothing."""
        into: list[list[int]] = [[] for _ in range(self.size)]
        for source, target, is_sure in self.moves:
            if is_sure or not sure:
                into[target].append(source)
        for source, use, target in self.texts:
            if self.empty[use]:
                into[target].append(source)
        begins = {begin: rule for rule, (begin, _) in self.ends.items()}
        callers: dict[int, list[tuple[int, int]]] = {}
        for source, rule, target in self.calls:
            callers.setdefault(rule, []).append((source, target))
        rules: set[int] = set()
        seen = {end for _, end in self.ends.values()}  # places from which their rule's end needs no text
        todo = list(seen)
        while todo:
            cancellation.check()
            place = todo.pop()
            new = list(into[place])
            if place in begins:
                rules.add(begins[place])
                for source, target in callers.get(begins[place], ()):
                    into[target].append(source)
                    if target in seen:
                        new.append(source)
            for source in new:
                if source not in seen:
                    seen.add(source)
                    todo.append(source)
        return rules

    def _backwards(self, empty_rules: set[int], *, sure: bool) -> list[list[int]]:
        """For each place: the places from which one step that consumes nothing leads there. ``sure``: without unsure
        moves and without returns, which depend on the caller."""
        back: list[list[int]] = [[] for _ in range(self.size)]
        for source, target, is_sure in self.moves:
            if is_sure or not sure:
                back[target].append(source)
        for source, use, target in self.texts:
            if self.empty[use]:
                back[target].append(source)
        for source, rule, target in self.calls:
            begin, end = self.ends[rule]
            back[begin].append(source)
            if rule in empty_rules:
                back[target].append(source)
            if not sure:
                back[target].append(end)
        return back

    def _always(self, uses: int) -> list[int]:
        """For each use: the lazy uses, as bits, that may start wherever it may."""
        good = [0] * self.size  # for each place: the lazy uses that calls alone reach from it
        for source, use, _ in self.texts:
            good[source] |= self.lazy & (1 << use)
        _spread([place for place in range(self.size) if good[place]], good, self.back_sure, None)
        unsure = [0] * self.size  # for each place: the lazy uses that some path to it does not meet
        for kernel in self.kernels:
            unsure[kernel] = self.lazy & ~good[kernel]
        _spread(self.kernels, unsure, self.forward, good)
        always = [self.lazy] * uses
        for source, use, _ in self.texts:
            always[use] &= ~unsure[source]
        return always

    def _met(self, uses: int) -> list[int]:
        """For each use: the lazy uses that may start at some place where it may."""
        met = [0] * uses
        for texts, lazy in zip(self.classes, self.lazy_in, strict=True):
            for use, _ in texts:
                met[use] |= lazy
        return met

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs of a use and a use that may follow it, each once."""
        seen = set()
        for _, use, target in self.texts:
            for after, _ in self.classes[self.class_of[target]]:
                if (use, after) not in seen:
                    seen.add((use, after))
                    yield use, after

    def met_apart(
        self, literal: Callable[[int], Expression | None], may_overlap: Callable[[int, int], bool]
    ) -> list[int]:
        """For each use: the lazy uses that may start at another place, if one text leads to both places, by the same
        terminals or by others that match the same text. ``literal``: the fixed text that a use is, if it is one; two of
        them overlap only if they are equal, and the others are compared (``may_overlap``).

        Raises:
            BudgetExceededError: there are too many such pairs of places.
        """
        apart = [0] * len(self.met)
        overlap: dict[tuple[int, int], bool] = {}
        by_literal: list[dict[Expression | None, list[tuple[int, int]]]] = []
        for texts in self.classes:
            by_literal.append({None: []})
            for text in texts:
                by_literal[-1].setdefault(literal(text[0]), []).append(text)
        seen = {(number, number) for number in range(len(self.classes))}
        todo = list(seen)
        while todo:
            cancellation.check()
            left, right = todo.pop()
            for number, neighbour in ((left, right), (right, left)):
                for use, _ in self.classes[number]:
                    apart[use] |= self.lazy_in[neighbour]
            for first, target in self.classes[left]:
                fixed, others = literal(first), by_literal[right]
                comparable = self.classes[right] if fixed is None else (*others.get(fixed, ()), *others[None])
                for second, other in comparable:
                    low, high = sorted((self.class_of[target], self.class_of[other]))
                    if (low, high) in seen:
                        continue
                    key = (first, second) if first < second else (second, first)
                    if key not in overlap:
                        overlap[key] = may_overlap(*key)
                    if overlap[key]:
                        seen.add((low, high))
                        todo.append((low, high))
            if len(seen) > MAX_PAIRS:
                raise BudgetExceededError("the grammar is too large for its lazy terminals", keyword="lazy")
        return apart


def _members(bits: int) -> list[int]:
    return [i for i, digit in enumerate(reversed(f"{bits:b}")) if digit == "1"]


def _reached(start: int, links: list[list[int]]) -> set[int]:
    """The places that links lead to from ``start``, which is one of them."""
    seen = {start}
    todo = [start]
    while todo:  # bounded: by the places, each added once
        for place in links[todo.pop()]:
            if place not in seen:
                seen.add(place)
                todo.append(place)
    return seen


def _spread(starts: list[int], bits: list[int], links: list[list[int]], stops: list[int] | None) -> None:
    """Propagate bits along the links; ``stops``: for each place, the bits that do not enter it."""
    todo = list(starts)
    while todo:
        cancellation.check()
        place = todo.pop()
        for to in links[place]:
            new = bits[place] if stops is None else bits[place] & ~stops[to]
            if new & ~bits[to]:
                bits[to] |= new
                todo.append(to)
