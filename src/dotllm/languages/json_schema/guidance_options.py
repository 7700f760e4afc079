"""``x-guidance``: llguidance's keyword for how the documents of a schema are written.

It has effect only at the root of a schema. Each of its options is honoured, has no effect here, or is refused.

https://github.com/guidance-ai/llguidance/blob/main/docs/json_schema.md
"""

from __future__ import annotations

from typing import Any

from dotllm.errors import InvalidSpecError, Pointer, SpecError, UnsupportedError
from dotllm.languages.json_schema.json_text import separator_texts
from dotllm.languages.json_schema.options import Options

KEYWORD = "x-guidance"
_EVERY_ESCAPE = frozenset('nrbtf"u\\')
# Our oneOf is JSON Schema's, and we refuse what we cannot enforce, so neither option changes what is valid.
_WITHOUT_EFFECT = ("coerce_one_of", "lenient")


def guided(options: Options, schema: Any) -> Options:
    """``options`` as changed by the ``x-guidance`` of ``schema``. Raises InvalidSpecError or UnsupportedError."""
    if not isinstance(schema, dict) or KEYWORD not in schema:
        return options
    said = schema[KEYWORD]
    if not isinstance(said, dict):
        raise _wrong("must be an object of options")
    separators = {"item_separator": ",", "key_separator": ":"}
    for name, value in said.items():
        if name in separators:
            separators[name] = _separator(name, value, separators[name])
        elif name == "whitespace_pattern":
            if value is not None and not isinstance(value, str):
                raise _wrong("must be a regular expression or null", name)
        elif name == "json_allowed_escapes":
            if value is not None and (not isinstance(value, str) or frozenset(value) != _EVERY_ESCAPE):
                raise _needless_escapes(name)
        elif name == "json_allow_general_unicode_escapes":
            if value is not False:
                raise _needless_escapes(name)
        elif name not in ("whitespace_flexible", *_WITHOUT_EFFECT):
            raise _wrong(f"has no option {name!r}", name, "unknown_field")
        elif not isinstance(value, bool):
            raise _wrong("must be true or false", name)
    if said.get("whitespace_pattern") is not None:
        pattern = f"(?:{said['whitespace_pattern']})*"  # llguidance allows it between tokens any number of times
        options = options._replace(any_whitespace=True, whitespace_pattern=pattern)
    elif "whitespace_flexible" in said:
        options = options._replace(
            any_whitespace=said["whitespace_flexible"], whitespace_pattern=None, whitespace="any"
        )
    return options._replace(separators=(separators["item_separator"], separators["key_separator"]))


def refuse(schema: Any) -> None:
    """Raise UnsupportedError for ``x-guidance`` in a style other than JSON."""
    if isinstance(schema, dict) and KEYWORD in schema:
        raise UnsupportedError(
            f"{KEYWORD} applies only to JSON, and this style is not JSON; leave it out",
            location=Pointer() / KEYWORD,
            keyword=KEYWORD,
        )


def _separator(name: str, value: Any, sign: str) -> str:
    """``value``, if it is a separator: a regular expression for ``sign`` with white space around it."""
    if not isinstance(value, str):
        raise _wrong("must be a regular expression", name)
    try:
        separator_texts(value, sign)
    except SpecError as error:
        raise error.replaced(
            message=f"{name}: {error.message}", location=Pointer() / KEYWORD / name, keyword=KEYWORD
        ) from None
    return value


def _wrong(message: str, name: str = "", code: Any = "invalid_value") -> InvalidSpecError:
    place = Pointer() / KEYWORD / name if name else Pointer() / KEYWORD
    about = name if name and code == "invalid_value" else KEYWORD
    return InvalidSpecError(f"{about} {message}", location=place, keyword=KEYWORD, code=code)


def _needless_escapes(name: str) -> UnsupportedError:
    wrong = f"{name} of {KEYWORD} is not supported: strings are escaped only where JSON requires it; leave it out"
    return UnsupportedError(wrong, location=Pointer() / KEYWORD / name, keyword=KEYWORD)
