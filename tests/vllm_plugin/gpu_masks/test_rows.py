"""The rows of a step equal the masks that vLLM itself would fill one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

from dotllm import Index, Vocabulary  # noqa: E402
from dotllm.device_masks import sender as sender_module  # noqa: E402
from dotllm.device_masks.message import TABLE_SLOTS  # noqa: E402
from dotllm.device_masks.sender import RowSender  # noqa: E402
from dotllm.index import stops as stop_tokens  # noqa: E402
from dotllm.index.draft_rows import NO_MASK, mask_rows_along  # noqa: E402
from dotllm.index.mask_table import END_ROW  # noqa: E402
from dotllm.index.token_space import TokenSpace  # noqa: E402
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar  # noqa: E402
from dotllm.vllm_plugin.extra.answer_limit import AnswerLimit  # noqa: E402
from dotllm.vllm_plugin.speed import rows as rows_module  # noqa: E402
from dotllm.vllm_plugin.speed.rows import rows_of_step  # noqa: E402

TOKENS: list[bytes | None] = [b"a", b"b", b"c", b"ab", b"bc", b"abc", b"\n", None, None, None]
A, B, C, AB, BC, ABC, NEWLINE, EOS, EOT, CALL = range(10)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(TOKENS, eos_token_ids=EOS, special_tokens={"<eot>": EOT, "<call>": CALL})


@pytest.fixture(scope="module")
def index(vocabulary: Vocabulary) -> Index:
    return Index.from_regex("(abc|a{2,5}b*)c?", vocabulary)


def grammar(index: Index, taken: list[int], stops: tuple[int, ...] = ()) -> RequestGrammar:
    made = RequestGrammar(index.guide(), stops, index.vocabulary)
    assert made.accept_tokens("r", taken)
    return made


def filled(grammar: RequestGrammar) -> np.ndarray:
    bitmask = torch.full((1, grammar.guide.index.space.words), -1, dtype=torch.int32)
    if not grammar.is_terminated():
        grammar.fill_bitmask(bitmask, 0)
    return bitmask.numpy()[0]


def of_row(index: Index, row: int) -> np.ndarray:
    return np.full(index.space.words, -1, np.int32) if row == NO_MASK else index.masks[row]


@pytest.mark.parametrize("stops", [(), (EOT,), (EOT, NEWLINE)])
def test_rows_are_the_masks_vllm_would_fill(index: Index, stops: tuple[int, ...]) -> None:
    paths = [[], [A], [A, A], [ABC], [ABC, EOS], [AB], [A, A, B, B, C]]
    grammars = [grammar(index, path, stops) for path in paths]
    expected = [filled(grammar(index, path, stops)) for path in paths]
    counts, rows = rows_of_step(grammars)
    assert counts.tolist() == [1] * len(paths)
    for row, mask in zip(rows.tolist(), expected, strict=True):
        assert np.array_equal(of_row(index, row), mask)


@pytest.mark.parametrize("drafts", [(), ([A, A], [], [B])])
def test_limits_that_suffice_are_found_in_one_call(
    index: Index, drafts: tuple[list[int], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is known which limits may change a mask, only their requests are asked."""
    paths, asked = [[], [A], [A, A]], []
    change_rows = AnswerLimit.change_rows
    noted = staticmethod(lambda grammar, *a: asked.append(grammar) or change_rows(grammar, *a))
    monkeypatch.setattr(AnswerLimit, "change_rows", noted)
    monkeypatch.setattr(RequestGrammar, "limited", True)

    def step(*lefts: int) -> tuple[list[int], list[int]]:
        grammars = [grammar(index, path) for path in paths]
        for one in grammars[:2]:
            one.limit = AnswerLimit.__new__(AnswerLimit)
            one.limit._changed = 0
            one.is_plain = False
        asked.clear()
        rows = rows_of_step(grammars, drafts, lefts)[1].tolist()
        return rows, [grammars.index(one) for one in asked]

    ordinary = rows_of_step([grammar(index, path) for path in paths], drafts)[1].tolist()
    step(3, 3, 0)
    assert step(100, 100, 0) == (ordinary, [])
    rows, tight = step(100, 2, 0)
    assert tight == [1] and rows != ordinary


@pytest.mark.parametrize("stops", [(), (EOT,)])
def test_rows_along_drafts(index: Index, stops: tuple[int, ...]) -> None:
    drafts = [[A, A, B], [], [B, B, -1], [C, A], [EOS, -1], [C, EOS], [A], [EOT, A]]
    paths = [[], [A], [A, A], [AB], [ABC], [AB], [ABC, EOS], [ABC]]
    grammars = [grammar(index, path, stops) for path in paths]
    counts, rows = rows_of_step(grammars, drafts)
    assert counts.tolist() == [4, 1, 4, 3, 3, 3, 2, 3]
    at = 0
    for i, path in enumerate(paths):
        walked = list(path)
        alive = True
        for j in range(counts[i]):
            if j:
                token = drafts[i][j - 1]
                alive = alive and token >= 0 and grammar(index, walked).validate_tokens([token]) == [token]
                walked.append(token)
            expected = filled(grammar(index, walked, stops)) if alive else of_row(index, NO_MASK)
            assert np.array_equal(of_row(index, rows[at]), expected), (i, j)
            at += 1
    assert grammars[0].guide.tokens_taken == 0, "nothing moves"


def test_stop_tokens_that_leave_no_token_count_where_the_request_stands(index: Index) -> None:
    """They do not count after its drafts, which it may never take."""
    asked = grammar(index, [], (C,))
    _, rows = rows_of_step([asked], [[AB, C]])
    assert not asked.failed and rows[1] == END_ROW
    assert asked.accept_tokens("r", [ABC]) and asked.error is None


def test_a_failed_grammar_may_only_end(index: Index) -> None:
    broken = grammar(index, [A])
    broken.fail("test", ValueError("x"))
    _, rows = rows_of_step([grammar(index, []), broken])
    assert np.nonzero(np.unpackbits(of_row(index, int(rows[1])).view(np.uint8), bitorder="little"))[0].tolist() == [EOS]


def test_budget_errors_stay_with_their_request(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    from dotllm.errors import BudgetExceededError

    def fails(guides: list[object]) -> object:
        return np.array([0, -1], np.int32), {1: BudgetExceededError("too much", keyword="steps")}

    grammars = [grammar(index, []), grammar(index, [A])]
    monkeypatch.setattr(rows_module, "mask_rows", fails)
    _, rows = rows_of_step(grammars)
    assert [g.failed for g in grammars] == [False, True] and rows.tolist() == [0, END_ROW]


def test_masks_with_stop_tokens_are_found_once_for_all_requests(
    index: Index, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[list[int]] = [[], [A], [A, A], [ABC], [AB]]
    first = rows_of_step([grammar(index, path, (EOT, CALL)) for path in paths])[1].tolist()
    interned: list[np.ndarray] = []
    intern = TokenSpace.intern
    monkeypatch.setattr(TokenSpace, "intern", lambda self, mask: (interned.append(mask), intern(self, mask))[1])
    assert rows_of_step([grammar(index, path, (EOT, CALL)) for path in paths])[1].tolist() == first
    assert not interned
    others = rows_of_step([grammar(index, path, (EOT,)) for path in paths])[1].tolist()
    other_index = Index.from_regex("(abc|a{2,5}b*)c?", vocabulary)
    again = rows_of_step([grammar(other_index, path, (EOT, CALL)) for path in paths])[1].tolist()
    assert interned and others != first and again == first
    monkeypatch.setattr(stop_tokens, "_MEMO", 3)
    for stop in range(EOT):
        rows_of_step([grammar(index, [], (stop, EOT))])
        assert len(stop_tokens._rows_with_stops[index]) <= 3


def test_each_row_travels_once(index: Index) -> None:
    sender = RowSender(index.space)
    ones = np.ones(3, np.int32)
    first = sender.message(ones, np.array([1, NO_MASK, 1], np.int32))
    assert first.new_slots.tolist() == [1] and np.array_equal(first.new_rows, index.masks[[1]])
    sender.sent_with("first")
    sender.arrived("first")
    second = sender.message(ones, np.array([0, 1, 0], np.int32))
    assert second.new_slots.tolist() == [0]
    sender.sent_with("second")
    sender.arrived("second")
    assert sender.message(ones, np.array([0, 1, 0], np.int32)).new_rows.shape == (0, index.space.words)
    for rows in ([0], [0, NO_MASK, 1, 0, 1], [NO_MASK] * 5):
        again = sender.message(np.ones(len(rows), np.int32), np.array(rows, np.int32))
        assert not len(again.new_slots) and again.slots.tolist() == rows
    assert sender.message(np.ones(5, np.int32), np.array([0, NO_MASK, 1, 0, 2], np.int32)).new_slots.tolist() == [2]


def test_a_step_that_fails_is_sent_again(index: Index) -> None:
    """vLLM's fault tolerance continues with the same engine core and workers. Whatever fails, the workers have the rows
    of every step that they run."""
    source = random.Random(7)
    for _ in range(300):
        sender, steps, taken = RowSender(index.space), [], set[int]()
        for number in range(source.randint(1, 30)):
            rows = source.choices(range(-1, 3), k=source.randint(1, 4))
            sent = sender.message(np.ones(len(rows), np.int32), np.array(rows, np.int32))
            step = [number]  # equal to no other step and not hashable, like vLLM's
            sender.sent_with(step)
            if source.random() < 0.4:
                continue  # the step fails before the workers look at it
            taken.update(sent.new_slots.tolist())
            assert taken.issuperset(row for row in rows if row >= 0)
            steps.append(step)
            while steps and source.random() < 0.7:  # results come in order, after the next step is sent
                sender.arrived(steps.pop(0))
        assert len(sender._in_flight) <= 30


def test_results_of_what_was_not_sent_change_nothing(index: Index) -> None:
    sender, one = RowSender(index.space), np.ones(1, np.int32)
    sender.message(one, np.array([1], np.int32))
    sender.arrived("another")
    assert sender.message(one, np.array([1], np.int32)).new_slots.tolist() == [1], "it went with no step"
    sender.sent_with("step")
    for _ in range(1000):
        sender.sent_with(object())
        sender.message(one, np.array([2], np.int32))
        sender.sent_with(object())
    assert len(sender._in_flight) <= 64


def test_rows_beyond_the_table_travel_each_time(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "TABLE_SLOTS", 1)
    sender = RowSender(index.space)
    for _ in range(2):
        sent = sender.message(np.ones(4, np.int32), np.array([2, 0, 1, 2], np.int32))
        table = dict(zip(sent.new_slots.tolist(), sent.new_rows, strict=True))
        table.setdefault(0, index.masks[0])
        assert len({*sent.slots.tolist()}) == 3 and len(sent.new_slots) == len(sent.new_rows) <= 3
        assert all(np.array_equal(table[s], index.masks[r]) for s, r in zip(sent.slots, [2, 0, 1, 2], strict=True))
    assert TABLE_SLOTS > 1


def test_rows_along_many_indexes(vocabulary: Vocabulary) -> None:
    indexes = [Index.from_regex(p, vocabulary) for p in ("a+b", "(abc)+", "[abc]{3}")]
    guides = [i.guide() for i in indexes]
    rows, configs, failures = mask_rows_along(guides, [[A, A], [ABC], [A, B, C, A]])
    assert not failures
    assert len(rows) == len(configs) == 3 + 2 + 5
    assert configs[-1] == -1 and rows[-1] == NO_MASK
