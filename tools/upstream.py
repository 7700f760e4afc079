#!/usr/bin/env python3
"""Whether the changes to vLLM in ``upstream/`` apply to its release, and whether its own tests pass with them.

    python tools/upstream.py                      # or: make check-upstream; downloads the source distribution
    python tools/upstream.py --tests              # also runs vLLM's tests and those of the patches that a CPU can run

The patches are a series: each is applied after those before it. Tests run on the patched Python sources with the
compiled libraries of the installed CPU build (`release_sources`), first without the patches and then with them: a test
that fails only with them makes this program fail. The demo model replaces models of a hub.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import release_sources
from peer_tests import ROOT, archive_of, make_stand_ins

VERSION = "0.33.0"
PATCHES = ROOT / "upstream"
CACHE = ROOT / ".cache" / "upstream"
TESTS = (
    *("tests/v1/structured_output", "tests/test_outputs.py", "tests/v1/engine/test_output_processor.py"),
    *("tests/v1/core/test_scheduler.py", "tests/v1/core/test_async_scheduler.py"),
    *("tests/tool_use/test_tool_choice_required.py", "tests/tool_parsers/test_structural_tag_registry.py"),
    *("tests/entrypoints/openai/responses/test_protocol.py", "tests/tool_use/test_custom_tool_grammars.py"),
)
"""vLLM's tests of the code that the patches change, and the patches' own tests."""
# (Some tests nest JSON deeper than Python 3.11 allows.)
PYTEST = "import sys, pytest; sys.setrecursionlimit(20_000); raise SystemExit(pytest.main(sys.argv[1:]))"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", action="store_true", help="run vLLM's tests, without and with the patches")
    arguments = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    archive = archive_of(VERSION, CACHE)
    failed = {}
    for name, patches in (("plain", []), ("patched", series())) if arguments.tests else (("patched", series()),):
        folder = CACHE / name
        unpack(archive, folder)
        for patch in patches:
            apply(patch, folder)
        print(f"{len(patches)} patches applied to vLLM {VERSION}")
        if arguments.tests:
            failed[name] = tested(folder)
    worse = sorted(failed["patched"] - failed["plain"]) if arguments.tests else []
    print("\n".join(f"fails with the patches only: {case}" for case in worse))
    return int(bool(worse))


def series() -> list[Path]:
    """The patches, in order."""
    return sorted(PATCHES.glob("*.patch"))


def files_of(patch: Path) -> list[str]:
    """The files that a patch changes or creates."""
    return re.findall(r"^\+\+\+ b/(.+)$", patch.read_text(encoding="utf-8"), re.MULTILINE)


def unpack(archive: Path, folder: Path) -> None:
    """Extract vLLM's Python sources and tests into ``folder``, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    root = f"vllm-{VERSION}/"
    with tarfile.open(archive) as opened:
        for member in opened.getmembers():
            member.name = member.name.removeprefix(root)
            if member.name.startswith(("vllm/", "tests/")) or member.name == "pyproject.toml":
                opened.extract(member, folder, filter="data")


def apply(patch: Path, folder: Path) -> None:
    """Apply one patch to ``folder``, exactly. Raises RuntimeError if it does not apply."""
    # (Within a repository, git would skip ignored files.)
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
    done = subprocess.run(
        ["git", "apply", str(patch.resolve())], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{patch.name} does not apply: {done.stderr}")


def tested(folder: Path) -> set[str]:
    """The tests that fail in ``folder``."""
    for library in release_sources.installed().rglob("*.so"):
        shutil.copy(library, folder / "vllm" / library.relative_to(release_sources.installed()))
    release_sources.describe(folder, VERSION)
    make_stand_ins(folder, CACHE)
    (folder / "facebook").mkdir(exist_ok=True)
    (folder / "facebook" / "opt-125m").symlink_to(CACHE / "model", target_is_directory=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "tools")]),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "",
    }
    command = [sys.executable, "-c", PYTEST, "-q", "--noconftest", "-p", "no:cacheprovider", "-rfE", "--tb=no"]
    command += ["--continue-on-collection-errors", "--disable-warnings", *[t for t in TESTS if (folder / t).exists()]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    print(done.stdout.strip().rpartition("\n")[2])
    return set(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE))


if __name__ == "__main__":
    raise SystemExit(main())
