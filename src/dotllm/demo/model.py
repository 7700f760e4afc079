"""Makes a Llama-shaped model with random weights for ``dotllm serve``, saved as transformers saves models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from dotllm.demo import tokenizer

VOCABULARY_SIZE = 8192
# Head sizes below 32 have no kernel in vLLM's CPU attention.
HIDDEN, HEADS, KEY_VALUE_HEADS, LAYERS = 128, 4, 2, 2
CONTEXT = 32768


def make(directory: Path, *, vocabulary_size: int = VOCABULARY_SIZE) -> Path:
    """Make a demo model, with a tokenizer trained on the spot, in ``directory``, unless that exists. Returns it."""
    return _make(directory, lambda fresh: tokenizer.save(fresh, vocabulary_size))


def make_with_tokenizer(directory: Path, tokenizer_json: bytes, *, eos_token: str) -> Path:
    """As `make`, but with an existing fast tokenizer (the contents of its ``tokenizer.json``)."""

    def save(fresh: Path) -> None:
        (fresh / "tokenizer.json").write_bytes(tokenizer_json)
        tokenizer.save_config(fresh, eos_token=eos_token, pad_token=eos_token)

    return _make(directory, save)


def save_weights(directory: Path) -> None:
    """Save random weights for the tokenizer in ``directory``, the same each time."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    tok = AutoTokenizer.from_pretrained(directory)
    config = LlamaConfig(
        vocab_size=len(tok),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_VALUE_HEADS,
        max_position_embeddings=CONTEXT,
        bos_token_id=None,
        eos_token_id=tok.eos_token_id,
        pad_token_id=tok.pad_token_id,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        logging.disable_progress_bar()  # saving takes a second
        LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)


def _make(directory: Path, save_tokenizer: Callable[[Path], None]) -> Path:
    if not directory.is_dir():
        # The model is made in a folder next to its place and then renamed, so that an interrupted run leaves nothing
        # that looks like a model.
        directory.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f"{directory.name}.", dir=directory.parent) as temporary:
            fresh = Path(temporary) / "model"
            fresh.mkdir()
            save_tokenizer(fresh)
            save_weights(fresh)
            fresh.rename(directory)
    return directory
