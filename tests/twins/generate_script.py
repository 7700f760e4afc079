"""Run by `processes.generated` in a separate process: requests that schemathesis makes from a server's description.

python generate_script.py OPENAPI MOST PATH …      prints a line of JSON for each
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any


def main(openapi: str, most: str, *paths: str) -> None:
    """See the module. Every run makes the same requests."""
    import hypothesis
    import schemathesis

    with open(openapi) as file:
        schema = schemathesis.openapi.from_dict(json.load(file))
    modes = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
    for path in paths:
        try:
            operation = schema[path]["POST"]
        except LookupError:  # a path of another kind of server
            continue
        for mode in modes:
            for number, body in enumerate(bodies(hypothesis, operation.as_strategy(generation_mode=mode), int(most))):
                print(json.dumps({"name": f"{path}: {mode.name.lower()} {number}", "path": path, "body": body}))


def bodies(hypothesis: Any, strategy: Any, most: int) -> list[Any]:
    """At most ``most`` bodies of the strategy's requests."""
    found: list[Any] = []

    @hypothesis.settings(
        max_examples=most, derandomize=True, database=None, deadline=None, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(strategy)
    def collect(case: Any) -> None:
        try:
            json.dumps(case.body)
        except (TypeError, ValueError):  # (the body is bytes, or missing)
            return
        found.append(case.body)

    with contextlib.suppress(hypothesis.errors.Unsatisfiable):
        collect()
    return found[:most]


if __name__ == "__main__":
    main(*sys.argv[1:])
