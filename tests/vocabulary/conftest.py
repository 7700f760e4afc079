"""A cache directory for these tests, and the tekken vocabulary if the data folder contains it."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dotllm.vocabulary import Vocabulary

TEKKEN = Path(__file__).parents[2] / "../shared/data/tokenizers/tekken/tokenizer.json.gz"


@pytest.fixture(scope="session", autouse=True)
def cache_of_these_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before = os.environ.get("DOTLLM_CACHE_DIR")
    directory = tmp_path_factory.mktemp("cache")
    os.environ["DOTLLM_CACHE_DIR"] = str(directory)
    yield directory
    if before is None:
        del os.environ["DOTLLM_CACHE_DIR"]
    else:
        os.environ["DOTLLM_CACHE_DIR"] = before


@pytest.fixture(scope="session")
def tekken_tokenizer() -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    if not TEKKEN.exists():
        pytest.skip("the tekken tokenizer is not here")
    return tokenizers.Tokenizer.from_buffer(gzip.decompress(TEKKEN.read_bytes()))


@pytest.fixture(scope="session")
def tekken(tekken_tokenizer: Any) -> Vocabulary:
    return Vocabulary.from_tokenizer(tekken_tokenizer, eos_token_ids=2)
