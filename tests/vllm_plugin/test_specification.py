"""vLLM's parameters as specifications, and refusals without a compile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dotllm.compilation import Kind, Specification
from dotllm.errors import BudgetExceededError, InvalidSpecError
from dotllm.vllm_plugin import specification as requests

FIELDS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag", "whitespace_pattern")


def params(**fields: Any) -> Any:
    switches = {"disable_any_whitespace": False, "disable_additional_properties": False}
    return SimpleNamespace(**{**dict.fromkeys(FIELDS), **switches, **fields})


def config(**fields: Any) -> Any:
    return SimpleNamespace(**{"disable_any_whitespace": False, "disable_additional_properties": False, **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"json": {"type": "null"}}, Specification(Kind.JSON_SCHEMA, '{"type": "null"}')),
        ({"json": '{"type":"null"}'}, Specification(Kind.JSON_SCHEMA, '{"type":"null"}')),
        ({"json_object": True}, Specification(Kind.JSON_OBJECT, "")),
        ({"regex": "a+"}, Specification(Kind.REGEX, "a+")),
        ({"regex": ""}, Specification(Kind.REGEX, "")),
        ({"choice": ["a", "é"]}, Specification(Kind.CHOICE, '["a", "\\u00e9"]')),
        ({"grammar": 'start: "a"'}, Specification(Kind.GRAMMAR, 'start: "a"')),
        ({"structural_tag": "{}"}, Specification(Kind.STRUCTURAL_TAG, "{}")),
    ],
)
def test_kinds(fields: dict[str, Any], expected: Specification) -> None:
    assert requests.of_params(params(**fields), config()) == expected


def test_options_of_the_request_and_of_the_server() -> None:
    schema = {"json": "{}"}
    spaced = params(**schema, whitespace_pattern=" ?", disable_any_whitespace=True)
    assert dict(requests.of_params(spaced, config()).options) == {"any_whitespace": False, "whitespace_pattern": " ?"}
    server = config(disable_any_whitespace=True, disable_additional_properties=True)
    expected = {"any_whitespace": False, "additional_properties": False}
    assert dict(requests.of_params(params(**schema), server).options) == expected
    assert dict(requests.of_params(params(json_object=True), server).options) == {"any_whitespace": False}
    assert requests.of_params(params(regex="a"), server).options == ()


def sampling(order: Any, **fields: Any) -> Any:
    return SimpleNamespace(structured_outputs=params(**fields), extra_args={requests.ORDER: order})


def test_order_of_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = requests.of_sampling_params(sampling("any", json="{}"), config())
    assert dict(asked.options) == {"order": "any"}
    assert requests.of_sampling_params(sampling("declared", json="{}"), config()).options == ()
    plain = SimpleNamespace(structured_outputs=params(json="{}"), extra_args=None)
    assert requests.of_sampling_params(plain, config()).options == ()
    monkeypatch.setenv("DOTLLM_PROPERTY_ORDER", "any")
    assert dict(requests.of_sampling_params(plain, config()).options) == {"order": "any"}
    assert requests.of_sampling_params(sampling("declared", json="{}"), config()).options == (), "the request decides"
    assert requests.of_params(params(json_object=True), config()).options == ()


def test_further_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    def asking(value: Any, **fields: Any) -> Any:
        return SimpleNamespace(structured_outputs=params(**fields), extra_args={requests.ADDITIONAL: value})

    plain = SimpleNamespace(structured_outputs=params(json="{}"), extra_args=None)
    assert requests.of_sampling_params(plain, config()).options == (), "closed is the default of the engine"
    for fields in ({"json": "{}"}, {"structural_tag": "{}"}):
        asked = requests.of_sampling_params(asking("open", **fields), config())
        assert dict(asked.options) == {"additional_properties": "open"}
    monkeypatch.setenv("DOTLLM_ADDITIONAL_PROPERTIES", "open")
    assert dict(requests.of_sampling_params(plain, config()).options) == {"additional_properties": "open"}
    assert requests.of_sampling_params(asking("closed", json="{}"), config()).options == (), "the request decides"
    assert requests.of_params(params(json_object=True), config()).options == ()
    assert requests.of_params(params(regex="a"), config()).options == ()
    closing = params(json="{}", disable_additional_properties=True)
    for specification in (
        requests.of_params(closing, config()),
        requests.of_params(params(json="{}"), config(disable_additional_properties=True)),
    ):
        assert dict(specification.options) == {"additional_properties": False}, "vLLM's own option is the stronger one"
    for value, fields in (
        ("ajar", {"json": "{}"}),
        (True, {"json": "{}"}),
        ("open", {"regex": "a"}),
        ("open", {"json": "{}", "disable_additional_properties": True}),
    ):
        with pytest.raises(InvalidSpecError, match="dotllm_additional_properties"):
            requests.of_sampling_params(asking(value, **fields), config())


def test_a_source_of_values() -> None:
    def asking(value: Any, **fields: Any) -> Any:
        return SimpleNamespace(structured_outputs=params(**fields), extra_args={requests.SOURCE: value})

    for fields in ({"json": "{}"}, {"structural_tag": "{}"}):
        asked = requests.of_sampling_params(asking("Ship to Oslo", **fields), config())
        assert dict(asked.options) == {"source": "Ship to Oslo"} and asked.is_of_one_text
    for value, fields in (
        ("", {"json": "{}"}),
        (" \n", {"json": "{}"}),
        (["Oslo"], {"json": "{}"}),
        (7, {"json": "{}"}),
        ("\ud800", {"json": "{}"}),
        ("Oslo", {"json_object": True}),
        ("Oslo", {"regex": "a"}),
        ("Oslo", {"choice": ["a"]}),
    ):
        with pytest.raises(InvalidSpecError, match="dotllm_source"):
            requests.of_sampling_params(asking(value, **fields), config())


def test_white_space_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOTLLM_WHITESPACE", "any")
    for fields in ({"json": "{}"}, {"json_object": True}, {"structural_tag": "{}"}):
        assert dict(requests.of_params(params(**fields), config()).options) == {"whitespace": "any"}
    assert requests.of_params(params(regex="a"), config()).options == ()


@pytest.mark.parametrize(
    ("order", "fields"), [("sideways", {"json": "{}"}), (["any"], {"json": "{}"}), ("any", {"regex": "a"})]
)
def test_orders_that_mean_nothing_are_refused(order: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError, match="dotllm_property_order"):
        requests.of_sampling_params(sampling(order, **fields), config())


def test_options_of_ours_that_there_are_not_are_refused() -> None:
    for name in ("dotllm_proprty_order", "dotllm_", "dotllm_order", "dotllm_from_first_token"):
        extra = {requests.ORDER: "any", name: None}
        params_with = SimpleNamespace(structured_outputs=params(json="{}"), extra_args=extra)
        with pytest.raises(InvalidSpecError, match=f"{name!r}; dotllm's fields are 'dotllm_property_order'"):
            requests.of_sampling_params(params_with, config())
    theirs = {"order": 1, "xdotllm_": 1}
    for extra_args in (theirs, None, 7):
        fine = SimpleNamespace(structured_outputs=params(json="{}"), extra_args=extra_args)
        assert requests.of_sampling_params(fine, config()).options == ()


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"regex": "a\0"}, "NUL"),
        ({"json": " "}, "json"),
        ({"grammar": "\n"}, "grammar"),
        ({"structural_tag": ""}, "structural_tag"),
        ({"json_object": False}, "json_object"),
        ({}, "none of"),
        ({"regex": "a", "disable_any_whitespace": True}, "disable_any_whitespace.*no effect.*regex"),
        ({"choice": ["a"], "whitespace_pattern": " "}, "whitespace_pattern.*no effect.*choice"),
        ({"grammar": 'start: "a"', "disable_additional_properties": True}, "disable_additional.*no effect.*grammar"),
        ({"json_object": True, "disable_additional_properties": True}, "no effect.*json_object"),
        ({"regex": "a|\ud800"}, "regex.*ud800.*surrogate"),
        ({"grammar": 'start: "\udc00"'}, "grammar.*surrogate"),
        ({"json": '{"const": "\ud800"}'}, "json.*surrogate"),
        ({"structural_tag": '{"a": "\ud800"}'}, "structural_tag.*surrogate"),
        ({"choice": ["a", "b\ud800"]}, "structured_outputs.choice.*surrogate"),
        ({"json": "{}", "whitespace_pattern": "\ud800"}, "whitespace_pattern.*surrogate"),
    ],
)
def test_refusals(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidSpecError, match=word):
        requests.of_params(params(**fields), config())


def test_a_schema_nested_beyond_pythons_json_writer() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100_000):
        schema = {"items": schema}
    with pytest.raises(BudgetExceededError, match="nested"):
        requests.of_params(params(json=schema), config())
    while schema:  # freed from the outside in, because Python's own clean-up would recurse
        schema = schema.pop("items")


@pytest.mark.parametrize(
    "value", [{"const": object()}, {"const": 10**5000}, {"const": {1, 2}}], ids=["object", "int", "set"]
)
def test_a_schema_that_is_not_json(value: dict[str, Any]) -> None:
    """Offline a schema may hold anything, and Python's JSON writer raises errors of several kinds."""
    with pytest.raises(InvalidSpecError) as refusal:
        requests.of_params(params(json=value), config())
    assert refusal.value.keyword == "json_schema"


@pytest.mark.parametrize("name", ["dotllm_mass", "dotllm_confidence"])
def test_masses_need_a_tier(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for hooks in ("enforce", "enforce,speed,api"):
        monkeypatch.setenv("DOTLLM_HOOKS", hooks)
        with pytest.raises(InvalidSpecError, match=rf"{name} needs the tier extra, which is off here \(DOTLLM_HOOKS\)"):
            requests.refuse_unknown({name: True})
        requests.refuse_unknown({name: False})
    monkeypatch.setenv("DOTLLM_HOOKS", "all")
    requests.refuse_unknown({name: True})


def test_who_may_ask_for_masses_offline() -> None:
    def asking(name: str = "dotllm_mass", logprobs: int | None = None, *, flat: bool = False) -> Any:
        own = {"num_logprobs": logprobs, "flat_logprobs": flat, "extra_args": {name: True}}
        return SimpleNamespace(structured_outputs=params(regex="a"), **own)

    with pytest.raises(InvalidSpecError, match="do not set flat_logprobs"):
        requests.of_sampling_params(asking(logprobs=0, flat=True), config())
    for taken in (asking(), asking(logprobs=0), asking(flat=True)):
        requests.of_sampling_params(taken, config())
    with pytest.raises(InvalidSpecError, match="for chats and completions of a server"):
        requests.of_sampling_params(asking("dotllm_confidence", 0), config())
