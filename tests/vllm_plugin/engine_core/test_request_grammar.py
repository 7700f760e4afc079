"""A request's grammar as vLLM uses it: on a real index over a small vocabulary, and with failing guides."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

from dotllm import Index, Vocabulary  # noqa: E402  # after the checks for what they need
from dotllm.compilation import Specification  # noqa: E402
from dotllm.compilation.compiled import Compiled  # noqa: E402
from dotllm.errors import BudgetExceededError, InvalidSpecError, UnsupportedError  # noqa: E402
from dotllm.grammar import Grammar  # noqa: E402
from dotllm.index import Guide  # noqa: E402
from dotllm.vllm_plugin.enforce import errors  # noqa: E402
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar  # noqa: E402
from dotllm.vllm_plugin.extra.forced_tokens import ForcedSpelling  # noqa: E402

TOKENS: list[bytes | None] = [b"a", b"b", b"c", b"ab", b"bc", b"abc", b"\n", None, None, None]
A, B, C, AB, BC, ABC, NEWLINE, EOS, EOT, CALL = range(10)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(TOKENS, eos_token_ids=EOS, special_tokens={"<eot>": EOT, "<call>": CALL})


def literal(text: str, *, token: int | None = None) -> Grammar:
    """The grammar of one text, followed by ``token`` (an id) if given."""
    grammar = Grammar()
    grammar.start = grammar.literal(text)
    if token is not None:
        grammar.start = grammar.seq([grammar.start, grammar.tokens(frozenset([token]))])
    return grammar


def make(vocabulary: Vocabulary, grammar: Grammar, stops: tuple[int, ...] = ()) -> RequestGrammar:
    index = Index.from_grammar_object(grammar, vocabulary)
    return RequestGrammar(index.guide(), stops, vocabulary)


def mask(grammar: RequestGrammar) -> set[int]:
    bitmask = torch.full((3, 1), -1, dtype=torch.int32)
    grammar.fill_bitmask(bitmask, 1)
    assert bitmask[0, 0] == -1 and bitmask[2, 0] == -1, "other rows are not ours to write"
    return {token for token in range(len(TOKENS)) if int(bitmask[1, 0]) >> token & 1}


def test_the_way_of_an_answer(vocabulary: Vocabulary) -> None:
    grammar = make(vocabulary, literal("abc"))
    assert mask(grammar) == {A, AB, ABC}
    assert grammar.accept_tokens("r", [A])
    assert mask(grammar) == {B, BC}
    assert grammar.accept_tokens("r", [BC])
    assert mask(grammar) == {EOS}
    assert not grammar.is_terminated()
    assert grammar.accept_tokens("r", [EOS])
    assert grammar.is_terminated()


def test_a_rejected_batch_changes_nothing(vocabulary: Vocabulary) -> None:
    grammar = make(vocabulary, literal("abc"))
    assert not grammar.accept_tokens("r", [A, B, B])
    assert mask(grammar) == {A, AB, ABC}


def test_drafts(vocabulary: Vocabulary) -> None:
    grammar = make(vocabulary, literal("abc"))
    assert grammar.validate_tokens([A, BC, EOS]) == [A, BC, EOS]
    assert grammar.validate_tokens([A, C, EOS]) == [A]
    assert grammar.validate_tokens([A, -1, B]) == [A]
    assert grammar.validate_tokens([C]) == []
    assert grammar.validate_tokens([]) == []
    assert mask(grammar) == {A, AB, ABC}
    assert grammar.accept_tokens("r", [ABC, EOS])
    assert grammar.validate_tokens([A]) == []


def test_padding_is_tolerated(vocabulary: Vocabulary) -> None:
    grammar = make(vocabulary, literal("abc"))
    assert grammar.accept_tokens("r", [AB, -1, -1])
    assert mask(grammar) == {C}


def test_rollback_across_the_end(vocabulary: Vocabulary) -> None:
    for stops, last in (((), EOS), ((EOT,), EOT)):
        grammar = make(vocabulary, literal("abc"), stops)
        assert grammar.accept_tokens("r", [A, BC, last])
        assert grammar.is_terminated()
        grammar.rollback(2)
        assert not grammar.is_terminated()
        assert mask(grammar) == {B, BC}
        grammar.rollback(0)
        assert grammar.accept_tokens("r", [B, C, last])
        assert grammar.is_terminated()


def test_rollback_of_single_tokens(vocabulary: Vocabulary) -> None:
    for stops, last in (((), EOS), ((EOT,), EOT)):
        grammar = make(vocabulary, literal("abc"), stops)
        for tokens in ([A], [A, BC], [A, BC, last]):
            grammar.reset()
            before = mask(grammar)
            for token in tokens:
                before = mask(grammar)
                assert grammar.accept_tokens("r", [token])
            grammar.rollback(1)
            assert mask(grammar) == before and not grammar.is_terminated()


@pytest.mark.parametrize("beyond", [10, 31, 32, 63, 64, 100])
def test_stop_tokens_that_no_mask_has_a_place_for_change_nothing(vocabulary: Vocabulary, beyond: int) -> None:
    """A client may name any number; a row has bits for 32 tokens."""
    grammar = make(vocabulary, literal("ab"), (EOT, beyond))
    assert mask(grammar) == {A, AB} and grammar.accept_tokens("r", [AB])
    assert mask(grammar) == {EOS, EOT} and not grammar.failed


def test_tokens_after_the_end_are_ignored(vocabulary: Vocabulary) -> None:
    """With ignore_eos, generation goes on. The request must not end in an error."""
    grammar = make(vocabulary, literal("a"))
    assert grammar.accept_tokens("r", [A, EOS, B, B])
    assert grammar.is_terminated()
    assert grammar.accept_tokens("r", [C])
    grammar.rollback(2)
    assert mask(grammar) == {A}


def test_reset(vocabulary: Vocabulary) -> None:
    grammar = make(vocabulary, literal("ab"), (EOT,))
    assert grammar.accept_tokens("r", [AB, EOT])
    grammar.reset()
    assert not grammar.is_terminated()
    assert mask(grammar) == {A, AB}


def test_further_stop_tokens_only_where_the_text_may_end(vocabulary: Vocabulary) -> None:
    grammar = make(vocabulary, literal("ab"), (EOS, EOT))
    assert mask(grammar) == {A, AB}
    assert not grammar.accept_tokens("r", [EOT])
    assert grammar.accept_tokens("r", [AB])
    assert mask(grammar) == {EOS, EOT}
    assert grammar.validate_tokens([EOT]) == [EOT]
    assert grammar.accept_tokens("r", [EOT])
    assert grammar.is_terminated()


def test_drafts_with_a_stop_token(vocabulary: Vocabulary) -> None:
    grammar = make(vocabulary, literal("ab"), (EOT,))
    assert grammar.validate_tokens([A, B, EOT, A]) == [A, B, EOT]
    assert grammar.validate_tokens([A, EOT]) == [A]


def test_a_stop_token_that_is_text_is_masked_until_the_end(vocabulary: Vocabulary) -> None:
    grammar = make(vocabulary, literal("ab"), (A,))
    assert mask(grammar) == {AB}, "'a' would stop the generation before the text is complete"
    assert grammar.accept_tokens("r", [AB])
    assert mask(grammar) == {EOS, A}
    assert grammar.accept_tokens("r", [A])
    assert grammar.is_terminated()


def test_a_stop_token_that_the_grammar_asks_for_last(vocabulary: Vocabulary) -> None:
    """Structural tags may end with a special token that is a stop token too (harmony's <|call|>)."""
    grammar = make(vocabulary, literal("ab", token=CALL), (CALL, EOT))
    assert mask(grammar) == {A, AB}
    assert grammar.accept_tokens("r", [AB])
    assert mask(grammar) == {CALL}
    assert grammar.accept_tokens("r", [CALL])
    assert mask(grammar) == {EOS, EOT, CALL}


def test_all_ends_of_the_model_are_its_vocabularys() -> None:
    """Chat models have several EOS tokens. vLLM passes them with each request, but they need no masks of their own."""
    several = Vocabulary.from_bytes(TOKENS, eos_token_ids=(EOS, EOT, CALL), special_tokens={"<call>": CALL})
    grammar = make(several, literal("ab"), (EOS, EOT, CALL))
    assert grammar.stops == ()
    assert mask(grammar) == {A, AB}
    assert not grammar.accept_tokens("r", [EOT])
    assert grammar.accept_tokens("r", [AB])
    assert mask(grammar) == {EOS, EOT, CALL}
    for end in (EOS, EOT, CALL):
        assert grammar.accept_tokens("r", [end]) and grammar.is_terminated()
        grammar.rollback(1)


def test_an_end_of_the_model_that_the_grammar_asks_for() -> None:
    """The token stops generation, so it may come only where it completes the text."""
    several = Vocabulary.from_bytes(TOKENS, eos_token_ids=(EOS, EOT, CALL), special_tokens={"<call>": CALL})
    last = make(several, literal("ab", token=CALL), (EOS, EOT, CALL))
    assert last.stops == (CALL,)
    assert last.accept_tokens("r", [AB])
    assert mask(last) == {CALL}
    assert last.accept_tokens("r", [CALL])
    assert mask(last) == {EOS, EOT, CALL}
    grammar = Grammar()
    grammar.start = grammar.seq([
        grammar.literal("a"), grammar.alt([grammar.tokens([CALL]), grammar.literal("b")]), grammar.literal("c")
    ])  # fmt: skip
    middle = make(several, grammar, (EOS, EOT, CALL))
    assert middle.accept_tokens("r", [A])
    assert mask(middle) == {B, BC}, "with <call> the answer would be cut"
    ignored = make(several, grammar, ())  # vLLM does not stop at any of them
    assert ignored.accept_tokens("r", [A])
    assert CALL in mask(ignored)


def test_stop_tokens_that_leave_nothing_end_the_request(vocabulary: Vocabulary) -> None:
    grammar = make(vocabulary, literal("a"), (A,))
    assert mask(grammar) == {EOS}
    assert not grammar.accept_tokens("r", [EOS])
    assert "leave no token" in str(grammar.error)
    assert isinstance(grammar.error, InvalidSpecError) and "stop_token_ids" in str(grammar.error), (
        "a fault of the request's"
    )


def test_a_message_names_some_of_many_stop_tokens(vocabulary: Vocabulary) -> None:
    grammar = make(vocabulary, literal("abc"), (A, AB, ABC, *range(100, 3000)))
    assert not grammar.accept_tokens("r", [EOS])
    assert "…" in str(grammar.error) and len(str(grammar.error)) < 200


class FailingGuide:
    """Every method fails."""

    @property
    def is_finished(self) -> bool:
        raise MemoryError("is_finished")

    def __getattr__(self, name: str) -> Any:
        def fail(*_: Any) -> Any:
            raise MemoryError(name)

        return fail


USES: dict[str, Any] = {
    "accept": lambda grammar: grammar.accept_tokens("r", [A]),
    "validate": lambda grammar: grammar.validate_tokens([A]),
    "rollback": lambda grammar: grammar.rollback(1),
    "fill": lambda grammar: grammar.fill_bitmask(torch.full((1, 1), -1, dtype=torch.int32), 0),
    "reset": lambda grammar: grammar.reset(),
    "is_terminated": lambda grammar: grammar.is_terminated(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_no_exception_leaves_a_grammar(vocabulary: Vocabulary, use: Any) -> None:
    guide: Any = FailingGuide()
    grammar = RequestGrammar(guide, (), vocabulary)
    use(grammar)
    assert grammar.failed
    assert not grammar.is_terminated()
    assert not grammar.accept_tokens("r", [A])
    assert grammar.validate_tokens([A]) == []
    assert mask(grammar) == {EOS}


class BreakingGuide(Guide):
    """Fails like an automaton that outgrows its budget."""

    def recover(self, *_: Any) -> Any:
        raise BudgetExceededError("the automaton needs more than 256 MiB", keyword="memory")

    advance = accepts = rollback = write_mask = reset = recover  # type: ignore[assignment]

    @property
    def is_finished(self) -> bool:
        return bool(self.recover())


def in_a_batch(grammar: RequestGrammar) -> None:
    """Fails as in `batch_accept` and `gpu_masks.rows`: errors are in a dict, and a frame holds the grammar."""
    failures: dict[int, Exception] = {}
    try:
        grammar.guide.advance(A)
    except BudgetExceededError as error:
        failures[0] = error
    grammar.fail("masks", failures[0])


@pytest.mark.parametrize("use", [*USES.values(), in_a_batch], ids=[*USES, "batch"])
def test_a_failed_request_frees_its_index(vocabulary: Vocabulary, use: Any) -> None:
    """Immediately, not at the next full garbage collection, which is rare in a server."""
    index = Index.from_grammar_object(literal("abc"), vocabulary)
    guide = BreakingGuide(index)
    grammar = RequestGrammar(guide, (), vocabulary)
    seen = [weakref.ref(one) for one in (index, guide, grammar)]
    gc.disable()
    try:
        use(grammar)
        use(grammar)
        kept = grammar.error
        assert isinstance(kept, BudgetExceededError) and "256 MiB" in str(kept)
        del index, guide, grammar
        assert [one() for one in seen] == [None] * 3, "what the client is told keeps none of it"
    finally:
        gc.enable()


def test_a_text_that_no_token_goes_on_with_ends_its_request_with_a_400() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b"bx", b"\n", None], eos_token_ids=3)
    grammar = make(vocabulary, literal("ab"))
    assert mask(grammar) == {0} and grammar.accept_tokens("r", [0])
    assert mask(grammar) == {3}, "the row of a failed request"
    assert not grammar.accept_tokens("r", [3])
    assert grammar.failed and isinstance(grammar.error, UnsupportedError)
    assert (errors.decode(errors.encode(grammar.error)) or ())[:3] == (400, str(grammar.error), "tokenizer")
    assert "no tokens of the vocabulary spell" in str(grammar.error)


@pytest.mark.parametrize("forced", [False, True])
def test_the_mask_covers_a_row_that_is_wider_than_needed(*, forced: bool) -> None:
    wide = Vocabulary.from_bytes([b"a", None], eos_token_ids=1, size=100)
    index = Index.from_grammar_object(literal("aa"), wide)
    grammar = RequestGrammar(index.guide(), (), wide, spelling_of=ForcedSpelling.of if forced else None)
    bitmask = torch.full((1, 7), -1, dtype=torch.int32)
    grammar.fill_bitmask(bitmask, 0)
    assert bitmask.tolist() == [[1, 0, 0, 0, 0, 0, 0]]


def test_a_guide_that_cannot_be_made_ends_its_request(vocabulary: Vocabulary) -> None:
    index, calls = Index.from_regex("ab*", vocabulary), iter([BudgetExceededError("full")])

    def guide() -> Guide:
        for error in calls:
            raise error
        return index.guide()

    compiled = Compiled("", Specification.create("regex", "ab*"), index, "compile")
    grammar = RequestGrammar(compiled, (), vocabulary)
    object.__setattr__(grammar, "_compiled", SimpleNamespace(guide=guide))
    assert not grammar.is_terminated() and grammar.failed, "contained"
    assert not grammar.begin() and not grammar.has_begun and not grammar.is_plain
    for stops in ((), (EOT,)):
        other = RequestGrammar(compiled, stops, vocabulary)
        assert not other.has_begun and other.begin() and other.guide.index is index and other.is_plain == (not stops)
