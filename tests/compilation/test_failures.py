"""The latest failures are remembered for a while, never more than the bound."""

from __future__ import annotations

from dotllm.compilation.memory import FailureCache


def test_the_latest_are_remembered_for_their_time() -> None:
    failures = FailureCache(ttl=10.0, limit=2)
    first, second, third = ValueError("1"), ValueError("2"), ValueError("3")
    failures.put("a", first, 0.0)
    failures.put("b", second, 1.0)
    failures.put("a", third, 2.0)  # once more: now it is the latest
    assert failures.get("a", 11.9) is third and failures.get("b", 10.9) is second
    failures.put("c", first, 3.0)
    assert failures.get("b", 3.0) is None and failures.get("a", 3.0) is third and len(failures) == 2
    assert failures.get("a", 12.0) is None, "its time is over at the end of it"
    assert len(failures) == 1
