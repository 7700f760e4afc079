"""What the engine knows about its model before the first request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.vllm_plugin.enforce import per_process


@pytest.mark.parametrize(("named", "ends"), [(None, ()), (2, (2,)), ([2, 0], (2, 0))])
def test_the_generation_config_is_read_once(named: Any, ends: tuple[int, ...]) -> None:
    """It may be on a model hub, and specifications with special tokens ask for the vocabulary again and again."""
    read = []

    def read_config() -> dict[str, Any]:
        read.append(1)
        return {} if named is None else {"eos_token_id": named}

    model_config = SimpleNamespace(try_get_generation_config=read_config)
    assert [per_process.further_ends(model_config) for _ in range(3)] == [ends] * 3
    assert len(read) == 1
