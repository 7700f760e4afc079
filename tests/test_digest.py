"""Restructuring the engine changes no grammar, no automaton and no mask."""

from __future__ import annotations

import json

import pytest

from tools import digest


def test_the_corpus_compiles_to_what_it_did(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["digest", "--check"])
    assert digest.main() == 0, capsys.readouterr().err


def test_a_changed_mask_changes_the_digest() -> None:
    known = json.loads(digest.KNOWN.read_text())
    over = digest.vocabulary()
    cases = {name: given for name, _, given, _ in digest.specifications()}
    name = next(name for name in cases if name.startswith("regex/basics"))
    assert digest.digest("regex", cases[name], over, {}) == known[name]
    assert digest.digest("regex", f"(?:{cases[name]})x", over, {}) != known[name]
