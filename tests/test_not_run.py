"""The last line of `make test` names the skipped tests, and how to run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests import not_run

ROOT = Path(__file__).parent.parent
REASON = re.compile(r"""(?:pytest\.skip\(|reason=)f?"([^"{]+)""")
IMPORT = re.compile(r"""importorskip\("([^"]+)"\)""")


def test_reasons_are_grouped_by_their_remedy() -> None:
    said = not_run.paragraph(
        [
            "Skipped: could not import 'outlines': No module named 'outlines'",
            "Skipped: no packages of npm",
            "Skipped: could not import 'outlines': No module named 'outlines'",
            "Skipped: ray is not installed (pip install ray)",
            "Skipped: could not import 'yaml': No module named 'yaml'",
            "Skipped: not Lark",
            "Skipped: of a new kind",
        ]
    )
    assert said == (
        "not run (6 skipped): outlines, no packages of npm (make test-clients); "
        "ray is not installed (pip install ray); yaml (pip install yaml); of a new kind"
    )
    assert not_run.paragraph(["Skipped: not Lark"]) == "" == not_run.paragraph([])


def test_every_reason_in_the_tests_has_its_remedy() -> None:
    checked = 0
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path == Path(__file__):
            continue
        text = path.read_text()
        for line in text.splitlines():
            for reason in REASON.findall(line) if "skip" in line else ():
                checked += 1
                words = not_run.paragraph([reason])
                assert "(" in words or not_run.NOT_APPLICABLE.search(reason), f"{path.name}: {reason}"
        checked += len(IMPORT.findall(text))
    assert checked > 50


def test_the_last_line_of_a_run_says_it(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import pytest\npytest.importorskip('no_such_package')\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    more = ["-o", f"testpaths={tmp_path}", "-p", "tests.conftest", "--rootdir", str(tmp_path)]
    said = subprocess.run(
        [*command, *more], capture_output=True, text=True, cwd=tmp_path, env=_environment(), check=False
    )
    last = said.stdout.splitlines()[-1]
    assert last.startswith("not run (1 skipped): no_such_package (pip install no_such_package)"), said.stdout


def _environment() -> dict[str, str]:
    import os

    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
    }
