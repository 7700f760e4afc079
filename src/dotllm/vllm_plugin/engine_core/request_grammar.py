"""RequestGrammar: one request's `Guide`, as vLLM's ``StructuredOutputGrammar``.

vLLM calls these methods from its engine loop, where an exception would end the server and all its requests. None
leaves this class (`contained`): whatever goes wrong is logged, and from then on this request accepts no token, which
makes the scheduler end it, and it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ClassVar, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from dotllm.compilation.compiled import Compiled
from dotllm.errors import InvalidSpecError, SpecError, TooFewTokensError, without_frames
from dotllm.index import Guide, Walkable
from dotllm.index.draft_rows import is_set, limit_rows
from dotllm.index.mask_table import END_ROW
from dotllm.vllm_plugin.answer_limit import AnswerLimit
from dotllm.vllm_plugin.engine_core.errors import TokenNotAllowed
from dotllm.vllm_plugin.engine_core.forced_tokens import ForcedSpelling
from dotllm.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

Bitmask = npt.NDArray[np.int32]

_NEVER = (False,)
_MEMO = 1 << 12  # rows that are remembered for an index
_MOST_NAMED = 8  # stop tokens in a message
_rows_with_stops: WeakKeyDictionary[Walkable, dict[tuple[tuple[int, ...], int, int, int], int]] = WeakKeyDictionary()

Method = TypeVar("Method", bound=Callable[..., object])


def contained(otherwise: Callable[[], object]) -> Callable[[Method], Method]:
    """A decorator of methods: an error ends the request, and then and from then on they return ``otherwise()``."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        def contained_method(self: RequestGrammar, *args: object) -> object:
            if not self.failed:
                try:
                    return method(self, *args)
                except Exception as error:
                    self.fail(method.__name__, error)
            return otherwise()

        return cast(Method, contained_method)

    return decorate


class RequestGrammar(StructuredOutputGrammar):
    """A guide, and the stop tokens of one request.

    A token that stops generation must not come before the text is complete, or the answer would be cut. EOS is the
    guide's business; ``stop_token_ids`` are those of this request (EOS, and what its parameters name). Each is allowed
    where the text may end; before that only where the grammar itself asks for that very token and is complete with it,
    as a structural tag may. So an EOS token beyond the tokenizer's own is a stop token where the grammar speaks of it.
    """

    __slots__ = (
        "_compiled", "_eos", "_further_eos", "_vocabulary", "accepted_in", "allowed_ahead", "error", "failed", "guide",
        "is_plain", "limit", "spelling", "spells_forced_text", "stopped", "stops",
    )  # fmt: skip
    # (All of a batch are looked at several times a step: a dictionary would take twice the memory reads.)
    limited: ClassVar[bool] = False
    """whether one of them has had a limit"""
    guide: Guide
    """made when first needed, when the prompt has been run: by then a warmer index may have come from the store"""
    spelling: ForcedSpelling | None
    """how forced text is spelt; None where the model spells it as it likes"""
    is_plain: bool
    """whether its mask is that of its guide's configuration, as long as the text has not ended"""

    def __init__(
        self,
        guide: Guide | Compiled,
        stop_token_ids: Iterable[int],
        vocabulary: Vocabulary,
        *,
        spells_forced_text: bool = False,
        limit: AnswerLimit | None = None,
    ) -> None:
        """``spells_forced_text``: masks leave one spelling of forced text, which may be entered (`jump_forward`)."""
        self.limit = limit
        if limit is not None:
            RequestGrammar.limited = True
        self._vocabulary = vocabulary
        self._eos = vocabulary.eos_token_ids
        stop_token_ids = set(stop_token_ids)
        self.stops = tuple(sorted(stop_token_ids.difference(self._eos)))
        """The request's further stop tokens, sorted."""
        self._further_eos = tuple(token for token in self._eos[1:] if token in stop_token_ids)
        self.stopped = False
        """Whether a further stop token has ended the text."""
        self.failed = False  # whether an internal error has ended this request
        self.error: Exception | None = None
        """Why it is ended: an error of the engine, or a token that is not allowed (see `errors`)."""
        self.spells_forced_text = spells_forced_text
        self.accepted_in: Sequence[bool] = _NEVER
        """Whether the step is being read whose tokens `batch_accept` let it accept, ahead of vLLM's call: one cell."""
        self.allowed_ahead = -1  # how many of its drafts it allows, where `batch_accept` has found that
        if isinstance(guide, Compiled):
            self._compiled = guide
        else:
            self._begin(guide)

    def __getattr__(self, name: str) -> Any:
        """What is known with the guide, which is made when it is first needed."""
        if name not in ("guide", "is_plain", "spelling"):
            raise AttributeError(name)
        self._begin(self._compiled.guide())
        return getattr(self, name)

    def _begin(self, guide: Guide) -> None:
        """Take the guide. Further EOS tokens that the grammar speaks of are stop tokens from now on."""
        index = guide.index
        if self._further_eos and index.token_sets:
            named = [token for token in self._further_eos if any(is_set(row, token) for row in index.token_rows)]
            if named:
                self.stops = tuple(sorted({*self.stops, *named}))
        spells = self.spells_forced_text and not guide.is_stateful
        self.spelling = ForcedSpelling.of(index) if spells else None
        self.is_plain = not (self.failed or self.stops or self.limit is not None or spells or guide.is_stateful)
        self.guide = guide  # last: who finds it finds all

    @property
    def accepted_ahead(self) -> bool:
        """Whether the tokens of the step whose results are being read have been accepted."""
        return self.accepted_in[0]

    @contained(bool)
    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Advance by sampled tokens (-1 is padding and ends the list). False: not allowed, and nothing has changed.

        Tokens after the end of the text are ignored: with ``ignore_eos`` generation goes on freely.
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
            accepted += self._can_finish_after(tokens[:accepted], self.guide)
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
        row: Bitmask = bitmask[batch_index].numpy()
        if not self._fill(row):
            # The scheduler ends a failed request at its next token; until then it must not produce text.
            row[:] = 0
            for token in self._eos:
                _set(row, token, True)

    @contained(bool)
    def _fill(self, row: Bitmask) -> bool:
        only = self.only_row()
        if only >= 0:
            mask = self.guide.index.masks[only]
            row[: mask.size] = mask
            row[mask.size :] = 0
        else:
            self.guide.write_mask(row[None], 0)
            return not self.stops or self._mask_stops(row, self.guide)
        return True

    @contained(bool)
    def is_terminated(self) -> bool:
        """Whether the text has ended with EOS or a stop token."""
        return self.stopped or bool(self.guide.is_finished)

    @contained(type(None))
    def reset(self) -> None:
        """Back to the first token."""
        self.stopped = False
        self.guide.reset()

    @contained(tuple)
    def forced_after(self, token: int, left: int) -> Sequence[int]:
        """The tokens that must come after ``token``, which has been sampled; none if nothing is forced, or behind it
        the text could not end with the tokens ``left``."""
        spelling, guide = self.spelling, self.guide
        if spelling is None or self.stopped or token in self.stops:
            return ()
        config = guide.config if self.accepted_ahead else guide.index.advance(guide.config, token)
        tokens = () if config < 0 else spelling.after(guide.index, config)
        return () if self._stops_within(tokens) or not self._ends_behind(config, tokens, left) else tokens

    def _ends_behind(self, config: int, tokens: Sequence[int], left: int) -> bool:
        """Whether ``tokens`` after ``config``, with the tokens ``left`` there, let a text under a limit end."""
        if self.limit is not None and tokens:
            for token in tokens:
                config = self.guide.index.advance(config, token)
            try:
                self.guide.index.mask_within(config, left - len(tokens))
            except TooFewTokensError:
                return False
        return True

    @contained(type(None))
    def accept_forced(self, tokens: Iterable[int]) -> None:
        """Advance by forced tokens."""
        if self.spelling is None or not self.spelling.follow(self.guide, tokens):
            raise RuntimeError("a forced token is not allowed")

    @contained(lambda: -1)
    def only_row(self) -> int:
        """The mask of forced text, which allows the one token it is spelt with; -1 where nothing is forced."""
        spelling = self.spelling
        if spelling is None or self.stopped:
            return -1
        index, config = self.guide.index, self.guide.config
        return -1 if self._stops_within(spelling.after(index, config)) else spelling.row(index, config)

    @contained(lambda: -1)
    def limit_rows(self, drafts: Sequence[int], left: int, rows: Bitmask, configs: Bitmask) -> int:
        """`draft_rows.limit_rows` with the tokens ``left``."""
        assert self.limit is not None
        changed = limit_rows(self.guide, drafts, left, rows, configs)
        self.limit.note(left, changed)
        return changed

    @contained(tuple)
    def too_late(self, tokens: Sequence[int], left: int) -> tuple[int, ...]:
        """Those of ``tokens`` behind which an answer could not end with the tokens ``left`` before them."""
        mask = self.guide.mask_within(left) if tokens else None
        return () if mask is None else tuple(token for token in tokens if not is_set(mask, token))

    def _stops_within(self, tokens: Sequence[int]) -> bool:
        """Whether a stop token would end the answer in forced text: it is spelt as without coalescence then."""
        return bool(self.stops) and not set(self.stops).isdisjoint(tokens)

    @contained(lambda: END_ROW)
    def row_with_stops(self, row: int, config: int) -> int:
        """The mask row of ``config`` with this request's stop tokens in it; ``row`` is that without them."""
        if not self.stops:
            return row
        guide, index = self.guide, self.guide.index
        # For all requests of this index, but where masks depend on more than the configuration. No index knows these
        # rows, so a number is good for an epoch (see `TokenSpace`); so is ``row``.
        known = {} if guide.is_stateful else _rows_with_stops.setdefault(index, {})
        key = (self.stops, config, row, index.space.epoch)
        found = known.get(key)
        if found is None:
            if len(known) >= _MEMO:
                known.clear()
            if config != guide.config:
                guide = guide.fork()
                guide.config = config
            mask = index.masks[row].copy()
            found = known[key] = index.space.intern(mask) if self._mask_stops(mask, guide) else END_ROW
        return found

    def _advance(self, token: int) -> bool:
        if self.guide.advance(token):
            return True
        if token in self.stops and self.guide.can_finish:
            self.stopped = True
            return True
        return False

    def _can_finish_after(self, tokens: list[int], guide: Guide) -> bool:
        if not tokens:
            return bool(guide.can_finish)
        return any(guide.accepts([*tokens, eos]) > len(tokens) for eos in self._eos)

    def _mask_stops(self, row: Bitmask, guide: Guide) -> bool:
        """Let ``row``, the mask of ``guide``, allow stop tokens where they may end the text, and forbid them else.

        False: that leaves no token. The request then ends with an error when it has sampled one. (Not before: the guide
        may stand behind drafts that are never taken.)
        """
        can_finish = guide.can_finish
        for token in self.stops:
            _set(row, token, can_finish or (is_set(row, token) and self._ends_with(token, guide)))
        return bool(row.any())

    def _why_not(self, token: int) -> Exception:
        """Why ``token``, which has been sampled, is not allowed."""
        mask = self.guide.index.masks[self.guide.mask_row].copy()
        if not self.stops or self._mask_stops(mask, self.guide):
            return TokenNotAllowed(token)
        named = ", ".join(map(str, self.stops[:_MOST_NAMED])) + (", …" if len(self.stops) > _MOST_NAMED else "")
        message = f"stop_token_ids [{named}] leave no token to go on with where the text may not end yet"
        return InvalidSpecError(message, keyword="stop_token_ids", code="conflict")

    def _ends_with(self, token: int, guide: Guide) -> bool:
        """Whether the grammar itself asks for this special token, and is complete with it. (An ordinary token's text
        would be missing: vLLM takes a stop token out of the answer.)"""
        is_special = token < self._vocabulary.size and self._vocabulary.token_bytes(token) is None
        return is_special and self._can_finish_after([token], guide)

    def fail(self, where: str, error: Exception) -> None:
        """An error of the engine ends this request."""
        self.failed, self.is_plain = True, False
        if isinstance(error, SpecError):
            logger.error("ending this request: %s", error)
        else:
            logger.error("internal error in %s, ending this request: %s", where, error, exc_info=error)
        error = without_frames(error)
        self.error = self.error or error


def _set(row: Bitmask, token: int, allowed: bool) -> None:
    if token >> 5 >= row.size:
        return
    bit = np.uint32(1 << (token & 31)).view(np.int32)
    row[token >> 5] = row[token >> 5] | bit if allowed else row[token >> 5] & ~bit
