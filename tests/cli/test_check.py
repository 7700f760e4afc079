"""`dotllm check` on files, directories and stdin; for people and for CI."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dotllm.cli import check
from dotllm.cli.check import REFUSED, WRONG
from dotllm.compilation import compiler
from dotllm.compilation.inputs import files_of
from dotllm.diagnosis.frames import wants_colour
from dotllm.errors import EngineFault, InvalidSpecError, Pointer


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    (tmp_path / "good.json").write_text(
        json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": True})
    )
    unique = {
        "properties": {"a/b": {"type": "array", "contains": {"type": "string"}, "maxContains": 1, "uniqueItems": True}}
    }
    (tmp_path / "refused.json").write_text(json.dumps(unique))
    (tmp_path / "wrong.json").write_text('{"type": 3}')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "rules.lark").write_text('start: "a"+')
    (tmp_path / "notes.txt").write_text("no specification")
    return tmp_path


def verdicts(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status = check.main(["--json", *arguments])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return status, {Path(row["name"]).name: row for row in rows}


def test_a_directory(specs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = verdicts(capsys, str(specs))
    assert status == REFUSED and set(found) == {"good.json", "refused.json", "wrong.json", "broken.json", "rules.lark"}
    good = found["good.json"]
    assert good["enforced"] and good["automaton_nodes"] > 10 and good["index_bytes"] > 0 and good["first_mask_ms"] > 0
    assert (good["fewest_tokens"], good["fewest_bytes"], good["is_unbounded"]) == (3, 2, True) and good["states"] > 0
    assert good["grows_at"] == [{"pointer": "", "reason": "an object that takes further properties"}]
    assert found["rules.lark"]["enforced"] and found["rules.lark"]["kind"] == "grammar"
    refused = found["refused.json"]
    assert (refused["reason"], refused["keyword"]) == ("unsupported", "uniqueItems")
    assert refused["pointer"].startswith("/properties/a~1b"), "a JSON Pointer"
    assert found["wrong.json"]["reason"] == "invalid" and "type" in found["wrong.json"]["message"]
    broken = found["broken.json"]
    assert (broken["reason"], broken["code"], broken["line"], broken["column"]) == ("unreadable", "not_json", 1, 2)


def test_lines_for_people(specs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([str(specs / "good.json"), str(specs / "refused.json")]) == 1
    first, shortest, growth, *frame, last = capsys.readouterr().out.splitlines()
    assert first.startswith("good.json: enforced (") and "first mask" in first
    assert shortest == "  shortest answer: 3 tokens with the end token, 2 bytes"
    assert growth == "  grows without bound: / (an object that takes further properties)"
    message = "uniqueItems cannot be combined with a contains or 'not' that may demand an item again"
    assert frame[0] == f"error[unsupported]: {message}"
    assert frame[1].endswith("refused.json:1:92  (/properties/a~1b/uniqueItems)") and '"uniqueItems": true' in frame[2]
    assert frame[4:] == [
        "  = help: remove minContains, maxContains, a 'not' of contains, and items by position; or check it after the answer",
        "  = see: dotllm explain unsupported",
    ]
    assert last == "1 of 2 are enforced exactly"


def test_stdin_is_a_schema_unless_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for text, arguments, status, place in (
        ('{"const": 1}', [], 0, "stdin: "),
        ("(a", ["--kind", "regex"], 1, "stdin:1:"),
        ("nonsense", [], 1, "stdin:1:1"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert check.main(["-", *arguments]) == status
        assert place in capsys.readouterr().out


def test_options_of_json(specs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (specs / "closed.json").write_text('{"type": "object", "properties": {"a": {}}, "minProperties": 2}')
    assert verdicts(capsys, str(specs / "closed.json"), "--property-order", "any")[0] == 0
    status, found = verdicts(capsys, str(specs / "closed.json"), "--disable-additional-properties")
    assert status == 1 and found["closed.json"]["reason"] == "invalid"
    (specs / "two.json").write_text('{"enum": [[1, 2]]}')
    for arguments, fewest in (
        (["--disable-any-whitespace"], len("[1,2]")),
        (["--whitespace-pattern", "  "], len("[  1  ,  2  ]")),
    ):
        assert verdicts(capsys, str(specs / "two.json"), *arguments)[1]["two.json"]["fewest_bytes"] == fewest


def test_arguments_that_make_no_sense(specs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([str(specs), "--tokenizer", str(specs / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
    status, found = verdicts(capsys, str(specs / "missing.json"))
    assert status == WRONG and found["missing.json"]["reason"] == "unreadable"
    with pytest.raises(SystemExit) as ended:
        check.main(["--strict"])
    assert ended.value.code == WRONG and "name a SPEC" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        check.main(["x.txt", "--kind", "json_schma"])
    assert ended.value.code == WRONG and 'did you mean "json_schema"?' in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        check.main(["x.json", "--tokeniser", "m"])
    assert ended.value.code == WRONG and 'did you mean "--tokenizer"?' in capsys.readouterr().err


def test_a_bad_line_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text('{"regex": "a"}\n{"regex":\n{"response_format": 5}\n{"regex": "("}\n{"choice": ["a"]}\n')
    assert check.main([str(path), "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["reason"] for line in lines] == ["", "unreadable", "unreadable", "invalid", ""]


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("text.json", json.dumps(json.dumps({"type": "integer"})), "invalid_value"),
        ("null.json", "null", "invalid_value"),
        ("word.choice", '"abc"', "invalid_value"),
        ("open.json", "[" * 100_000, "too_deep"),
        ("deep.json", '{"items":' * 100_000 + "{}" + "}" * 100_000, "too_deep"),
        ("digits.json", '{"minimum": ' + "9" * 5000 + "}", "too_large"),
    ],
)
def test_a_file_is_read_once_and_as_a_server_reads_it(
    name: str, text: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert check.main([str(tmp_path / name), "--json"]) == REFUSED
    assert json.loads(capsys.readouterr().out)["code"] == code


def test_halves_of_surrogate_pairs_can_be_shown(tmp_path: Path) -> None:
    """Lone surrogates cannot be encoded; one of them ended the check of a whole directory with a traceback."""
    texts = {"key": {"properties": {"\udfff": {"type": "strnig"}}, "\ud800": 1}, "const": {"const": "\ud800"}, "ok": {}}
    for name, value in texts.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    document = ["--document", str(tmp_path / "const.json")]
    for arguments in ([str(tmp_path)], [str(tmp_path / "ok.json"), *document]):
        command = [sys.executable, "-m", "dotllm", "check", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert (ended.returncode, ended.stderr) == (REFUSED, "")
    error = InvalidSpecError("no '\ud800'", location=Pointer("/\udfff"), help="\ud800")
    assert str(error) == "no '\\ud800'; \\ud800 (at /\\udfff)"


def test_a_line_that_is_nested_too_deeply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text("[" * 100_000 + '\n{"regex": "a"}\n')
    assert check.main([str(path)]) == REFUSED
    assert "deep.jsonl:1: not a JSON object, or nested too deeply" in capsys.readouterr().out


def test_the_vocabulary_is_that_of_a_server(tmp_path: Path) -> None:
    """It has all ends that vLLM finds: in the generation config, else in the model's, else in the tokenizer's."""
    from dotllm.cli.specifications import vocabulary_of
    from dotllm.demo import model

    made = model.make(tmp_path / "model")
    path = made / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": [2, 0]}))
    assert vocabulary_of(str(made), None).eos_token_ids == (2, 0)
    path.unlink()
    assert vocabulary_of(str(made), None).eos_token_ids == (2,)
    (made / "config.json").write_text(
        json.dumps({**json.loads((made / "config.json").read_text()), "eos_token_id": [0, 2]})
    )
    assert vocabulary_of(str(made), None).eos_token_ids == (2, 0)
    (made / "config.json").unlink()
    assert vocabulary_of(str(made), 9000).eos_token_ids == (2,)


def test_a_reader_that_goes(specs: Path) -> None:
    """``dotllm check … | head -1``: nobody reads the rest, which is not worth an error message."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "dotllm", "check", str(specs)]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_keywords_that_mean_nothing_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "typo.json"
    path.write_text(json.dumps({"properties": {"name": {"type": "string", "maxlength": 5}}, "requierd": ["name"]}))
    assert check.main([str(path)]) == 0, "the standard ignores them"
    said = capsys.readouterr().out
    assert "warning: 'requierd' is not a keyword of JSON Schema; did you mean \"required\"?" in said
    assert "typo.json:1:62  (/requierd)" in said and '"maxLength"' in said
    assert check.main([str(path), "--strict"]) == REFUSED
    assert "error: 'requierd' is not a keyword" in capsys.readouterr().out
    _, found = verdicts(capsys, str(path))
    assert [warning["pointer"] for warning in found["typo.json"]["warnings"]] == [
        "/requierd",
        "/properties/name/maxlength",
    ]


def test_a_fault_of_the_engine_is_no_refusal(
    specs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise EngineFault("internal fault -4")

    monkeypatch.setattr(compiler, "build", broken)
    status, found = verdicts(capsys, str(specs / "good.json"))
    assert status == 1
    assert (found["good.json"]["reason"], found["good.json"]["message"]) == ("fault", "internal fault -4")


PERSON = """{
  "type": "object",
  "properties": {
    "name": {"type": "string"},
    "age": {
      "type": "integer",
      "maximum": 130
    }
  }
}
"""


def test_a_document_that_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "person.json").write_text(PERSON)
    (tmp_path / "answer.json").write_text('{\n  "name": "Bob",\n  "age": 131\n}\n')
    (tmp_path / "good.json").write_text('{"name": "Bob"}')
    asked = [str(tmp_path / "person.json"), "--document", str(tmp_path / "answer.json")]
    assert check.main([*asked, "--document", str(tmp_path / "good.json")]) == REFUSED
    assert capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines() == [
        'error: "maximum": 130 forbids it',
        " --> answer.json:3:12  (/age)",
        '3 |   "age": 131',
        '  |            ^ allowed here: ",", "0", "}" or white space',
        " --> person.json:7:7  (/properties/age/maximum)",
        '7 |       "maximum": 130',
        "  |       ^^^^^^^^^^^^^^",
        "  = help: write a number of at most 130",
        "good.json: fits person.json",
    ]
    assert check.main([*asked, "--json"]) == REFUSED
    row = json.loads(capsys.readouterr().out)
    assert (row["fits"], row["line"], row["column"], row["pointer"]) == (False, 3, 12, "/age")
    assert row["blamed"] == [{"pointer": "/properties/age/maximum", "value": 130, "line": 7, "column": 7}]


def test_a_document_and_an_expression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("abx\n")
    assert check.main(["--regex", "[a-c]+", "--document", str(tmp_path / "text")]) == REFUSED
    assert ":1:3" in capsys.readouterr().out
    assert check.main(["--regex", "[a-c]+", "--document", str(tmp_path / "missing")]) == WRONG


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wants_colour(terminal) and not wants_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(terminal)


def test_what_cannot_be_read_loads_no_kernel(tmp_path: Path) -> None:
    """Machine code takes seconds to load; a misspelt name must be reported immediately."""
    script = (
        "import sys; from dotllm.cli import check; "
        "status = check.main(sys.argv[1:]); print(status, 'numba' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "none.json")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-2:] == [str(WRONG), "False"]


def test_files_that_may_not_be_looked_at_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good.json").write_text("{}")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    real = Path.is_file

    def is_file(path: Path) -> bool:
        if path.name == "loop.json":
            raise OSError("too many levels of symbolic links")
        return real(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    assert [file.name for file in files_of(tmp_path)] == ["good.json"]


ANSWERS = [
    {"name": "Ada", "age": 36}, {"title": "Dune", "type": "book"}, {"items": [1, 2], "total": 2}, [1, 2], "text", 5,
    {"name": "pkg", "version": "1.0.0", "type": "module"}, {"compilerOptions": {"strict": True}},
    {"properties": {"a": 1}, "id": 7, "kind": "Feature"}, {"enum": "x", "value": 1},
    {"prefix": [], "any_off": []}, {"types": "modules"}, {"tpye": 5}, {"proprties": {"a": 1}},
]  # fmt: skip
SCHEMAS = [
    {}, True, {"type": "strnig"}, {"type": 3}, {"minLength": "3"}, {"requierd": ["a"], "type": "object"},
    {"$ref": "Foo"}, {"title": "a"}, {"anyOf": [{"type": "string"}], "extra": 1}, {"type": "date"},
    {"properties": {"a": {}}, "requierd": ["a"]}, {"type": ["string", None], "b": 1},
    {"tpye": "object"}, {"Type": ["string", "null"], "name": "a"}, {"propertis": {"a": {"type": "string"}}},
    {"any_of": [{"type": "string"}], "name": "a"},
]  # fmt: skip


def test_answers_in_a_directory_are_passed_over_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, answer in enumerate(ANSWERS):
        (tmp_path / f"answer{number}.json").write_text(json.dumps(answer))
    assert check.main([str(tmp_path)]) == WRONG
    assert f"{len(ANSWERS)} files are not schemas" in capsys.readouterr().out
    for number, schema in enumerate(SCHEMAS):
        (tmp_path / f"schema{number}.json").write_text(json.dumps(schema))
    status = check.main(["--json", str(tmp_path)])
    printed = capsys.readouterr()
    assert status == REFUSED and len(printed.out.splitlines()) == len(SCHEMAS)
    assert f"{len(ANSWERS)} files are not schemas" in printed.err
    assert check.main([str(tmp_path / "answer0.json")]) == REFUSED, "named, and so judged"
    assert check.main([str(tmp_path), "--kind", "json_schema"]) == REFUSED
    assert "not schemas" not in capsys.readouterr().out


def test_the_whole_disk_is_no_directory_of_specifications(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["/"]) == WRONG
    assert "name the directory that holds the specifications" in capsys.readouterr().out


def test_a_folder_that_goes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "good.json").write_text("{}")
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("inner"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [file.name for file in files_of(tmp_path)] == ["good.json"]


def test_the_frame_shows_where_and_what_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"type": "object",\n "properties": {"a": {"type": ["string", null]}}}')
    assert check.main([str(path)]) == REFUSED
    shown = capsys.readouterr().out
    assert "error[invalid_value]: type must contain names, not null" in shown
    assert "s.json:2:" in shown and "^^^^" in shown and 'help: write "null"' in shown
    path.write_text('{"properties": {"a": {"enum": []}}}')
    assert check.main(["--strict", str(path)]) == REFUSED
    assert "no document has 'a'" in capsys.readouterr().out


def test_the_tokens_of_the_tokenizer_are_in_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dotllm.demo import model

    made = ["--tokenizer", str(model.make(tmp_path / "model"))]
    grammar, good, bad = tmp_path / "i.lark", tmp_path / "good.txt", tmp_path / "bad.txt"
    name = "<|im_start|>"
    grammar.write_text(f'start: "a" {name} "b"')
    good.write_text(f"a{name}b\n")
    bad.write_text("ab\n")
    documents = ["--document", str(good), "--document", str(bad)]
    assert check.main([str(grammar), *made, *documents]) == REFUSED
    said = capsys.readouterr().out
    assert "good.txt: fits i.lark" in said and "bad.txt:1:2" in said and f"allowed here: {name}" in said
    for arguments in ([], documents):
        assert check.main([str(grammar), *arguments]) == REFUSED
        said = capsys.readouterr().out
        assert "error[unknown_token]: it names a token" in said and "--tokenizer MODEL" in said
        assert "i.lark:1:12" in said and "the tokenizer has no" not in said


def test_a_structural_tag_in_a_json_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {"type": "string"}}}
    path = tmp_path / "g.json"
    path.write_text(json.dumps(tag))
    (tmp_path / "answer.json").write_text('{"name": "Ada", "age": 36}')
    assert check.main([str(path)]) == REFUSED
    said = capsys.readouterr().out
    assert "--kind structural_tag" in said and "warning" not in said
    assert check.main([str(path), "--kind", "structural_tag"]) == 0
    capsys.readouterr()
    status, found = verdicts(capsys, str(tmp_path))
    assert status == 0 and {name: row["kind"] for name, row in found.items()} == {"g.json": "structural_tag"}


@pytest.mark.parametrize("wrapper", [
    {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "string"}}},
    {"type": "json_schema", "schema": {"type": "string"}}, {"name": "a", "schema": {"type": "string"}},
])  # fmt: skip
def test_a_wrapper_is_refused_without_guesses(wrapper: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w.json").write_text(json.dumps(wrapper))
    assert check.main([str(tmp_path / "w.json")]) == REFUSED
    said = capsys.readouterr().out
    assert "pass what is under" in said and "did you mean" not in said and "warning" not in said


def test_only_the_empty_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hex.ebnf"
    for text, is_empty in (("root ::= #x41", True), ('root ::= "A" #x41', False), ('root ::= "" | "A"', False)):
        path.write_text(text)
        assert check.main([str(path)]) == 0
        said = capsys.readouterr().out
        assert ("only the empty text is left" in said) == is_empty and "1 tokens" not in said and "1 bytes" not in said
        assert not is_empty or "1 token, the end token, 0 bytes" in said
