"""Questions with known answers: how they are asked, read, judged and counted. No server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dotllm.bench.quality.asking import ARMS, first_json
from dotllm.bench.quality.cases import Call, Case, Function, closed

pytest.importorskip("aiohttp")
pytest.importorskip("rich")

from dotllm.bench.quality import asking, bfcl, extractions, figures
from dotllm.cli import bench_quality
from tests.cases import few

BFCL = (Path(__file__).parents[2] / "requirements" / "quality.txt").read_text().splitlines()[-1]
ADD = Function("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
NAME = Function("name", "Names.", {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]})


def case(shape: Any = "arguments", functions: tuple[Function, ...] = (ADD,), **more: Any) -> Case:
    return Case("1", "ours", [{"role": "user", "content": "?"}], functions, shape, judge_one, **more)


def judge_one(calls: Any) -> str:
    return "" if list(calls) == [Call("add", {"a": 1})] else "other"


@pytest.fixture(scope="session")
def bfcl_installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("bfcl")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, BFCL]
    pip = subprocess.run(command, capture_output=True, text=True, check=False)
    if pip.returncode:
        pytest.skip(f"pip could not fetch {BFCL}: {pip.stderr[-200:]}")
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


# How a case is asked


@pytest.mark.parametrize("name", ARMS)
@pytest.mark.parametrize("shape", ["arguments", "call", "calls"])
def test_arms_differ_in_what_they_say_they_do(name: str, shape: Any) -> None:
    asked, arm = case(shape, (ADD,) if shape == "arguments" else (ADD, NAME)), ARMS[name]
    body = arm.constrain(asked)
    assert (body == {}) is (arm.constraint == "")
    system = arm.messages(asked)[0]["content"]
    assert ("JSON Schema" in system) is ("prompted" in name) and '"name": "add"' in system
    if arm.constraint == "json_schema":
        schema = body["response_format"]["json_schema"]["schema"]
        jsonschema.Draft202012Validator.check_schema(schema)
        right = {"arguments": {"a": 1}, "call": {"name": "add", "arguments": {"a": 1}}}
        right["calls"] = [right["call"]]
        assert jsonschema.Draft202012Validator(schema).is_valid(right[shape])
        assert not jsonschema.Draft202012Validator(schema).is_valid({"name": "add", "arguments": {"a": "1"}})
        assert asked.calls(right[shape]) == [Call("add", {"a": 1})]
    elif arm.constraint:
        assert [t["function"].get("strict") for t in body["tools"]] == [arm.strict] * len(asked.functions)
        named = {"type": "function", "function": {"name": "add"}}
        assert body["tool_choice"] == ("auto" if "auto" in name else named if shape == "arguments" else "required")


def test_a_system_message_of_the_case_stays() -> None:
    asked = Case(
        "1",
        "s",
        [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "?"}],
        [ADD],
        "arguments",
        judge_one,
    )
    messages = ARMS["free"].messages(asked)
    assert [m["role"] for m in messages] == ["system", "user"] and messages[0]["content"].endswith("Be kind.")


@pytest.mark.parametrize(
    ("text", "shape", "found"),
    [
        ('{"a": 1}', "arguments", {"a": 1}),
        ('Here:\n```json\n{"a": 1}\n```\nThat is {it}.', "arguments", {"a": 1}),
        ('{no} {"a": {"b": 2}} {"a": 3}', "arguments", {"a": {"b": 2}}),
        ('The calls: [{"name": "x"}]', "calls", [{"name": "x"}]),
        ('{"a": 1', "arguments", None),
        ("", "arguments", None),
    ],
)
def test_free_answers_are_read_kindly(text: str, shape: str, found: Any) -> None:
    if found is None:
        with pytest.raises(ValueError, match="no JSON"):
            first_json(text, shape)
    else:
        assert first_json(text, shape) == found


def test_answers_are_read() -> None:
    one = case()
    assert ARMS["json_schema"].read(one, {"content": '{"a": 1}'}) == [Call("add", {"a": 1})]
    assert ARMS["json_schema"].read(one, {"content": 'x {"a": 1}'}) is None
    assert ARMS["free"].read(one, {"content": 'x {"a": 1}'}) == [Call("add", {"a": 1})]
    call = {"function": {"name": "add", "arguments": '{"a": 1}'}}
    assert ARMS["tools"].read(one, {"tool_calls": [call]}) == [Call("add", {"a": 1})]
    assert ARMS["tools"].read(one, {"content": '{"a": 1}'}) is None
    assert ARMS["tools"].read(one, {"tool_calls": [{"function": {"name": "add", "arguments": '{"a'}}]}) is None
    assert ARMS["free"].read(case("calls"), {"content": '[{"name": "add"}]'}) is None
    nothing = case(wants_call=False)
    assert ARMS["free"].read(nothing, {"content": "No."}) == [] and ARMS["auto"].read(nothing, {}) == []
    assert [name for name, arm in ARMS.items() if arm.fits(nothing)] == ["free", "prompted", "auto", "strict auto"]


def test_closing_leaves_what_is_said() -> None:
    inner = {"type": "object", "properties": {}, "additionalProperties": True}
    open_one = case(
        functions=(Function("f", "", {"type": "object", "properties": {"x": inner, "m": {"type": "object"}}}),)
    )
    parameters = closed(open_one).functions[0].parameters
    assert parameters["additionalProperties"] is False
    assert parameters["properties"] == {"x": inner, "m": {"type": "object"}}


# Cases and judges


def test_extractions_are_many_valid_and_the_same_each_time() -> None:
    made = list(extractions.cases())
    assert len({c.question[0]["content"] for c in made}) == len(made) == 240
    assert [c.question for c in made] == [c.question for c in extractions.cases()]
    assert [c.question for c in made] != [c.question for c in extractions.cases(seed=1)]
    for one in made:
        facts = one.judge.args[0]  # type: ignore[attr-defined]
        right = [Call(one.functions[0].name, facts)]
        assert one.judge(right) == "" and one.valid(right)
        jsonschema.Draft202012Validator.check_schema(one.schema())
        for key in facts:  # only the facts are right
            assert one.judge([Call("", {k: v for k, v in facts.items() if k != key})]) == "a key is missing"
            assert one.judge([Call("", facts | {key: None})]) != ""


@pytest.mark.parametrize(
    ("right", "given", "fault"),
    [
        ({"a": "Mill Lane"}, {"a": " the  mill lane."}, ""),
        ({"a": 3.0}, {"a": 3}, ""),
        ({"a": 3}, {"a": True}, "value: boolean"),
        ({"a": 3}, {"a": "3"}, "value: number"),
        ({"a": "x"}, {"a": 3}, "type"),
        ({"a": "2027-01-02"}, {"a": "2027-02-01"}, "value: date"),
        ({"a": [1, 2]}, {"a": [2, 1]}, "value: number"),
        ({"a": [1, 2]}, {"a": [1]}, "length of a list"),
        ({"a": [{"b": True}]}, {"a": [{"b": False}]}, "value: boolean"),
        ({"a": 1}, {"a": 1, "b": 2}, "a key was invented"),
        ({"a": 1}, [1], "type"),
    ],
)
def test_differences_have_a_class(right: Any, given: Any, fault: str) -> None:
    assert extractions.difference(right, given) == fault


@pytest.mark.parametrize("name", [name for name in bfcl.SETS if name not in bfcl.NO_ANSWERS])
def test_bfcls_judge_takes_bfcls_answers_and_no_others(name: str, bfcl_installed: None) -> None:
    found = list(islice(bfcl.cases(name), few(120)))
    faults = [one.judge(answer(one)) for one in found]
    assert faults.count("") >= 0.98 * len(found)  # some of its answers break its own descriptions
    for one, fault in zip(found, faults, strict=True):
        jsonschema.Draft202012Validator.check_schema(one.schema())
        assert one.judge([]) and one.judge([Call("no such function", {})] * len(one.judge.answers))  # type: ignore[attr-defined]
        if not fault:
            right = answer(one)
            assert one.judge([*right[:-1], Call(right[-1].name, right[-1].arguments | {"no such key": 1})])


def answer(one: Case) -> list[Call]:
    """The first of the possible answers."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: values[0] for key, values in value.items() if values[0] != ""}
        return [plain(part) for part in value] if isinstance(value, list) else value

    calls = []
    for possible in one.judge.answers:  # type: ignore[attr-defined]
        ((name, arguments),) = possible.items()
        chosen = {key: plain(values[0]) for key, values in arguments.items() if values and values[0] != ""}
        calls.append(Call(name.replace(".", "_"), chosen))
    return calls


def test_where_nothing_is_to_be_called_a_call_is_wrong(bfcl_installed: None) -> None:
    one = next(bfcl.cases("irrelevance"))
    assert one.judge([]) == "" and one.judge([Call(one.functions[0].name, {})]) == "a call"


def test_types_are_json_schemas() -> None:
    given = {"type": "dict", "properties": {"type": {"type": "tuple", "items": {"type": "float"}}}}
    assert bfcl.translate(given) == {
        "type": "object",
        "properties": {"type": {"type": "array", "items": {"type": "number"}}},
    }


# Counting


def record(name: str, right: bool, arm: str = "a", **more: Any) -> dict[str, Any]:
    return asking.Answer(name, "s", arm, right=right, **more).record()


def test_counts_and_classes() -> None:
    rows = [
        record("1", True, parsed=True, valid=True, tokens=5),
        record("2", False, parsed=True, valid=True, fault="value"),
        record("3", False, parsed=True, fault="value"),
        record("4", False, cut=True, tokens=7),
        record("5", False, refused=True, fault="HTTP 400: no"),
        record("6", False, fault="TimeoutError: "),
    ]
    assert figures.counts(rows) == {
        "cases": 6, "right": 1, "parsed": 3, "valid": 2, "valid_but_wrong": 1, "classes": {"value": 1}, "cut": 1,
        "refused": 1, "failed": 1, "tokens": 12, "seconds": 0.0,
    }  # fmt: skip


def test_pairs_are_of_the_same_case() -> None:
    these = [record(str(n), n % 2 == 0) for n in range(100)]
    those = [record(str(n), n % 4 == 0) for n in range(50, 150)]
    found = figures.paired(these, those)
    assert found is not None
    assert (found["cases"], found["right"], found["right_there"], found["won"], found["lost"]) == (50, 25, 12, 13, 0)
    low, high = found["interval"]
    assert 5 <= low <= 8 and 18 <= high <= 21  # 13 ± 1.96 √(50 · 0.26 · 0.74)
    assert figures.paired(these, [record("x", True)]) is None
    same = figures.paired(these, these)
    assert same is not None and same["interval"] == [0, 0]


# A run


class Handler(BaseHTTPRequestHandler):
    bodies: list[dict[str, Any]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.bodies.append(body)
        status, message = 200, {"role": "assistant", "content": "I do not know."}
        if "response_format" in body:
            message["content"] = '{"a": 1}'
        if "tools" in body:
            status = 400
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        text = json.dumps({"choices": [choice], "usage": {"completion_tokens": 4}}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    Handler.bodies.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_run(url: str) -> None:
    asker = asking.Asker(url, "m", key="k", max_tokens=9, extra={"vllm_xargs": {"x": 1}})
    arms = {name: ARMS[name] for name in ("free", "json_schema", "tools", "think")}
    answers = asyncio.run(asker.ask_all([case()], arms, 4))
    by_arm = {a.arm: a for a in answers}
    assert by_arm["json_schema"].right and by_arm["json_schema"].tokens == 4 and by_arm["think"].tokens == 8
    assert by_arm["tools"].refused and by_arm["tools"].fault.startswith("HTTP 400")
    assert not by_arm["free"].parsed and not by_arm["free"].fault
    assert all(b["temperature"] == 0 and b["max_tokens"] == 9 and b["vllm_xargs"] == {"x": 1} for b in Handler.bodies)
    thought = [b for b in Handler.bodies if len(b["messages"]) == 4]
    assert len(thought) == 1 and thought[0]["messages"][2]["content"] == "I do not know."


def test_the_command(url: str, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run.json"
    command = ["--url", url, "--model", "m", "--sets", "extractions", "--cases", "6", "--arms", "free,json_schema"]
    assert bench_quality.main([*command, "--out", str(out)]) == 0
    run = json.loads(out.read_text())
    assert len(run["answers"]) == 12 and {row["arm"]: row["right"] for row in run["summary"]} == {
        "free": 0,
        "json_schema": 0,
    }
    assert bench_quality.main(["--compare", str(out), str(out)]) == 0
    assert "run against run" in capsys.readouterr().out
    assert bench_quality.main([*command[:4], "--sets", "nothing"]) == 2
    assert bench_quality.main([*command, "--arms", "nothing"]) == 2
    assert "no arm is called 'nothing'" in capsys.readouterr().err


def test_bfcl_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(bfcl.importlib.util, "find_spec", lambda name: None)
    assert bench_quality.main(["--url", "http://127.0.0.1:1", "--sets", "multiple"]) == 2
    assert BFCL in capsys.readouterr().err
