#!/usr/bin/env python3
"""vLLM's own tests of structured requests, run by path from its source distribution with our backend.

    python tools/peer_tests.py                        # or: make peer-tests
    python tools/peer_tests.py -k registry            # further arguments are pytest's
    python tools/peer_tests.py --pairs                # plain and with our hooks (an hour)
    python tools/peer_tests.py --pairs tests/v1/core  # the same for some
    python tools/peer_tests.py --servers tests/entrypoints/anthropic  # those that start servers and engines

The source distribution is downloaded once into ``.cache/peer-tests`` (nothing of it is kept in the repository), its
``tests/`` are extracted, and the files that ``tools/peers/cases.json`` lists are run with the plugin
``tools/peers/plugin.py``. A case that fails must be listed there with the reason (an assertion about another library,
or something that no package index has); a listed case that passes must be struck off. Otherwise the status is 1.

``--pairs`` runs all folders of ``pairs.folders`` twice, plain and with our hooks (`tools/peers/pairs.py`): a test that
passes on plain vLLM must pass with us, or be listed with the reason. ``--servers`` does the same for the files that
start servers and engines, one run after the other, but for those of ``pairs.not_run``. The table is
benchmarks/results/peer-tests.json. A run of some files replaces their earlier results, and with ``--write`` the table
of all results is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "peer-tests"
CASES = ROOT / "tools" / "peers" / "cases.json"
# Packages that pip imports to read a source distribution's metadata, and some that the tests and what they test import.
BUILD = ("setuptools_rust", "setuptools_scm", "vcs_versioning", "semantic_version")
RUN = ("cohere==7.3.1", "cohere-melody==0.15.3", "fastavro==1.13.1", "pytest-asyncio==1.5.0", "tblib==3.2.2")
STARTS = re.compile(
    r"Remote\w*Server|vllm_runner|VllmRunner|\bLLM\(|from_engine_args|from_vllm_config|EngineCoreProc|subprocess|"
    r"client: (openai\.)?(Async)?OpenAI"
)
"""Found in files that start servers or engines."""
TABLE = ROOT / "benchmarks" / "results" / "peer-tests.json"
WHY_NOT = {
    "needs a GPU": r"GPU|CUDA|[Cc]uda|ROCm|[Tt]riton|kernel parameters",
    "needs a package that is not installed": r"No module named|could not import|Are this object's requirements",
    "needs a model, or a file outside tests/": r"local_files_only|hub|Hub|template|config.json",
    "cut by the limit of time": r"Timeout \(>|^$",
}
"""Why a test does not pass on plain vLLM here, by what its failure says."""
OTHER = "asserts what a trained model or its tokenizer says, or something else"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--pairs", action="store_true", help="plain and with our hooks; paths choose files")
    parser.add_argument("--servers", action="store_true", help="the same for files that start servers and engines")
    parser.add_argument("--write", action="store_true", help="keep the table of all results, if only some were run")
    arguments, for_pytest = parser.parse_known_args()
    cases = json.loads(CASES.read_text())
    cache = arguments.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    folder = tests_of(cases["vllm"], cache)
    make_stand_ins(folder, cache)
    if arguments.pairs or arguments.servers:
        return pairs(cases, folder, cache, for_pytest, servers=arguments.servers, write=arguments.write)
    outcomes: dict[str, str] = {}
    judged = 0
    for group in cases["files"]:
        results = run(group, folder, cache, for_pytest)
        outcomes |= results["outcomes"]
        judged += results["judged"]
    reasons = {case: row["reason"] for row in cases["exceptions"] for case in row["cases"]}
    return report(outcomes, judged, reasons, whole=not for_pytest)


def tests_of(version: str, cache: Path) -> Path:
    """The folder of the source distribution with its ``tests``, downloaded and extracted if it is not there."""
    folder = cache / f"vllm-{version}"
    if not (folder / "examples").is_dir():
        archive = archive_of(version, cache)
        with tarfile.open(archive) as opened:
            inside = tuple(f"vllm-{version}/{name}" for name in ("tests/", "examples/", "pyproject.toml"))
            opened.extractall(cache, [m for m in opened.getmembers() if m.name.startswith(inside)], filter="data")
    install(RUN, cache / "run-packages")
    return folder


def archive_of(version: str, cache: Path) -> Path:
    """The source distribution of a release, downloaded if it is not in ``cache``."""
    archive = cache / f"vllm-{version}.tar.gz"
    if not archive.exists():
        print(f"downloading vLLM {version}'s source distribution …", file=sys.stderr, flush=True)
        install(BUILD, cache / "build")
        # pip runs the distribution's build for its metadata; the build must not look for a GPU or a git checkout.
        environment = {"VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": version}
        command = ["download", "--quiet", "--no-deps", "--no-binary", "vllm", "--no-build-isolation"]
        pip([*command, "--dest", str(cache), f"vllm=={version}"], [cache / "build"], environment)
    return archive


def install(packages: tuple[str, ...], target: Path) -> None:
    """Install packages for this run only, outside the environment."""
    note, written = target / "installed", " ".join(packages)
    if not note.exists() or note.read_text() != written:
        pip(["install", "--quiet", "--no-deps", "--upgrade", "--target", str(target), *packages])
        note.write_text(written)


def pip(arguments: list[str], path: list[Path] | None = None, environment: dict[str, str] | None = None) -> None:
    """Run this Python's pip."""
    full = {**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(map(str, path or []))}
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True, env=full)


def make_stand_ins(folder: Path, cache: Path) -> None:
    """Put small models and adapters where the tests look for those of a hub (`peers/stand_ins.py`)."""
    sys.path.append(str(ROOT))  # our tests have makers of models
    from peers import stand_ins

    stand_ins.make(folder, cache)


def run(group: dict[str, Any], folder: Path, cache: Path, for_pytest: list[str]) -> dict[str, Any]:
    """Run pytest once on the files of a group; ``conftest`` names the folder whose conftest.py they need."""
    results = cache / "results.json"
    results.unlink(missing_ok=True)
    path = [ROOT / "src", ROOT / "tools", cache / "run-packages", folder]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONWARNINGS": "ignore",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DOTLLM_PEER_RESULTS": str(results),
    }
    conftest = f"--confcutdir={group['conftest']}" if "conftest" in group else "--noconftest"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "peers.plugin",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        conftest,
    ]
    command += ["--continue-on-collection-errors", "--disable-warnings", "--tb=no", "--no-summary"]
    subprocess.run([*command, *group["paths"], *for_pytest], cwd=folder, env=environment, check=False)
    if not results.exists():
        raise SystemExit("pytest did not come to its end")
    found: dict[str, Any] = json.loads(results.read_text())
    return found


def pairs(cases: dict[str, Any], folder: Path, cache: Path, chosen: list[str], *, servers: bool, write: bool) -> int:
    """Make both runs and compare them; returns the exit status."""
    files = files_of(folder, chosen or cases["pairs"]["folders"], servers=servers)
    results = {how: cache / f"pairs-{how}.jsonl" for how in ("plain", "ours")}
    path = [ROOT / "src", ROOT / "tools", cache / "run-packages", folder]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }  # fmt: skip
    if servers:
        not_run = {file for row in cases["pairs"]["not_run"] for file in row["files"]}
        files = [file for file in files if file not in not_run]
        logs = cache / "logs"
        logs.mkdir(exist_ok=True)
        environment |= {"DOTLLM_PEER_LOGS": str(logs), "DOTLLM_COMPILE_PROCESSES": "0", "DOTLLM_DISK_BYTES": "0"}
    running = []
    for how, result in results.items():
        command = [sys.executable, str(ROOT / "tools" / "peers" / "pairs.py"), how, str(result), *files]
        more = {"VLLM_PLUGINS": ""} if how == "plain" else {}
        running.append(subprocess.Popen(command, cwd=folder, env={**environment, **more}))
        if servers:
            running[-1].wait()
    if any(process.wait() for process in running):
        raise SystemExit("one of the two runs has failed")
    return compare(cases, *results.values(), write=write or not chosen)


def files_of(folder: Path, places: list[str], *, servers: bool) -> list[str]:
    """The test files below ``places`` that start servers or engines, or those that do not."""
    found = set[Path]()
    for place in places:
        found |= {folder / place} if place.endswith(".py") else {*(folder / place).rglob("test_*.py")}
    return [str(file.relative_to(folder)) for file in sorted(found) if bool(STARTS.search(file.read_text())) == servers]


def compare(cases: dict[str, Any], plain: Path, ours: Path, *, write: bool) -> int:
    """Print the differences and keep the table; returns the exit status."""
    runs = [{row["file"]: row for row in map(json.loads, file.read_text().splitlines())} for file in (plain, ours)]
    reasons = {case: row["reason"] for row in cases["pairs"]["differences"] for case in row["cases"]}
    table: dict[str, Counter[str]] = {}
    why_not = Counter[str]()
    nothing_runs: dict[str, str] = {}
    unlisted, used = [], set()
    for file in (file for file in runs[0] if file in runs[1]):
        count = table.setdefault("/".join(file.split("/")[:3]), Counter())
        count["files"] += 1
        here = Counter[str]()
        for case, outcome in runs[0][file]["outcomes"].items():
            other = runs[1][file]["outcomes"].get(case, "missing")
            if outcome != "passed":
                count["cannot run here"] += 1
                said = runs[0][file]["reasons"].get(case, "")
                here[next((why for why, words in WHY_NOT.items() if re.search(words, said)), OTHER)] += 1
            elif other == "passed":
                count["same"] += 1
            elif case in reasons:
                count["different, listed"] += 1
                used.add(case)
            else:
                count["different"] += 1
                unlisted.append(f"{case}: {other}: {runs[1][file]['reasons'].get(case, '')[-200:]}")
        why_not += here
        if "passed" not in runs[0][file]["outcomes"].values():
            nothing_runs[file] = here.most_common(1)[0][0] if here else "has no test on a CPU"
    by_chance = {case for row in cases["pairs"]["differences"] if row.get("sometimes") for case in row["cases"]}
    stale = sorted(case for case in set(reasons) - used - by_chance if case.partition("::")[0] in runs[0])
    for line in unlisted:
        print(f"passes on plain vLLM only: {line}")
    for case in stale:
        print(f"listed, but it does not differ: {case}")
    total = sum(table.values(), Counter())
    print(json.dumps({"all": total}))
    if write:
        nothing_runs |= {file: row["reason"] for row in cases["pairs"]["not_run"] for file in row["files"]}
        kept = {"vllm": cases["vllm"], "all": total, "folders": table, "cannot run here": why_not,
                "files of which nothing runs here": dict(sorted(nothing_runs.items()))}  # fmt: skip
        TABLE.write_text(json.dumps(kept, indent=1) + "\n")
    return int(bool(unlisted or stale))


def report(outcomes: dict[str, str], judged: int, exceptions: dict[str, str], whole: bool) -> int:
    """Print the findings; returns the exit status."""

    def listed(case: str) -> str | None:
        return next((name for name in (case, case.split("[")[0]) if name in exceptions), None)

    failed = {case for case, outcome in outcomes.items() if outcome == "failed"}
    unlisted = sorted(case for case in failed if listed(case) is None)
    used = {listed(case) for case in failed}
    stale = sorted(
        case
        for case, outcome in outcomes.items()
        if outcome == "passed" and (name := listed(case)) is not None and (name == case or name not in used)
    )
    gone = sorted(name for name in exceptions if name not in {listed(case) for case in outcomes}) if whole else []
    for reason, number in Counter(exceptions[listed(case) or ""] for case in failed if listed(case)).most_common():
        print(f"{number:4d} listed: {reason}")
    for what, cases in (
        ("fails and is not listed", unlisted), ("passes, strike it off", stale), ("listed, but no such case", gone),
    ):  # fmt: skip
        for case in cases:
            print(f"     {what}: {case}")
    count = Counter(outcomes.values())
    print(f"{count['passed']} passed, {len(failed)} failed ({len(failed) - len(unlisted)} listed), "
          f"{count['skipped']} skipped or expected to fail; {judged} strings judged by dotllm")  # fmt: skip
    if whole and not judged:
        print("no string was judged by dotllm: the plugin has no effect")
        return 1
    return int(bool(unlisted or stale or gone))


if __name__ == "__main__":
    raise SystemExit(main())
