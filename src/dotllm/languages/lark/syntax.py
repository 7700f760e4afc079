"""The syntax of a Lark grammar, before names are resolved: nodes in one list, children before their parents.

It is flat, like the Grammar that it becomes, so that every pass over it is a loop, and no nesting of the text is too
deep.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple


class LarkNodeKind(Enum):
    """The kind of a node; each line says what its ``value`` is."""

    LITERAL = "string"  # (text, ignore case)
    RANGE = "character range"  # (first, last)
    PATTERN = "regular expression"  # (pattern, flags)
    NAME = "name"  # str: of a rule, a terminal or a parameter of the template
    TOKEN = "special token"  # str, with its angle brackets
    JSON = "%json"  # the schema
    STRUCTURED_REGEX = "%regex"  # the JSON object
    GRAMMAR = "%lark"  # the LarkGrammar in the braces
    REFERENCE = "@ reference"  # str
    TEMPLATE = "template"  # str: its name, or that of a parameter; the children are the arguments
    SEQUENCE = "sequence"
    CHOICE = "alternatives"
    REPEAT = "repetition"  # (minimum, maximum or None)
    AND = "&"
    NOT = "~"


class LarkNode(NamedTuple):
    """One expression; ``children`` are numbers of earlier nodes, ``at`` is an offset into the text."""

    kind: LarkNodeKind
    value: Any
    children: tuple[int, ...]
    at: int


class Definition(NamedTuple):
    """A rule, a terminal or an ignored terminal. Its nodes are ``nodes[first : root + 1]``; ``root`` is the whole of
    it."""

    name: str
    first: int
    root: int
    at: int
    parameters: tuple[str, ...] = ()
    lazy: bool = False
    suffix: int | None = None  # a node of the same range


class LarkGrammar(NamedTuple):
    """A whole grammar."""

    nodes: list[LarkNode]
    rules: dict[str, Definition]
    terminals: dict[str, Definition]
    imports: dict[str, tuple[str, int]]  # local name of a terminal → name in `common`, offset
    ignored: list[Definition]
    options: dict[str, Any]  # of all %llguidance

    @property
    def names(self) -> list[str]:
        """The names that a rule may use."""
        return [*self.rules, *self.terminals, *self.imports]


def is_terminal(name: str) -> bool:
    """Lark's convention: terminals are in capitals."""
    return name.lstrip("_")[:1].isupper()
