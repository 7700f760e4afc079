"""Every Python block of README and docs/ runs, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dotllm.cli import main
from tests import documentation
from tests.documentation import PAGES, ROOT, Block
from tests.serve.clients.test_clients import CLIENTS, SCRIPTS

pytest.importorskip("torch")
FILE = re.compile(r'^```\w+ title="(.*?)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n\$ dotllm (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OF_A_CLIENT = re.compile(r"^<!-- client: (.*?) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^(?:#|//) begin\n(.*?)^(?:#|//) end$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)|(?:src|srcset)=\"(?!https?:)([^\"]+)\"")


@pytest.fixture(scope="module")
def given(demo_model: Path) -> dict[str, Any]:
    """Names that the pages assume: a model of transformers, its tokenizer, its inputs, a schema, a Pydantic model."""
    from pydantic import BaseModel, Field
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from dotllm import Vocabulary

    class Weather(BaseModel):
        city: str = Field(max_length=5)
        celsius: int = Field(ge=-60, le=60)

    tokenizer = AutoTokenizer.from_pretrained(demo_model)
    model = AutoModelForCausalLM.from_pretrained(demo_model)
    return {
        "vocabulary": Vocabulary.from_tokenizer(tokenizer),
        "tokenizer": tokenizer,
        "hf_tokenizer": tokenizer,
        "model": model,
        "hf_model": model,
        "inputs": tokenizer("A person:", return_tensors="pt"),
        "schema": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}},
        "schema_text": '{"type": "string", "maxLength": 9}',
        "Weather": Weather,
    }


@pytest.mark.parametrize("blocks", documentation.blocks("").items(), ids=lambda item: item[0])
def test_blocks_run(blocks: tuple[str, list[Block]], given: dict[str, Any]) -> None:
    names = dict(given)
    for block in blocks[1]:
        block.run(names)


def test_blocks_that_run_nowhere_have_a_reason() -> None:
    assert all(block.reason for found in documentation.blocks("no-run").values() for block in found)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```console" in page.read_text()], ids=lambda page: page.name
)
def test_commands_print_what_stands_below_them(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run ``dotllm`` in a folder with the files that the page shows with a title."""
    for name, content in FILE.findall(page.read_text()):
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    commands = CONSOLE.findall(page.read_text())
    assert len(commands) == page.read_text().count("```console")
    for command, output in commands:
        main(command.split())
        assert capsys.readouterr().out == output


def test_examples_of_clients_are_those_that_run() -> None:
    page = dict(OF_A_CLIENT.findall((ROOT / "docs" / "clients.md").read_text()))
    assert page == {name: SHOWN.findall((SCRIPTS / name).read_text())[0] for name in page}
    assert {*page} == {"weather.py", "weather.mjs", *(client.script for client in CLIENTS)}
    assert {path.name for path in SCRIPTS.iterdir() if path.is_file()} == {*page}


def test_the_table_of_clients_has_the_versions_that_are_installed() -> None:
    rows = re.findall(r"^\| \[.*?\]\(#.*?\) \| `(\S+)` \|", (ROOT / "docs" / "clients.md").read_text(), re.MULTILINE)
    lists = [*(ROOT / "requirements").glob("clients-*.txt"), ROOT / "Makefile"]
    assert {*rows} <= {word for path in lists for word in path.read_text().split()}
    assert len(rows) == len(CLIENTS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for match in LINK.finditer(page.read_text()):
        path, anchor = match[1] or match[3] or "", match[2]
        target = page.parent / path if path else page
        assert target.exists(), match[0]
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), match[0]


NAMES_OF_OTHERS = {"vllm/", "openai/", "hosted_vllm/", "test_structural_tag_registry.py"}
MADE = {"benchmarks/results/raw/"}
"""Names that need not be files here: of other projects, and of files that commands make."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    """The pages named folders and modules that had moved months before."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    names = {*re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9.-]+)*(?:\.py|/))`", text)} - NAMES_OF_OTHERS - MADE
    folders = ("src", "tests", "benchmarks", "tools", "docs", "deploy", "examples", "requirements")
    here = [
        path.as_posix()
        for folder in folders
        for path in (ROOT / folder, *(ROOT / folder).rglob("*"))
        if "__pycache__" not in path.parts
    ]
    assert not [
        name for name in sorted(names) if not any(f"{path}/".endswith(f"/{name.rstrip('/')}/") for path in here)
    ]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
