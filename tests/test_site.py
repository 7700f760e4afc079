"""What ``tools/site_hooks.py`` makes of the pages."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def hooks() -> Any:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import site_hooks
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return site_hooks


def test_markdown_for_programs_has_no_directives(hooks: Any, tmp_path: Path) -> None:
    config = SimpleNamespace(
        docs_dir=str(ROOT / "docs"), site_dir=str(tmp_path), site_name="", site_description="", repo_url="", extra={}
    )
    pages = []
    for file in sorted((ROOT / "docs").rglob("*.md")):
        page = SimpleNamespace(
            file=SimpleNamespace(src_uri=str(file.relative_to(ROOT / "docs"))), title=file.stem, is_page=True
        )
        page.children, text = [], file.read_text(encoding="utf-8")
        page.markdown = hooks.on_page_markdown(text, page=page, config=config)
        pages.append(page)
    hooks.on_nav(SimpleNamespace(items=pages), config=config)
    hooks.on_post_build(config=config)
    written = {str(path.relative_to(tmp_path)): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.md")}
    assert len(written) == len(pages) > 30
    assert [name for name, text in written.items() if "\n:::" in text or "\n    options:" in text] == []
    assert "::: dotllm.api.Index\n" in next(page.markdown for page in pages if page.title == "python")
    after = written["python.md"].partition("| `nbytes` | the memory, in bytes, of this index alone |")[2]
    assert after.lstrip().startswith("A program that compiles")
