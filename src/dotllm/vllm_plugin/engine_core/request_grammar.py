"""RequestGrammar: one request's `Guide`, as vLLM's ``StructuredOutputGrammar``.

vLLM calls these methods from its engine loop, where an exception would end the server and all its requests. None
leaves this class: whatever goes wrong is logged, and from then on this request accepts no token, which makes the
scheduler end it, and it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from dotllm.compilation.compiled import Compiled
from dotllm.errors import InvalidSpec, SpecError, without_frames
from dotllm.index import Guide, Walkable
from dotllm.index.token_space import END_ROW
from dotllm.vllm_plugin.engine_core.errors import TokenNotAllowed
from dotllm.vllm_plugin.engine_core.forced_tokens import ForcedTokens, Spelling
from dotllm.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

Bitmask = npt.NDArray[np.int32]

_MEMO = 1 << 12  # rows that are remembered for an index and some stop tokens
_MOST_NAMED = 8  # stop tokens in a message
_MOST_STOPS = 16  # sets of stop tokens of an index for which they are
_shared_rows: WeakKeyDictionary[Walkable, dict[tuple[int, ...], dict[tuple[int, int, int], int]]] = WeakKeyDictionary()


class BitmaskView:
    """The NumPy array over vLLM's bitmask tensor. There is one tensor per engine, and making a view costs more than
    copying a row, so the last one is kept."""

    def __init__(self) -> None:
        self._tensor: torch.Tensor | None = None
        self._array: Bitmask = np.zeros((0, 0), np.int32)

    def __call__(self, tensor: torch.Tensor) -> Bitmask:
        """int32 [rows, words], sharing memory with ``tensor`` (on the CPU, as vLLM's is)."""
        if tensor is not self._tensor:
            self._array = tensor.numpy()
            self._tensor = tensor
        return self._array


class RequestGrammar(StructuredOutputGrammar):
    """A guide, and the stop tokens of one request.

    A token that stops generation must not come before the text is complete, or the answer would be cut. EOS is the
    guide's business; ``stop_token_ids`` are those of this request (EOS, and what its parameters name). Each is allowed
    where the text may end; before that only where the grammar itself asks for that very token, as a structural tag may,
    and is complete with it. So an EOS token beyond the tokenizer's own is treated as a stop token where the grammar
    speaks of it.
    """

    failures: ClassVar[int] = 0
    """how many times one of them has `failed`"""

    def __init__(
        self,
        guide: Guide | Compiled,
        stop_token_ids: Iterable[int],
        vocabulary: Vocabulary,
        view: BitmaskView,
        forced: ForcedTokens | None = None,
    ) -> None:
        """``forced``: where forced text is entered into the request, what it is spelt with."""
        self._vocabulary = vocabulary
        self._eos = vocabulary.eos_token_ids
        stop_token_ids = set(stop_token_ids)
        self.stops = tuple(sorted(stop_token_ids.difference(self._eos)))
        """The request's further stop tokens, sorted."""
        self._further_eos = tuple(token for token in self._eos[1:] if token in stop_token_ids)
        self._view = view
        self.stopped = False
        """Whether a further stop token has ended the text."""
        self.failed = False
        """Whether an internal error has ended this request."""
        self.error: Exception | None = None
        """Why it is ended: an error of the engine, or a token that is not allowed (see `errors`)."""
        self._forced = forced
        self.spells_forced_text = forced is not None
        """Whether masks leave one spelling of forced text, which may be entered (`jump_forward`)."""
        self.own_masks = bool(self.stops)
        """Whether masks may differ from the guide's for other reasons, even while the text goes on."""
        self.accepted_ahead = False
        """Whether this step's token was taken ahead of vLLM's call, by `batch_accept`."""
        if isinstance(guide, Compiled):
            self._compiled = guide
        else:
            self.guide = guide
            self._look_for_ends(guide.index)

    @cached_property
    def guide(self) -> Guide:
        """The guide; to look ahead (forced tokens), and for those who take tokens for it.

        Made when first needed, when the prompt has been run: by then a warmer index may have come from the store.
        """
        guide: Guide = self._compiled.guide()
        self._look_for_ends(guide.index)
        return guide

    def _look_for_ends(self, index: Walkable) -> None:
        """Further EOS tokens that the grammar speaks of are stop tokens from now on."""
        if self._further_eos and index.token_sets:
            asked = [token for token in self._further_eos if any(_get(row, token) for row in index.token_rows)]
            if asked:
                self.stops = tuple(sorted({*self.stops, *asked}))
                self.own_masks = True

    @cached_property
    def _rows_with_stops(self) -> dict[tuple[int, int, int], int]:
        """`row_with_stops` by (config, row, epoch): shared with all requests of this index and these stop tokens, but
        for a guide whose masks depend on more than its configuration."""
        if self.guide.remembers:
            return {}
        of_index = _shared_rows.setdefault(self.guide.index, {})
        if self.stops not in of_index and len(of_index) >= _MOST_STOPS:  # every request may name others
            of_index.clear()
        return of_index.setdefault(self.stops, {})

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Advance by sampled tokens (-1 is padding and ends the list). False: not allowed, and nothing has changed.

        Tokens after the end of the text are ignored: with ``ignore_eos`` generation goes on freely.
        """
        if self.failed:
            return False
        if self.accepted_ahead:
            return True
        advanced = 0
        try:
            for token in tokens:
                if token < 0 or self.is_terminated():
                    break
                if not self._advance(token):
                    logger.error("request %s: token %d is not allowed here; ending the request", request_id, token)
                    self.rollback(advanced)
                    self.error = self.error or TokenNotAllowed(token)
                    return False
                advanced += 1
        except Exception as error:
            self.fail("accept", error)
            return False
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The longest prefix of draft tokens that would be accepted; the state does not change."""
        if self.failed or self.stopped:
            return []
        try:
            drafts = _without_padding(tokens)
            accepted = self.guide.accepts(drafts)
            if accepted < len(drafts) and drafts[accepted] in self.stops and self._can_finish_after(drafts[:accepted]):
                accepted += 1
        except Exception as error:
            self.fail("validate", error)
            return []
        return drafts[:accepted]

    def rollback(self, num_tokens: int) -> None:
        """Take back the last ``num_tokens`` accepted tokens."""
        if num_tokens <= 0 or self.failed:
            return
        try:
            if self.stopped:
                self.stopped = False
                num_tokens -= 1
            if num_tokens:
                self.guide.rollback(num_tokens)
        except Exception as error:
            self.fail("rollback", error)

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Write the mask of the next token into row ``batch_index``."""
        array = self._view(bitmask)
        if not self.failed:
            try:
                only = self.only_row()
                if only >= 0:
                    masks = self.guide.index.masks
                    array[batch_index, : masks.shape[1]] = masks[only]
                    array[batch_index, masks.shape[1] :] = 0
                    return
                self.guide.write_mask(array, batch_index)
                if self.stops:
                    self._mask_stops(array[batch_index])
                return
            except Exception as error:
                self.fail("fill", error)
        # The scheduler ends a failed request at its next token; until then it must not produce text.
        row = array[batch_index]
        row[:] = 0
        for token in self._eos:
            _set(row, token, True)

    def is_terminated(self) -> bool:
        """Whether the text has ended with EOS or a stop token."""
        if self.failed:
            return False
        try:
            return self.stopped or bool(self.guide.is_finished)
        except Exception as error:
            self.fail("is_terminated", error)
            return False

    def reset(self) -> None:
        """Back to the first token."""
        self.stopped = False
        try:
            self.guide.reset()
        except Exception as error:
            self.fail("reset", error)

    @cached_property
    def _spelling(self) -> Spelling | None:
        """How forced text is spelt; None where the model spells it as it likes."""
        return None if self._forced is None or self.guide.remembers else self._forced.of(self.guide.index)

    def forced_after(self, token: int) -> Sequence[int]:
        """The tokens that must come after ``token``, which has been sampled; none if nothing is forced."""
        spelling = self._spelling
        if spelling is None or self.failed or self.stopped or token in self.stops:
            return ()
        try:
            guide = self.guide
            config = guide.config if self.accepted_ahead else guide.index.advance(guide.config, token)
            tokens = () if config < 0 else spelling.after(guide.index, config)
            return () if self.stops and self._stops_within(tokens) else tokens
        except Exception as error:
            self.fail("forced text", error)
            return ()

    def take(self, tokens: Iterable[int]) -> None:
        """Advance by forced tokens."""
        try:
            if not all(map(self.guide.advance, tokens)):
                raise RuntimeError("a forced token is not allowed")
        except Exception as error:
            self.fail("forced text", error)

    def only_row(self) -> int:
        """The mask of forced text, which allows the one token it is spelt with; -1 where nothing is forced."""
        spelling = self._spelling
        if spelling is None or self.failed or self.stopped:
            return -1
        try:
            index, config = self.guide.index, self.guide.config
            stops = self.stops and self._stops_within(spelling.after(index, config))
            return -1 if stops else spelling.row(index, config)
        except Exception as error:
            self.fail("forced text", error)
            return -1

    def _stops_within(self, tokens: Sequence[int]) -> bool:
        """Whether a stop token would end the answer in forced text: it is spelt as without coalescence then."""
        return not set(self.stops).isdisjoint(tokens)

    def row_with_stops(self, row: int, config: int) -> int:
        """The mask row of ``config`` with this request's stop tokens in it; ``row`` is that without them."""
        try:
            index = self.guide.index
            if not self.stops:
                return row
            # No index knows these rows, so a number is good for an epoch (see `TokenSpace`); so is ``row``.
            key = (config, row, index.space.epoch)
            known = self._rows_with_stops
            found = known.get(key)
            if found is None:
                if len(known) >= _MEMO:
                    known.clear()
                place = self.guide if config == self.guide.config else self.guide.fork()
                if place is not self.guide:
                    place.config = config
                mask = index.masks[row].copy()
                self._mask_stops(mask, place)
                found = known[key] = index.space.intern(mask)
            return found
        except Exception as error:
            self.fail("stops", error)
            return END_ROW

    def _advance(self, token: int) -> bool:
        if self.guide.advance(token):
            return True
        if token in self.stops and self.guide.can_finish:
            self.stopped = True
            return True
        return False

    def _can_finish_after(self, tokens: list[int], guide: Guide | None = None) -> bool:
        place = guide or self.guide
        if not tokens:
            return bool(place.can_finish)
        return any(place.accepts([*tokens, eos]) > len(tokens) for eos in self._eos)

    def _mask_stops(self, row: Bitmask, guide: Guide | None = None) -> None:
        place = guide or self.guide
        can_finish = place.can_finish
        for token in self.stops:
            _set(row, token, can_finish or (_get(row, token) and self._ends_with(token, place)))
        if not row.any():
            named = ", ".join(map(str, self.stops[:_MOST_NAMED])) + (", …" if len(self.stops) > _MOST_NAMED else "")
            message = f"stop_token_ids [{named}] leave no token to go on with where the text may not end yet"
            raise InvalidSpec(message, keyword="stop_token_ids")

    def _ends_with(self, token: int, guide: Guide) -> bool:
        """Whether the grammar itself asks for this special token, and is complete with it. (An ordinary token's text
        would be missing: vLLM takes a stop token out of the answer.)"""
        is_special = token < self._vocabulary.size and self._vocabulary.token_bytes(token) is None
        return is_special and self._can_finish_after([token], guide)

    def fail(self, where: str, error: Exception) -> None:
        """An error of the engine ends this request."""
        self.failed = True
        RequestGrammar.failures += 1
        if isinstance(error, SpecError):
            logger.error("ending this request: %s", error)
        else:
            logger.error("internal error in %s, ending this request: %s", where, error, exc_info=error)
        error = without_frames(error)
        self.error = self.error or error


def _without_padding(tokens: list[int]) -> list[int]:
    for position, token in enumerate(tokens):
        if token < 0:
            return tokens[:position]
    return tokens


def _get(row: Bitmask, token: int) -> bool:
    return token >> 5 < row.size and bool(row[token >> 5] >> (token & 31) & 1)


def _set(row: Bitmask, token: int, allowed: bool) -> None:
    if token >> 5 >= row.size:
        return
    bit = np.uint32(1 << (token & 31)).view(np.int32)
    row[token >> 5] = row[token >> 5] | bit if allowed else row[token >> 5] & ~bit
