"""``structured_outputs.choice``: exactly one of the given strings."""

from __future__ import annotations

from collections.abc import Sequence

from dotllm.errors import InvalidSpecError, Pointer
from dotllm.grammar import Grammar


def choice_to_grammar(choices: Sequence[str]) -> Grammar:
    """The Grammar of the strings in ``choices``. A choice may be empty, come twice, or begin another.

    Raises:
        InvalidSpecError: ``choices`` is not a list or is empty, or a choice is not a string or contains a lone
        surrogate; ``location`` is that choice.
    """  # noqa: DOC501 - a function makes the error
    if isinstance(choices, (str, bytes)) or not isinstance(choices, Sequence):
        raise InvalidSpecError(f"choice must be a list of strings, not {type(choices).__name__}", keyword="choice")
    if not choices:
        raise InvalidSpecError("choice must not be an empty list", keyword="choice")
    texts: list[bytes] = []
    for i, choice in enumerate(choices):
        if not isinstance(choice, str):
            raise _invalid(i, f"must be a string, not {type(choice).__name__}")
        try:
            texts.append(choice.encode())
        except UnicodeEncodeError:
            raise _invalid(i, "must not contain a lone surrogate, which no UTF-8 text has") from None
    grammar = Grammar()
    grammar.start = grammar.literals(texts)
    return grammar


def _invalid(position: int, problem: str) -> InvalidSpecError:
    return InvalidSpecError(f"choice {problem}", location=Pointer() / position, keyword="choice")
