"""Plans for stateful guides, under a limit on the tokens left (see `index.limits`).

The automaton's shortest way to the end (`automata.machine.plans`) may repeat an item. So inside a marked array or
object a plan is sought byte by byte: along the shortest way while nothing is repeated, then along the next shortest
way. A complete item is kept. Outside, nothing is remembered, and the automaton's plans are used: a check, made once,
ensures that the shortest text of a marked array does not itself repeat an item.

The mask under a limit is the automaton's, without the tokens after which a plan would have to avoid an earlier item,
unless such a plan is found. At most `_MOST_TRIED` of these tokens are tried, and all their searches share
`_MOST_OF_MASK` steps; the rest are left out. A search that completes finds the same plan as without these bounds, so
the plan is found again after its token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np

from dotllm.arrays import Int32, UInt8
from dotllm.automata.kinds import N_BYTE, N_CALL
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.plans import (
    P_BYTES,
    P_NEXT,
    P_NODE,
    P_WIDTH,
    THE_END,
    TRIE,
    Trie,
    bytes_from,
    linked,
    place_of,
    places_from,
    solve,
    tail_of,
)
from dotllm.automata.machine.ways import MOST
from dotllm.errors import TooFewTokensError, UnsupportedError
from dotllm.index.limits import find_shortest_ways, is_tight, trie_of
from dotllm.index.unique.conflicts import earlier_values
from dotllm.index.unique.masks import conflicts_of
from dotllm.index.unique.paths import ANY_STEPS, ROOT, Branch, Branches, Paths, Tokens, first_of, listed, one_step, step
from dotllm.index.unique.scanner import (
    KEY,
    NAME,
    OUTSIDE,
    START,
    STRING,
    UNIQUE,
    VALUE,
    WHITESPACE,
    End,
    Open,
    State,
    feed,
)
from dotllm.index.walkable import Walkable
from dotllm.jit import U1, I, inner_kernel, kernel

_MOST_STEPS = 20_000  # the most steps of a search
_MOST_OF_MASK = 2_000  # the most steps of all searches for a mask
_MOST_TEXT = 1 << 12  # the most bytes of a marked array's shortest text
_MOST_TRIED = 64  # tokens
_SPARE = 64  # tokens that suffice for an item to differ from all earlier items, if those are few
_LONGER = 2  # more tokens for each earlier item, which suffice even if only the length can differ


class Plan(NamedTuple):
    """A plan: ``needed`` tokens, including the end token, suffice to end the text, with ``text`` if there is one,
    otherwise with the automaton's plan."""

    needed: int
    text: bytes

    def behind(self, tokens: Tokens, token: int) -> Plan:
        """The rest of the plan after its first token."""
        return Plan(self.needed - 1, self.text[len(tokens.bytes_of(token)) :])


@inner_kernel(I(MEM, TRIE, I, U1))
def spell(mem: Int32, trie: Trie, links: int, out: UInt8) -> int:
    """Spell the plan that continues at a list of places into ``out``, until it stops being a single text of bytes.
    Returns the length, or an error. H_OUT: whether this list, or another on the way, had several places."""
    n, several = I(0), I(0)
    places = mem[L.AT_PLACES]
    while links > 0 and n < out.shape[0]:
        place, least, looked_at = I(THE_END), I(MOST) + 1, 0
        while links > 0:
            behind = I(mem[mem[L.AT_TAILS] + 3 * links])
            done = solve(mem, trie, behind)
            if done < 0:
                return done
            if mem[places + P_WIDTH * behind + P_BYTES] < least:
                place, least = behind, I(mem[places + P_WIDTH * behind + P_BYTES])
            links = I(mem[mem[L.AT_TAILS] + 3 * links + 1])
            looked_at += 1
        several |= looked_at > 1
        node = I(mem[places + P_WIDTH * place + P_NODE])
        if place == THE_END or mem[mem[L.H_KIND] + node] != N_BYTE:
            break
        out[n] = mem[mem[L.H_WAY_BYTE] + node]
        n += 1
        links = I(mem[places + P_WIDTH * place + P_NEXT])
    mem[L.H_OUT] = several
    return n


@kernel(I(MEM, TRIE, I, U1))
def way_text(mem: Int32, trie: Trie, target: int, out: UInt8) -> int:
    """`spell` the shortest way from a jump to ``target`` to the end of its level."""
    links = places_from(mem, target, 0)
    return links if links < 0 else spell(mem, trie, links, out)


@kernel(I(MEM, TRIE, I, U1))
def plan_text(mem: Int32, trie: Trie, config: int, out: UInt8) -> int:
    """`spell` the automaton's plan for a configuration."""
    at = mem[L.AT_CONFIG] + 3 * config
    state, stack = I(mem[at]), I(mem[at + 1])
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    links = I(0)
    for i in range(mem[entry + L.S_LENGTH] // 2):
        tail = tail_of(mem, I(mem[items + 2 * i + 1]), stack)
        place = place_of(mem, I(mem[items + 2 * i]), tail) if tail >= 0 else tail
        links = linked(mem, place, links)
        if links < 0:
            return links
    return spell(mem, trie, links, out)


def check_shortest_texts(paths: Paths) -> None:
    """Find the shortest ways. Raises UnsupportedError if one may repeat an item or a key. Hold the index's lock."""
    index = paths.index
    if paths.repeats_nothing is None:
        find_shortest_ways(index)
        trie, out = trie_of(index.space), np.empty(_MOST_TEXT, np.uint8)
        paths.repeats_nothing = True
        for opening, target in _behind_openings(index):
            length = index.run(lambda mem, target=target: int(way_text(mem, trie, target, out)))  # type: ignore[misc]
            state: State | End = START[opening]
            goes_on = False  # after an item or a key
            for byte in out[:length].tolist():
                if isinstance(state, State):
                    goes_on |= state.top.below is None and len(state.top.done) > 0 and state.mode in (KEY, VALUE)
                    state = feed(state, byte)
            paths.needs_several |= goes_on
            # one of an object's shortest texts may repeat a key and another not, and this check cannot tell which
            paths.repeats_nothing &= state is OUTSIDE and not (goes_on and opening == ord("{"))
    if not paths.repeats_nothing:
        raise UnsupportedError(
            "no token limit can be guaranteed: an array with uniqueItems needs several items, or an object "
            "several of its keys",
            keyword="uniqueItems",
        )


def _behind_openings(index: Walkable) -> Iterator[tuple[int, int]]:
    """The bracket of each marked array or object (a rule of its own: `Grammar.unique_open`), and the node after it."""
    mem = index.mem
    nodes = int(mem[L.H_NODES])
    kinds, a, b, starts, edges = (
        mem[mem[slot] : mem[slot] + nodes] for slot in (L.H_KIND, L.H_A, L.H_B, L.H_CLOSURE_START, L.H_EDGE_START)
    )
    for call in np.flatnonzero(kinds == N_CALL).tolist():
        node = int(mem[mem[L.H_CLOSURE] + starts[a[call]]])
        if node in index.unique_nodes:
            yield int(mem[mem[L.H_EDGE_BYTES] + edges[node]]) & 255, int(b[call])


def plan_of(paths: Paths, tokens: Tokens, branches: Branches) -> Plan | None:
    """The shortest plan that is found, if any. Hold the index's lock."""
    plans = [plan for branch in branches for plan in (_plan(paths, tokens, branch),) if plan is not None]
    return min(plans, key=lambda plan: plan.needed, default=None)


def _plan(paths: Paths, tokens: Tokens, branch: Branch) -> Plan | None:
    needed = paths.index.tokens_to_finish(branch.config)
    if not isinstance(branch.state, State):
        return Plan(needed, b"")
    text, is_exact = _plan_text(paths, branch.config)
    repeats_nothing = _repeats_nothing(paths, branch, text)
    spelt = spelling(tokens, text)
    if repeats_nothing and (is_exact or (spelt is not None and len(spelt) < needed)):
        return Plan(needed, text)
    fewest = _text_of_fewest_tokens(paths, tokens, branch.config, needed)
    if _repeats_nothing(paths, branch, fewest):
        return Plan(needed, fewest)
    if not repeats_nothing:
        way = _way_out(paths, branch, keep=True) or _way_out(paths, branch, keep=False)
        if way is None:
            return None
        spelt = spelling(tokens, text := way[0] + _plan_text(paths, way[1])[0])
    return None if spelt is None else Plan(len(spelt) + 1, text)


def _text_of_fewest_tokens(paths: Paths, tokens: Tokens, config: int, needed: int) -> bytes:
    """The text of the ``needed`` tokens that end ``config``. It may be longer than the shortest text."""
    result = paths.fewest_tokens.get(config)
    if result is None:
        index, result, after = paths.index, b"", config
        for left in range(needed, 1, -1):
            mask = index.mask_within(after, left)
            token = first_of(index.masks[index.mask_row(after)] if mask is None else mask)
            result += tokens.bytes_of(token)
            after = index.advance(after, token)
        paths.fewest_tokens[config] = result
    return result


def _plan_text(paths: Paths, config: int) -> tuple[bytes, bool]:
    """The text of the automaton's plan for ``config``, and whether the plan's tokens were counted on this text."""
    result = paths.plan_texts.get(config)
    if result is None:
        index, trie, out = paths.index, trie_of(paths.index.space), np.empty(_MOST_TEXT, np.uint8)
        length = index.run(lambda mem: int(plan_text(mem, trie, config, out)))
        result = paths.plan_texts[config] = out[:length].tobytes(), not index.mem[L.H_OUT]
    return result


def _repeats_nothing(paths: Paths, branch: Branch, text: bytes) -> bool:
    branches: Branches = (branch,)
    for byte in text:
        branches = step(paths, branches, byte)
        if not branches:
            return False
        if all(branch.state is OUTSIDE for branch in branches):
            return True
    return False


def _way_out(paths: Paths, start: Branch, *, keep: bool) -> tuple[bytes, int] | None:
    """A text that leads out of the marked array, and the configuration after it. ``keep``: complete items stay."""
    ties = count()  # later entries first, because they are deeper (branches are not compared)
    heap: list[tuple[int, int, int, int, Branch, bytes]] = [(0, 0, 0, 0, start, b"")]
    for _ in range(_MOST_STEPS):
        paths.search_steps -= 1
        if not heap or paths.search_steps < 0:
            return None
        _, _, _, at, branch, text = heappop(heap)
        if not isinstance(branch.state, State):
            return text, branch.config
        ways = _ways(paths, branch.config, branch.state.mode in (STRING, NAME))
        if at == len(ways):
            continue
        if at + 1 < len(ways):
            heappush(heap, (len(text) + 1 + ways[at + 1][0], -len(text), -next(ties), at + 1, branch, text))
        rest, byte = ways[at]
        for after in one_step(paths, branch, byte):
            if keep and completed(after) != completed(branch):
                heap.clear()
            heappush(heap, (len(text) + 1 + rest, -len(text) - 1, -next(ties), 0, after, text + bytes((byte,))))
    return None


def _ways(paths: Paths, config: int, in_text: bool) -> list[tuple[int, int]]:
    """(number of bytes from there to the end of the text, byte) for the bytes that may come next, the shortest ways
    first. Between JSON's own tokens, white space is left out if another byte may come."""
    result = paths.ways.get((config, in_text))
    if result is None:
        allowed = paths.allowed(config)
        if not in_text:
            allowed = tuple(byte for byte in allowed if byte not in WHITESPACE) or allowed
        index, trie = paths.index, trie_of(paths.index.space)
        rests = dict.fromkeys((paths.step(config, byte) for byte in allowed), -1)
        for after in rests:
            rests[after] = index.run(lambda mem, after=after: int(bytes_from(mem, trie, after)))  # type: ignore[misc]
        result = sorted((rests[paths.step(config, byte)], byte) for byte in allowed)
        paths.ways[config, in_text] = result
    return result


def completed(branch: Branch) -> int:
    """The number of items and keys in the open arrays and objects; -1 outside of them."""
    return earlier_values(branch.state) if isinstance(branch.state, State) else -1


def spelling(tokens: Tokens, text: bytes) -> tuple[int, ...] | None:
    """The fewest tokens that spell ``text``; None if no tokens do."""
    best: list[tuple[int, ...] | None] = [None] * len(text) + [()]
    for start in range(len(text) - 1, -1, -1):
        node = ROOT
        for at in range(start, len(text)):
            child = tokens.children(node).get(text[at])
            if child is None:
                break
            node, behind = child, best[at + 1]
            shortest = best[start]
            if behind is not None and (shortest is None or len(behind) + 1 < len(shortest)):
                ending = tokens.ending_at(node)
                if ending:
                    best[start] = (ending[0], *behind)
    return best[0]


def next_token(tokens: Tokens, plan: Plan) -> int | None:
    """The first token of a plan; None for the automaton's plan."""
    spelt = spelling(tokens, plan.text)
    return spelt[0] if spelt else None


def is_far(paths: Paths, branches: Branches, tokens_left: int) -> bool:
    """Whether the limit changes nothing, whatever token comes next."""
    return not any(
        is_tight(paths.index, branch.config, tokens_left - _SPARE - _LONGER * max(0, completed(branch)))
        for branch in branches
    )


def within(
    paths: Paths, tokens: Tokens, branch: Branch, mask: Int32, tokens_left: int, fits: Callable[[Branch, int], bool]
) -> Int32:
    """The tokens of ``mask``, int32 [words], the mask of ``branch``, after which the text can end in time.

    fits(branch, token): whether a plan with few enough tokens is found after the token.
    """
    try:
        limited = paths.index.mask_within(branch.config, tokens_left)
    except TooFewTokensError:
        return np.zeros_like(mask)
    out: Int32 = mask.copy() if limited is None else mask & limited
    risky = _risky(paths, tokens, branch, out)
    risky.sort(key=lambda token: (len(tokens.bytes_of(token)), token))
    paths.search_steps = _MOST_OF_MASK
    try:
        for i, token in enumerate(risky):
            if i >= _MOST_TRIED or paths.search_steps < 0 or not fits(branch, token):
                out[token >> 5] &= ~np.uint32(1 << (token & 31)).view(np.int32)
    finally:
        paths.search_steps = ANY_STEPS
    return out


def _risky(paths: Paths, tokens: Tokens, branch: Branch, mask: Int32) -> list[int]:
    """The tokens of a mask after which the shortest way may repeat an item or a key."""
    state = branch.state
    if not isinstance(state, State):
        return listed(mask & (tokens.with_brackets if paths.needs_several else tokens.opening))
    if paths.needs_several:  # an item may block another that must follow
        return listed(mask)
    if not _remembers(state):
        return listed(mask & tokens.going_on)
    if state.mode not in (STRING, NAME) or state.pending:
        return listed(mask)
    risky = set(listed(mask & tokens.breaking))
    conflicts = conflicts_of(paths, state)
    for text in conflicts.strings(state.text):
        node = ROOT
        for byte in text[len(state.text) :].encode():
            child = tokens.children(node).get(byte)
            if child is None:
                break
            node = child
            risky.update(token for token in tokens.ending_at(node) if mask[token >> 5] >> (token & 31) & 1)
    return list(risky)


def _remembers(state: State) -> bool:
    """Whether an open array has an item, or an open object has a key, that must not be repeated."""
    top: Open | None = state.top
    while top is not None:
        if (top.kind == UNIQUE and len(top.done)) or (top.keys is not None and len(top.keys)):
            return True
        top = top.below
    return False
