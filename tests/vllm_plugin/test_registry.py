"""Our log lines go where vLLM's go, even if vLLM's logging is configured later."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from dotllm.vllm_plugin import registry


@pytest.fixture
def loggers() -> Iterator[tuple[logging.Logger, logging.Logger]]:
    ours, theirs = logging.getLogger("dotllm"), logging.getLogger("vllm")
    parent, level, handlers = ours.parent, theirs.level, list(theirs.handlers)
    yield ours, theirs
    ours.parent, ours.handlers = parent, []
    theirs.setLevel(level)
    theirs.handlers = handlers


def test_vllms_handlers_and_level(loggers: tuple[logging.Logger, logging.Logger]) -> None:
    _, theirs = loggers
    registry.join_vllms_log()
    seen: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]  # a handler that lists
    theirs.handlers = [handler]
    theirs.setLevel(logging.INFO)
    log = logging.getLogger("dotllm.vllm_plugin.anything")
    log.info("one")
    log.debug("two")
    theirs.setLevel(logging.WARNING)
    log.info("three")
    assert seen == ["one"]


def test_a_logger_somebody_has_configured_stays(loggers: tuple[logging.Logger, logging.Logger]) -> None:
    ours, theirs = loggers
    ours.handlers = [logging.NullHandler()]
    ours.parent = logging.getLogger()
    registry.join_vllms_log()
    assert ours.parent is not theirs
