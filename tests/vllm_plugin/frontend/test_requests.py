"""``dotllm check --requests`` predicts a server's answer to a logged request."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.cli import check, requests
from dotllm.cli.requests import CHAT, COMPLETION, ENFORCED, INVALID, MESSAGES, REFUSED, RESPONSES, UNCONSTRAINED, Judge
from tests.client_bodies import BODIES

SAY = [{"role": "user", "content": "Go."}]


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": SAY, **fields}


def tool(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": schema, **fields}}


def grammar_tool(definition: str) -> dict[str, Any]:
    return {"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "lark", "definition": definition}}


WRONG = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}
CASES: list[tuple[str, Any, str, str]] = [
    (CHAT, chat(), UNCONSTRAINED, ""),
    (CHAT, chat(structured_outputs={"regex": "a+"}), ENFORCED, ""),
    (CHAT, chat(structured_outputs={"regex": "(a"}), REFUSED, "syntax"),
    (CHAT, chat(structured_outputs={"grammar": "start: x"}), REFUSED, "unknown_rule"),
    (CHAT, chat(guided_json={"type": "string"}), REFUSED, "unknown_field"),
    (CHAT, chat(response_format={"type": "json_object"}), ENFORCED, ""),
    (CHAT, chat(tools=[tool(WRONG, strict=True)]), REFUSED, "unknown_reference"),
    (CHAT, chat(tools=[tool(WRONG)]), UNCONSTRAINED, ""),
    (CHAT, chat(tools=[tool(WRONG, strict=True)], tool_choice="none"), UNCONSTRAINED, ""),
    (CHAT, chat(tools=[tool({"type": "object"}, strict=True)]), ENFORCED, ""),
    (CHAT, {"model": "m"}, INVALID, ""),
    (CHAT, [], INVALID, ""),
    (COMPLETION, {"model": "m", "prompt": "a", "structured_outputs": {"choice": ["a"]}}, ENFORCED, ""),
    (RESPONSES, {"model": "m", "input": "a", "tools": [grammar_tool('start: "a"')]}, ENFORCED, ""),
    (RESPONSES, {"model": "m", "input": "a", "tools": [grammar_tool("start: a")]}, REFUSED, "unknown_rule"),
    (RESPONSES, {"model": "m", "input": "a", "tools": [grammar_tool("start: <[1]>")]}, REFUSED, "unsupported"),
    (MESSAGES, {"max_tokens": 9, **chat(output_config={"format": {"schema": WRONG, "type": "json_schema"}})}, REFUSED,
     "unknown_reference"),
]  # fmt: skip


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge({})


@pytest.mark.parametrize(("path", "body", "outcome", "code"), CASES)
def test_an_outcome(path: str, body: Any, outcome: str, code: str, judge: Judge) -> None:
    (found,) = requests.judged([json.dumps({"path": path, "body": body})], judge, "log")
    assert (found.outcome, found.code, found.path) == (outcome, code, path if isinstance(body, dict) else "")
    (batch,) = requests.judged([json.dumps({"custom_id": "1", "url": path, "body": body})], judge, "log")
    assert batch == found


def test_a_body_alone_is_enough(judge: Judge) -> None:
    for path, body, outcome, _ in CASES:
        if isinstance(body, dict) and outcome != INVALID:
            (found,) = requests.judged([json.dumps(body)], judge, "log")
            assert (found.path, found.outcome) == (path, outcome)


def test_lines_that_hold_no_request(judge: Judge) -> None:
    found = [*requests.judged(["{", "", "[" * 100_000, "3", '{"path": "/v1/embeddings", "body": {}}'], judge, "log")]
    assert [one.outcome for one in found] == [INVALID, INVALID, INVALID, UNCONSTRAINED]
    assert [one.name for one in found] == ["log:1", "log:3", "log:4", "log:5"]


def test_it_says_what_the_server_answers(judge: Judge, played: Any) -> None:
    """The command predicts every 400 that dotllm causes, except those that depend on the number of tokens."""
    refused = 0
    for i, row in enumerate(BODIES):
        if row["path"] not in requests.PATHS:
            continue
        body = {**row["body"], "model": "played", "stream": False}
        found = judge.judge("", row["path"], body)
        if i % 25 and found.outcome != REFUSED:
            continue
        answer = played.post(row["path"], body)
        code = "" if answer.status == 200 else str(answer.error.get("code") or answer.error.get("reason") or "")
        if "too_few_tokens" in code:
            continue
        said = code.removeprefix("dotllm.") if code.startswith("dotllm.") else ""
        assert found.outcome == REFUSED or not said, (row, found, answer.body)
        assert said == found.code, (row, found, answer.body)
        refused += bool(said)
    assert refused


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"path": path, "body": body}) for path, body, *_ in CASES))
    assert check.main(["--requests", str(log)]) == check.REFUSED
    text = capsys.readouterr().out
    assert (
        f"of {len(CASES)} refused (unknown_rule)" in text and "log.jsonl:3: /v1/chat/completions: error[syntax]" in text
    )
    assert check.main(["--requests", str(log), "--json"]) == check.REFUSED
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["outcome"], line["code"]) for line in lines] == [(outcome, code) for *_, outcome, code in CASES]
    log.write_text(json.dumps(chat(structured_outputs={"regex": "a"})))
    assert check.main(["--requests", str(log)]) == check.ENFORCED
    assert check.main(["--requests", str(tmp_path / "none.jsonl")]) == check.WRONG


def test_standard_input_and_the_tokens_of_a_tokenizer(
    demo_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grammars = [f"start: {name}" for name in ("<|im_start|>", "<|none|>")]
    lines = "\n".join(json.dumps(chat(structured_outputs={"grammar": grammar})) for grammar in grammars)
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert check.main(["--requests", "-", "--json", "--tokenizer", str(demo_model)]) == check.REFUSED
    outcomes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [outcome["outcome"] for outcome in outcomes] == [ENFORCED, REFUSED]
    assert outcomes[1]["code"] == "unknown_token"


def test_a_check_that_takes_too_long(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_MOST_SECONDS", 0.0)
    schema = {"type": "object", "properties": {f"p{i}": {"pattern": f"^a{{{i}}}b"} for i in range(3000)}}
    found = judge.judge("", CHAT, chat(structured_outputs={"json": schema}))
    assert (found.outcome, found.code) == (REFUSED, "too_slow")


def test_the_output_is_flushed_line_by_line(judge: Judge) -> None:
    """A preview waits for every line."""
    out = io.StringIO()
    lines = iter([json.dumps(chat())])

    def all_lines() -> Any:
        yield next(lines)
        assert json.loads(out.getvalue())["outcome"] == UNCONSTRAINED

    requests.run(all_lines(), judge, "log", as_json=True, out=out)
