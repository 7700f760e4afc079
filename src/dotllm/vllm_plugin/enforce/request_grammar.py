"""RequestGrammar: one request's `Guide`, as vLLM's ``StructuredOutputGrammar``.

vLLM calls these methods from its engine loop, where an exception would end the server and all its requests. No
exception leaves this class (`contained`): an error is logged, and from then on this request accepts no token, so the
scheduler ends this request alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from dotllm.arrays import Int32
from dotllm.automata.machine.arena import ArenaFull
from dotllm.compilation.compiled import Compiled
from dotllm.errors import InvalidSpecError, SpecError, without_frames
from dotllm.index import Guide
from dotllm.index.draft_rows import NO_MASK, is_set
from dotllm.index.mask_table import END_ROW
from dotllm.index.stops import can_finish_after, mask_stops, row_with_stops, set_token
from dotllm.vllm_plugin.enforce.errors import TokenNotAllowed, contained
from dotllm.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

SpellingOf = Callable[[Any], Any]
"""Returns the `ForcedSpelling` of an index."""

_MOST_NAMED = 8  # stop tokens in a message


class RequestGrammar(StructuredOutputGrammar):
    """A guide, and the stop tokens of one request.

    A token that stops generation must not come before the text is complete, or the answer would be cut. The guide
    handles EOS; ``stop_token_ids`` are those of this request (EOS, and those that its parameters name). Each is allowed
    where the text may end; before that, only where the grammar itself asks for that token and is complete with it, as a
    structural tag may. So an EOS token other than the tokenizer's own is a stop token if the grammar names it.
    """

    __slots__ = (
        "_compiled", "_eos", "_further_eos", "_guide", "_spelling", "accepted_ahead",
        "allowed_ahead", "error", "failed", "has_begun", "is_plain", "limit", "spelling_of", "stop_running",
        "stopped", "stops",
    )  # fmt: skip
    # (A step looks at all grammars of a batch several times: a dictionary would take twice the memory reads.)
    limited: ClassVar[bool] = False
    """whether any of them has had a limit"""
    _guide: Guide
    """made when first needed (`begin`), after the prompt has run: a warmer index may have come from the store"""
    _spelling: Any
    is_plain: bool
    """whether its mask is the mask of its guide's configuration until the text ends"""

    def __init__(
        self,
        guide: Guide | Compiled,
        stop_token_ids: Iterable[int],
        vocabulary: Vocabulary,
        *,
        spelling_of: SpellingOf | None = None,
        limit: Any = None,
    ) -> None:
        """``spelling_of``: the masks allow only this spelling of forced text, which may be entered (`jump_forward`).
        ``limit``: the `AnswerLimit`, if the answer must end in time."""
        self.limit = limit
        if limit is not None:
            RequestGrammar.limited = True

        self._eos = vocabulary.eos_token_ids
        stop_token_ids = set(stop_token_ids)
        self.stops = tuple(sorted(stop_token_ids.difference(self._eos)))
        """The request's further stop tokens, sorted."""
        self._further_eos = tuple(token for token in self._eos[1:] if token in stop_token_ids)

        self.stopped = False
        """Whether a further stop token has ended the text."""
        self.failed = False  # whether an internal error has ended this request
        self.error: Exception | None = None
        """Why the request is ended: an error of the engine, or a token that is not allowed (see `errors`)."""
        self.spelling_of = spelling_of

        self.accepted_ahead = False
        """Whether `batch_accept` has let it accept the tokens of the step being read, ahead of vLLM's call."""
        self.allowed_ahead = -1  # how many of its drafts it allows, if `batch_accept` has found that
        self.stop_running: Callable[[], None] | None = None
        """Takes the guide back from its batch, if it runs there (`batch_accept`)."""

        self.has_begun = False
        """Whether the guide has been made."""
        if isinstance(guide, Compiled):
            self._compiled = guide
        else:
            self._take(guide)

    def begin(self) -> bool:
        """Make the guide. Returns False if that fails, which ends the request."""
        while not (self.has_begun or self.failed):
            try:
                self._take(self._compiled.guide())
            except Exception as error:
                self.fail("begin", error)
        return not self.failed

    def _take(self, guide: Guide) -> None:
        """Take the guide. Further EOS tokens that the grammar names are stop tokens from now on."""
        index = guide.index
        if self._further_eos and index.token_sets:
            named = [token for token in self._further_eos if any(is_set(row, token) for row in index.token_rows)]
            if named:
                self.stops = tuple(sorted({*self.stops, *named}))
        spells = self.spelling_of is not None and not guide.is_stateful
        self._spelling = self.spelling_of(index) if self.spelling_of is not None and spells else None
        self.is_plain = not (self.failed or self.stops or self.limit is not None or spells or guide.is_stateful)
        self._guide = guide
        self.has_begun = True

    @property
    def guide(self) -> Guide:
        """The guide. If it runs with its batch, it is taken back first."""
        if self.stop_running is not None:
            self.stop_running()
            self.stop_running = None
        return self._guide

    @property
    def spelling(self) -> Any:
        """How forced text is spelt on the guide's index (`ForcedSpelling`); None where the model chooses."""
        spelling = self._spelling
        if spelling is not None and spelling.index() is not self.guide.index:  # the guide has moved
            assert self.spelling_of is not None
            spelling = self._spelling = self.spelling_of(self.guide.index)
        return spelling

    @contained(bool)
    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Advance by sampled tokens (-1 is padding and ends the list). False: one is not allowed; nothing changes.

        Tokens after the end of the text are ignored: with ``ignore_eos`` generation continues without a constraint.
        """
        if self.accepted_ahead:
            return True
        for advanced, token in enumerate(tokens):
            if token < 0 or self.is_terminated():
                break
            if not self._advance(token):
                self.error = self.error or self._why_not(token)
                self.rollback(advanced)
                return False
        return not self.failed

    @contained(list)
    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The longest prefix of draft tokens that would be accepted; the state does not change."""
        if self.allowed_ahead >= 0 or self.stopped:
            return tokens[: max(0, self.allowed_ahead)]
        accepted = self.guide.accepts(tokens)
        if tokens[accepted : accepted + 1] and tokens[accepted] in self.stops:
            accepted += can_finish_after(tokens[:accepted], self.guide)
        return tokens[:accepted]

    @contained(type(None))
    def rollback(self, num_tokens: int) -> None:
        """Take back the last ``num_tokens`` accepted tokens."""
        if self.stopped and num_tokens > 0:
            self.stopped = False
            num_tokens -= 1
        if num_tokens > 0:
            self.guide.rollback(num_tokens)

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Write the mask of the next token into row ``batch_index``."""
        row: Int32 = bitmask[batch_index].numpy()
        if not self._fill(row):
            # The scheduler ends a failed request at its next token; until then it must not produce text.
            row[:] = 0
            for token in self._eos:
                set_token(row, token, allowed=True)

    @contained(bool)
    def _fill(self, row: Int32) -> bool:
        only = self.only_row()
        if only >= 0:
            mask = self.guide.index.masks[only]
            row[: mask.size] = mask
            row[mask.size :] = 0
        else:
            self.guide.write_mask(row[None], 0)
            return not self.stops or mask_stops(row, self.guide, self.stops)
        return True

    @contained(lambda: END_ROW)
    def mask_row(self) -> int:
        """The row of the next token's mask, for a plain grammar."""
        return NO_MASK if self.is_terminated() else self.guide.mask_row

    @contained(bool)
    def is_terminated(self) -> bool:
        """Whether the text has ended with EOS or a stop token."""
        return self.stopped or bool(self.guide.is_finished)

    @contained(type(None))
    def reset(self) -> None:
        """Go back to the beginning of the text."""
        self.stopped = False
        self.guide.reset()

    @contained(lambda: -1)
    def only_row(self) -> int:
        """The mask row of forced text, which allows only the next token of its spelling; -1 if nothing is forced."""
        spelling = self.spelling
        if spelling is None or self.stopped:
            return -1
        index, config = self.guide.index, self.guide.config
        return -1 if self.stops_within(spelling.after(index, config)) else spelling.row(index, config)

    def stops_within(self, tokens: Sequence[int]) -> bool:
        """Whether a stop token in forced text would end the answer; the model then spells the text itself."""
        return bool(self.stops) and not set(self.stops).isdisjoint(tokens)

    @contained(lambda: END_ROW)
    def row_with_stops(self, row: int, config: int) -> int:
        """The mask row of ``config`` with this request's stop tokens; ``row`` is the one without them."""
        if not self.stops:
            return row
        return row_with_stops(self.guide, row, config, self.stops)

    def _advance(self, token: int) -> bool:
        if self.guide.advance(token):
            return True
        if token in self.stops and self.guide.can_finish:
            self.stopped = True
            return True
        return False

    def _why_not(self, token: int) -> Exception:
        """Why ``token``, which has been sampled, is not allowed."""
        mask = self.guide.index.masks[self.guide.mask_row].copy()
        if not self.stops or mask_stops(mask, self.guide, self.stops):
            return TokenNotAllowed(token)
        named = ", ".join(map(str, self.stops[:_MOST_NAMED])) + (", …" if len(self.stops) > _MOST_NAMED else "")
        message = f"stop_token_ids [{named}] leave no token with which to continue, and the text may not end yet"
        return InvalidSpecError(message, keyword="stop_token_ids", code="conflict")

    def survives(self, error: Exception) -> bool:
        """Whether the call that raised ``error`` may begin again: the index was full, and the guide has moved."""
        return isinstance(error, ArenaFull) and self.guide.move_on()

    def fail(self, where: str, error: Exception) -> None:
        """End this request with an error of the engine."""
        if self.has_begun:
            _ = self.guide
        self.failed, self.is_plain = True, False
        if isinstance(error, SpecError):
            logger.error("ending this request: %s", error)
        else:
            logger.error("internal error in %s, ending this request: %s", where, error, exc_info=error)
        error = without_frames(error)
        self.error = self.error or error
