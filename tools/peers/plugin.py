"""A pytest plugin that runs vLLM's own tests on dotllm where they name xgrammar.

``tools/peer_tests.py`` loads it with ``-p peers.plugin``. Three things run the tests on dotllm without changing them:
our backend answers to the name ``xgrammar`` in this process; a structural tag that a test passes to xgrammar's
``Grammar.from_structural_tag`` becomes an `Index` of ours, which then judges the strings of the test; and all our hooks
are applied, as in a server. Objects that a test builds from xgrammar's own classes stay xgrammar's.

The plugin also replaces vLLM's conftest.py (which imports half of vLLM) and the plugins that it needs: asyncio runs
coroutine tests. Outcomes go to the file that ``DOTLLM_PEER_RESULTS`` names.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dotllm.vllm_plugin import settings

os.environ["DOTLLM_END_IN_REASONING"] = "allow"  # as in vLLM: a request that reasons has no mask
settings.BACKEND = "xgrammar"  # before any module of ours has read it
settings.is_ours = lambda backend: backend in ("auto", "xgrammar")

import xgrammar  # noqa: E402
import xgrammar.testing  # noqa: E402

from dotllm import Index, Vocabulary  # noqa: E402

_BYTES = Vocabulary.from_bytes([*(bytes([value]) for value in range(256)), None], eos_token_ids=[256])
_outcomes: dict[str, str] = {}
_judged = 0


class _Grammar:
    """The result of our ``Grammar.from_structural_tag``: tests only ask it about strings."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def accepts(self, text: str) -> bool:
        guide = self.index.guide()
        return all(guide.advance(byte) for byte in text.encode()) and guide.can_finish


def _from_structural_tag(tag: Any, *_: Any, **__: Any) -> _Grammar:
    return _Grammar(Index.from_structural_tag(tag if isinstance(tag, str | dict) else tag.model_dump(), _BYTES))


_theirs = xgrammar.testing._is_grammar_accept_string


def _accepts(grammar: Any, text: str, **options: Any) -> bool:
    global _judged
    if not isinstance(grammar, _Grammar):
        return bool(_theirs(grammar, text, **options))
    _judged += 1
    return grammar.accepts(text)


xgrammar.Grammar.from_structural_tag = staticmethod(_from_structural_tag)
xgrammar.testing._is_grammar_accept_string = _accepts


def pytest_configure(config: pytest.Config) -> None:
    from dotllm.vllm_plugin import register

    register()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """One file parses JSON nested 2,000 deep when it is imported; Python 3.11 counts this as recursion."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        return (yield)
    finally:
        sys.setrecursionlimit(limit)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _outcomes[report.nodeid] = "failed"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        before = _outcomes.get(report.nodeid)
        _outcomes[report.nodeid] = "failed" if before == "failed" else report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    Path(os.environ["DOTLLM_PEER_RESULTS"]).write_text(json.dumps({"outcomes": _outcomes, "judged": _judged}))
