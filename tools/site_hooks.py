"""Hooks of mkdocs for references, links to the repository's files, and ``llms.txt`` (https://llmstxt.org)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ONLY_HERE = re.compile(r"<!-- site\n(.*?)-->\n", re.DOTALL)
"""Text that a Git host would show literally, such as the directives of mkdocstrings."""
DIRECTIVE = re.compile(r"^::: .*\n(?: +.*\n)*\n*", re.MULTILINE)
"""A directive of mkdocstrings, which is nothing to a program that reads the Markdown."""
OUTSIDE = re.compile(r"\[([^]]+)\]\(((?:\.\./)+[^)]+)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Make links from docs/ to other files of the repository lead to ``repo_url``; without one, write file names."""
    here = (Path(config.docs_dir) / page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        path, _, anchor = match[2].partition("#")
        target = (here / path).resolve()
        if target.is_relative_to(config.docs_dir):
            return match[0]
        name = str(target.relative_to(ROOT))
        if not config.repo_url:
            return f"`{name}`" if match[1].strip("`") in (name, target.name) else f"{match[1]} (`{name}`)"
        return f"[{match[1]}]({config.repo_url}/blob/main/{name}{'#' + anchor if anchor else ''})"

    return OUTSIDE.sub(link, ONLY_HERE.sub(r"\1", markdown))


def on_nav(nav: Any, *, config: Any, **_: Any) -> Any:
    """Keep the navigation for `on_post_build`."""
    config.extra["nav_of_llms"] = nav
    return nav


def on_post_build(*, config: Any, **_: Any) -> None:
    """Write ``llms.txt``, the site's table of contents for programs, and each page's Markdown."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for section in config.extra["nav_of_llms"].items:
        lines.append(f"## {section.title}\n")
        for page in [section] if section.is_page else section.children:
            for leaf in page.children or [page]:
                lines.append(f"- [{leaf.title}]({leaf.file.src_uri})")
                target = Path(config.site_dir) / leaf.file.src_uri
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(DIRECTIVE.sub("", leaf.markdown or ""), encoding="utf-8")
        lines.append("")
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
