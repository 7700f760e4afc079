"""From vLLM's structured-output parameters to a `Specification`, the form everything behind them speaks."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from dotllm.compilation.specification import Kind, OptionValue, Specification
from dotllm.errors import BudgetExceeded, InvalidSpec, SpecError
from dotllm.vllm_plugin.settings import PROPERTY_ORDERS, property_order

# Names of vLLM's ``StructuredOutputOptions`` members.
_KINDS = {
    "JSON": Kind.JSON_SCHEMA,
    "JSON_OBJECT": Kind.JSON_OBJECT,
    "REGEX": Kind.REGEX,
    "CHOICE": Kind.CHOICE,
    "GRAMMAR": Kind.GRAMMAR,
    "STRUCTURAL_TAG": Kind.STRUCTURAL_TAG,
}
_JSON_OPTIONS = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")


ORDER = "dotllm_property_order"
"""Our one field of a request: in ``SamplingParams.extra_args``, which is ``vllm_xargs`` in the API."""


def refuse_unknown(extra_args: Any) -> None:
    """Refuse fields of ``extra_args`` (``vllm_xargs``) that are named as if they were ours.

    Raises:
        InvalidSpec: there is one; the message names those that are.
    """
    for name in extra_args if isinstance(extra_args, dict) else ():
        if isinstance(name, str) and name.startswith("dotllm_") and name != ORDER:
            raise InvalidSpec(f"vllm_xargs has no field {name!r}; there is {ORDER!r}", keyword=ORDER)


def refuse_half_characters(fields: dict[str, Any]) -> None:
    """Refuse JSON values with a string that has no UTF-8 form, by their names: they cannot go to the engine.

    Raises:
        InvalidSpec: JSON's "\\ud800" arrives as half of a surrogate pair, and one of them has it.
    """
    for name, value in fields.items():
        if value:
            with contextlib.suppress(RecursionError):  # it is nested too deeply, which vLLM finds out, too
                _require_unicode(json.dumps(value, ensure_ascii=False, default=str), name)


def of_sampling_params(params: Any, config: Any) -> Specification:
    """The specification in a ``SamplingParams`` that has one. Raises as `of_params` and `refuse_unknown`."""
    extra = getattr(params, "extra_args", None)
    refuse_unknown(extra)
    return of_params(params.structured_outputs, config, extra.get(ORDER) if isinstance(extra, dict) else None)


def of_params(params: Any, config: Any, order: Any = None) -> Specification:
    """The specification in a ``StructuredOutputsParams``; ``config`` is the server's ``StructuredOutputsConfig``.

    ``order``: the request's `ORDER`, if it has one.

    Raises:
        InvalidSpec: no or an empty specification, or an option that would have no effect, named as the API names it.
    """
    if params.whitespace_pattern is not None:
        _require_unicode(params.whitespace_pattern, "structured_outputs.whitespace_pattern")
    if order is not None:
        _check_order(params, order)
    if params.json is not None:
        _require_text(params.json, "json")
        return _specification(Kind.JSON_SCHEMA, params.json, _json_options(Kind.JSON_SCHEMA, config, params, order))
    if params.json_object is not None:
        if params.json_object is not True:
            raise InvalidSpec("structured_outputs.json_object must be true if it is set", keyword="json_object")
        _refuse_options(params, "json_object", ("disable_additional_properties",))
        return _specification(Kind.JSON_OBJECT, "", _json_options(Kind.JSON_OBJECT, config, params))
    if params.regex is not None:
        if "\0" in params.regex:
            raise InvalidSpec("structured_outputs.regex contains a NUL character", keyword="regex")
        _require_unicode(params.regex, "structured_outputs.regex")
        _refuse_options(params, "regex")
        return _specification(Kind.REGEX, params.regex)
    if params.choice is not None:
        for one in params.choice:
            if isinstance(one, str):
                _require_unicode(one, "structured_outputs.choice")
        _refuse_options(params, "choice")
        return _specification(Kind.CHOICE, params.choice)
    if params.grammar is not None:
        _require_text(params.grammar, "grammar")
        _refuse_options(params, "grammar")
        return _specification(Kind.GRAMMAR, params.grammar)
    if params.structural_tag is not None:
        _require_text(params.structural_tag, "structural_tag")
        return _specification(
            Kind.STRUCTURAL_TAG, params.structural_tag, _json_options(Kind.STRUCTURAL_TAG, config, params, order)
        )
    raise InvalidSpec("structured_outputs sets none of json, json_object, regex, choice, grammar, structural_tag")


def json_text(schema: Any) -> str:
    """A schema as text, written as `Specification.from_value` does. Raises `SpecError`."""
    try:
        return json.dumps(schema)
    except (RecursionError, TypeError, ValueError) as error:
        raise _not_json(Kind.JSON_SCHEMA, error) from None


def _not_json(kind: Kind, error: Exception) -> SpecError:
    """What `json.dumps` cannot write: it is neither iterative nor capped, and offline a value may be any object."""
    if isinstance(error, RecursionError):
        return BudgetExceeded(f"structured_outputs.{kind.value} is nested too deeply", keyword="nesting")
    return InvalidSpec(f"structured_outputs.{kind.value} is not JSON: {error}", keyword=kind.value)


def _specification(kind: Kind, value: Any, options: dict[str, OptionValue] | None = None) -> Specification:
    try:
        return Specification.from_value(kind, value, options)
    except (RecursionError, TypeError, ValueError) as error:
        raise _not_json(kind, error) from None


def of_key(request_type: Any, text: str, config: Any) -> Specification:
    """The specification in vLLM's ``(StructuredOutputOptions, text)``; the server's options, no per-request ones."""
    kind = _KINDS[request_type.name]
    return Specification.create(kind, text, _json_options(kind, config))


def _json_options(kind: Kind, config: Any, params: Any = None, order: Any = None) -> dict[str, OptionValue]:
    """What decides the text of a JSON document besides its schema, as `Index.from_json_schema` names it."""
    options: dict[str, OptionValue] = {}
    if kind not in (Kind.JSON_SCHEMA, Kind.JSON_OBJECT, Kind.STRUCTURAL_TAG):
        return options
    if _either(config, params, "disable_any_whitespace"):
        options["any_whitespace"] = False
    if kind is not Kind.JSON_OBJECT and _either(config, params, "disable_additional_properties"):
        options["additional_properties"] = False
    if params is not None and params.whitespace_pattern is not None:
        options["whitespace_pattern"] = params.whitespace_pattern
    order = order or property_order()
    if kind is not Kind.JSON_OBJECT and order != PROPERTY_ORDERS[0]:
        options["order"] = order
    return options


def _check_order(params: Any, order: Any) -> None:
    if order not in PROPERTY_ORDERS:
        raise InvalidSpec(f"{ORDER} must be one of {', '.join(PROPERTY_ORDERS)}, not {order!r}", keyword=ORDER)
    if params.json is None and params.structural_tag is None:
        raise InvalidSpec(f"{ORDER} has an effect on a JSON Schema or a structural tag only", keyword=ORDER)


def _refuse_options(params: Any, field: str, options: tuple[str, ...] = _JSON_OPTIONS) -> None:
    """A request that sets an option expects an effect; for ``field`` these have none."""
    for option in options:
        if getattr(params, option):
            raise InvalidSpec(
                f"structured_outputs.{option} says how JSON is written and has no effect on structured_outputs.{field}",
                keyword=option,
            )


def _either(config: Any, params: Any, field: str) -> bool:
    """Whether the server or the request asks for ``field``."""
    return bool(getattr(config, field, False)) or bool(getattr(params, field, False))


def _require_text(value: Any, field: str) -> None:
    if not isinstance(value, str):
        return
    if not value.strip():
        raise InvalidSpec(f"structured_outputs.{field} is an empty string", keyword=field)
    _require_unicode(value, f"structured_outputs.{field}")


def _require_unicode(text: str, name: str) -> None:
    """Refuse a text that has no UTF-8 form."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = ascii(text[error.start])
            raise InvalidSpec(
                f"{name} contains {half}, half of a surrogate pair, which is no Unicode text",
                keyword=name.rpartition(".")[2],
            ) from None
