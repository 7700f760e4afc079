"""Reads the JSON of a request or refuses it with a named error."""

from __future__ import annotations

import json
import re
from typing import Any

from dotllm.errors import BudgetExceededError, InvalidSpecError, Location

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


class stack_limit:
    """A context in which a `RecursionError` becomes a `BudgetExceededError`: ``what`` is nested too deeply.

    Raises:
        BudgetExceededError: Python's stack was not deep enough.
    """

    def __init__(self, what: str, location: Location | None = None) -> None:
        self._what, self._location = what, location

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: object, __: object) -> None:
        if isinstance(error, RecursionError):
            raise BudgetExceededError(
                f"{self._what} is nested too deeply",
                location=self._location,
                keyword="nesting",
                code="too_deep",
                help="use fewer levels",
            ) from None
