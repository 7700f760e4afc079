"""From vLLM's structured-output parameters to a `Specification`, the form everything behind them speaks."""

from __future__ import annotations

from typing import Any

from dotllm.compilation.specification import Kind, OptionValue, Specification
from dotllm.errors import InvalidSpec

# Names of vLLM's ``StructuredOutputOptions`` members.
_KINDS = {
    "JSON": Kind.JSON_SCHEMA,
    "JSON_OBJECT": Kind.JSON_OBJECT,
    "REGEX": Kind.REGEX,
    "CHOICE": Kind.CHOICE,
    "GRAMMAR": Kind.GRAMMAR,
    "STRUCTURAL_TAG": Kind.STRUCTURAL_TAG,
}
_JSON_KINDS = (Kind.JSON_SCHEMA, Kind.JSON_OBJECT)


def of_params(params: Any, config: Any) -> Specification:
    """The specification in a ``StructuredOutputsParams``; ``config`` is the server's ``StructuredOutputsConfig``.

    Raises:
        InvalidSpec: no or an empty specification, named as the API names it.
    """
    options = _json_options(config, params)
    if params.json is not None:
        _require_text(params.json, "json")
        return Specification.from_value(Kind.JSON_SCHEMA, params.json, options)
    if params.json_object is not None:
        if params.json_object is not True:
            raise InvalidSpec("structured_outputs.json_object must be true if it is set", keyword="json_object")
        return Specification.from_value(Kind.JSON_OBJECT, "", options)
    if params.regex is not None:
        if "\0" in params.regex:
            raise InvalidSpec("structured_outputs.regex contains a NUL character", keyword="regex")
        return Specification.from_value(Kind.REGEX, params.regex)
    if params.choice is not None:
        _require_choices(params.choice)
        return Specification.from_value(Kind.CHOICE, params.choice)
    if params.grammar is not None:
        _require_text(params.grammar, "grammar")
        return Specification.from_value(Kind.GRAMMAR, params.grammar)
    if params.structural_tag is not None:
        _require_text(params.structural_tag, "structural_tag")
        return Specification.from_value(Kind.STRUCTURAL_TAG, params.structural_tag, options)
    raise InvalidSpec("structured_outputs sets none of json, json_object, regex, choice, grammar, structural_tag")


def of_key(request_type: Any, text: str, config: Any) -> Specification:
    """The specification in vLLM's ``(StructuredOutputOptions, text)``; the server's options, no per-request ones."""
    kind = _KINDS[request_type.name]
    return Specification.create(kind, text, _json_options(config) if kind in _JSON_KINDS else None)


def _json_options(config: Any, params: Any = None) -> dict[str, OptionValue]:
    """What decides the text of a JSON document besides its schema; a request's own word goes before the server's."""
    compact = bool(getattr(config, "disable_any_whitespace", False))
    closed = bool(getattr(config, "disable_additional_properties", False))
    pattern = None
    if params is not None:
        compact = compact or bool(params.disable_any_whitespace)
        closed = closed or bool(params.disable_additional_properties)
        pattern = params.whitespace_pattern
    return {
        "disable_any_whitespace": compact,
        "disable_additional_properties": closed,
        "whitespace_pattern": pattern,
    }


def _require_text(value: Any, field: str) -> None:
    if isinstance(value, str) and not value.strip():
        raise InvalidSpec(f"structured_outputs.{field} is an empty string", keyword=field)


def _require_choices(value: Any) -> None:
    if not isinstance(value, list) or not all(isinstance(choice, str) for choice in value):
        raise InvalidSpec("structured_outputs.choice must be a list of strings", keyword="choice")
    if not value:
        raise InvalidSpec("structured_outputs.choice is an empty list: nothing could be answered", keyword="choice")
    try:
        "".join(value).encode()
    except UnicodeEncodeError as error:
        raise InvalidSpec(f"structured_outputs.choice is not Unicode text: {error}", keyword="choice") from None
