"""Masks from the table equal the bits they stand for, whichever rows are sent at which time."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from dotllm.device_masks.mask_table import FEW, TURNS, MaskTable, Staging  # noqa: E402
from dotllm.device_masks.message import MaskRows  # noqa: E402
from dotllm.index.draft_rows import NO_MASK  # noqa: E402

WORDS, VOCABULARY = 5, 150  # the last word is not full


def message(slots: list[int], new: dict[int, np.ndarray], counts: list[int] | None = None, sender: int = 1) -> MaskRows:
    rows = np.stack(list(new.values())) if new else np.zeros((0, WORDS), np.int32)
    order = [*new]
    return MaskRows(
        sender,
        np.array(counts or [1] * len(slots), np.int32),
        np.array(slots, np.int32),
        np.array([order.index(slot) if slot in new else -1 for slot in slots], np.int32),
        np.array(order, np.int32),
        rows.astype(np.int32),
    )


def random_row(generator: np.random.Generator) -> np.ndarray:
    return generator.integers(-(2**31), 2**31, WORDS).astype(np.int32)


def allowed(row: np.ndarray) -> np.ndarray:
    return np.unpackbits(row.view(np.uint8), bitorder="little")[:VOCABULARY].astype(bool)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_are_applied_where_they_belong(dtype: torch.dtype) -> None:
    generator = np.random.default_rng(0)
    rows = [random_row(generator) for _ in range(3)]
    table = MaskTable(torch.device("cpu"))
    logits = torch.from_numpy(generator.normal(size=(6, VOCABULARY))).to(dtype)
    before = logits.clone()
    where = np.array([4, 0, 2, 5], np.int32)
    table.apply(logits, where, message([7, 2, 7, NO_MASK], {7: rows[0], 2: rows[1]}))
    for at, row in ((4, rows[0]), (0, rows[1]), (2, rows[0])):
        keep = torch.from_numpy(allowed(row))
        assert torch.equal(logits[at][keep], before[at][keep])
        assert torch.isinf(logits[at][~keep]).all() and (logits[at][~keep] < 0).all()
    for at in (1, 3, 5):
        assert torch.equal(logits[at], before[at])
    # the rows are there now; only numbers are sent, and the table grows
    again = before.clone()
    table.apply(again, np.array([0], np.int32), message([2], {}))
    assert torch.equal(again[0], logits[0])
    some = before.clone()
    table.apply(some, np.array([5, -1, 3, 0], np.int32), message([7, 2, NO_MASK, 2], {}))
    assert torch.equal(torch.isinf(some[5]), torch.from_numpy(~allowed(rows[0])))
    assert torch.equal(some[0], logits[0]) and torch.equal(some[1:5], before[1:5])
    few = before.clone()
    table.apply(few, np.array([5, -1], np.int32), message([7, 2], {}))
    assert torch.equal(torch.isinf(few[5]), torch.from_numpy(~allowed(rows[0])))
    assert torch.equal(few[:5], before[:5])
    table.apply(again, np.array([1], np.int32), message([5000], {5000: rows[2]}))
    assert torch.equal(torch.isinf(again[1]), torch.from_numpy(~allowed(rows[2])))


@pytest.mark.parametrize("most", [1, 3])
def test_without_places_each_position_is_the_first_of_its_request(most: int) -> None:
    """Rows that come with the message, and rows that the table has, in one step and in two."""
    generator = np.random.default_rng(4)
    masks = {slot: random_row(generator) for slot in (3, 8)}
    begins = torch.tensor([0, 1, 3, 4] if most == 3 else [0, 1, 2, 3], dtype=torch.int32)
    where = np.arange(3, dtype=np.int32) * most
    tables = MaskTable(torch.device("cpu")), MaskTable(torch.device("cpu"))
    steps = [([3, NO_MASK, 8], masks), ([8, 3, NO_MASK], {}), ([3, 9, 8], {9: random_row(generator)})]
    for slots, new in steps:
        masked = torch.zeros((2, 5, VOCABULARY))
        for table, logits, places in zip(tables, masked, (where, None), strict=True):
            sent = message(slots, new)
            sent.counts = None
            table.apply(logits, places, sent, begins, most)
        assert torch.equal(*masked)
        assert torch.isinf(masked[0]).any()


@pytest.mark.parametrize("most", [1, 3])
def test_the_device_knows_which_positions_there_are(most: int) -> None:
    """On the device, the second of three requests has lost its last draft, and a fourth is not in this batch."""
    generator = np.random.default_rng(3)
    masks = {slot: random_row(generator) for slot in range(5)}
    begins = [0, 3, 5, 6] if most == 3 else [0, 1, 2, 3]
    where = np.array([0, 1, 2, 3, 4, 5, 6, -1][: 8 if most == 3 else 3], np.int32)
    slots = [0, 1, NO_MASK, 2, 3, 4, 4, 0][: len(where)]
    logits = torch.zeros((7, VOCABULARY))
    starts = torch.tensor([*begins, 2**30], dtype=torch.int32)
    MaskTable(torch.device("cpu")).apply(logits, where, message(slots, masks), starts, most)
    expected = [0, 1, None, 2, 3, 4, None] if most == 3 else [0, 1, None, None, None, None, None]
    for row, slot in zip(logits, expected, strict=True):
        blocked = np.zeros(VOCABULARY, bool) if slot is None else ~allowed(masks[slot])
        assert torch.equal(torch.isinf(row), torch.from_numpy(blocked))


@pytest.mark.parametrize("count", [1, FEW, FEW + 1])
def test_few_and_many_new_rows_enter_the_table(count: int) -> None:
    """Also those of requests that are not in this batch, and rows that several requests have."""
    generator = np.random.default_rng(5)
    masks = {3 * slot: random_row(generator) for slot in range(count)}
    table, slots = MaskTable(torch.device("cpu")), [*masks, 0, NO_MASK]
    where = np.arange(len(slots), dtype=np.int32)
    where[count - 1] = -1
    for sent in (masks, {}, masks):
        logits = torch.zeros((len(slots), VOCABULARY))
        table.apply(logits, where, message(slots, sent))
        for i, slot in enumerate(slots):
            none = slot == NO_MASK or where[i] < 0
            blocked = np.zeros(VOCABULARY, bool) if none else ~allowed(masks[slot])
            assert torch.equal(torch.isinf(logits[i]), torch.from_numpy(blocked))
        assert all(np.array_equal(table.rows[slot].numpy(), row) for slot, row in masks.items())


def test_rows_that_cannot_be_written_are_copied() -> None:
    """Rows from another process are read-only. Also, a table made inside vLLM's steps can be used outside of them."""
    row = random_row(np.random.default_rng(4))
    table, sent = MaskTable(torch.device("cpu")), message([0], {0: row})
    sent.new_rows.setflags(write=False)
    with torch.inference_mode():
        table.apply(torch.zeros((1, VOCABULARY)), np.zeros(1, np.int32), sent)
    table.apply(torch.zeros((1, VOCABULARY)), np.zeros(1, np.int32), message([1], {1: row}))
    assert np.array_equal(table.rows[:2].numpy(), [row, row])


def test_nothing_is_overwritten_while_steps_are_in_flight() -> None:
    staging = Staging(torch.device("cpu"), 2)
    sizes = [3, 512, 1, 700, 2000, *range(TURNS - 5)]
    written = []
    for i, size in enumerate(sizes):
        first = np.arange(i, i + size, dtype=np.int32)
        written.append((first, -first, staging.write(first, -first)))
    for first, second, (one, other) in written:
        assert one[: len(first)].tolist() == first.tolist()
        assert other[: len(second)].tolist() == second.tolist()


def test_another_sender_begins_anew() -> None:
    generator = np.random.default_rng(1)
    first, second = random_row(generator), random_row(generator)
    table = MaskTable(torch.device("cpu"))
    logits = torch.zeros((1, VOCABULARY))
    table.apply(logits.clone(), np.array([0], np.int32), message([0], {0: first}, sender=1))
    table.apply(logits, np.array([0], np.int32), message([0], {0: second}, sender=2))
    assert torch.equal(torch.isinf(logits[0]), torch.from_numpy(~allowed(second)))


def test_a_wide_vocabulary_takes_several_programs() -> None:
    words, vocabulary = 700, 22_390
    generator = np.random.default_rng(2)
    row = generator.integers(-(2**31), 2**31, words).astype(np.int32)
    table = MaskTable(torch.device("cpu"))
    logits = torch.zeros((1, vocabulary))
    one = np.ones(1, np.int32)
    table.apply(logits, np.zeros(1, np.int32), MaskRows(1, one, one, 0 * one, one, row[None]))
    expected = np.unpackbits(row.view(np.uint8), bitorder="little")[:vocabulary] == 0
    assert np.array_equal(torch.isinf(logits[0]).numpy(), expected)
