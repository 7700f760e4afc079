"""Tokens as bytes, sorted, in a flat trie; per character set: what stays inside, what leaves it."""

from __future__ import annotations

from dotllm.vocabulary.charset_table import CharsetTable
from dotllm.vocabulary.trie import Trie, build_trie
from dotllm.vocabulary.vocabulary import Vocabulary

__all__ = ["CharsetTable", "Trie", "Vocabulary", "build_trie"]
