"""What counts as a difference, which requests are made from a description, and whether the lists are in order."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.twins import __main__ as twins
from tests.twins import cases, listed
from tests.twins.answers import Answer, between, difference, joined, metric_names, settled

JSON = {"content-type": "application/json", "date": "now"}
STREAM = {"content-type": "text/event-stream; charset=utf-8"}
BODY = {"id": "chatcmpl-0123456789abcdef", "created": 17, "choices": [{"text": "a", "logprob": -1.5, "n": None}]}


def answer(body: object, headers: dict[str, str] = JSON, status: int = 200) -> Answer:
    return Answer(status, headers, body if isinstance(body, str) else json.dumps(body))


def stream(*events: object, end: str = "data: [DONE]\n\n") -> Answer:
    return answer("".join(f"data: {json.dumps(event)}\n\n" for event in events) + end, STREAM)


def delta(text: str, index: int = 0, reason: str | None = None) -> dict[str, object]:
    return {"id": "cmpl-0123456789abcdef", "choices": [{"index": index, "text": text, "finish_reason": reason}]}


def test_identifiers_times_and_the_last_digits_are_no_difference() -> None:
    other = {
        "id": "chatcmpl-fedcba9876543210",
        "created": 99,
        "choices": [{**BODY["choices"][0], "logprob": -1.5000001}],
    }  # type: ignore[dict-item]
    assert not difference(answer(BODY), answer(other, {**JSON, "date": "then", "content-length": "7"}))
    assert settled(["a-0123456789abcdef", "b-0123456789abcdef", "c-11112222333344445"]) == [
        "a-<id 1>", "b-<id 1>", "c-<id 2>",
    ]  # fmt: skip
    assert settled({"created": "no time"}) == {"created": "no time"}


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (answer(BODY, status=400), "status: 200 | 400"),
        (answer(BODY, {**JSON, "x-more": "1"}), 'headers: {} | {"x-more": "1"}'),
        (answer(BODY, {**JSON, "content-type": "text/json"}), "headers.content-type"),
        (answer({**BODY, "id": "cmpl-0123456789abcdef"}), "body.id"),
        (answer({**BODY, "more": None}), 'body: {} | {"more": null}'),
        (answer({"created": 17, **BODY}), "body: ["),  # another order
        (answer({**BODY, "choices": []}), "body.choices.length: 1 | 0"),
        (answer({**BODY, "choices": [{"text": "b", "logprob": -1.5, "n": None}]}), 'body.choices.0.text: "a" | "b"'),
        (answer({**BODY, "choices": [{"text": "a", "logprob": -1.6, "n": None}]}), "body.choices.0.logprob"),
        (answer({**BODY, "choices": [{"text": "a", "logprob": -1.5, "n": 0}]}), "body.choices.0.n: null | 0"),
        (answer("no JSON"), "body: {"),
    ],
)
def test_each_difference_is_found(other: Answer, says: str) -> None:
    assert difference(answer(BODY), other).startswith(says)


def test_whole_numbers_are_not_floats_nor_truths() -> None:
    assert between(1, 1.0, "x") and between(1, True, "x") and not between(float("nan"), float("nan"), "x")


def test_streams_are_compared_event_by_event() -> None:
    plain = stream(delta("ab"), delta("c", reason="stop"))
    assert not difference(plain, stream(delta("ab"), delta("c", reason="stop")))
    later = stream(delta("a"), delta("bc", reason="stop"))
    assert "choices.0.text" in difference(plain, later) and not difference(plain, later, by_event=False)
    for wrong in (
        stream(delta("ab"), delta("d", reason="stop")),
        stream(delta("ab"), delta("c", reason="length")),
        stream(delta("ab"), delta("c", reason="stop"), end=""),
        stream(delta("ab"), delta("c", index=1, reason="stop")),
        stream(delta("ab"), delta("c", reason="stop"), {"usage": 1}),
    ):
        assert difference(plain, wrong) and difference(plain, wrong, by_event=False)


def test_what_depends_on_where_tokens_are_joined_is_no_difference() -> None:
    """Digits may look like an identifier, and some keys only occur in the last event."""
    last = {"index": 0, "text": "5", "stop_reason": None, "token_ids": [5]}
    first = {"index": 0, "text": "012345678", "token_ids": [1, 2]}
    whole = {"index": 0, "text": "0123456785", "token_ids": [1, 2, 5], "stop_reason": None}
    plain, ours = stream({"choices": [first]}, {"choices": [last]}), stream({"choices": [whole]})
    assert not difference(plain, ours, by_event=False)
    assert difference(plain, stream({"choices": [{**whole, "text": "0123"}]}), by_event=False)


def test_joined_events_of_types_keep_their_order() -> None:
    def events(*deltas: str) -> list[object]:
        rows = [{"type": "begin"}, *({"type": "delta", "delta": text} for text in deltas), {"type": "end"}]
        return [
            [["event", row["type"]], ["data", {**row, "sequence_number": number}]] for number, row in enumerate(rows)
        ]

    assert joined(events("ab", "c")) == joined(events("a", "b", "c")) != joined(events("a", "b"))
    assert [data["type"] for data in joined(events("ab", "c"))] == ["begin", "delta", "end"]
    assert joined(events("ab")[::-1]) != joined(events("ab"))


def test_joined_calls_are_those_of_their_index() -> None:
    def call(index: int, **function: str) -> dict[str, object]:
        return {"index": index, "function": function}

    def calls(*events: list[dict[str, object]]) -> list[object]:
        deltas = [{"choices": [{"index": 0, "delta": {"tool_calls": event}}]} for event in events]
        return joined([[["data", delta]] for delta in [*deltas, {"choices": [{"index": 0, "delta": {}}]}]])

    first, args, more = call(0, name="f"), call(0, arguments="{"), call(0, arguments="}")
    whole = calls([call(0, name="f", arguments="{}")])
    assert calls([first], [args], [more]) == calls([first, args], [more]) == calls([first, args, more]) == whole
    assert calls([first], [call(1, arguments="{}")]) != whole != calls([first, args])
    assert calls([first, call(1, name="g")], [call(1, arguments="{}")]) == calls(
        [first], [call(1, name="g", arguments="{}")]
    )


def test_names_of_metrics() -> None:
    text = '# HELP a_total Of a.\n# TYPE a_total counter\na_total{one="1",two="2"} 3.0\n'
    assert metric_names(text) == {"a_total": ["counter", "one", "two"]}
    assert metric_names(text) != metric_names(text.replace("two", "three"))


DESCRIBED = {
    "paths": {"/x": {"post": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/X"}}}}}}},
    "components": {"schemas": {"X": {"anyOf": [{"properties": {"far": {}}}, {"properties": {"n": {}}}]}}},
}  # fmt: skip


def test_variations_of_a_request() -> None:
    asked = [{"name": "x", "path": "/x", "body": {"n": 1, "messages": [{"role": "user"}]}}]
    rows = [*cases.varied(DESCRIBED, asked, 10_000)]
    bodies = [row["body"] for row in rows if "body" in row]
    assert {"messages": [{"role": "user"}]} in bodies and {"n": 1} in bodies  # each field missing
    assert any("far" in body for body in bodies) and {"n": 1, "messages": [{}]} in bodies
    assert {row["text"] for row in rows if row.get("text") and "type" not in row} == {*cases.WRONG_BODIES} - {""}
    assert len([*cases.varied(DESCRIBED, asked, 3)]) == 2 + 3 + len(cases.WRONG_BODIES) + 2
    assert [*cases.varied(DESCRIBED, asked, 3)] == [*cases.varied(DESCRIBED, asked, 3)]  # every run varies the same way
    assert not [*cases.varied(DESCRIBED, [{**asked[0], "varied": False}], 3)]


def test_references_to_earlier_answers() -> None:
    known = {"one": {"tokens": [1, {"id": "x"}]}}
    assert cases.filled({"a": ["${one.tokens}", "/${one.tokens.1.id}/"]}, known) == {"a": [[1, {"id": "x"}], "/x/"]}


@pytest.mark.parametrize("file", sorted(cases.FOLDER.glob("*.jsonl")), ids=lambda file: file.stem)
def test_cases_have_names_of_their_own(file: object) -> None:
    rows = cases.of_file(file.stem)  # type: ignore[attr-defined]
    assert rows and len({row["name"] for row in rows}) == len(rows)


def test_a_listed_difference_says_what_and_why() -> None:
    assert all(entry["what"] and len(entry["reason"]) > 20 for entry in listed.ENTRIES)
    for entry in listed.ENTRIES:  # no entry may explain a lost answer, or an error of our server
        for bad in ("status: 200 | 500", "status: 200 | 0 ReadTimeout", "status: 200 | 400 no"):
            assert not re.match(entry["what"], bad)


class Said:
    """A server that returns these texts, one after another."""

    def __init__(self, *texts: str) -> None:
        self.texts = [*texts]

    def ask(self, _: object) -> Answer:
        return answer({"error": self.texts.pop(0)}, status=400)


@pytest.mark.parametrize(
    ("plain", "ours", "tries"),
    [("aaaaa", "aaaaa", 1), ("abcde", "czzzz", 3), ("abcde", "zzazz", 3), ("abcde", "zzzzz", 5), ("aaaaa", "zzzzz", 5)],
)
def test_what_plain_says_by_chance_is_no_difference(plain: str, ours: str, tries: int) -> None:
    row = twins.compare((Said(*plain), Said(*ours)), {"name": "x", "path": "/x"})  # type: ignore[arg-type]
    assert row.tries == tries and bool(row.what) == (ours == "z" * 5)
    once = twins.compare((Said(*plain), Said(*ours)), {"name": "x", "path": "/x", "varied": False})  # type: ignore[arg-type]
    assert once.tries == 1 and bool(once.what) == (plain[0] != ours[0])


def test_operations_that_never_succeed_are_told() -> None:
    asked = {"GET /a": 200, "GET /a?x=1": 400, "POST /a?x=1": 500, "POST /b": 400, "GET /c": 0}
    rows = [twins.Row("x", "", 1, status) for status in asked.values()]
    assert twins.failing([*asked], rows) == ["GET /c", "POST /a", "POST /b"]
    row = twins.compare((Said("a"), Said("a")), {"name": "x", "path": "/x"})  # type: ignore[arg-type]
    assert row.status == 400


def test_a_run_of_some_kinds_keeps_the_rest_of_the_table() -> None:
    before = {"vllm": "0.1", "kinds": {"a": {"same": 1}, "b": {"same": 2}}, "front end": {"0.1": {"requests": 3}}}
    kept = twins.written(before, {"b": {"same": 9}})
    assert kept["kinds"] == {"a": {"same": 1}, "b": {"same": 9}} and kept["front end"] == before["front end"]


def test_the_import_changes_nothing_of_this_process() -> None:
    """Once imported, the plain command line would turn off our plugin for every later server of these tests."""
    code = "import os, importlib.metadata as m; f = m.version; import tests.twins.front_end; " + (
        "print(m.version is f, 'VLLM_PLUGINS' in os.environ)"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["True", "False"]
