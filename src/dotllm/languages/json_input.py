"""Reads the JSON of a request or refuses it with a named error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from dotllm.errors import BudgetExceededError, InvalidSpecError, Location, shown

# Lone surrogates. JSON's "\ud800" becomes one in a Python string; no Unicode text contains them.

HALF = re.compile("[\ud800-\udfff]")


def is_unicode(text: str) -> bool:
    """Whether ``text`` is free of lone surrogates."""
    return text.isascii() or HALF.search(text) is None


def read_json(text: str, what: str, location: Location | None = None) -> Any:
    """The value of a JSON text; ``what`` and ``location`` identify the text in a refusal.

    Raises:
        InvalidSpecError: ``text`` is not JSON.
        BudgetExceededError: the value is nested too deeply or has an integer of more than 4,300 digits.
    """
    with stack_limit(what, location):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidSpecError(f"{what} is not JSON: {error}", location=location, code="not_json") from None
        except ValueError:
            message = f"a number of {what} has too many digits"
            raise BudgetExceededError(message, location=location, keyword="number") from None


def refuse_what_cannot_be_sent(fields: Mapping[str, object]) -> None:
    """Refuse ``fields``, values by name, if a string in them has no UTF-8 form or a number has more than 64 bits: no
    message to the engine (MessagePack) can hold it.

    Raises:
        InvalidSpecError: JSON's "\\ud800" has arrived as a lone surrogate, or a number is too large.
    """
    for name, value in fields.items():
        if not value:
            continue
        for number in (value, *getattr(value, "__dict__", {}).values()):
            if isinstance(number, int) and not -(2**63) <= number < 2**64:
                wrong = f"{name} contains {shown(number)}, and numbers have at most 64 bits"
                raise InvalidSpecError(wrong, keyword=name)
        with suppress(RecursionError):  # it is nested too deeply, which vLLM also finds out
            # Keys that JSON does not have are the server's own: vLLM's Cohere API has pairs of numbers as keys.
            require_unicode(json.dumps(value, ensure_ascii=False, default=str, skipkeys=True), name)


def require_unicode(text: object, name: str) -> None:
    """Raise InvalidSpecError for a text that has no UTF-8 form, because it contains a lone surrogate."""
    if isinstance(text, str) and not is_unicode(text):
        half = HALF.findall(text)[0]
        raise InvalidSpecError(
            f"{name} contains {half!a}, a lone surrogate, which is not Unicode text",
            keyword=name.rpartition(".")[2],
        )


@contextmanager
def stack_limit(what: str, location: Location | None = None) -> Iterator[None]:
    """A context in which a `RecursionError` becomes a `BudgetExceededError`: ``what`` is nested too deeply.

    Raises:
        BudgetExceededError: Python's stack was not deep enough.
    """
    try:
        yield
    except RecursionError:
        raise BudgetExceededError(
            f"{what} is nested too deeply",
            location=location,
            keyword="nesting",
            code="too_deep",
            help="use fewer levels",
        ) from None
