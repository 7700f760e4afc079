"""A short way out: bytes that bring a sequence from where it is to a place where the text may end.

Best-first search over configurations (ints, so they can be remembered). Runs of forced bytes are one step; a stack that
is deeper costs extra, since what was opened must be closed: without it, the search would try every nesting of `[`.
The result is short rather than provably shortest, which is what a length budget needs.
"""

from __future__ import annotations

import heapq
from itertools import count

from dotllm.automata.machine import layout
from dotllm.index import Index

DEPTH_COST = 4
"""bytes of cost for each open level"""


class NoWayOut(Exception):
    """No end was found among the configurations visited."""


def _live_bytes(index: Index) -> list[int]:
    """One byte of each byte class of the index's automaton."""
    at, classes = int(index.mem[layout.H_CLASS_BYTE]), int(index.mem[layout.H_CLASSES])
    return [int(byte) for byte in index.mem[at : at + classes] if 0 <= byte < 256]


def _depth(index: Index, config: int) -> int:
    """How many symbols lie on the stack of a configuration."""
    mem = index.mem
    stack = int(mem[mem[layout.R + 3 * layout.CONFIG] + 3 * config + 1])
    depth = 0
    while stack > 0:
        stack = int(mem[mem[layout.R + 3 * layout.STACK] + 3 * stack + 1])
        depth += 1
    return depth


def way_out(index: Index, config: int, limit: int = 20_000) -> bytes:
    """Bytes from ``config`` to an end. Raises `NoWayOut` after ``limit`` visited configurations."""
    candidates = _live_bytes(index)
    order = count()
    queue: list[tuple[int, int, int, bytes]] = [(0, next(order), config, b"")]
    seen = {config}
    visited = 0
    while queue:
        _, _, here, path = heapq.heappop(queue)
        if index.can_finish(here):
            return path
        visited += 1
        if visited > limit:
            break
        for byte in candidates:
            step = bytes([byte])
            after = index.advance_bytes(here, step)
            if after < 0 or after in seen:
                continue
            if not index.can_finish(after):
                forced = index.forced_bytes(after)
                if forced:
                    step += forced
                    after = index.advance_bytes(after, forced)
            if after in seen:
                continue
            seen.add(after)
            whole = path + step
            heapq.heappush(queue, (len(whole) + DEPTH_COST * _depth(index, after), next(order), after, whole))
    raise NoWayOut(f"none among {visited} configurations")
