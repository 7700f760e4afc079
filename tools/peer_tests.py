#!/usr/bin/env python3
"""vLLM's own tests of structured requests, run by path from its source distribution with our backend.

    python tools/peer_tests.py                        # or: make peer-tests
    python tools/peer_tests.py -k registry            # further arguments are pytest's

The source distribution is downloaded once into ``.cache/peer-tests`` (nothing of it is kept in the repository), its
``tests/`` are extracted, and the files that ``tools/peers/cases.json`` lists are run with the plugin
``tools/peers/plugin.py``. A case that fails must be listed there with the reason (what of another library it asserts,
or what it needs that no package index has); a listed case that passes must be struck off. Both end the run with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "peer-tests"
CASES = ROOT / "tools" / "peers" / "cases.json"
# Packages that pip imports to read a source distribution's metadata, and one that a parser under test imports.
BUILD = ("setuptools_rust", "setuptools_scm", "vcs_versioning", "semantic_version")
RUN = ("cohere-melody==0.15.3",)
STAND_INS = ("gpt2", "openai-community/gpt2", "Qwen/Qwen3-0.6B")
"""Models of a hub that these tests name; a local directory of that name is taken instead."""


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE)
    arguments, for_pytest = parser.parse_known_args()
    cases = json.loads(CASES.read_text())
    cache = arguments.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    folder = tests_of(cases["vllm"], cache)
    make_stand_ins(folder, cache)
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
    if not (folder / "tests").is_dir():
        archive = cache / f"vllm-{version}.tar.gz"
        if not archive.exists():
            print(f"downloading vLLM {version}'s source distribution …", file=sys.stderr, flush=True)
            install(BUILD, cache / "build")
            # pip asks the distribution's build for its metadata, which must not look for a GPU or a git checkout.
            environment = {"VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": version}
            command = ["download", "--quiet", "--no-deps", "--no-binary", "vllm", "--no-build-isolation"]
            pip([*command, "--dest", str(cache), f"vllm=={version}"], [cache / "build"], environment)
        with tarfile.open(archive) as opened:
            inside = (f"vllm-{version}/tests/", f"vllm-{version}/pyproject.toml")  # (with pytest's settings)
            opened.extractall(cache, [m for m in opened.getmembers() if m.name.startswith(inside)], filter="data")
    install(RUN, cache / "packages")
    return folder


def install(packages: tuple[str, ...], target: Path) -> None:
    """Packages for this run only, beside the environment."""
    if not target.is_dir():
        pip(["install", "--quiet", "--no-deps", "--target", str(target), *packages])


def pip(arguments: list[str], path: list[Path] | None = None, environment: dict[str, str] | None = None) -> None:
    """Run this Python's pip."""
    full = {**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(map(str, path or []))}
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True, env=full)


def make_stand_ins(folder: Path, cache: Path) -> None:
    """Directories of the hub models' names with the demo model, whose tokenizer is a byte-level BPE as theirs."""
    from dotllm.demo import model

    made = model.make(cache / "model")
    for name in STAND_INS:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.symlink_to(made, target_is_directory=True)


def run(group: dict[str, Any], folder: Path, cache: Path, for_pytest: list[str]) -> dict[str, Any]:
    """One pytest over the files of a group; ``conftest``: the folder whose conftest.py they need."""
    results = cache / "results.json"
    results.unlink(missing_ok=True)
    path = [ROOT / "src", ROOT / "tools", cache / "packages", folder]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONWARNINGS": "ignore",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DOTLLM_PEER_RESULTS": str(results),
    }
    conftest = f"--confcutdir={group['conftest']}" if "conftest" in group else "--noconftest"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "peers.plugin", "-p", "no:cacheprovider", conftest]
    command += ["--continue-on-collection-errors", "--disable-warnings", "--tb=no", "--no-summary"]
    subprocess.run([*command, *group["paths"], *for_pytest], cwd=folder, env=environment, check=False)
    if not results.exists():
        raise SystemExit("pytest did not come to its end")
    found: dict[str, Any] = json.loads(results.read_text())
    return found


def report(outcomes: dict[str, str], judged: int, exceptions: dict[str, str], whole: bool) -> int:
    """Print what there is to say; the exit status."""

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
