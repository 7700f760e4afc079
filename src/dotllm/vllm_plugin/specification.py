"""From vLLM's structured-output parameters to a `Specification`, the form everything behind them speaks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Protocol

from dotllm.compilation.specification import Kind, OptionValue, Specification
from dotllm.errors import BudgetExceededError, InvalidSpecError
from dotllm.languages.surrogates import HALF, is_unicode
from dotllm.vllm_plugin import settings
from dotllm.vllm_plugin.settings import PROPERTY_ORDERS, WHITESPACE, property_order, whitespace
from dotllm.vllm_plugin.vllm_types import SamplingParams, StructuredOutputsConfig, StructuredOutputsParams

KINDS = {
    "json": Kind.JSON_SCHEMA,
    "json_object": Kind.JSON_OBJECT,
    "regex": Kind.REGEX,
    "choice": Kind.CHOICE,
    "grammar": Kind.GRAMMAR,
    "structural_tag": Kind.STRUCTURAL_TAG,
}
"""By the fields of ``StructuredOutputsParams``, of which one is set."""

OPTIONS = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")
"""Fields that say how JSON is written."""
_EFFECTIVE = {
    Kind.JSON_SCHEMA: OPTIONS,
    Kind.JSON_OBJECT: ("disable_any_whitespace", "whitespace_pattern"),
    Kind.STRUCTURAL_TAG: OPTIONS,
}
_WITH_PROPERTIES = (Kind.JSON_SCHEMA, Kind.STRUCTURAL_TAG)

ORDER, FINISH, ANSWER_TOKENS = OURS = ("dotllm_property_order", "dotllm_finish", "dotllm_answer_tokens")
"""Our fields of a request: in ``SamplingParams.extra_args``, which is ``vllm_xargs`` in the API."""


class ConstrainedParams(SamplingParams, Protocol):
    """``SamplingParams`` that have a constraint."""

    structured_outputs: StructuredOutputsParams


def refuse_unknown(extra_args: object) -> None:
    """Refuse fields of ``extra_args`` (``vllm_xargs``) that are named as if they were ours. Raises InvalidSpecError,
    which names those that are."""
    for name in extra_args if isinstance(extra_args, dict) else ():
        if isinstance(name, str) and name.startswith("dotllm_") and name not in OURS:
            message = f"vllm_xargs has no field {name!r}; there is {', '.join(map(repr, OURS))}"
            raise InvalidSpecError(message, keyword=name, code="unknown_field")


def answer_tokens(params: SamplingParams) -> int | None:
    """Of a request whose answer is to end within its max_tokens, by how many tokens this may be longer than the
    shortest one behind a reasoning; None of any other request (so if EOS does not end it). Raises InvalidSpecError."""
    fields = params.extra_args if isinstance(params.extra_args, dict) else {}
    finish, more = fields.get(FINISH), fields.get(ANSWER_TOKENS, 0)
    if finish not in (None, True, False, "true", "false"):
        raise InvalidSpecError(f"{FINISH} must be true or false, not {finish!r}", keyword=FINISH)
    if type(more) is not int or more < 0:
        raise InvalidSpecError(f"{ANSWER_TOKENS} must be a number of tokens, not {more!r}", keyword=ANSWER_TOKENS)
    finishes = settings.finishes() if finish is None else finish in (True, "true")
    if more and not finishes:
        raise InvalidSpecError(f"{ANSWER_TOKENS} has an effect with {FINISH} only", keyword=ANSWER_TOKENS)
    return more if finishes and not params.ignore_eos else None


def refuse_half_characters(fields: Mapping[str, object]) -> None:
    """Refuse JSON values with a string that has no UTF-8 form, by their names: they cannot go to the engine. Raises
    InvalidSpecError where JSON's "\\ud800" has arrived as half of a surrogate pair."""
    for name, value in fields.items():
        if value:
            with contextlib.suppress(RecursionError):  # it is nested too deeply, which vLLM finds out, too
                _require_unicode(json.dumps(value, ensure_ascii=False, default=str), name)


def of_sampling_params(params: ConstrainedParams, config: StructuredOutputsConfig | None) -> Specification:
    """The specification in a request's parameters. Raises as `of_params`, `refuse_unknown` and `answer_tokens`."""
    refuse_unknown(params.extra_args)
    answer_tokens(params)
    order = params.extra_args.get(ORDER) if isinstance(params.extra_args, dict) else None
    return of_params(params.structured_outputs, config, order)


def of_params(
    params: StructuredOutputsParams, config: StructuredOutputsConfig | None, order: object = None
) -> Specification:
    """The specification in a ``StructuredOutputsParams``. ``config`` is the server's, ``order`` the request's `ORDER`.

    Raises:
        InvalidSpecError: no or an empty specification, or an option that would have no effect, named as the API names
            it.
    """
    field = next((name for name in KINDS if getattr(params, name) is not None), None)
    if field is None:
        raise InvalidSpecError(f"structured_outputs sets none of {', '.join(KINDS)}")
    kind, value, name = KINDS[field], getattr(params, field), f"structured_outputs.{field}"
    for option in OPTIONS:
        if getattr(params, option) and option not in _EFFECTIVE.get(kind, ()):
            raise InvalidSpecError(
                f"structured_outputs.{option} says how JSON is written and has no effect on {name}", keyword=option
            )
    if order is not None and order not in PROPERTY_ORDERS:
        raise InvalidSpecError(f"{ORDER} must be one of {', '.join(PROPERTY_ORDERS)}, not {order!r}", keyword=ORDER)
    if order is not None and kind not in _WITH_PROPERTIES:
        raise InvalidSpecError(f"{ORDER} has an effect on a JSON Schema or a structural tag only", keyword=ORDER)
    _require_unicode(params.whitespace_pattern, "structured_outputs.whitespace_pattern")
    for text in value if isinstance(value, list) else [value]:
        _require_unicode(text, name)
    if kind is Kind.JSON_OBJECT and value is not True:
        raise InvalidSpecError(f"{name} must be true if it is set", keyword=field)
    if kind is Kind.REGEX and "\0" in value:
        raise InvalidSpecError(f"{name} contains a NUL character", keyword=field)
    if kind is not Kind.REGEX and isinstance(value, str) and not value.strip():
        raise InvalidSpecError(f"{name} is an empty string", keyword=field)
    try:
        return Specification.from_value(kind, value, _json_options(kind, config, params, order))
    except RecursionError:  # Python's writer of JSON is neither iterative nor capped
        raise BudgetExceededError(f"{name} is nested too deeply", keyword="nesting", code="too_deep") from None
    except (TypeError, ValueError) as error:  # offline a value may be any object
        raise InvalidSpecError(f"{name} is not JSON: {error}", keyword=kind.value, code="not_json") from None


def _json_options(
    kind: Kind, config: StructuredOutputsConfig | None, params: StructuredOutputsParams, order: object
) -> dict[str, OptionValue]:
    """What decides the text of a JSON document besides its schema, as `Index.from_json_schema` names it; the server
    (``config``) or the request may ask for it."""
    options: dict[str, OptionValue] = {}
    for option in _EFFECTIVE.get(kind, ()):
        said: OptionValue = getattr(config, option, None) or getattr(params, option, None)
        if option == "whitespace_pattern":
            options[option] = said
        elif said:
            options[option.removeprefix("disable_")] = False
    if kind in _WITH_PROPERTIES and (order := order or property_order()) != PROPERTY_ORDERS[0]:
        options["order"] = str(order)
    if kind in _EFFECTIVE and (blanks := whitespace()) != WHITESPACE[0]:
        options["whitespace"] = blanks
    return options


def _require_unicode(text: object, name: str) -> None:
    """Refuse a text that has no UTF-8 form."""
    if isinstance(text, str) and not is_unicode(text):
        half = HALF.findall(text)[0]
        raise InvalidSpecError(
            f"{name} contains {half!a}, half of a surrogate pair, which is no Unicode text",
            keyword=name.rpartition(".")[2],
        )
