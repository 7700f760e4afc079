"""The masks of forced text, where a process has more than one vocabulary."""

from __future__ import annotations

from dotllm import Index, Vocabulary
from dotllm.vllm_plugin.engine_core.forced_tokens import ForcedTokens


def test_a_row_belongs_to_the_table_of_its_vocabulary() -> None:
    """The number of a row in one table was once taken for the same token's in another."""
    forced = ForcedTokens()
    for words in ([], [b"ab"]):
        tokens = [bytes([i]) for i in range(256)] + words
        vocabulary = Vocabulary.from_bytes([*tokens, None], eos_token_ids=len(tokens))
        for text in ("x", "y") if words else ("y", "x"):
            index = Index.from_regex(text, vocabulary)
            row = forced.row(index.space, forced.after(index, index.guide().config)[0])
            mask = index.space.rows[row]
            assert [i for i in range(len(tokens)) if mask[i >> 5] >> (i & 31) & 1] == [ord(text)]
