"""A step whose masks end in vLLM's own way is a fault of ours, and of a stand-in in a test: no test passes on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_step_falls_back(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    messages = [record.getMessage() for when in ("setup", "call") for record in caplog.get_records(when)]
    assert not [message for message in messages if "falling back to vLLM's bitmasks" in message]
