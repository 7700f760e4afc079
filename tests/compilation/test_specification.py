import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dotllm.compilation import Specification, fingerprint
from dotllm.compilation.specification import Kind


def test_key_depends_on_everything() -> None:
    context = fingerprint.context("vocabulary", engine="engine")
    variants = [
        Specification.create("regex", "a"),
        Specification.create("regex", "b"),
        Specification.create("choice", "a"),
        Specification.create("regex", "a", {"flag": True}),
        Specification.create("regex", "a", {"flag": "1"}),
        Specification.create("regex", "a", {"flag": 1}),
        Specification.create("regex", "a", {"other": True}),
    ]
    keys = [variant.key(context) for variant in variants]
    keys.append(variants[0].key(fingerprint.context("another vocabulary", engine="engine")))
    keys.append(variants[0].key(fingerprint.context("vocabulary", engine="another engine")))
    for one, other in itertools.combinations(keys, 2):
        assert one != other


@given(st.text(), st.text(), st.dictionaries(st.text(), st.text()))
def test_key_is_injective_over_field_borders(one: str, other: str, options: dict[str, str]) -> None:
    context = b"c" * 32
    first = Specification(Kind.REGEX, one, tuple(sorted(options.items())))
    second = Specification(Kind.REGEX, other, ())
    assert (first.key(context) == second.key(context)) == (one == other and not options)


def test_options_that_are_none_say_nothing_and_false_says_something() -> None:
    plain = Specification.create("json_schema", "{}")
    assert Specification.create("json_schema", "{}", {"whitespace_pattern": None}) == plain
    compact = Specification.create("json_schema", "{}", {"any_whitespace": False})
    assert compact != plain
    assert Specification.from_json(compact.to_json()) == compact


def test_values_are_written_as_vllm_writes_them() -> None:
    schema = {"type": "object", "x": ["é", 1.0]}
    assert Specification.from_value("json_schema", schema).text == json.dumps(schema)
    assert Specification.from_value("json_schema", '{"type": "object"}').text == '{"type": "object"}'
    assert Specification.from_value("json_object", True).text == ""


def test_json_round_trip() -> None:
    specification = Specification.create("grammar", "start: \ud800", {"dialect": "lark", "n": 3, "b": True})
    assert Specification.from_json(json.loads(json.dumps(specification.to_json()))) == specification
    assert specification.nbytes == len(specification.text) + 2
    assert specification.key(b"x")  # a lone surrogate does not crash it


def test_engine_fingerprint_follows_the_sources(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "dotllm"
    (package / "index").mkdir(parents=True)
    (package / "cli").mkdir()
    (package / "index" / "index.py").write_text("one = 1\n")
    (package / "cli" / "x.py").write_text("")
    monkeypatch.setattr(fingerprint.dotllm, "__file__", str(package / "__init__.py"))

    def current() -> str:
        fingerprint.engine_fingerprint.cache_clear()
        return fingerprint.engine_fingerprint()

    try:
        before = current()
        assert current() == before
        (package / "cli" / "x.py").write_text("changed = True\n")
        assert current() == before, "the command line does not decide masks"
        (package / "index" / "index.py").write_text("one = 2\n")
        assert current() != before
    finally:
        fingerprint.engine_fingerprint.cache_clear()
