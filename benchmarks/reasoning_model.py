"""A model with random weights that reasons: tokens that begin and end its reasoning, and how likely they are.

Random weights make all tokens about equally likely. A logit bias makes the reasoning end after any mean number of
tokens, and reasoning parsers that look for ``<think>`` and ``</think>`` find them.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from pathlib import Path

END = "</think>"
_TOKENS = {"<SPECIAL_20>": "<think>", "<SPECIAL_21>": END}


def with_reasoning_tokens(model: Path) -> Path:
    """A copy of the folder ``model`` whose tokenizer has the reasoning tokens in place of two unused ones."""
    folder = Path(tempfile.gettempdir()) / f"{model.name}-reasoning"
    shutil.copytree(model, folder, dirs_exist_ok=True)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    for token in tokenizer["added_tokens"]:
        if token["content"] in _TOKENS:  # not special, as in Qwen3: they are part of the text
            token |= {"content": _TOKENS[token["content"]], "special": False}
    vocabulary = tokenizer["model"]["vocab"]
    for before, after in _TOKENS.items():
        if before in vocabulary:
            vocabulary[after] = vocabulary.pop(before)
    file.write_text(json.dumps(tokenizer))
    return folder


def ending_after(tokens: float, folder: Path) -> dict[int, float]:
    """The logit bias with which the reasoning ends after ``tokens`` tokens on average."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return {tokenizer.convert_tokens_to_ids(END): math.log(len(tokenizer) / tokens)}
