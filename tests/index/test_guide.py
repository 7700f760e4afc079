"""Guide: the promises of the public API."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest

from dotllm import BudgetExceededError, Guide, Index, InvalidSpecError, Vocabulary
from dotllm.grammar import Grammar
from dotllm.languages.regex import regex_to_grammar


def spell(guide_index: Index, text: str) -> list[int]:
    return guide_index.vocabulary.encode(text.encode())


def test_advance_refuses_and_stays(bytes_vocabulary: Vocabulary) -> None:
    guide = Index.from_regex("ab|ac", bytes_vocabulary).guide()
    assert not guide.advance(ord("b"))
    assert guide.tokens_taken == 0
    assert guide.advance(ord("a"))
    assert not guide.can_finish
    assert guide.advance(ord("c"))
    assert guide.can_finish
    assert not guide.is_finished


def test_every_end_token_ends_and_nothing_follows(bytes_vocabulary: Vocabulary) -> None:
    for end in bytes_vocabulary.eos_token_ids:
        guide = Index.from_regex("a*", bytes_vocabulary).guide()
        assert guide.advance(end)
        assert guide.is_finished
        assert not guide.advance(end)
        assert set(guide.allowed_tokens()) == set(bytes_vocabulary.eos_token_ids)


@pytest.mark.parametrize("token", [-1, 10**6, 2**31 - 1])
def test_tokens_out_of_range_are_refused(token: int, bytes_vocabulary: Vocabulary) -> None:
    assert not Index.from_regex("a*", bytes_vocabulary).guide().advance(token)


def test_rollback_fork_reset(bytes_vocabulary: Vocabulary) -> None:
    guide = Index.from_regex("abc(d|e)", bytes_vocabulary).guide()
    for letter in b"abc":
        assert guide.advance(letter)
    other = guide.fork()
    assert other.advance(ord("d"))
    assert guide.advance(ord("e"))
    guide.rollback(2)
    assert guide.allowed_tokens() == [ord("c")]
    other.rollback(4)
    assert other.config == Index.from_regex("x", bytes_vocabulary).guide().config
    with pytest.raises(ValueError, match=r"cannot undo 1 tokens: the guide has taken 0"):
        other.rollback(1)
    guide.reset()
    assert guide.tokens_taken == 0
    assert guide.advance(ord("a"))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("unique", [False, True])
def test_copies_are_independent(copied: Callable[[Guide], Guide], unique: bool, bytes_vocabulary: Vocabulary) -> None:
    """A shallow copy once shared the history: a rollback of either led to where the other had been."""
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": unique}
    guide = Index.from_json_schema(schema, bytes_vocabulary, any_whitespace=False).guide()
    assert all(map(guide.advance, b"[1,2"))
    other = copied(guide)
    assert all(map(other.advance, b",3]"))
    assert guide.tokens_taken == 4
    guide.rollback(1)
    assert guide.advance(ord("1")) and guide.advance(ord("]")) is not unique
    other.rollback(7)
    assert other.allowed_tokens() == [ord("[")]


def test_rollback_over_the_end(bytes_vocabulary: Vocabulary) -> None:
    guide = Index.from_regex("ab?", bytes_vocabulary).guide()
    guide.advance(ord("a"))
    guide.advance(bytes_vocabulary.eos_token_ids[0])
    assert guide.is_finished
    guide.rollback(1)
    assert not guide.is_finished
    assert guide.advance(ord("b"))


def test_accepts_counts_and_changes_nothing(bytes_vocabulary: Vocabulary) -> None:
    guide = Index.from_regex("abc", bytes_vocabulary).guide()
    assert guide.accepts([ord("a"), ord("b"), ord("x"), ord("c")]) == 2
    assert guide.accepts([]) == 0
    assert guide.accepts([ord("a"), ord("b"), ord("c"), bytes_vocabulary.eos_token_ids[1]]) == 4
    assert guide.tokens_taken == 0


def test_write_mask_into_a_wider_bitmask(bytes_vocabulary: Vocabulary) -> None:
    guide = Index.from_regex("[ab]", bytes_vocabulary).guide()
    bitmask = np.full((3, bytes_vocabulary.words + 2), -1, np.int32)
    guide.write_mask(bitmask, 1)
    assert np.unpackbits(bitmask[1].view(np.uint8)).sum() == 2
    assert (bitmask[[0, 2]] == -1).all()


def test_tokens_by_id(bytes_vocabulary: Vocabulary) -> None:
    """A special token is matched only by its id; the text around it is matched as bytes."""
    tool = bytes_vocabulary.special_tokens["<tool>"]
    grammar = Grammar()
    grammar.start = grammar.seq([grammar.literal("a"), grammar.tokens([tool]), grammar.literal("b")])
    guide = Index.from_grammar_object(grammar, bytes_vocabulary).guide()
    assert guide.advance(ord("a"))
    assert guide.allowed_tokens() == [tool]
    assert guide.advance(tool)
    assert guide.advance(ord("b"))
    assert guide.can_finish


def test_a_token_allowed_by_id_and_by_bytes(bytes_vocabulary: Vocabulary) -> None:
    """Both readings continue."""
    grammar = Grammar()
    by_id = grammar.seq([grammar.tokens([ord("x")]), grammar.literal("1")])
    by_bytes = grammar.seq([grammar.literal("x"), grammar.literal("2")])
    grammar.start = grammar.alt([by_id, by_bytes])
    guide = Index.from_grammar_object(grammar, bytes_vocabulary).guide()
    assert guide.advance(ord("x"))
    assert guide.allowed_tokens() == [ord("1"), ord("2")]


def test_any_token_but_some(bytes_vocabulary: Vocabulary) -> None:
    grammar = Grammar()
    grammar.start = grammar.tokens([ord("a")], exclude=True)
    guide = Index.from_grammar_object(grammar, bytes_vocabulary).guide()
    expected = set(range(bytes_vocabulary.size)) - {ord("a"), *bytes_vocabulary.eos_token_ids}
    assert set(guide.allowed_tokens()) == expected


@pytest.mark.parametrize(
    "text",
    ['start: "a" <[999999]>', 'start: "a" | <[5000-6000]>', 'start: "a" <[^0-999999]>?', 'root ::= "a" Token(999999)'],
)
def test_token_sets_of_which_the_vocabulary_has_none(text: str, bytes_vocabulary: Vocabulary) -> None:
    """Such sets were once accepted, and a text that reached one could not continue."""
    with pytest.raises(InvalidSpecError, match="the vocabulary has no token") as caught:
        Index.from_grammar(text, bytes_vocabulary)
    assert caught.value.keyword == "token"


def test_a_range_of_tokens_that_ends_beyond_the_vocabulary(bytes_vocabulary: Vocabulary) -> None:
    guide = Index.from_grammar(f"start: <[{ord('z')},1000-999999]>", bytes_vocabulary).guide()
    assert guide.allowed_tokens() == [ord("z")]


def test_any_token_is_none_that_only_pads_the_vocabulary() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", None, b"b", None], eos_token_ids=3, special_tokens={"<x>": 1}, size=9)
    for text, allowed in (("start: <[*]>", [0, 1, 2]), ("start: <[^0]>", [1, 2])):
        assert Index.from_grammar(text, vocabulary).guide().allowed_tokens() == allowed
    with pytest.raises(InvalidSpecError, match="no token except those excluded"):
        Index.from_grammar("start: <[^0-2]>", vocabulary)


def test_options_that_do_not_exist_are_refused(bytes_vocabulary: Vocabulary) -> None:
    with pytest.raises(InvalidSpecError, match="order must be"):
        Index.from_json_schema({}, bytes_vocabulary, property_order="Any")
    with pytest.raises(InvalidSpecError, match="order must be"):
        spec = {"format": {"type": "json_schema", "json_schema": {}}}
        Index.from_structural_tag(spec, bytes_vocabulary, property_order="Any")
    with pytest.raises(ValueError, match="dialect must be"):
        Index.from_regex("a", bytes_vocabulary, dialect="pcre")
    with pytest.raises(InvalidSpecError, match="must be a string, not NoneType"):
        Index.from_grammar(None, bytes_vocabulary)  # type: ignore[arg-type]  # as a request might have it


def test_forced_text(bytes_vocabulary: Vocabulary) -> None:
    guide = Index.from_regex('\\{"name":"[a-z]+"\\}', bytes_vocabulary).guide()
    assert guide.forced_bytes() == b'{"name":"'
    tokens = guide.forced_tokens()
    assert guide.accepts(tokens) == len(tokens)
    spelled = b"".join(bytes_vocabulary.token_bytes(t) or b"" for t in tokens)
    assert b'{"name":"'.startswith(spelled)
    for letter in b'{"name":"x':
        guide.advance(letter)
    assert guide.forced_bytes() == b""


def test_forced_tokens_leave_out_what_could_merge(bytes_vocabulary: Vocabulary) -> None:
    """With free letters after it, `hel` may become `hello`, so it is not drafted; `true` is."""
    guide = Index.from_regex("hel[a-z]*", bytes_vocabulary).guide()
    assert guide.forced_bytes() == b"hel"
    assert guide.forced_tokens() == []
    guide = Index.from_regex("true!|true\\?", bytes_vocabulary).guide()
    assert guide.forced_tokens() == [bytes_vocabulary.encode(b"true")[0]]


def test_the_end_is_not_forced_text(bytes_vocabulary: Vocabulary) -> None:
    guide = Index.from_regex("a(bc)?", bytes_vocabulary).guide()
    guide.advance(ord("a"))
    assert guide.forced_bytes() == b""
    guide.advance(ord("b"))
    assert guide.forced_bytes() == b"c"


def test_unsatisfiable_is_named(bytes_vocabulary: Vocabulary) -> None:
    grammar = Grammar()
    grammar.start = grammar.seq([grammar.literal("a"), grammar.never()])
    with pytest.raises(InvalidSpecError):
        Index.from_grammar_object(grammar, bytes_vocabulary)


def test_memory_budget_is_named(bytes_vocabulary: Vocabulary) -> None:
    index = Index.from_grammar_object(regex_to_grammar("([a-z]{1,200},){1,200}"), bytes_vocabulary, limit=60_000)
    config = index.guide().config
    with pytest.raises(BudgetExceededError, match="MiB"):
        for length in range(1, 200):
            config = index.advance_bytes(config, b"a" * length + b",")


def test_a_full_index_is_renewed(bytes_vocabulary: Vocabulary) -> None:
    """An index that one output has filled must not end later requests."""
    index = Index.from_grammar_object(regex_to_grammar("([a-z]{1,200},){1,200}"), bytes_vocabulary, limit=200_000)
    config = index.guide().config
    with pytest.raises(BudgetExceededError):
        for length in range(1, 200):
            config = index.advance_bytes(config, b"a" * length + b",")
    assert index.nearly_full
    fresh = index.renewed()
    assert not fresh.nearly_full
    assert fresh.states < 20
    assert fresh.guide().allowed_tokens() == index.renewed().guide().allowed_tokens()
    assert fresh.advance_bytes(fresh.guide().config, b"abc,d,") > 0
