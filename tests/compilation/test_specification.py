import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dotllm
from dotllm.compilation import Specification, specification
from dotllm.compilation.specification import Kind
from tests.cases import sample


def test_key_depends_on_everything() -> None:
    context = specification.context("vocabulary", engine="engine")
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
    keys.append(variants[0].key(specification.context("another vocabulary", engine="engine")))
    keys.append(variants[0].key(specification.context("vocabulary", engine="another engine")))
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


def test_options_about_declared_properties_are_none_of_any_object() -> None:
    """These options caused a TypeError in ``dotllm check --kind json_object --property-order any``."""
    options = {"order": "any", "additional_properties": "open", "any_whitespace": False}
    specification = Specification.from_value(Kind.JSON_OBJECT, True, options)
    assert specification.options == (("any_whitespace", False),)
    assert dict(Specification.from_value(Kind.JSON_SCHEMA, {}, options).options) == options


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


@pytest.fixture
def copied_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package's files, which `fingerprint` reads instead of the package."""
    original = Path(dotllm.__file__).parent
    copy = tmp_path / "dotllm"
    shutil.copytree(original, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(specification, "PACKAGE", copy)
    yield copy
    specification.engine_fingerprint.cache_clear()


def current_fingerprint() -> str:
    specification.engine_fingerprint.cache_clear()
    return specification.engine_fingerprint()


def test_the_fingerprint_follows_contents_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specification, "PACKAGE", tmp_path)
    file = tmp_path / "index" / "a.py"
    file.parent.mkdir()
    found = []
    for text in ("x = 1", "x = 2", "x = 22"):
        file.write_text(text)
        found.append(specification.engine_fingerprint.__wrapped__())
    file.rename(file.with_name("b.py"))
    found.append(specification.engine_fingerprint.__wrapped__())
    assert len(set(found)) == 4


READS = r"""
import sys
from pathlib import Path

import dotllm

root = Path(dotllm.__file__).parent
opened = set()
sys.addaudithook(lambda event, arguments: opened.add(arguments[0]) if event == "open" else None)
from dotllm.compilation.compiler import compile_specification, prepare
from dotllm.compilation.specification import Kind, Specification
from dotllm.vocabulary import Vocabulary

prepare()
vocabulary = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=[256])
texts = {
    "json_schema": '{"type": "string", "pattern": "^\\\\p{Lu}+$"}',
    "json_object": "",
    "regex": "\\p{Greek}+(?i:a)",
    "choice": '["a", "b"]',
    "grammar": "start: /[a-z]+/",
    "structural_tag": '{"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}',
}
assert set(texts) == {kind.value for kind in Kind}
for kind, text in texts.items():
    compile_specification(Specification.create(kind, text), vocabulary)
read = {Path(module.__file__) for module in sys.modules.values() if getattr(module, "__file__", None)}
read |= {Path(name) for name in opened if isinstance(name, str)}
for path in sorted(path.relative_to(root).as_posix() for path in read if path.is_relative_to(root)):
    print(path)
"""
# A compile also imports these. The first caches, schedules and reports; `import dotllm` loads the second's vLLM hook.
_CARRIERS = ("compilation/", "vllm_plugin/")


def test_the_fingerprint_follows_every_file_that_a_compile_reads(copied_package: Path) -> None:
    """This includes `languages/regex/unicode.txt`, which is not a source file."""
    answer = subprocess.run([sys.executable, "-c", READS], capture_output=True, text=True)
    assert not answer.returncode, answer.stderr
    named = set(specification.ENGINE_FILES)
    read = [
        name
        for name in answer.stdout.split()
        if not name.endswith(".pyc") and (name in named or not name.startswith(_CARRIERS))
    ]
    assert "languages/regex/unicode.txt" in read and len(read) > 100
    before = current_fingerprint()
    for name in (*sample(read), "languages/regex/unicode.txt"):
        path = copied_package / name
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        assert current_fingerprint() != before, name
        path.write_bytes(content)
    assert current_fingerprint() == before


def test_the_fingerprint_is_of_nothing_else(copied_package: Path) -> None:
    before = current_fingerprint()
    (copied_package / "cli" / "options.py").write_text("changed = True\n")
    (copied_package / "index" / "__pycache__").mkdir()
    (copied_package / "index" / "__pycache__" / "index.pyc").write_text("")
    assert current_fingerprint() == before
