"""A tokenizer with the marks of all notations, and its vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dotllm import Vocabulary


@pytest.fixture(scope="module")
def tokenizer(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.vllm_plugin.frontend.tool_calls.test_tool_parsers import marked_tokenizer  # needs vLLM

    return marked_tokenizer(demo_model, tmp_path_factory.mktemp("marks"))


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Any) -> Vocabulary:
    from dotllm import Vocabulary

    return Vocabulary.from_tokenizer(tokenizer)
