"""The labels of refusals are words of ours, never the user's."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import dotllm
from dotllm import Vocabulary
from dotllm.compilation import CompilationManager, CompilationOptions, Specification
from dotllm.compilation.metrics import KNOWN, reason
from dotllm.errors import InvalidSpecError, SpecError, UnsupportedError
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS

VOCABULARY = Vocabulary.from_bytes([bytes([byte]) for byte in range(256)] + [None], eos_token_ids=[256])
# Keywords of tokenizer readers, whose errors are not refusals of specifications.
OF_TOKENIZERS = {"decode", "Strip", "WordPiece", "decoder"}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("regex", r"\p{Customer}"),
        ("json_schema", json.dumps({"type": "customer"})),
        ("json_schema", json.dumps({"properties": {"customer": {"type": 5}}})),
        ("json_schema", json.dumps({"$ref": "#/$defs/customer"})),
        ("grammar", "start: customer"),
        ("grammar", 'start: "a"\n%customer x'),
        ("grammar", 'start[customer]: "a"'),
        ("grammar", 'customer: "a"\ncustomer: "b"\nstart: "a"'),
        ("grammar", "root ::= customer"),
        ("structural_tag", json.dumps({"type": "structural_tag", "format": {"type": "customer"}})),
        ("structural_tag", json.dumps({"type": "structural_tag", "format": {"type": "any_text", "customer": 1}})),
    ],
)
def test_no_word_of_the_user_becomes_a_label(kind: str, text: str, tmp_path: Path) -> None:
    options = CompilationOptions(disk_bytes=0, compile_processes=0, cache_dir=str(tmp_path))
    manager = CompilationManager(VOCABULARY, options)
    try:
        error = manager.submit(Specification.create(kind, text)).exception(60)
    finally:
        manager.close(flush=0)
    assert isinstance(error, SpecError) and "customer" in str(error).lower()
    labels = [labels for name, labels, _ in manager.metrics.snapshot()["counters"] if name == "dotllm_refused"]
    assert [one[0] for one in labels] == [kind]
    assert "customer" not in json.dumps(labels).lower()


def test_known_words_and_classes() -> None:
    assert reason(UnsupportedError("'not' of a reference", keyword="not")) == "not"
    assert reason(UnsupportedError("\\p{Mine}", keyword="\\p{Mine}")) == "Unsupported"
    assert reason(InvalidSpecError("no keyword")) == "InvalidSpec"


def test_every_keyword_written_in_the_sources_is_known() -> None:
    assert frozenset().union(*ASSERTIONS.values()) <= KNOWN
    written = set()
    for path in Path(dotllm.__file__).parent.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "keyword=" in text else ():  # (to parse all files takes seconds)
            if isinstance(node, ast.Call):
                given = [keyword.value for keyword in node.keywords if keyword.arg == "keyword"]
                written |= {one.value for one in given if isinstance(one, ast.Constant) and one.value}
    assert len(written) > 50
    assert written - OF_TOKENIZERS <= KNOWN
