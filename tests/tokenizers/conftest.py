"""These tests need DOTLLM_TOKENIZERS, a folder of tokenizers. `make test-tokenizers` sets it, `make test` does not.

Any folder will do: each of its subfolders holds a ``tokenizer.json``, ``tekken.json`` or ``tokenizer.model``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tokenizers.real import Real

_FOLDER = os.environ.get("DOTLLM_TOKENIZERS", "")
collect_ignore_glob = [] if _FOLDER else ["test_*.py"]
_FILES = ("tokenizer.json", "tekken.json", "tokenizer.model")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for each tokenizer."""
    if "real" in metafunc.fixturenames:
        places = sorted(place for place in Path(_FOLDER).iterdir() if any((place / file).exists() for file in _FILES))
        assert places, f"no tokenizers in {_FOLDER}"
        metafunc.parametrize("real", places, ids=[place.name for place in places], indirect=True, scope="session")


@pytest.fixture(scope="session")
def real(request: pytest.FixtureRequest) -> Real:
    """The tokenizer in a folder, and its vocabulary."""
    return Real(request.param)
