"""Reads the JSON of a request, or refuses it by name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dotllm.errors import BudgetExceededError, InvalidSpecError, Location

# Halves of surrogate pairs. JSON's "\ud800" arrives in a Python string as one; no Unicode text contains them.


HALF = re.compile("[\ud800-\udfff]")


def is_unicode(text: str) -> bool:
    """Whether no half of a surrogate pair is in ``text``."""
    return text.isascii() or HALF.search(text) is None


def read_json(text: str, what: str, location: Location | None = None) -> Any:
    """The value of a JSON text; ``what`` and ``location`` identify the text in a refusal.

    Raises:
        InvalidSpecError: ``text`` is not JSON.
        BudgetExceededError: the value is nested too deeply, or has an integer of more than 4,300 digits.
    """
    with stack_limit(what, location):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidSpecError(f"{what} is not JSON: {error}", location=location, code="not_json") from None
        except ValueError:
            message = f"a number of {what} has too many digits"
            raise BudgetExceededError(message, location=location, keyword="number") from None


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
