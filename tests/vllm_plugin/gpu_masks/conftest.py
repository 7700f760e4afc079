"""The played engine's vocabulary, index and configurations."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `played_engine`

if TYPE_CHECKING:
    from dotllm import Index, Vocabulary


@pytest.fixture(scope="module")
def vocabulary() -> "Vocabulary":
    """The vocabulary of `played_engine`."""
    from played_engine import EOS, TOKENS

    from dotllm import Vocabulary

    return Vocabulary.from_bytes(TOKENS, eos_token_ids=EOS)


@pytest.fixture(scope="module")
def index(vocabulary: "Vocabulary") -> "Index":
    """The index of `played_engine.SCHEMA`."""
    from played_engine import SCHEMA

    from dotllm import Index

    return Index.from_json_schema(SCHEMA, vocabulary, any_whitespace=False)


@pytest.fixture(scope="module")
def vllm_config(demo_model: Path) -> Any:
    """A configuration with asynchronous scheduling, and our hooks applied."""
    return _config(demo_model)


@pytest.fixture(scope="module")
def drafting_config(demo_model: Path) -> Any:
    """The same, with speculation."""
    return _config(demo_model, {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2})


def _config(demo_model: Path, speculation: dict[str, Any] | None = None) -> Any:
    from played_engine import BLOCK, STATES

    from dotllm.cli import vllm_metadata
    from dotllm.vllm_plugin import register

    vllm_metadata.patch_version()
    register()
    from vllm.engine.arg_utils import EngineArgs

    arguments = EngineArgs(
        model=str(demo_model), max_model_len=512, max_num_seqs=STATES, max_num_batched_tokens=64,
        enable_prefix_caching=True, block_size=BLOCK, speculative_config=speculation,
    )  # fmt: skip
    config = arguments.create_engine_config()
    config.scheduler_config.async_scheduling = True  # (which vLLM turns off on CPUs)
    return config
