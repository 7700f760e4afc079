"""`dotllm.numpy` and `dotllm.torch` agree with each other and with the guides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from dotllm import numpy as on_arrays

TOKENS = [*(bytes([byte]) for byte in range(256)), b"cat", b"dog", None]
VOCABULARY = Vocabulary.from_bytes(TOKENS, eos_token_ids=258)
INDEX = Index.from_choice(["cat", "cow", "dog"], VOCABULARY)


def backends() -> list[Any]:
    torch = pytest.importorskip("torch")
    from dotllm import torch as on_tensors

    return [(on_arrays, np.asarray, np.float32), (on_tensors, torch.as_tensor, torch.float32)]


@pytest.mark.parametrize("number", [0, 1], ids=["numpy", "torch"])
def test_allocate_fill_and_apply(number: int) -> None:
    module, array, dtype = backends()[number]
    first, second = INDEX.guide(), INDEX.guide()
    assert second.advance(ord("c"))
    bitmask = module.allocate_token_bitmask(3, VOCABULARY.size)
    assert tuple(bitmask.shape) == (3, 9) and bool((bitmask == -1).all())
    module.fill_next_token_bitmask(first, bitmask)
    module.fill_next_token_bitmask_par([(second, 2)], bitmask, threads=1)
    logits = array(np.zeros((3, VOCABULARY.size + 40), np.float32))
    module.apply_token_bitmask_inplace(logits, bitmask)
    assert logits.dtype == dtype
    left = [{int(i) for i in np.flatnonzero(np.isfinite(np.asarray(row)))} for row in logits]
    assert left == [set(first.allowed_tokens()), set(range(9 * 32)), set(second.allowed_tokens())]
    alone = array(np.zeros(VOCABULARY.size, np.float32))
    module.apply_token_bitmask_inplace(alone, bitmask[:1])
    assert {int(i) for i in np.flatnonzero(np.isfinite(np.asarray(alone)))} == set(first.allowed_tokens())


@pytest.mark.parametrize("number", [0, 1], ids=["numpy", "torch"])
def test_wrong_arguments(number: int) -> None:
    module, array, _ = backends()[number]
    bitmask = module.allocate_token_bitmask(2, VOCABULARY.size)
    with pytest.raises(TypeError, match="float logits"):
        module.apply_token_bitmask_inplace(array(np.zeros((2, 300), np.int32)), bitmask)
    for no_array in (None, [0.0] * 300, b"abc", 1.0):
        with pytest.raises(TypeError, match=f"got {type(no_array).__name__}"):
            module.apply_token_bitmask_inplace(no_array, bitmask)
        with pytest.raises(TypeError, match=f"and {type(no_array).__name__}"):
            module.apply_token_bitmask_inplace(array(np.zeros((2, 300), np.float32)), no_array)
    with pytest.raises(ValueError, match="one bitmask row"):
        module.apply_token_bitmask_inplace(array(np.zeros((3, 300), np.float32)), bitmask)
    with pytest.raises(IndexError):
        module.fill_next_token_bitmask(INDEX.guide(), bitmask, 2)
    with pytest.raises(ValueError, match="bitmask"):
        module.fill_next_token_bitmask(INDEX.guide(), module.allocate_token_bitmask(1, 40))


def test_a_loop_of_twelve_lines() -> None:
    """The loop of the documentation: the guide and the model's favourites."""
    guide = INDEX.guide()
    bitmask = on_arrays.allocate_token_bitmask(1, VOCABULARY.size)
    text = b""
    while not guide.is_finished:
        logits = np.arange(VOCABULARY.size, dtype=np.float32)[None]
        on_arrays.fill_next_token_bitmask(guide, bitmask)
        on_arrays.apply_token_bitmask_inplace(logits, bitmask)
        token = int(logits[0].argmax())
        assert guide.advance(token)
        text += TOKENS[token] or b""
    assert text == b"dog"
