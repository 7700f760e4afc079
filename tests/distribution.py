"""How `make test` spreads the tests over its processes (pytest-xdist, ``-n 3 --dist loadfile``).

A file's tests stay in one process, since its fixtures (a server, a model, tables of a vocabulary) would be made again in
another. Two things go beyond what ``loadfile`` does by itself:

* Files that ask the same server of ``tests/serve/conftest.py`` are one unit, or each process would start that server.
* What takes longest begins first, spread over the run, so that at the end no process is left with much. A unit's size
  says nothing about its time here (a file of one test may start two servers), so the order is written down.

Both tables cost time when they are out of date, nothing else: every test runs wherever it is put. `test_distribution.py`
finds files that are missing in the first, and names in the second that there are not.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SAME_SERVER = {
    "tests/serve/test_answers.py": "the plain server",
    "tests/serve/test_new_constraints_at_once.py": "the plain server",
    "tests/serve/test_refusals.py": "the plain server",
    "tests/serve/test_api.py": "the server with parsers",
    "tests/serve/test_api_outcomes.py": "the server with parsers",
    "tests/serve/test_api_refusals.py": "the server with parsers",
    "tests/serve/test_documentation.py": "the server with parsers",
    "tests/serve/test_examples.py": "the server with parsers",
    "tests/serve/test_client_bodies.py": "the trained server",
    "tests/serve/test_right_answers.py": "the trained server",
    "tests/serve/clients/test_clients.py": "the trained server",
}
LONGEST_FIRST = (
    "the trained server",
    "the plain server",
    "the server with parsers",
    "tests/serve/test_coalescence.py",
    "tests/serve/test_coalescence_law.py",
    "tests/serve/test_speculation.py",
    "tests/compilation/test_real_engine.py",
    "tests/serve/test_answers_that_end.py",
    "tests/compilation/test_process.py",
    "tests/serve/test_shared_store.py",
    "tests/serve/test_security.py",
    "tests/serve/test_overlap.py",
    "tests/serve/test_offline.py",
    "tests/vllm_plugin/frontend/tool_calls/test_tool_parsers.py",
    "tests/serve/test_model_classes.py",
    "tests/serve/test_sampler_features.py",
    "tests/serve/test_advisories_more.py",
    "tests/cli/test_ends.py",
    "tests/serve/test_overlap_reasoning.py",
    "tests/vllm_plugin/engine_core/test_scheduler_model.py",
    "tests/compilation/test_manager_model.py",
    "tests/examples/test_library.py",
    "tests/serve/test_other_backends.py",
    "tests/serve/test_inspector.py",
    "tests/serve/test_run_batch.py",
    "tests/serve/test_engine_core.py",
    "tests/cli/test_passthrough.py",
    "tests/index/test_guide_model.py",
    "tests/vllm_plugin/gpu_masks/test_rare_orders.py",
    "tests/test_jit.py",
)


def unit(nodeid: str) -> str:
    """What must run in one process with this test."""
    file = nodeid.split("::", 1)[0]
    return SAME_SERVER.get(file, file)


def longest_first(items: list[pytest.Item]) -> None:
    """Sort the collected tests into the order in which their units begin.

    Tests of servers wait much, and the others do not. So the others are spread among them, and the cores stay busy.
    """
    units = list(dict.fromkeys(unit(item.nodeid) for item in items))
    others = [name for name in units if name not in LONGEST_FIRST]
    places = {name: place / len(LONGEST_FIRST) for place, name in enumerate(LONGEST_FIRST)}
    places |= {name: (1 + place) / len(others) for place, name in enumerate(others)}
    items.sort(key=lambda item: places[unit(item.nodeid)])


class Units(LoadScopeScheduling):  # type: ignore[misc]
    """xdist's scheduler of units, with ours."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # it would begin with the unit of the most tests
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
