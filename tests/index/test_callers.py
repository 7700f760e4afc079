"""Arguments are checked before they are used: a wrong array is an error, not an access to foreign memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dotllm import Guide, Index, Vocabulary
from dotllm.index import advance_guides, fill_masks, mask_rows
from dotllm.index.draft_rows import NO_MASK, mask_rows_along

UNIQUE = {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True}
GUARD = 7  # fills the words around a bitmask, which nothing may write to


@pytest.fixture(params=["new", "known", "remembering"])
def guides(request: pytest.FixtureRequest, bytes_vocabulary: Vocabulary) -> list[Guide]:
    """Three guides whose masks are unknown, known, or their own: each kind takes another path through the code."""
    if request.param == "remembering":
        return [Index.from_json_schema(UNIQUE, bytes_vocabulary).guide() for _ in range(3)]
    made = [Index.from_regex(f"[a-{c}]+{c}", bytes_vocabulary).guide() for c in "xyz"]
    if request.param == "known":
        assert not mask_rows(made)[1]
    return made


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


WORDS = 9  # of `bytes_vocabulary`
BITMASKS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "int64": (lambda: np.zeros((3, WORDS), np.int64), TypeError, "int64"),
    "float32": (lambda: np.zeros((3, WORDS), np.float32), TypeError, "float32"),
    "uint32": (lambda: np.zeros((3, WORDS), np.uint32), TypeError, "uint32"),
    "other byte order": (lambda: np.zeros((3, WORDS), ">i4"), TypeError, "int32"),
    "one dimension": (lambda: np.zeros(3 * WORDS, np.int32), ValueError, r"\[27\]"),
    "three dimensions": (lambda: np.zeros((3, WORDS, 1), np.int32), ValueError, r"\[3, 9, 1\]"),
    "too narrow": (lambda: np.zeros((3, WORDS - 1), np.int32), ValueError, r"\[3, 8\]"),
    "no words": (lambda: np.zeros((3, 0), np.int32), ValueError, r"\[3, 0\]"),
    "columns first": (lambda: np.zeros((3, WORDS), np.int32, order="F"), ValueError, "not contiguous"),
    "a view": (lambda: np.zeros((3, 2 * WORDS), np.int32)[:, ::2], ValueError, "not contiguous"),
    "read-only": (lambda: read_only(np.zeros((3, WORDS), np.int32)), ValueError, "read-only"),
    "a list": (lambda: [[0] * WORDS] * 3, TypeError, "list"),
    "nothing": (lambda: None, TypeError, "NoneType"),
    "a masked array": (lambda: np.ma.zeros((3, WORDS), np.float32), TypeError, "float32"),
}


@pytest.mark.parametrize("name", BITMASKS)
def test_bitmasks(name: str, guides: list[Guide], bytes_vocabulary: Vocabulary) -> None:
    assert bytes_vocabulary.words == WORDS
    make, error, found = BITMASKS[name]
    bitmask = make()
    with pytest.raises(error, match=found) as caught:
        fill_masks(guides, bitmask)
    assert f"int32 array [rows, at least {WORDS}], got" in str(caught.value)
    if isinstance(bitmask, np.ndarray):
        assert not bitmask.any()
    if name in ("columns first", "a view"):
        guides[0].write_mask(bitmask, 1)
        assert bitmask[1].any() and not bitmask[[0, 2]].any()
        return
    with pytest.raises(error, match=found) as caught:
        guides[0].write_mask(bitmask)
    assert f"int32 array [rows, at least {WORDS}], got" in str(caught.value)


TARGETS: dict[str, tuple[Any, type[Exception], str]] = {
    "behind the end": ([0, 1, 5], IndexError, "row 5 in a bitmask of 5"),
    "before the beginning": ([0, -1, 2], IndexError, "row -1"),
    "beyond int32": ([0, 1, 2**32], IndexError, "row 4294967296"),
    "beyond int32, as an array": (np.array([0, 1, 2**32 + 2]), IndexError, "row 4294967298"),
    "twice the same": ([3, 1, 3], ValueError, "same row"),
    "too few": ([0, 1], ValueError, "3 guides"),
    "too many": ([0, 1, 2, 3], ValueError, "3 guides"),
    "none": ([], ValueError, "3 guides"),
    "fractions": ([0.0, 1.0, 2.0], TypeError, "float64"),
    "truths": ([True, False, True], TypeError, "bool"),
    "two dimensions": ([[0, 1, 2]], ValueError, "dimension"),
    "names": (["0", "1", "2"], TypeError, "U1"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets(name: str, guides: list[Guide]) -> None:
    targets, error, found = TARGETS[name]
    bitmask = np.full((5 + 2 * GUARD, WORDS), GUARD, np.int32)
    with pytest.raises(error, match=found):
        fill_masks(guides, bitmask[GUARD:-GUARD], targets)
    assert (bitmask == GUARD).all(), "nothing is written"


@pytest.mark.parametrize("kind", [list, tuple, np.int64, np.int32, np.uint8, "strided", "read-only"])
def test_targets_of_all_kinds(kind: Any, guides: list[Guide]) -> None:
    targets: Any = np.array([4, 0, 2])
    if kind == "strided":
        targets = np.repeat(targets, 2)[::2]
    elif kind == "read-only":
        targets = read_only(targets)
    else:
        targets = kind(targets.tolist())
    bitmask, expected = np.zeros((2, 5, WORDS + 2), np.int32)
    assert not fill_masks(guides, bitmask, targets)
    for guide, row in zip(guides, (4, 0, 2), strict=True):
        guide.write_mask(expected, row)
    assert np.array_equal(bitmask, expected) and bitmask[[0, 2, 4]].any(axis=1).all()


def test_a_bitmask_of_too_few_rows(guides: list[Guide]) -> None:
    with pytest.raises(IndexError, match="row 2 in a bitmask of 2"):
        fill_masks(guides, np.zeros((2, WORDS), np.int32))
    for row in (-1, 2, 2**40):
        with pytest.raises(IndexError, match=f"row {row} in a bitmask of 2"):
            guides[0].write_mask(np.zeros((2, WORDS), np.int32), row)
    with pytest.raises(TypeError):
        guides[0].write_mask(np.zeros((2, WORDS), np.int32), 0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "error"),
    [
        ([97, 97], ValueError),
        ([97] * 4, ValueError),
        ([97.0] * 3, TypeError),
        (np.array([97.5] * 3, np.float32), TypeError),
        (["a"] * 3, TypeError),
        ([[97]] * 3, ValueError),
    ],
)
def test_tokens(tokens: Any, error: type[Exception], guides: list[Guide]) -> None:
    before = [guide.config for guide in guides]
    with pytest.raises(error):
        advance_guides(guides, tokens)
    assert [guide.config for guide in guides] == before and not any(guide.tokens_taken for guide in guides)
    with pytest.raises(TypeError):
        guides[0].advance(97.5)  # type: ignore[arg-type]


def test_tokens_of_all_kinds(guides: list[Guide]) -> None:
    ids = [guide.allowed_tokens() for guide in guides]
    first = [min(tokens) for tokens in ids]
    for tokens in (first, np.array(first, np.int32), np.array(first, np.uint16)):
        forks = [guide.fork() for guide in guides]
        assert advance_guides(forks, tokens) == ([True] * 3, {})
    assert advance_guides(guides, [2**40, -1, 2**31 + first[2]]) == ([False] * 3, {}), "no tokens of this vocabulary"


def test_guides_of_several_vocabularies(guides: list[Guide]) -> None:
    other = Index.from_regex("[ab]+", Vocabulary.from_bytes([b"a", b"b", None], eos_token_ids=2)).guide()
    for mixed in ([*guides, other], [other, *guides]):
        with pytest.raises(ValueError, match="the same vocabulary"):
            fill_masks(mixed, np.zeros((4, 2 * WORDS), np.int32))
        with pytest.raises(ValueError, match="the same vocabulary"):
            mask_rows(mixed)
        with pytest.raises(ValueError, match="the same vocabulary"):
            advance_guides(mixed, [0] * 4)
        assert not any(guide.tokens_taken for guide in mixed)


def test_ids_of_a_vocabulary_are_integers() -> None:
    with pytest.raises(TypeError):
        Vocabulary.from_bytes([b"a", None], eos_token_ids=[1.5])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        Vocabulary.from_bytes([b"a", None], eos_token_ids=np.array([1.0]))  # type: ignore[arg-type]
    assert Vocabulary.from_bytes([b"a", None], eos_token_ids=np.array([1], np.int32)).eos_token_ids == (1,)


def test_numbers_of_configurations(bytes_vocabulary: Vocabulary) -> None:
    """A number that the index has not given out is an error; with it, the kernels would read foreign memory."""
    index = Index.from_regex("[a-z]{3,9}", bytes_vocabulary)
    unique = Index.from_json_schema(UNIQUE, bytes_vocabulary)
    for config in (-1, index.configurations, 10**6, 10**7, 2**31, 2**63, -(2**70)):
        asked: list[Callable[[int], Any]] = [
            lambda config: index.advance(config, 97),
            lambda config: index.advance_bytes(config, b"a"),
            index.mask_row,
            index.can_finish,
            index.forced_bytes,
            lambda config: index.mask_within(config, 5),
        ]
        if config != index.configurations:
            asked.append(unique.mask_row)
        for ask in asked:
            with pytest.raises(IndexError, match=rf"no configuration {config} .*has found \d+"):
                ask(config)
    with pytest.raises(TypeError):
        index.advance(1.0, 97)  # type: ignore[arg-type]
    assert index.advance(np.int64(1), 97) == index.advance(1, 97)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="limit"):
        index.forced_bytes(1, -1)


def test_a_guide_that_was_set_to_another_index(bytes_vocabulary: Vocabulary) -> None:
    """`Guide.config` can be set, so batches check it before they read anything."""
    guides = [Index.from_regex("[a-z]{3,9}", bytes_vocabulary).guide() for _ in range(3)]
    bitmask = np.full((3, WORDS), GUARD, np.int32)
    for config in (-1, 10**7, 2**31 - 1):
        guides[1].config = config
        asked: list[Callable[[], Any]] = [
            lambda: mask_rows(guides),
            lambda: fill_masks(guides, bitmask),
            lambda: advance_guides(guides, [97] * 3),
            lambda: mask_rows_along(guides, [[97]] * 3),
            lambda: guides[1].advance(97),
            lambda: guides[1].mask_row,
        ]
        for ask in asked:
            with pytest.raises(IndexError, match=f"no configuration {config}"):
                ask()
        assert (bitmask == GUARD).all() and not any(guide.tokens_taken for guide in guides)


def test_ids_that_no_vocabulary_has(guides: list[Guide]) -> None:
    """Every call says that such a token is not allowed."""
    for token in (-1, 10**6, 2**31, 2**32, 2**63, 2**64, -(2**63), -(2**70)):
        assert advance_guides(guides, [token] * 3) == ([False] * 3, {})
        for guide in guides:
            assert not guide.advance(token) and guide.accepts([token]) == 0
            assert guide.index.advance(guide.config, token) == -1
        rows, _, failures = mask_rows_along(guides, [[token]] * 3)
        assert not failures and (rows.reshape(3, 2)[:, 1] == NO_MASK).all()
    with pytest.raises(TypeError):
        mask_rows_along(guides, [[1.5]] * 3)  # type: ignore[list-item]


def test_drafts(guides: list[Guide]) -> None:
    assert not mask_rows_along([], [])[2]
    for drafts in ([[97]] * 2, [[97]] * 4):
        with pytest.raises(ValueError, match="3 guides"):
            mask_rows_along(guides, drafts)
    other = Index.from_regex("[ab]+", Vocabulary.from_bytes([b"a", b"b", None], eos_token_ids=2)).guide()
    with pytest.raises(ValueError, match="the same vocabulary"):
        mask_rows_along([*guides, other], [[97]] * 4)


@pytest.mark.parametrize("threads", [0, -1, -(2**70)])
def test_threads(threads: int, guides: list[Guide]) -> None:
    with pytest.raises(ValueError, match="threads"):
        fill_masks(guides, np.zeros((3, WORDS), np.int32), threads=threads)
    with pytest.raises(ValueError, match="threads"):
        mask_rows(guides, threads=threads)
    assert not mask_rows(guides, threads=2**70)[1]


def test_numbers_that_are_no_integers(guides: list[Guide]) -> None:
    """The class of a guide depends on the schema, so all classes must answer alike."""
    for guide in guides:
        assert not guide.advance(True)
        for call in (guide.advance, guide.mask_within):
            with pytest.raises(TypeError, match="integer"):
                call(2.5)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            guide.accepts([97.0])  # type: ignore[list-item]
