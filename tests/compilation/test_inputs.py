import json
from pathlib import Path

import pytest

from dotllm.compilation import Specification
from dotllm.compilation.inputs import BadInput, read_inputs, read_texts
from dotllm.compilation.specification import Kind

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def write(directory: Path, name: str, content: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_files_by_ending(tmp_path: Path) -> None:
    write(tmp_path, "a.json", json.dumps(SCHEMA, indent=4))
    write(tmp_path, "b.lark", 'start: "a"')
    write(tmp_path, "c.gbnf", 'root ::= "a"')
    write(tmp_path, "d.regex", "[0-9]+\n")
    write(tmp_path, "deep/e.choice", '["x", "y"]')
    write(tmp_path, "ignored.txt", "")
    found = {one.name: one.specification for one in read_inputs([tmp_path])}
    assert found == {
        "a.json": Specification.from_value("json_schema", SCHEMA),
        "b.lark": Specification.create("grammar", 'start: "a"'),
        "c.gbnf": Specification.create("grammar", 'root ::= "a"'),
        "d.regex": Specification.create("regex", "[0-9]+"),
        "e.choice": Specification.create("choice", '["x", "y"]'),
    }


def test_kind_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path, "pattern", "a|b")
    with pytest.raises(BadInput, match="--kind"):
        list(read_inputs([path]))
    (one,) = read_inputs([path], Kind.REGEX)
    assert one.specification == Specification.create("regex", "a|b")
    tag = write(tmp_path, "tag.json", '{"format": {"type": "any_text"}}')
    (one,) = read_inputs([tag], Kind.STRUCTURAL_TAG)
    assert one.specification.kind is Kind.STRUCTURAL_TAG


def test_lines_in_every_form(tmp_path: Path) -> None:
    tag = {"type": "structural_tag", "format": {"type": "any_text"}}
    lines = [
        {"json_schema": SCHEMA, "examples": ['{"a": 1}', {"a": 2}]},
        {"regex": "a+"},
        {"choice": ["x"]},
        {"structured_outputs": {"grammar": "start: A"}},
        {"structured_outputs": {"json": SCHEMA}},
        {"model": "m", "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
        {"response_format": {"type": "json_object"}},
        {"response_format": tag},
        {"name": "bench", "schema": SCHEMA, "tests": [{"valid": True, "data": {"a": 3}}, {"valid": False, "data": 1}]},
    ]
    path = write(tmp_path, "all.jsonl", "\n".join(map(json.dumps, lines)) + "\n\n")
    found = list(read_inputs([path]))
    schema = Specification.from_value("json_schema", SCHEMA)
    assert [one.specification for one in found] == [
        schema,
        Specification.create("regex", "a+"),
        Specification.create("choice", '["x"]'),
        Specification.create("grammar", "start: A"),
        schema,
        schema,
        Specification.create("json_object", ""),
        Specification.from_value("structural_tag", tag),
        schema,
    ]
    assert found[0].examples == ('{"a": 1}', '{"a": 2}')
    assert found[8].name == "bench" and found[8].examples == ('{"a": 3}',)
    assert found[1].name == "all.jsonl:2"


def test_options_go_to_json_kinds_only(tmp_path: Path) -> None:
    path = write(tmp_path, "all.jsonl", '{"regex": "a"}\n{"json_schema": {}}\n')
    regex, schema = read_inputs([path], options={"any_whitespace": False})
    assert regex.specification.options == () and schema.specification.options == (("any_whitespace", False),)


def test_what_python_does_not_read_is_left_to_the_compiler(tmp_path: Path) -> None:
    for content in ("[" * 100_000, "9" * 5000):
        (found,) = read_inputs([write(tmp_path, "a.json", content)])
        assert found.specification == Specification.create("json_schema", content)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "not JSON"),
        ("a.jsonl", "{}", "a.jsonl:1: has none of"),
        ("a.jsonl", '{"regex": "a"}\n[1]', "a.jsonl:2: not a JSON object"),
        ("a.jsonl", '{"response_format": {"type": "text"}}', "constrains nothing"),
        ("a.jsonl", '{"regex": "a", "choice": ["a"]}', "has regex and choice; a line holds one"),
        ("a.jsonl", '{"structured_outputs": {"json": {}, "regx": "a"}}', "structured_outputs has no field 'regx'"),
        ("a.jsonl", '{"structured_outputs": {"json": {}, "whitespace_pattern": 5}}', "must be a regular expression"),
        ("a.jsonl", '{"structured_outputs": {"json": {}, "disable_any_whitespace": 1}}', "must be true or false"),
        ("a.jsonl", "[" * 100_000, "a.jsonl:1: not a JSON object, or nested too deeply"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        list(read_inputs([write(tmp_path, name, content)]))


def test_options_of_a_request_are_those_of_its_specification(tmp_path: Path) -> None:
    """They were ignored, so the index that a server needs was not compiled."""
    fields = {
        "json": {},
        "disable_any_whitespace": True,
        "disable_additional_properties": False,
        "whitespace_pattern": None,
    }
    for name, said in (("any_whitespace", fields), ("whitespace_pattern", {"json": {}, "whitespace_pattern": " "})):
        (found,) = read_inputs([write(tmp_path, "a.jsonl", json.dumps({"structured_outputs": said}))])
        value = {"any_whitespace": False, "whitespace_pattern": " "}[name]
        assert found.specification == Specification.from_value("json_schema", {}, {name: value})
        (found,) = read_inputs([tmp_path / "a.jsonl"], options={"number_digits": "any"})
        assert dict(found.specification.options) == {name: value, "number_digits": "any"}


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no specification files"):
        list(read_inputs([tmp_path]))
    with pytest.raises(BadInput, match="missing"):
        list(read_inputs([tmp_path / "missing.json"]))
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput):
        list(read_inputs([tmp_path / "x.json"]))


def test_texts(tmp_path: Path) -> None:
    write(tmp_path, "t/one.txt", "hello\nworld")
    write(tmp_path, "t/more.jsonl", '"a string"\n{"a": "é"}\n')
    assert read_texts(tmp_path / "t") == ["a string", '{"a": "é"}', "hello\nworld"]


@pytest.mark.parametrize(
    "line",
    [
        {"response_format": 5},
        {"response_format": {"type": "json_schema"}},
        {"structured_outputs": 5},
        {"regex": "a", "examples": 5},
        {"json": {}, "tests": 5},
        {"json": {}, "tests": [1]},
        {"json": {}, "tests": [{"valid": True}]},
    ],
    ids=json.dumps,
)
def test_lines_in_no_form(line: object, tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"regex": "a"}\n' + json.dumps(line))
    with pytest.raises(BadInput, match=r"a\.jsonl:2"):
        list(read_inputs([path]))


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    """A JSON string may contain characters that `str.splitlines` takes for the end of a line."""
    text = "a\u2028b\x85c\u2029"
    path = write(tmp_path, "a.jsonl", json.dumps({"choice": [text], "examples": [text]}, ensure_ascii=False) + "\r\n")
    (one,) = read_inputs([path])
    assert one.examples == (text,)
    assert read_texts(write(tmp_path, "b.jsonl", json.dumps(text, ensure_ascii=False))) == [text]
