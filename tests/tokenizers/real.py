"""The tokenizer of a real model: its own encoding and decoding, and the vocabulary made from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dotllm import Vocabulary

NARROW = {"gemma3": 262_144}
"""Rows of the model's output, for models whose tokenizer has more tokens."""
PROMPT = "The answer:"


class Real:
    """The tokenizer in the folder ``place``. ``decode`` is the library's, independent of the vocabulary."""

    def __init__(self, place: Path) -> None:
        self.name = place.name
        size = NARROW.get(place.name)
        if (place / "tekken.json").exists():
            from mistral_common.tokens.tokenizers.tekken import Tekkenizer

            self.tokenizer: Any = Tekkenizer.from_file(place / "tekken.json")
            self.decode = self.tokenizer.decode
            self._encode = lambda text: self.tokenizer.encode(text, bos=False, eos=False)
            self.vocabulary = Vocabulary.from_tokenizer(self.tokenizer, size=size)
        elif (place / "tokenizer.model").exists():
            import sentencepiece

            self.tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(place / "tokenizer.model"))
            self.decode = self.tokenizer.decode
            self._encode = self.tokenizer.encode
            self.vocabulary = Vocabulary.from_tokenizer(self.tokenizer, size=size)
        else:
            from tokenizers import Tokenizer

            self.tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
            self.decode = lambda ids: self.tokenizer.decode(ids, skip_special_tokens=False)
            self._encode = lambda text: self.tokenizer.encode(text, add_special_tokens=False).ids
            self.vocabulary = Vocabulary.from_tokenizer(self.tokenizer, eos_token_ids=self._end(place), size=size)

    def _end(self, place: Path) -> int:
        config = place / "tokenizer_config.json"
        name = json.loads(config.read_text()).get("eos_token") if config.exists() else None
        name = name["content"] if isinstance(name, dict) else name
        found = None if name is None else self.tokenizer.token_to_id(name)
        special = [i for i, token in self.tokenizer.get_added_tokens_decoder().items() if token.special]
        return max(special) if found is None else int(found)

    def token(self, i: int) -> bytes:
        """The bytes of token ``i``, empty if it has none."""
        return self.vocabulary.token_bytes(i) or b""

    def continued(self, text: str) -> list[int]:
        """The tokenizer's own tokens of ``text`` after other text. Some tokenizers put a space before a first word."""
        wanted = text.encode()
        for before in ("", "\n", ":", "x"):
            ids = self._encode(before + text)
            for first in range(len(ids)):
                if b"".join(map(self.token, ids[first:])) == wanted:
                    return list(ids[first:])
        raise AssertionError(f"{self.name} does not spell {text!r}")

    def said(self, ids: list[int]) -> str:
        """The text that ``ids`` add after a prompt, by the tokenizer's own decoding."""
        prompt = self._encode(PROMPT)
        before = self.decode(prompt)
        whole = self.decode([*prompt, *ids])
        assert whole.startswith(before)
        return whole[len(before) :]
