"""What it costs that a step runs several tokens of some request, measured while the engine runs.

Such a step misses vLLM's graph of the whole step. For a small model, whose pace the host sets, that can double the step
for all requests of the batch; for a large one it costs little. So there is no rule but the clock.
"""

from __future__ import annotations

RATE = 0.1  # of learning
SAMPLES = 4  # of each kind, before the estimates decide
AGAIN = 64  # decisions against the estimate's other side, after which that is tried again


class Estimate:
    """Of batches of one size: what a plain step takes, and how much longer one of several tokens takes (seconds)."""

    def __init__(self) -> None:
        self.plain = 0.0
        self.extra = {False: 0.0, True: 0.0}  # by whether there are more tokens than vLLM's largest graph has
        self.samples = 0
        self.extra_samples = {False: 0, True: 0}
        self.refused = 0


class Pace:
    """See the module.

    The time from one step's results to the next is that of the step that ends (if the device sets the pace) or that
    of launching the next (if the host does). Who knows? Half of it is put down to each, which is right on average.
    """

    def __init__(self, graph_tokens: int = 0) -> None:
        self._graph_tokens = graph_tokens
        self._estimates: dict[int, Estimate] = {}  # by the bits of the number of requests
        self._last = 0.0
        self._before = (0, 0)  # tokens and requests of the step launched before

    def results(self, tokens: int, requests: int, now: float) -> None:
        """The results of a step have come at ``now`` (seconds); that of ``requests`` and ``tokens`` is in flight."""
        took, self._last = now - self._last, now
        (tokens_before, requests_before), self._before = self._before, (tokens, requests)
        if not 0 < took < 1 or not requests or not requests_before or max(tokens, tokens_before) > 4 * requests + 256:
            return  # an idle engine; a long prompt
        mixed = [(n, r) for n, r in ((tokens_before, requests_before), (tokens, requests)) if n > r]
        estimate = self._of(requests)
        if not mixed:
            rate = max(RATE, 1 / (estimate.samples + 1))
            estimate.plain += rate * (took - estimate.plain)
            estimate.samples += 1
        elif estimate.samples:
            beyond = max(mixed)[0] > self._graph_tokens
            rate = max(RATE, 1 / (estimate.extra_samples[beyond] + 1))
            weight = len(mixed) / 2
            error = (took - estimate.plain) / weight - estimate.extra[beyond]
            estimate.extra[beyond] += rate * weight * error
            estimate.extra_samples[beyond] += 1

    def pays(self, steps_saved: int, requests: int, tokens: int) -> bool:
        """Whether sparing ``steps_saved`` of the requests' steps is worth it that the next step has ``tokens``."""
        estimate, beyond = self._of(requests), tokens > self._graph_tokens
        if estimate.samples < SAMPLES:
            return False
        if estimate.extra_samples[beyond] < SAMPLES:
            return True
        if steps_saved * estimate.plain > requests * estimate.extra[beyond]:
            return True
        estimate.refused += 1
        if estimate.refused % AGAIN == 0:
            estimate.extra_samples[beyond] = 0  # what was measured long ago may have changed
        return False

    def _of(self, requests: int) -> Estimate:
        return self._estimates.setdefault(requests.bit_length(), Estimate())
