"""The masks of forced text: in processes with several vocabularies, and with stop tokens."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from dotllm.vllm_plugin.extra import forced_tokens
from dotllm.vllm_plugin.extra.forced_tokens import ForcedSpelling
from dotllm.vllm_plugin.extra.jump_forward import forced_after


def test_a_row_belongs_to_the_table_of_its_vocabulary() -> None:
    """A row number of one table was once used for the same token in another table."""
    for words in ([], [b"ab"]):
        tokens = [bytes([i]) for i in range(256)] + words
        vocabulary = Vocabulary.from_bytes([*tokens, None], eos_token_ids=len(tokens))
        for text in ("x", "y") if words else ("y", "x"):
            index = Index.from_regex(text, vocabulary)
            row = ForcedSpelling.of(index).row(index, index.guide().config)
            mask = index.space.rows[row]
            assert [i for i in range(len(tokens)) if mask[i >> 5] >> (i & 31) & 1] == [ord(text)]


def test_a_guide_follows_what_has_been_forgotten() -> None:
    index = Index.from_regex("[ab]xyz", Vocabulary.from_bytes([b"a", b"b", b"x", b"y", b"z", None], eos_token_ids=5))
    spelling, guide = ForcedSpelling(index), index.guide()
    guide.advance(0)
    tokens = spelling.after(index, guide.config)
    assert list(tokens) == [2, 3, 4]
    forgotten, known = guide.fork(), guide.fork()
    assert ForcedSpelling(index).follow(forgotten, tokens) and spelling.follow(known, tokens)
    assert forgotten.config == known.config != guide.config
    assert not ForcedSpelling(index).follow(guide, (3,))


@pytest.mark.parametrize("remembered", [1 << 16, 3])
def test_from_wherever_it_is_asked_it_is_the_same_text_and_spelling(
    monkeypatch: pytest.MonkeyPatch, remembered: int
) -> None:
    """Once a rest has been spelt, later spellings end with it. The memory of spellings is bounded."""
    monkeypatch.setattr(forced_tokens, "_MEMO", remembered)
    tokens: list[bytes | None] = [*(bytes([i]) for i in range(256)), *WORDS, None]
    index = Index.from_regex("[xy]alphabetalpha", Vocabulary.from_bytes(tokens, eos_token_ids=len(tokens) - 1))
    text = b"xalphabetalpha"
    for order in range(20):
        spelling, starts = ForcedSpelling(index), random.Random(order).sample(range(1, 13), 5)
        told: dict[int, tuple[int, ...]] = {}
        for start in starts:
            guide = index.guide()
            assert all(guide.advance(byte) for byte in text[:start])
            found = spelling.after(index, guide.config)
            spelt = b"".join(tokens[token] or b"" for token in found)
            assert text[start:].startswith(spelt)
            assert start + len(spelt) >= len(b"xalphabet"), "behind that a token may reach over the end"
            told[start] = found
            if remembered > len(text):
                assert spelling.after(index, guide.config) == found
                for other, rest in told.items():  # if this spelling passes an earlier start, it continues like that one
                    passed = [start + sum(len(tokens[token] or b"") for token in found[:i]) for i in range(len(found))]
                    assert other not in passed or found[passed.index(other) :] == rest
    spelling = ForcedSpelling(index)
    for start in reversed(range(1, 13)):
        guide = index.guide()
        assert all(guide.advance(byte) for byte in text[:start])
        spelling.after(index, guide.config)
    assert (len(spelling._tokens) < 10) == (remembered < 10)


WORDS = [b"al", b"pha", b"alpha", b"ph", b"bet", b"ta", b"alphabet", b"be"]


@pytest.mark.serve
def test_no_stop_token_ends_an_answer_within_forced_text() -> None:
    """``choice: ["alpha"]`` with a stop token in the middle of its spelling produced "al"."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("vllm")
    from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
    from dotllm.vllm_plugin.speed.rows import rows_of_step

    tokens: list[bytes | None] = [bytes([i]) for i in range(256)] + WORDS
    vocabulary = Vocabulary.from_bytes([*tokens, None], eos_token_ids=len(tokens))
    index = Index.from_regex("(alpha|beta)[0-9]alphabet", vocabulary)
    bitmask = torch.zeros((1, index.space.words), dtype=torch.int32)
    draw = random.Random(0)
    single = 0
    for trial in range(60):
        stops = () if trial < 5 else draw.sample(range(256, len(tokens)), draw.randint(1, 4))
        grammar = RequestGrammar(index.guide(), stops, vocabulary, spelling_of=ForcedSpelling.of)
        text = b""
        while True:
            grammar.fill_bitmask(bitmask, 0)
            bits = np.unpackbits(bitmask.numpy().view(np.uint8), bitorder="little")[: len(tokens) + 1]
            (row,) = rows_of_step([grammar])[1].tolist()
            assert np.array_equal(index.space.rows[row], bitmask.numpy()[0]), "both ways have one mask"
            token = draw.choice(np.flatnonzero(bits).tolist())
            complete = re.fullmatch(rb"(alpha|beta)[0-9]alphabet", text)
            if token == len(tokens) or token in stops:
                assert complete, f"{text!r} is cut, with the stop tokens {stops}"
                break
            assert not complete
            forced = list(forced_after(grammar, token, 1000))
            assert set(forced).isdisjoint(stops)
            assert grammar.accept_tokens("r", [token])
            text += tokens[token] or b""
            if forced:
                single += 1
                grammar.fill_bitmask(bitmask, 0)
                bits = np.unpackbits(bitmask.numpy().view(np.uint8), bitorder="little")
                assert np.flatnonzero(bits).tolist() == forced[:1], "the mask leaves what would be entered"
                walked, entered = grammar.guide.fork(), grammar.guide.fork()
                assert all(map(walked.advance, forced)) and grammar.spelling.follow(entered, forced)
                assert (entered.config, entered.tokens_taken) == (walked.config, walked.tokens_taken)
    assert single > 100
