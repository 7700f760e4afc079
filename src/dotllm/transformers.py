"""Structured generation with Hugging Face's ``model.generate``: a ``LogitsProcessor`` over the engine's public API.

    index = Index.from_json_schema(schema, Vocabulary.from_tokenizer(tokenizer, size=model.config.vocab_size))
    model.generate(**inputs, logits_processor=LogitsProcessorList([StructuredLogitsProcessor(index)]))

``generate`` shows a processor whole rows, with their prompts. It does not say where a prompt ends, or which row of the
last step a row continues, and beam search reorders rows in every step. So the processor recognises rows by content: the
rows of the first step are the prompts, and a later row without its last token equals the row that it continues.
Padding, batches, ``num_return_sequences`` and beams need nothing further. But a prompt may look like a continued row,
so a processor serves only one generation; and assisted generation, which rolls rows back, is refused.

The processor no longer masks a row that has taken a forbidden token: ``generate`` fills rows that have stopped with
padding, and carries beams of probability zero if there are more beams than texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LogitsProcessor

from dotllm.api import Index
from dotllm.index import Guide
from dotllm.index.batch import fill_masks

Key = tuple[int, bytes]
"""The number of a row's prompt, and a digest of its content."""

_REUSED = "these rows do not continue any earlier row: a processor serves one generation (or call reset() in between)"


def _digest(row: NDArray[np.int64]) -> bytes:
    return blake2b(row.tobytes(), digest_size=16).digest()


class StructuredLogitsProcessor(LogitsProcessor):
    """Leaves only the tokens after which the output can still become a text of the index. A processor is cheap: make
    one for each ``generate``, or `reset` it in between."""

    def __init__(self, index: Index | Sequence[Index]) -> None:
        """``index``: one index for all prompts, or one for each prompt of the batch.

        Raises:
            ValueError: there is no index, or the indexes have different vocabularies.
        """
        self._indexes = [index] if isinstance(index, Index) else list(index)
        if not self._indexes or any(
            each_index.vocabulary is not self._indexes[0].vocabulary for each_index in self._indexes
        ):
            raise ValueError("expected at least one index, all for the same vocabulary")
        self._guides: dict[Key, Guide | None] = {}

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """``scores`` [rows, tokens] with minus infinity for every token that is not allowed.

        Raises:
            dotllm.BudgetExceededError: the automaton has outgrown its limit.
            ValueError: the rows or the model are not those that the indexes are for.
        """
        if input_ids.ndim != 2 or input_ids.is_floating_point() or scores.ndim != 2 or len(scores) != len(input_ids):
            given = f"{input_ids.dtype} {list(input_ids.shape)} and {list(scores.shape)}"
            raise ValueError(f"expected input_ids: integers [rows, length] and scores [rows, tokens], got {given}")
        rows = np.ascontiguousarray(input_ids.cpu().numpy())
        if len(rows) % len(self._indexes):
            raise ValueError(f"{len(rows)} rows cannot belong to {len(self._indexes)} prompts")
        vocabulary = self._indexes[0].vocabulary
        if scores.shape[-1] < vocabulary.size:
            raise ValueError(f"the model has {scores.shape[-1]} tokens, the vocabulary {vocabulary.size}")
        guides = self._step(rows)
        constrained = [row for row, guide in enumerate(guides) if guide is not None]
        bitmask = np.full((len(rows), vocabulary.words), -1, np.int32)
        failures = fill_masks([guide for guide in guides if guide is not None], bitmask, constrained)
        for failure in failures.values():
            raise failure
        allowed = np.ones(scores.shape, bool)
        bits = np.unpackbits(bitmask[constrained].view(np.uint8), axis=1, bitorder="little")[:, : scores.shape[-1]]
        allowed[constrained, : bits.shape[1]] = bits
        allowed[constrained, bits.shape[1] :] = False
        return scores.masked_fill(~torch.from_numpy(allowed).to(scores.device), -torch.inf)

    def reset(self) -> None:
        """Forget the generation so far: the next rows are prompts, whatever they look like."""
        self._guides = {}

    def _step(self, rows: NDArray[np.int64]) -> list[Guide | None]:
        """The guide of every row; None for a row that is left alone."""
        beams = len(rows) // len(self._indexes)
        keys = [(row // beams, _digest(rows[row])) for row in range(len(rows))]
        after: dict[Key, Guide | None] = {}
        for row, key in enumerate(keys):
            if not self._guides:
                after[key] = self._indexes[key[0]].guide()
            elif key not in after:
                parent = (key[0], _digest(rows[row, :-1]))
                if parent not in self._guides:
                    raise ValueError(_REUSED)
                after[key] = self._continued(self._guides[parent], int(rows[row, -1]))
        if not any(after.values()):  # a generation in which no row continues would have ended
            raise ValueError(_REUSED)
        self._guides = after
        return [after[key] for key in keys]

    @staticmethod
    def _continued(guide: Guide | None, token: int) -> Guide | None:
        if guide is None:
            return None
        after = guide.fork()  # other rows may share the guide
        return after if after.advance(token) else None
