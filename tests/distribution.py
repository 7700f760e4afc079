"""How `make test` spreads the tests over its processes (pytest-xdist, ``-n 3 --dist loadfile``).

A file's tests stay in one process, because another process would make its fixtures (a server, a model, tables of a
vocabulary) again. Two things go beyond what ``loadfile`` does:

* Files that use the same server of ``tests/serve/conftest.py`` are one unit. Otherwise each process would start it.
* The longest units begin first, spread over most of the run, so that no process is left with much at the end. A unit's
  size says nothing about its time here (a file with one test may start two servers), so the order is written down.

An outdated table costs time, nothing else: every test runs wherever it is put. `test_distribution.py` finds files that
are missing in the first table, and names in the second that do not exist.
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
    "tests/serve/test_examples.py": "the server with parsers",
    "tests/serve/test_documentation.py": "the users' server",
    "tests/serve/test_client_bodies.py": "the trained server",
    "tests/serve/test_right_answers.py": "the trained server",
    "tests/serve/clients/test_clients.py": "the trained server",
}
LONGEST_FIRST = (
    "the trained server",
    "the plain server",
    "the users' server",
    "the server with parsers",
    "tests/serve/test_coalescence.py",
    "tests/serve/test_speculation.py",
    "tests/compilation/test_real_engine.py",
    "tests/serve/test_coalescence_law.py",
    "tests/vllm_plugin/frontend/tool_calls/test_several_calls.py",
    "tests/serve/test_model_classes.py",
    "tests/serve/test_answers_that_end.py",
    "tests/serve/test_sampler_features.py",
    "tests/index/test_unique.py",
    "tests/index/test_limits.py",
    "tests/test_jit.py",
    "tests/compilation/test_process.py",
    "tests/bench/test_quality.py",
    "tests/serve/test_shared_store.py",
    "tests/serve/test_security.py",
    "tests/serve/test_overlap.py",
    "tests/serve/test_offline.py",
    "tests/vllm_plugin/frontend/tool_calls/test_tool_parsers.py",
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
)


def unit(nodeid: str) -> str:
    """The name of the unit that contains this test; a unit runs in one process."""
    file = nodeid.split("::", 1)[0]
    return SAME_SERVER.get(file, file)


def longest_first(items: list[pytest.Item]) -> None:
    """Sort the collected tests into the order in which their units begin.

    Server tests wait a lot and other tests do not, so the others are spread among them to keep the cores busy.
    """
    units = list(dict.fromkeys(unit(item.nodeid) for item in items))
    others = [name for name in units if name not in LONGEST_FIRST]
    places = {name: 0.8 * place / len(LONGEST_FIRST) for place, name in enumerate(LONGEST_FIRST)}
    places |= {name: (1 + place) / len(others) for place, name in enumerate(others)}
    items.sort(key=lambda item: places[unit(item.nodeid)])


class Units(LoadScopeScheduling):  # type: ignore[misc]
    """xdist's scheduler, with our units."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # (it would begin with the unit that has the most tests)
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
