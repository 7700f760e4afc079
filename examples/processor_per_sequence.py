"""A logits processor with a state for each sequence, for ``dotllm serve`` and ``LLM``; constraints still hold.

PYTHONPATH=examples dotllm serve MODEL --logits-processors processor_per_sequence:no_token_twice
curl localhost:8000/v1/completions -d '{"prompt": "Letters: ", "vllm_xargs": {"no_token_twice": true}, …}'
"""

from __future__ import annotations

from typing import Any

import dotllm


class NoTokenTwice:
    """Forbids the tokens that its sequence has already had (``said``). It reads each token once."""

    def __init__(self) -> None:
        self.said: set[int] = set()
        self.read = 0

    def __call__(self, output_ids: list[int], logits: Any) -> Any:
        """``logits``: a float tensor [vocabulary], which may be changed in place."""
        self.said.update(output_ids[self.read :])
        self.read = len(output_ids)
        logits[list(self.said)] = float("-inf")
        return logits


@dotllm.logits_processor_factory
def no_token_twice(params: Any) -> NoTokenTwice | None:
    """Return a processor for a sequence that asks for one; ``params`` are vLLM's SamplingParams."""
    return NoTokenTwice() if (params.extra_args or {}).get("no_token_twice") else None


if __name__ == "__main__":
    print(f"--logits-processors processor_per_sequence:{no_token_twice.__name__}")
