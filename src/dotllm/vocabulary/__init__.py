"""A model's tokens as bytes, sorted, in a flat trie; and for each character set, the tokens that stay inside it or
leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.exports import exports

if TYPE_CHECKING:
    from dotllm.vocabulary.charset_table import CharsetTable
    from dotllm.vocabulary.trie import Trie, build_trie
    from dotllm.vocabulary.vocabulary import Vocabulary

__all__ = ["CharsetTable", "Trie", "Vocabulary", "build_trie"]

__getattr__, __dir__ = exports(__name__, charset_table="CharsetTable", trie="Trie build_trie", vocabulary="Vocabulary")
