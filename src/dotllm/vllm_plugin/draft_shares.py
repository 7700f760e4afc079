"""How many of a request's draft tokens come out as drafted: what a draft is expected to save.

A draft is compared with the tokens that follow it, whether it was verified or not. For the methods that draft tokens
rather than distributions (n-grams, forced text, the greedy drafts of EAGLE and kin) rejection sampling accepts a draft
with the probability that the model gives it, which is how often it is sampled without drafting. So what drafts would
save is known without verifying any, and only what they cost has to be tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PRIOR = (3.0, 8.0)  # matched, drafted: before anything is known
WEIGHT = 8.0  # of what is known of all requests, in drafted tokens, beside what is known of one
FORGET_ALL, FORGET_ONE = 0.99, 0.9  # of what was known, with each draft
AT_ONCE = 32  # requests looked at in a step; in larger batches they take turns


class DraftShares:
    """See the module; one for each kind of drafts."""

    def __init__(self, prior: tuple[float, float] = PRIOR) -> None:
        self._all = prior
        self._of: dict[str, tuple[float, float]] = {}
        self._open: dict[str, tuple[int, Sequence[int]]] = {}  # where a draft began, and the draft
        self._turn = 0

    def observe(self, drafts: Sequence[tuple[Any, Sequence[int]]]) -> None:
        """``drafts``: what is proposed to follow the tokens of some requests. Settles what was proposed before."""
        turn = self._turn if self._turn < len(drafts) else 0
        self._turn = turn + AT_ONCE
        for request, tokens in drafts[turn : self._turn]:
            name, now = request.request_id, request.num_tokens
            before = self._open.get(name)
            if before is not None and not self._settle(request, *before):
                continue
            self._open[name] = (now, tuple(tokens))

    @property
    def overall(self) -> float:
        """The share of drafted tokens that are accepted, of all requests."""
        return self._all[0] / self._all[1]

    def expected(self, request_id: str, drafts: int) -> float:
        """How many of ``drafts`` tokens will be accepted."""
        matched, drafted = self._of.get(request_id, (0.0, 0.0))
        return drafts * (matched + WEIGHT * self.overall) / (drafted + WEIGHT)

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._of.pop(request_id, None)
        self._open.pop(request_id, None)

    def _settle(self, request: Any, start: int, draft: Sequence[int]) -> bool:
        """Whether it is known by now how ``draft`` fared."""
        came = request.all_token_ids[start : start + len(draft)]
        matched = 0
        for drafted, token in zip(draft, came, strict=False):
            if drafted != token:
                break
            matched += 1
        if matched == len(came) < len(draft):
            return False
        name, (of_matched, of_drafted) = request.request_id, self._of.get(request.request_id, (0.0, 0.0))
        self._of[name] = (FORGET_ONE * of_matched + matched, FORGET_ONE * of_drafted + len(draft))
        self._all = (FORGET_ALL * self._all[0] + matched, FORGET_ALL * self._all[1] + len(draft))
        return True
