"""Guides under random operations, with a list of tokens for each: at any time, a guide equals a replay of its list.

The replay runs on a fresh index of its own, so warm rows, loaded arenas, freed rows, shared caches and guides that have
moved are compared with cold ones. In half of the sequences the indexes are small, so that their guides have to move.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dotllm import Guide, Index, Vocabulary
from dotllm.automata.machine import arena, layout
from dotllm.errors import TooFewTokensError
from dotllm.index import advance_guides, fill_masks, mask_rows
from dotllm.index.draft_rows import NO_MASK, advance_along, allowed_drafts, mask_rows_along
from tests.model_based import sequences

WORDS = [b'{"', b'":', b'",', b"true", b"false", b"null", b"hello", b"lo", b"12", b"ab", b"],", b"\xc3\xa9", b"[1,"]
PLAIN = [bytes([byte]) for byte in range(256)] + WORDS
ENDS = (len(PLAIN), len(PLAIN) + 1)
VOCABULARY = Vocabulary.from_bytes(
    [*PLAIN, None, None, None], eos_token_ids=list(ENDS), special_tokens={"<tool>": len(PLAIN) + 2}
)
GRAMMARS = {
    "regex": lambda v: Index.from_regex("(ab|a[b-d]){1,6}(hello|[0-9]{2,4})?", v),
    "choice": lambda v: Index.from_choice(["hello", "help", "true", "true or false"], v),
    "schema": lambda v: Index.from_json_schema(
        {
            "type": "object",
            "properties": {"a": {"type": "boolean"}, "b": {"type": "array", "items": {"type": "integer"}}},
            "required": ["a"],
            "additionalProperties": False,
        },
        v,
    ),
    "any order": lambda v: Index.from_json_schema(
        {"properties": {"a": {"type": "boolean"}, "b": {"const": "é"}}, "required": ["a", "b"], "type": "object"},
        v,
        property_order="any",
    ),
    "recursion": lambda v: Index.from_grammar('start: "[" (start ("," start)*)? "]" | "1" | <tool>', v),
    "optional frames": lambda v: Index.from_grammar('start: "[" start "," start | "[" start | "1" | "12"', v),
    "distinct items": lambda v: Index.from_json_schema(
        {"type": "array", "items": {"enum": [1, 12, "ab", "a", True]}, "uniqueItems": True, "minItems": 2}, v
    ),
    "remembered items": lambda v: Index.from_json_schema(
        {"type": "array", "items": {"type": ["integer", "string", "array"]}, "uniqueItems": True}, v
    ),
}
COLD = {name: make(VOCABULARY).to_bytes() for name, make in GRAMMARS.items()}
SPARE = 16_000
TOKEN = st.integers(-2, VOCABULARY.size + 1)


def mask_of(guide: Guide) -> Any:
    bitmask = np.zeros((1, VOCABULARY.words), np.int32)
    guide.write_mask(bitmask)
    return bitmask[0].tolist()


class Guides(RuleBasedStateMachine):
    @initialize(name=st.sampled_from(sorted(GRAMMARS)), small=st.booleans())
    def begin(self, name: str, small: bool) -> None:
        self.index = Index.from_bytes(COLD[name], VOCABULARY)
        if small:  # full after some tokens
            self.index.mem[layout.H_LIMIT] = arena.used(self.index.renewed().mem) + SPARE
        self.replays = Index.from_bytes(COLD[name], VOCABULARY)
        self.guides: list[tuple[Guide, list[int]]] = [(self.index.guide(), [])]
        self.touched = 0

    def pick(self, data: Any) -> tuple[Guide, list[int]]:
        self.touched = data.draw(st.integers(0, len(self.guides) - 1), "guide")
        return self.guides[self.touched]

    def some_token(self, data: Any, guide: Guide) -> int:
        if data.draw(st.integers(0, 4), "wild") == 0:
            return data.draw(TOKEN, "token")
        return data.draw(st.sampled_from(sorted(guide.allowed_tokens())), "allowed")

    def replay(self, tokens: list[int]) -> Guide:
        guide = self.replays.guide()
        assert all(map(guide.advance, tokens))
        return guide

    @rule(data=st.data())
    def advance(self, data: Any) -> None:
        guide, tokens = self.pick(data)
        token = self.some_token(data, guide)
        allowed = token in guide.allowed_tokens() and not guide.is_finished
        assert guide.accepts([token]) == allowed
        assert guide.advance(token) == allowed
        if allowed:
            tokens.append(token)

    @rule(data=st.data())
    def roll_back(self, data: Any) -> None:
        guide, tokens = self.pick(data)
        count = data.draw(st.integers(0, len(tokens)), "count")
        guide.rollback(count)
        del tokens[len(tokens) - count :]
        with pytest.raises(ValueError, match="cannot undo"):
            guide.rollback(len(tokens) + 1)

    @rule(data=st.data())
    def reset(self, data: Any) -> None:
        guide, tokens = self.pick(data)
        guide.reset()
        tokens.clear()

    @precondition(lambda self: len(self.guides) < 5)
    @rule(data=st.data())
    def fork(self, data: Any) -> None:
        guide, tokens = self.pick(data)
        self.guides.append((guide.fork(), tokens.copy()))

    @rule(data=st.data(), kept=st.booleans())
    def save_and_load(self, data: Any, kept: bool) -> None:
        """Some guides continue on the old index."""
        index = Index.from_bytes(self.index.to_bytes(), VOCABULARY)
        guide, tokens = self.pick(data)
        new = index.guide()
        assert all(map(new.advance, tokens))
        if not guide.is_stateful:
            assert new.config == guide.config or guide.index is not self.index, "numbers are kept"
        self.guides[self.touched] = (new, tokens)
        self.index = self.index if kept else index

    @rule(data=st.data())
    def move_on(self, data: Any) -> None:
        """Move a guide as if its index were full."""
        guide, _ = self.pick(data)
        guide._own = None
        assert guide.move_on()

    @rule()
    def collect(self) -> None:
        self.index.space.collect()

    @rule(data=st.data())
    def advance_all(self, data: Any) -> None:
        drawn = [self.some_token(data, guide) for guide, _ in self.guides]
        expected = [self.replay(tokens).advance(token) for (_, tokens), token in zip(self.guides, drawn, strict=True)]
        accepted, failures = advance_guides([guide for guide, _ in self.guides], drawn)
        assert accepted == expected and not failures
        for (_, tokens), token, taken in zip(self.guides, drawn, accepted, strict=True):
            tokens.extend([token] * taken)

    def drafts(self, data: Any) -> list[list[int]]:
        found = []
        for guide, _ in self.guides:
            ahead, drafts = guide.fork(), []
            for _ in range(data.draw(st.integers(0, 4), "drafts")):
                drafts.append(self.some_token(data, ahead))
                if not ahead.advance(drafts[-1]):
                    break
            found.append(drafts)
        return found

    @rule(data=st.data())
    def masks_along_drafts(self, data: Any) -> None:
        drafts, guides = self.drafts(data), [guide for guide, _ in self.guides]
        counts = [guide.accepts(draft) for guide, draft in zip(guides, drafts, strict=True)]
        told = allowed_drafts(guides, drafts)
        assert told == [-1 if guide.is_stateful else count for guide, count in zip(guides, counts, strict=True)]
        rows, _, failures = mask_rows_along(guides, drafts)
        assert not failures
        at = 0
        for (_, tokens), draft, count in zip(self.guides, drafts, counts, strict=True):
            replayed = self.replay(tokens)
            for place in range(len(draft) + 1):
                if place > count:
                    assert rows[at] == NO_MASK
                else:
                    assert self.index.masks[rows[at]].tolist() == mask_of(replayed)
                    assert place == count or replayed.advance(draft[place])
                at += 1

    @rule(data=st.data())
    def take_drafts(self, data: Any) -> None:
        drafts, guides = self.drafts(data), [guide for guide, _ in self.guides]
        expected = [
            bool(draft) and guide.accepts(draft) == len(draft) for guide, draft in zip(guides, drafts, strict=True)
        ]
        given = [i for i, draft in enumerate(drafts) if draft]
        accepted = advance_along([guides[i] for i in given], [drafts[i] for i in given])
        for i, taken in zip(given, accepted, strict=True):
            if taken:
                assert expected[i]
                self.guides[i][1].extend(drafts[i])

    @rule(threads=st.integers(1, 2))
    def masks_of_all(self, threads: int) -> None:
        guides = [guide for guide, _ in self.guides]
        bitmask = np.zeros((len(guides), VOCABULARY.words), np.int32)
        assert not fill_masks(guides, bitmask, range(len(guides)), threads)
        rows, failures = mask_rows(guides, threads)
        assert not failures
        for row, own, (_, tokens) in zip(rows, bitmask, self.guides, strict=True):
            assert own.tolist() == mask_of(self.replay(tokens)) == self.index.masks[row].tolist()

    @rule(data=st.data(), spare=st.integers(-2, 4))
    def ends_within_a_limit(self, data: Any, spare: int) -> None:
        guide, _ = self.pick(data)
        if guide.is_stateful or guide.is_finished:
            return
        left, ahead = guide.tokens_to_finish + spare, guide.fork()
        bitmask = np.zeros((1, VOCABULARY.words), np.int32)
        if spare < 0:
            with pytest.raises(TooFewTokensError):
                ahead.write_mask(bitmask, 0, left)
            return
        while not ahead.is_finished:
            assert left > 0, "the limit is over and the text has not ended"
            ahead.write_mask(bitmask, 0, left)
            allowed = np.flatnonzero(np.unpackbits(bitmask.view(np.uint8), bitorder="little")).tolist()
            assert ahead.advance(data.draw(st.sampled_from(allowed), "within"))
            left -= 1

    @rule(data=st.data())
    def forced(self, data: Any) -> None:
        guide, tokens = self.pick(data)
        forced = guide.forced_tokens()
        assert guide.accepts(forced) == len(forced)
        assert guide.forced_bytes() == self.replay(tokens).forced_bytes()

    @invariant()
    def is_what_a_replay_makes(self) -> None:
        guide, tokens = self.guides[min(self.touched, len(self.guides) - 1)]
        replayed = self.replay(tokens)
        assert guide.tokens_taken == len(tokens)
        assert guide.can_finish == replayed.can_finish and guide.is_finished == replayed.is_finished
        assert guide.is_finished == (bool(tokens) and tokens[-1] in ENDS)
        assert mask_of(guide) == mask_of(replayed)


def test_guides() -> None:
    run_state_machine_as_test(Guides, settings=sequences(200, steps=20))  # type: ignore[no-untyped-call]
