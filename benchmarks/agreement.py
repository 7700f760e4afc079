"""Do the engines allow the same tokens? Compares every two engines' masks along the samples, and explains differences.

JSON is compact, because engines differ in the white space that they allow. A difference is *explained* if known rules
of a peer account for all its tokens, or if a third engine agrees with one of the two. All others are listed, and count
against the run if dotllm is one of the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from benchmarks.adapters.base import Bitmask, Engine, Matcher, Refused, Spec
from benchmarks.tokens import Tokens
from benchmarks.walk import allowed

JSON_KINDS = frozenset({"json_schema", "json_object"})
CANONICAL = "llguidance allows only the canonical token where text is forced"
DEL = "llguidance allows no DEL (0x7F) in JSON strings"
ESCAPES = "llguidance allows no \\/ and fewer \\u escapes in JSON strings"
OUTVOTED = "{} stands alone against the others"


@dataclass(frozen=True)
class Difference:
    """A place where two engines differ and no rule says why (tokens as bytes literals, at most eight)."""

    spec: str
    text: str
    engines: tuple[str, str]
    only_left: tuple[str, ...]
    only_right: tuple[str, ...]


@dataclass
class Agreement:
    """Counts over all compared masks, per pair of engines."""

    equal: Counter[tuple[str, str]] = field(default_factory=Counter)
    explained: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    unexplained: list[Difference] = field(default_factory=list)
    rejected_samples: list[tuple[str, str, str]] = field(default_factory=list)
    """(engine, spec, text so far): the engine forbids the next token of a sample that satisfies the spec"""


def token_set(bits: Bitmask) -> frozenset[int]:
    """The token ids of a mask row."""
    return frozenset(np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist())


def _forced(matcher: Matcher) -> bool:
    """Whether llguidance is in forced text, as its LLMatcher says."""
    return bool(matcher.raw.compute_ff_tokens())  # type: ignore[attr-defined]


def _policy(token: bytes, after: bytes) -> str | None:
    """The rule of llguidance's JSON strings that forbids a token, given the bytes before it."""
    if b"\x7f" in token:
        return DEL
    return ESCAPES if b"\\/" in after[-1:] + token or b"\\u" in after + token else None


class Comparison:
    """Walks samples through several engines in step."""

    def __init__(self, engines: Sequence[Engine], tokens: Tokens) -> None:
        self.engines = engines
        self.tokens = tokens
        self.found = Agreement()

    def spec(self, spec: Spec) -> None:
        """Compare all masks along the spec's samples."""
        compiled = {}
        for engine in self.engines:
            try:
                compiled[engine.name] = engine.compile(spec)
            except Refused:
                continue
        for text in spec.texts:
            self._text(spec, {name: one.matcher() for name, one in compiled.items()}, self.tokens.encode(text))

    def _text(self, spec: Spec, matchers: dict[str, Matcher], ids: list[int]) -> None:
        so_far = b""
        for token in [*ids, self.tokens.eos]:
            for matcher in matchers.values():
                matcher.fill()
            masks = {name: matcher.bits.copy() for name, matcher in matchers.items()}
            for pair in combinations(sorted(masks), 2):
                self._pair(spec, pair, masks, matchers, so_far)
            for name in [name for name, matcher in matchers.items() if not allowed(matcher.bits, token)]:
                self.found.rejected_samples.append((name, spec.name, so_far.decode(errors="replace")[-60:]))
                del matchers[name]
            if token != self.tokens.eos:
                so_far += self.tokens.tokens[token] or b""
                for matcher in matchers.values():
                    matcher.advance(token)

    def _pair(
        self,
        spec: Spec,
        pair: tuple[str, str],
        masks: dict[str, Bitmask],
        matchers: dict[str, Matcher],
        so_far: bytes,
    ) -> None:
        left, right = masks[pair[0]], masks[pair[1]]
        if np.array_equal(left, right):
            self.found.equal[pair] += 1
            return
        reasons = self._reasons(spec, pair, masks, matchers, so_far)
        if reasons:
            self.found.explained.update((*pair, reason) for reason in reasons)
            return
        only = [
            tuple(repr(self.tokens.tokens[i]) for i in sorted(token_set(side))[:8])
            for side in (left & ~right, right & ~left)
        ]
        text = so_far.decode(errors="replace")[-60:]
        self.found.unexplained.append(Difference(spec.name, text, pair, only[0], only[1]))

    def _reasons(
        self,
        spec: Spec,
        pair: tuple[str, str],
        masks: dict[str, Bitmask],
        matchers: dict[str, Matcher],
        so_far: bytes,
    ) -> set[str]:
        """Rules that account for every differing token; empty if a token is left over."""
        reasons: set[str] = set()
        rest = set(token_set(masks[pair[0]] ^ masks[pair[1]]))
        if "llguidance" in pair:
            peer, other = masks["llguidance"], masks[pair[1 - pair.index("llguidance")]]
            if not (peer & ~other).any() and _forced(matchers["llguidance"]):
                return {CANONICAL}
            if spec.kind in JSON_KINDS:
                for token in list(rest):
                    rule = _policy(self.tokens.tokens[token] or b"", so_far[-1:])
                    if rule and not allowed(peer, token):
                        reasons.add(rule)
                        rest.discard(token)
        for third in masks.keys() - set(pair):
            for name in pair:
                if rest and rest <= token_set(masks[name] ^ masks[third]):
                    reasons.add(OUTVOTED.format(name))
                    rest.clear()
        return reasons if not rest else set()
