"""Where the tail of mask times comes from: MaskBench's slowest cold masks, with their texts and a peer's times.

    python -m benchmarks.slow_masks --sample 200 [--engine dotllm] [--peer llguidance] [--top 25]

Also prints how much of all mask time falls on masks above 0.1, 1 and 5 ms, and, for dotllm, the kinds of items that the
slow states consist of (``b``: byte edges, ``s``: loops over a character set).
"""

from __future__ import annotations

import argparse
import gc
from collections import Counter
from typing import Any, NamedTuple

from rich.progress import track

from benchmarks import adapters, clock, maskbench, specs, tokens
from benchmarks.adapters.base import Matcher, Options, Refused, Spec
from benchmarks.walk import allowed


class Slow(NamedTuple):
    """One mask: nanoseconds of the engine and of the peer (-1: the peer did not get there)."""

    ns: int
    peer_ns: int
    schema: str
    text: str
    items: str


def items_of(matcher: Matcher) -> str:
    """The items of a dotllm guide's state; empty for other engines."""
    guide = getattr(matcher, "raw", None)
    index = getattr(guide, "index", None)
    if index is None:
        return ""
    from dotllm.automata.machine import layout

    mem: Any = index.mem
    state = mem[mem[layout.R + 3 * layout.CONFIG] + 3 * guide.config]
    entry = mem[layout.R + 3 * layout.STATE] + 8 * state
    at = mem[layout.R + 3 * layout.POOL] + mem[entry + layout.S_OFFSET]
    nodes = [int(mem[at + 2 * i]) for i in range(mem[entry + layout.S_LENGTH] // 2)]
    sets = Counter(int(mem[mem[layout.H_CHARSET] + node]) for node in nodes)
    return " ".join(f"{count}×{'b' if number < 0 else f's{number}'}" for number, count in sorted(sets.items()))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", default="dotllm")
    parser.add_argument("--peer", default="llguidance")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--only", default="")
    parser.add_argument("--top", type=int, default=25)
    options = parser.parse_args()
    vocabulary = tokens.load()
    engine, peer = (adapters.load(name, vocabulary, Options()) for name in (options.engine, options.peer))
    slow: list[Slow] = []
    gc.disable()  # as in bench-engine: a collection is not part of a mask
    for row in track(maskbench.read(maskbench.DATA, options.sample, options.only), "schemas"):
        spec = Spec(row["name"], "json_schema", row["schema"])
        try:
            compiled = engine.compile(spec)
        except Refused:
            continue
        try:
            other = peer.compile(spec)
        except Refused:
            other = None
        for test in row["tests"]:
            text = specs.dumps(test["data"], compact=False)
            slow += _walk(row["name"], text, vocabulary, compiled.matcher(), other.matcher() if other else None)
    _report(slow, options.top)
    return 0


def _walk(name: str, text: str, vocabulary: tokens.Tokens, matcher: Matcher, peer: Matcher | None) -> list[Slow]:
    found = []
    ids = vocabulary.encode(text)
    for position, token in enumerate(ids):
        ns = clock.timed(matcher.fill)
        peer_ns = clock.timed(peer.fill) if peer else -1
        items = items_of(matcher) if ns > 100_000 else ""
        so_far = b"".join(vocabulary.tokens[i] or b"" for i in ids[max(0, position - 12) : position])
        found.append(Slow(ns, peer_ns, name, so_far.decode(errors="replace")[-40:], items))
        if not allowed(matcher.bits, token) or not matcher.advance(token):
            break
        if peer is not None and not (allowed(peer.bits, token) and peer.advance(token)):
            peer = None
    return found


def _report(slow: list[Slow], top: int) -> None:
    whole = sum(row.ns for row in slow)
    print(f"{len(slow):,} masks, {whole / 1e6:,.1f} ms, mean {whole / max(1, len(slow)) / 1e3:.1f} µs")
    for limit in (100_000, 1_000_000, 5_000_000):
        part = [row.ns for row in slow if row.ns > limit]
        print(f"  above {limit / 1e6:g} ms: {len(part):,} masks, {sum(part) / max(1, whole):.0%} of the time")
    kinds: Counter[str] = Counter()
    for row in slow:
        if row.items:
            kinds[row.items] += row.ns
    for items, ns in kinds.most_common(15):
        print(f"  {ns / 1e6:8.1f} ms in masks above 0.1 ms of states with items {items}")
    for row in sorted(slow, reverse=True)[:top]:
        theirs = f"{row.peer_ns / 1e3:9.1f}" if row.peer_ns >= 0 else "        -"
        print(f"{row.ns / 1e3:9.1f} µs | peer {theirs} µs | {row.items:20} | {row.schema[:40]:40} | {row.text!r}")


if __name__ == "__main__":
    raise SystemExit(main())
