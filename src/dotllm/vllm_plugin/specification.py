"""Turns vLLM's structured-output parameters into a `Specification`, the form that all later code uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType, NoneType
from typing import NamedTuple, Protocol

from dotllm.compilation.specification import JSON_FIELDS, Kind, OptionValue, Specification, json_options
from dotllm.errors import BudgetExceededError, InvalidSpecError
from dotllm.languages.json_input import require_unicode
from dotllm.suggestions import did_you_mean
from dotllm.vllm_plugin import settings, tiers
from dotllm.vllm_plugin.vllm_types import SamplingParams, StructuredOutputsConfig, StructuredOutputsParams

KINDS = {
    "json": Kind.JSON_SCHEMA,
    "json_object": Kind.JSON_OBJECT,
    "regex": Kind.REGEX,
    "choice": Kind.CHOICE,
    "grammar": Kind.GRAMMAR,
    "structural_tag": Kind.STRUCTURAL_TAG,
}
"""The kinds, by field of ``StructuredOutputsParams``. A request sets one of these fields."""

OPTIONS = JSON_FIELDS  # with KINDS, the fields that are read

_TYPES: Mapping[str, tuple[type, ...]] = {
    "json": (str, dict, NoneType),
    "json_object": (bool, NoneType),
    "choice": (list, tuple, NoneType),
    **dict.fromkeys(("regex", "grammar", "structural_tag", "whitespace_pattern"), (str, NoneType)),
    **dict.fromkeys(("disable_any_whitespace", "disable_additional_properties"), (bool,)),
}
"""vLLM checks this only when the object is made, and its fields may be set later."""

_EFFECTIVE = {
    Kind.JSON_SCHEMA: OPTIONS,
    Kind.JSON_OBJECT: ("disable_any_whitespace", "whitespace_pattern"),
    Kind.STRUCTURAL_TAG: OPTIONS,
}
_WITH_PROPERTIES = (Kind.JSON_SCHEMA, Kind.STRUCTURAL_TAG)

ORDER, ADDITIONAL, DIGITS, SOURCE, FINISH, ANSWER_TOKENS, MASS, CONFIDENCE = OURS = (
    *("dotllm_property_order", "dotllm_additional_properties", "dotllm_number_digits", "dotllm_source"),
    *("dotllm_finish", "dotllm_answer_tokens", "dotllm_mass", "dotllm_confidence"),
)
"""Our fields of a request, in ``SamplingParams.extra_args`` (``vllm_xargs`` in the API). The front end removes the last
one (`mass`)."""

_PREFIXES = ("dotllm", "dotlm", "dotll")
_WITHOUT_PREFIX = ("propertyorder", "additionalproperties", "numberdigits", "answertokens")
"""A name is meant as ours if it begins with one of `_PREFIXES`, or is one of these."""


class _Field(NamedTuple):
    """A field of ours that says how JSON is written."""

    option: str
    """Its name in `Specification.options`."""
    variable: str
    """The server's value, for requests that do not set the field. It has the same values (`settings.VALUES`); an absent
    option means the first one."""
    kinds: Collection[Kind]
    """The kinds on which it has an effect."""


_WRITTEN = {
    ORDER: _Field("order", settings.ORDER, _WITH_PROPERTIES),
    ADDITIONAL: _Field("additional_properties", settings.ADDITIONAL, _WITH_PROPERTIES),
    DIGITS: _Field("number_digits", settings.DIGITS, _EFFECTIVE),
}


class ConstrainedParams(SamplingParams, Protocol):
    """``SamplingParams`` that have a constraint."""

    structured_outputs: StructuredOutputsParams


def refuse_unknown(extra_args: object) -> None:
    """Refuse fields of ``extra_args`` (``vllm_xargs``) whose names resemble ours, and values that our fields cannot
    have, whether or not there is a constraint. Raises InvalidSpecError; for an unknown field it lists ours."""
    fields = extra_args if isinstance(extra_args, dict) else {}
    is_true(fields, FINISH)
    for name in fields:
        bare = "".join(letter for letter in str(name).lower() if letter.isalpha())
        if name not in OURS and (bare.startswith(_PREFIXES) or bare in _WITHOUT_PREFIX):
            message = f"vllm_xargs has no field {name!r}; dotllm's fields are {', '.join(map(repr, OURS))}"
            raise InvalidSpecError(message, keyword=str(name), code="unknown_field", help=did_you_mean(str(name), OURS))
    for name in (MASS, CONFIDENCE):
        if is_true(fields, name) and tiers.EXTRA not in tiers.chosen():
            message = f"{name} needs the tier {tiers.EXTRA}, which is off here ({tiers.VARIABLE})"
            raise InvalidSpecError(message, keyword=name, code="unsupported")
    for option, about in _WRITTEN.items():
        said = fields.get(option)
        if said is not None and said not in (values := settings.VALUES[about.variable]):
            raise InvalidSpecError(f"{option} must be one of {', '.join(values)}, not {said!r}", keyword=option)
    source = fields.get(SOURCE)
    if source is not None and (not isinstance(source, str) or not source.strip()):
        raise InvalidSpecError(f"{SOURCE} must be non-blank text", keyword=SOURCE)
    more = fields.get(ANSWER_TOKENS, 0)
    if type(more) is not int or more < 0:
        raise InvalidSpecError(f"{ANSWER_TOKENS} must be a number of tokens, not {more!r}", keyword=ANSWER_TOKENS)


def is_true(fields: Mapping[str, object], name: str) -> bool:
    """Whether the field ``name`` of ``vllm_xargs`` is set. Raises InvalidSpecError if it is neither true nor false."""
    value = fields.get(name)
    if value not in (None, True, False, "true", "false"):
        raise InvalidSpecError(f"{name} must be true or false, not {value!r}", keyword=name)
    return value in (True, "true")


def answer_tokens(params: SamplingParams) -> int | None:
    """For a request whose answer must end within its max_tokens: the number of tokens by which the answer after its
    reasoning may exceed the shortest one. None for any other request (and if EOS does not end it). Raises
    InvalidSpecError."""
    fields = params.extra_args if isinstance(params.extra_args, dict) else {}
    finish, more = fields.get(FINISH), fields.get(ANSWER_TOKENS, 0)
    finishes = settings.value(settings.FINISH) == "on" if finish is None else finish in (True, "true")
    if more and not finishes:
        raise InvalidSpecError(f"{ANSWER_TOKENS} has an effect only with {FINISH}", keyword=ANSWER_TOKENS)
    return more if finishes and not params.ignore_eos else None


def of_sampling_params(params: ConstrainedParams, config: StructuredOutputsConfig | None) -> Specification:
    """The specification in a request's parameters. Raises as `of_params`, `refuse_unknown` and `answer_tokens` do."""
    refuse_unknown(params.extra_args)
    answer_tokens(params)
    fields = params.extra_args if isinstance(params.extra_args, dict) else {}
    if is_true(fields, CONFIDENCE):
        message = f"{CONFIDENCE} is for chats and completions of a server"
        raise InvalidSpecError(message, keyword=CONFIDENCE, code="unsupported")
    if is_true(fields, MASS) and params.num_logprobs is not None and params.flat_logprobs:
        message = f"{MASS} comes with the log probabilities of each token: do not set flat_logprobs"
        raise InvalidSpecError(message, keyword=MASS)
    return of_params(params.structured_outputs, config, fields)


def of_params(
    params: StructuredOutputsParams,
    config: StructuredOutputsConfig | None,
    fields: Mapping[str, object] = MappingProxyType({}),
) -> Specification:
    """The specification in a ``StructuredOutputsParams``. ``config`` is the server's. ``fields`` are the request's
    ``vllm_xargs``; only `SOURCE` and the fields of `_WRITTEN` are read.

    Raises:
        InvalidSpecError: there is no specification, it is empty, or an option would have no effect.
        BudgetExceededError: the specification is nested too deeply.
    """
    field, text = text_of(params)
    kind, name = KINDS[field], f"structured_outputs.{field}"
    for option in OPTIONS:
        if getattr(params, option) and option not in _EFFECTIVE.get(kind, ()):
            raise InvalidSpecError(
                f"structured_outputs.{option} says how JSON is written and has no effect on {name}", keyword=option
            )
    for option, about in _WRITTEN.items():
        said = fields.get(option)
        if said is not None and kind not in about.kinds:
            raise InvalidSpecError(f"{option} says how JSON is written and has no effect on {name}", keyword=option)
    source = fields.get(SOURCE)
    if source is not None and kind not in _WITH_PROPERTIES:
        raise InvalidSpecError(f"{SOURCE} applies to strings of a schema and has no effect on {name}", keyword=SOURCE)
    require_unicode(source, SOURCE)
    closes_all = getattr(config, "disable_additional_properties", False) or params.disable_additional_properties
    if fields.get(ADDITIONAL) == "open" and closes_all:
        wrong = f'{ADDITIONAL} "open" has no effect: the request or the server sets disable_additional_properties'
        raise InvalidSpecError(wrong, keyword=ADDITIONAL)
    return Specification.create(kind, text, _json_options(kind, config, params, fields))


def text_of(params: StructuredOutputsParams) -> tuple[str, str]:
    """The field that holds the constraint of ``params``, and the constraint as text. Raises as `of_params` does."""
    _require_types(params)
    fields = [name for name in KINDS if getattr(params, name) is not None]
    if not fields:
        raise InvalidSpecError(f"structured_outputs sets none of {', '.join(KINDS)}")
    if len(fields) > 1:
        raise InvalidSpecError(f"structured_outputs sets {' and '.join(fields)}; a request has one of these")
    (field,) = fields
    kind, value, name = KINDS[field], getattr(params, field), f"structured_outputs.{field}"
    require_unicode(params.whitespace_pattern, "structured_outputs.whitespace_pattern")
    for part in value if kind is Kind.CHOICE else [value]:
        require_unicode(part, name)
    if kind is Kind.JSON_OBJECT and value is not True:
        raise InvalidSpecError(f"{name} must be true if it is set", keyword=field)
    if kind is Kind.REGEX and "\0" in value:
        raise InvalidSpecError(f"{name} contains a NUL character", keyword=field)
    if kind is not Kind.REGEX and isinstance(value, str) and not value.strip():
        raise InvalidSpecError(f"{name} is an empty string", keyword=field)
    try:
        return field, Specification.as_text(kind, value)
    except RecursionError:  # Python's JSON encoder is neither iterative nor capped
        raise BudgetExceededError(f"{name} is nested too deeply", keyword="nesting", code="too_deep") from None
    except (TypeError, ValueError) as error:  # offline a value may be any object
        raise InvalidSpecError(f"{name} is not JSON: {error}", keyword=kind.value, code="not_json") from None


def _require_types(params: StructuredOutputsParams) -> None:
    for name, types in _TYPES.items():
        value = getattr(params, name)
        if not isinstance(value, types):
            named = " or ".join(each.__name__ for each in types if each is not NoneType)
            message = f"structured_outputs.{name} must be {named}, not {type(value).__name__}"
            raise InvalidSpecError(message, keyword=name)
    for part in params.choice or ():
        if not isinstance(part, str):
            message = f"structured_outputs.choice must be a list of strings, and contains {type(part).__name__}"
            raise InvalidSpecError(message, keyword="choice")


def _json_options(
    kind: Kind,
    config: StructuredOutputsConfig | None,
    params: StructuredOutputsParams,
    fields: Mapping[str, object],
) -> dict[str, OptionValue]:
    """The options that, together with the schema, decide the text of a JSON document, under the names that
    `Index.from_json_schema` uses. The server (``config``) or the request may set them."""
    options: dict[str, OptionValue] = {}
    for name, about in _WRITTEN.items():
        value = fields.get(name) or settings.value(about.variable)
        if kind in about.kinds and value != settings.VALUES[about.variable][0]:
            options[about.option] = str(value)
    if (source := fields.get(SOURCE)) is not None:
        options["source"] = str(source)
    said = {name: getattr(config, name, None) or getattr(params, name, None) for name in _EFFECTIVE.get(kind, ())}
    options |= json_options(said)
    blanks = settings.value(settings.WHITESPACE)
    if kind in _EFFECTIVE and blanks != settings.VALUES[settings.WHITESPACE][0]:
        options["whitespace"] = blanks
    return options
