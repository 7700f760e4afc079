"""How many faults put into our sources on purpose the tests notice, with cosmic-ray; a share for each file.

    python tools/mutants.py src/dotllm/compilation/cache [--sample 40] [--seed 0] [--tests "tests/…"]

Works in a copy of the repository (.cache/mutants), since the sources are changed in place. A file's tests are those of
`TESTS`, the longest path that fits. Survivors are printed with their diffs: each wants a test, or changes nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPY = ROOT / ".cache" / "mutants"
PARTS = ("src", "tests", "benchmarks", "tools", "pyproject.toml", "docs")
TESTS = {
    "src/dotllm/automata/dfa": "tests/automata/test_dfa.py tests/languages/regex/test_corpus.py",
    "src/dotllm/automata": "tests/automata tests/index/test_guide.py",
    "src/dotllm/compilation": "tests/compilation/test_manager.py tests/compilation/test_manager_model.py",
    "src/dotllm/compilation/accounting": "tests/compilation/accounting tests/compilation/test_manager.py",
    "src/dotllm/compilation/cache": "tests/compilation/cache tests/compilation/test_manager.py",
    "src/dotllm/grammar": "tests/grammar tests/languages/ebnf",
    "src/dotllm/index": "tests/index/test_guide.py tests/index/test_batch.py tests/index/test_guide_model.py",
    "src/dotllm/languages/json_schema": "tests/languages/json_schema/test_corpus.py",
    "src/dotllm/vllm_plugin/engine_core": "tests/vllm_plugin/engine_core",
}
TIMEOUT_S = 120.0
CONFIG = """[cosmic-ray]
module-path = "{module}"
timeout = {timeout}
excluded-modules = []
test-command = "{python} -m pytest -x -q -p no:cacheprovider {tests}"
[cosmic-ray.distributor]
name = "local"
"""


def tests_of(module: str) -> str:
    """The tests that should notice a fault in ``module``."""
    fitting = [prefix for prefix in TESTS if module.startswith(prefix)]
    return TESTS[max(fitting, key=len)] if fitting else "tests"


def mutate(module: str, sample: int, seed: int, tests: str, environment: dict[str, str]) -> Counter[str]:
    """Outcomes of ``sample`` mutants of one file."""
    from cosmic_ray.work_db import WorkDB, use_db
    from cosmic_ray.work_item import WorkerOutcome, WorkResult

    config, session = COPY / "cosmic-ray.toml", COPY / "session.sqlite"
    session.unlink(missing_ok=True)
    config.write_text(CONFIG.format(module=module, timeout=TIMEOUT_S, python=sys.executable, tests=tests))
    base = [sys.executable, "-m", "cosmic_ray.cli"]
    subprocess.run([*base, "init", config.name, session.name], cwd=COPY, env=environment, check=True)
    with use_db(str(session), WorkDB.Mode.open) as database:
        items = list(database.work_items)
        changing = [
            item for item in items if not all("BitOr" in one.operator_name for one in item.mutations)
        ]  # of types
        chosen = {item.job_id for item in random.Random(seed).sample(changing, min(sample, len(changing)))}
        for item in items:
            if item.job_id not in chosen:
                database.set_result(item.job_id, WorkResult(worker_outcome=WorkerOutcome.SKIPPED))
    subprocess.run([*base, "exec", config.name, session.name], cwd=COPY, env=environment, check=True)
    outcomes: Counter[str] = Counter()
    with use_db(str(session), WorkDB.Mode.open) as database:
        for job, result in database.results:
            if job not in chosen:
                continue
            outcomes[result.test_outcome.value if result.test_outcome else result.worker_outcome.value] += 1
            if result.test_outcome and result.test_outcome.value == "survived":
                print(result.diff, flush=True)
    return outcomes


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="+", help="a file, or a folder of them")
    parser.add_argument("--sample", type=int, default=40, help="mutants of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", default="", help="in place of those of TESTS")
    options = parser.parse_args()
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, COPY / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, COPY / part)
    environment = {**os.environ, "PYTHONPATH": f"{COPY / 'src'}:{COPY}", "PYTHONDONTWRITEBYTECODE": "1"}
    files = [
        file for given in options.module
        for file in ([Path(given)] if given.endswith(".py") else sorted((ROOT / given).rglob("*.py")))
        if file.name != "__init__.py"
    ]  # fmt: skip
    rows = []
    for file in files:
        module = str((ROOT / file).relative_to(ROOT))
        tests = options.tests or tests_of(module)
        baseline = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split()]
        subprocess.run(baseline, cwd=COPY, env=environment, check=True)  # where they fail, all mutants are "killed"
        found = mutate(module, options.sample, options.seed, tests, environment)
        rows.append(f"{found['killed']:4} of {sum(found.values()):4} killed  {module}")
        print(rows[-1], flush=True)
    print("\n".join(["", *rows]))


if __name__ == "__main__":
    main()
