"""The changes to vLLM in ``upstream/`` apply to its release, and docs/upstream.md describes each."""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from dotllm.vllm_plugin.registry import ENTRIES

ROOT = Path(__file__).parent.parent
PATCHES = sorted((ROOT / "upstream").glob("*.patch"))


@pytest.fixture(scope="module")
def upstream() -> object:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import upstream
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return upstream


def sources() -> Path | None:
    """The source distribution of the release, if it has been downloaded."""
    found = [ROOT / ".cache" / folder / "vllm-0.33.0.tar.gz" for folder in ("upstream", "peer-tests")]
    return next((archive for archive in found if archive.is_file()), None)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_patch_has_a_title_a_reason_and_tests(patch: Path) -> None:
    text = patch.read_text(encoding="utf-8")
    about, _, rest = text.partition("\ndiff --git ")
    title, empty, *reason = about.splitlines()
    assert re.match(r"\[\w[\w ]*\] \w", title) and not empty and len(reason) > 3
    changed = re.findall(r"^\+\+\+ b/(.+)$", rest, re.MULTILINE)
    assert any(name.startswith("tests/") for name in changed) and any(name.startswith("vllm/") for name in changed)
    assert all(name.endswith(".py") for name in changed), "tests run with the libraries of another build"


def test_the_page_tells_of_each_patch() -> None:
    page = (ROOT / "docs" / "upstream.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(upstream/\S+\.patch)` \| .* \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert told == [(f"upstream/{patch.name}", *map(str, added_lines(patch))) for patch in PATCHES]


def added_lines(patch: Path) -> tuple[int, int]:
    """How many lines a patch adds to vLLM's code, and to its tests."""
    code = tests = 0
    for part in patch.read_text(encoding="utf-8").split("\ndiff --git a/")[1:]:
        added = len(re.findall(r"^\+(?!\+\+ )", part, re.MULTILINE))
        code, tests = (code, tests + added) if part.startswith("tests/") else (code + added, tests)
    return code, tests


def test_the_page_counts_the_hooks_of_today() -> None:
    page = (ROOT / "docs" / "upstream.md").read_text(encoding="utf-8")
    left = {entry.name: len(entry.hook().replacements) for entry in ENTRIES}
    functions = {(module, name) for entry in ENTRIES for module, name, _ in entry.hook().replacements}
    counted = f"{len(left)} hooks make {sum(left.values())} replacements, of {len(functions)} functions"
    assert counted in " ".join(page.split())
    _, going, staying = page.split("\n## ")[:3]
    for name in re.findall(
        r"[a-z]+(?:-[a-z]+)*", " ".join(re.findall(r"^\|.*\| ([^|]+) \| \d+ \|$", going, re.MULTILINE))
    ):
        left.pop(name, None)
    for names, count in re.findall(r"^\| ([a-z, -]+) \| (\d+)", staying, re.MULTILINE):
        assert sum(left.pop(name) for name in names.split(", ")) == int(count), names
    assert f"\n| the other {len(left)} hooks | {sum(left.values())} |" in staying


def test_the_series_applies(upstream: object, tmp_path: Path) -> None:
    archive = sources()
    if archive is None:
        pytest.skip("vLLM's source distribution is not here: make check-upstream downloads it")
    wanted = {name for patch in PATCHES for name in upstream.files_of(patch)}  # type: ignore[attr-defined]
    with tarfile.open(archive) as opened:
        for member in opened:
            name = member.name.partition("/")[2]
            if name in wanted:
                target = tmp_path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                source = opened.extractfile(member)
                assert source is not None
                with target.open("wb") as written:
                    shutil.copyfileobj(source, written)
    for patch in PATCHES:
        upstream.apply(patch, tmp_path)  # type: ignore[attr-defined]
    for name in wanted:
        compile((tmp_path / name).read_text(encoding="utf-8"), name, "exec")
