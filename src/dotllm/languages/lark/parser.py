"""Text → tokens → LarkGrammar: definitions, statements and the expressions in them.

Expressions are parsed without recursion: for each open bracket a frame holds what has been read inside it.
Precedence, from the loosest: ``|``, ``&``, sequence, repetition, prefix ``~``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, NamedTuple

from dotllm import cancellation
from dotllm.errors import BudgetExceededError, InvalidSpecError
from dotllm.languages.source import OPERATORS, Source, Token, TokenReader

# The syntax of a Lark grammar, before names are resolved: nodes in one list, children before their parents.
#
# It is flat, like the Grammar that it becomes, so every pass over it is a loop, and no nesting is too deep.


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
    TEMPLATE = "template"  # str: its name or a parameter's; the children are the arguments
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
    """A rule, a terminal or an ignored terminal. Its nodes are ``nodes[first : root + 1]``; ``root`` is the whole
    definition."""

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
    options: dict[str, tuple[Any, int]]  # of all %llguidance statements: value and offset of the statement

    @property
    def names(self) -> list[str]:
        """The names that a rule may use."""
        return [*self.rules, *self.terminals, *self.imports]


def is_terminal(name: str) -> bool:
    """Whether a name is a terminal's: in capitals, by Lark's convention."""
    return name.lstrip("_")[:1].isupper()


# Text of a Lark grammar → tokens.
#
# One regular expression does the work. ``%json``, ``%regex`` and ``%llguidance`` are followed by a JSON value, which
# is read here and becomes the token's value. Comments are dropped. Newlines are tokens, because they end definitions,
# unless they follow a backslash.

JSON_DIRECTIVES = frozenset({"%json", "%regex", "%llguidance", "%grammar_options"})

_TOKEN = re.compile(
    r"""
      (?P<SPACE>[ \t\r\f]+|(?:\#|//)[^\n]*|\\[ \t]*\r?\n)
    | (?P<NEWLINE>\n)
    | (?P<STRING>"(?:[^"\\\n]|\\.)*"(?:i(?![\w-]))?)
    | (?P<REGEX>/(?!/)(?:[^/\\\n]|\\.)+/[a-z]*|/(?!/)(?:[^/\\]|\\(?:.|\n))+/[a-wyz]*x[a-z]*)
    | (?P<TOKEN><[^<>\s]+>)
    | (?P<REFERENCE>@[\w-]+)
    | (?P<DIRECTIVE>%[a-z_]+)
    | (?P<NAME>_*[A-Za-z](?:\w|-(?!>))*)
    | (?P<NUMBER>[+-]?\d+(?:\.\d+)?)
    | (?P<SIGN>->|\.\.|::|[:|()\[\]{}*+?!~&,.=])
    """,
    re.VERBOSE | re.ASCII,
)


_ARROWS = dict.fromkeys("<→←⇒⟶", "a rule is defined as name: … (Lark), or name ::= … (EBNF)")
_HINTS = {
    "/": "this regular expression does not end on its line",
    ";": "a rule ends at the end of its line, without a terminator",
    **{arrow: hint for arrow, hint in _ARROWS.items() if arrow != "<"},
}


def _refuse_constant(text: str) -> Any:
    raise InvalidSpecError(f"{text} is not JSON")


# Numbers keep their exact values, as a schema's bounds are exact.
_JSON = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant)
_JSON_SPACE = re.compile(r"[ \t\r\n]*")


def tokenise(source: Source) -> list[Token]:
    """The tokens of a grammar, ending in END. Raises InvalidSpecError where no token begins."""
    text, at, tokens = source.text, 0, []
    while at < len(text):
        cancellation.check()
        match = _TOKEN.match(text, at)
        if match is None:
            raise source.unexpected(at, _ARROWS if text.startswith("<-", at) else _HINTS)
        kind, begin, at = match.lastgroup, at, match.end()
        assert kind is not None  # every alternative is a group
        if kind == "SPACE":
            continue
        if match.group() == "::":
            if text.startswith("=", at):
                hint = "a rule of EBNF is defined by a plain name and '::=', in every rule"
                raise source.invalid("unexpected '::='", begin, "::=", help=hint)
            raise source.unsupported("'::', a rule with a parameter, is not supported", begin, "::")
        if kind == "DIRECTIVE" and match.group() in JSON_DIRECTIVES:
            space = _JSON_SPACE.match(text, at)
            value, at = _json(source, space.end() if space else at, match.group())
            tokens.append(Token(kind, match.group(), begin, value))
        else:
            tokens.append(Token(match.group() if kind == "SIGN" else kind, match.group(), begin))
    tokens.append(Token("END", "", len(text)))
    return tokens


def _json(source: Source, at: int, directive: str) -> tuple[Any, int]:
    try:
        return _JSON.raw_decode(source.text, at)
    except json.JSONDecodeError as error:
        raise source.invalid(f"{directive} needs a JSON value: {error.msg}", error.pos, directive) from None
    except InvalidSpecError as error:
        raise source.invalid(f"{directive} needs a JSON value: {error}", at, directive) from None
    except (ValueError, InvalidOperation):  # Python reads up to 4,300 digits, and 18 of an exponent
        message = f"a number of {directive} has too many digits"
        raise BudgetExceededError(message, location=source.location(at), keyword=directive) from None
    except RecursionError:
        raise source.invalid(f"the JSON value of {directive} is nested too deeply", at, directive, "too_deep") from None


# Escapes in the string literals of grammars: JSON's and Python's, which Lark's own reader accepts.
#
# A backslash before any other character stands for itself, as in Python.

_SIMPLE = {c: c for c in "\"\\/'"} | dict(zip("nrtbfav0", "\n\r\t\b\f\a\v\0", strict=True))
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB]..)\\u([dD][c-fC-F]..)|x(..)|u(....)|U(.{8})|(.))", re.DOTALL)


def unescape(text: str, source: Source, at: int) -> str:
    """The string that a literal stands for; ``at`` is where the literal begins, for errors."""
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        high, low, *codes, simple = match.groups()
        if simple is not None:
            if simple in "xuU":
                raise source.invalid(f"too few digits after \\{simple}", at + match.start())
            return _SIMPLE.get(simple, match.group())
        try:
            if high is not None:  # a surrogate pair, as JSON writes characters beyond the BMP
                return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
            code = int(next(code for code in codes if code is not None), 16)
            if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
                raise ValueError
            return chr(code)
        except ValueError:
            raise source.invalid(f"{match.group()} is not a character", at + match.start()) from None

    return _ESCAPE.sub(replace, text)


MAX_NESTED = 32  # levels of nested grammars

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_REGEX = re.compile(r"/(.*)/([a-z]*)", re.DOTALL)
_WITHOUT_EFFECT = frozenset({"capture", "capture_name", "stop_capture", "stop_capture_name"})
_INSTEAD = {
    "%declare": "define the terminal in the grammar, as in NAME: /[a-z]+/",
    "%override": "define a rule or terminal with a name of its own, and use that name",
    "%extend": "define a rule or terminal with a name of its own that has all alternatives, and use that name",
}
_REFUSED = {
    "stop": "it removes text that has already been generated; use suffix=",
    "max_tokens": "a text can be cut into tokens in many ways; bound its characters, as /(?s:.{0,200})/ or maxLength "
    "does, or set max_tokens of the request",
    "temperature": "it changes how tokens are sampled, not what is allowed; set temperature of the request",
}


@dataclass(slots=True)
class _LarkFrame:
    """An open bracket: its finished alternatives, the finished operands of ``&``, and the sequence so far."""

    opener: str
    at: int
    template: str = ""
    arguments: list[int] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    operands: list[int] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    negations: int = 0


class Parser(TokenReader):
    """One parse of one text."""

    def __init__(self, text: str) -> None:
        source = Source(text)
        super().__init__(source, tokenise(source))
        self.nested = 0  # the number of open %lark
        self.document = LarkGrammar([], {}, {}, {}, [], {})

    def parse(self) -> LarkGrammar:
        """The whole grammar. Raises `InvalidSpecError` or `UnsupportedError` with line and column."""
        return self._grammar("END")

    def _grammar(self, end: str) -> LarkGrammar:
        """Definitions and statements up to a token of kind ``end``."""
        while True:
            cancellation.check()
            self.i = self._after_newlines()
            if self.token.kind == end:
                return self.document
            if self.token.kind == "DIRECTIVE":
                self._statement()
            else:
                self._definition()
            if self.token.kind not in ("NEWLINE", end):
                raise self.unexpected("the end of the line")

    def _nested_grammar(self, at: int) -> int:
        """``{`` a grammar with names of its own ``}``."""
        if self.nested == MAX_NESTED:
            raise self.source.invalid(f"grammars are nested more than {MAX_NESTED} deep", at, "%lark", "too_deep")
        self.i = self._after_newlines()
        self.expect("{", "'{'")
        outer, self.document = self.document, LarkGrammar([], {}, {}, {}, [], {})
        self.nested += 1
        grammar = self._grammar("}")
        self.nested -= 1
        self.i += 1
        self.document = outer
        return self._node(LarkNodeKind.GRAMMAR, grammar, at)

    # --- definitions and statements

    def _definition(self) -> None:
        while self.token.kind in ("!", "?"):  # bounded: by the text
            self.i += 1
        at = self.token.at
        name = self.expect("NAME", "a rule, a terminal or a statement").text
        parameters = self._parameters() if self.token.kind == "{" else ()
        if self.token.kind == ".":  # a priority: it chooses between parses, and does not change the language
            self.i += 1
            self.expect("NUMBER", "a priority")
        first = len(self.document.nodes)
        lazy, suffix = self._attributes() if self.token.kind == "[" else (False, None)
        if self.token.kind in ("=", "->"):
            raise self._other_definition(name)
        self.expect(":", "':'")
        if self.token.kind == "=":
            raise self._other_definition(name)
        definition = Definition(name, first, self._expansions(), at, parameters, lazy, suffix)
        group = self.document.terminals if is_terminal(name) else self.document.rules
        if name in group or name in self.document.imports:
            raise self.source.invalid(f"{name} is defined twice", at, name)
        if is_terminal(name) and parameters:
            raise self.source.unsupported(f"terminal {name} is a template", at, "template")
        group[name] = definition

    def _parameters(self) -> tuple[str, ...]:
        self.i += 1
        return tuple(name.text for name in self._names("a parameter", "}"))

    def _names(self, what: str, close: str) -> list[Token]:
        """Names with commas between them, and the sign that closes the list."""
        names = [self.expect("NAME", what)]
        while self.token.kind == ",":  # bounded: by the text
            self.i += 1
            names.append(self.expect("NAME", what))
        self.expect(close, repr(close))
        return names

    def _attributes(self) -> tuple[bool, int | None]:
        """``[lazy, suffix="…"]``: whether the definition is lazy, and the node of its suffix."""
        lazy, suffix = False, None
        self.i += 1
        while self.token.kind != "]":  # bounded: by the text
            key = self.expect("NAME", "an attribute")
            has_value = self.token.kind == "="
            self.i += has_value
            if key.text in _REFUSED:
                raise self.source.unsupported(f"{key.text}= is not supported: {_REFUSED[key.text]}", key.at, key.text)
            if key.text == "suffix" and has_value:
                suffix = self._atom()
            elif key.text == "lazy" and not has_value:
                lazy = True
            elif key.text in _WITHOUT_EFFECT:
                if has_value:
                    self.expect("STRING", "a name in quotes")
            else:
                raise self.source.invalid(f"unknown attribute {key.text}", key.at, key.text)
            if self.token.kind != ",":
                break
            self.i += 1
        self.expect("]", "']'")
        return lazy or suffix is not None, suffix

    def _statement(self) -> None:
        token = self.token
        self.i += 1
        if token.text == "%ignore":
            if self.token.kind in ("NEWLINE", "END") and not self._continues():
                raise self.source.invalid("%ignore needs something to ignore", token.at, token.text)
            first = len(self.document.nodes)
            self.document.ignored.append(Definition("%ignore", first, self._expansions(), token.at))
        elif token.text == "%import":
            self._import()
        elif token.text in ("%llguidance", "%grammar_options"):
            if not isinstance(token.value, dict):
                raise self.source.invalid(f"{token.text} needs an object", token.at, token.text)
            self.document.options.update({name: (value, token.at) for name, value in token.value.items()})
        elif token.text in _INSTEAD:
            help = _INSTEAD[token.text]
            raise self.source.unsupported(f"{token.text} is not supported", token.at, token.text, help)
        else:
            raise self.source.invalid(f"unexpected {token.text}", token.at, token.text)

    def _import(self) -> None:
        module = self.token
        if module.kind == "." or (module.kind == "NAME" and module.text != "common"):
            help = "a request has only one grammar: write the imported rules and terminals into it"
            raise self.source.unsupported("only the library 'common' can be imported", module.at, "%import", help)
        self.expect("NAME", "'common'")
        self.i += self.token.kind == "."
        if self.token.kind == "(":
            self.i += 1
            for name in self._names("a terminal of 'common'", ")"):
                self._add_import(name.text, name)
            return
        name = self.expect("NAME", "a terminal of 'common'")
        local = name.text
        if self.token.kind == "->":
            self.i += 1
            local = self.expect("NAME", "a name").text
        self._add_import(local, name)

    def _add_import(self, local: str, name: Token) -> None:
        document = self.document
        if local in document.imports or local in document.terminals or local in document.rules:
            raise self.source.invalid(f"{local} is defined twice", name.at, local)
        document.imports[local] = (name.text, name.at)

    # --- expressions

    def _expansions(self) -> int:
        """Everything up to the end of a definition; returns its node."""
        frames = [_LarkFrame("", self.token.at)]
        while True:  # bounded: by the text
            token, frame = self.token, frames[-1]
            kind = token.kind
            if kind in ("(", "["):
                frames.append(_LarkFrame(kind, token.at))
                self.i += 1
            elif kind in (")", "]", "}") and _CLOSING.get(frame.opener) == kind:
                self.i += 1
                frames.pop()
                self._end_atom(frames[-1], self._close(frame))
            elif kind == "," and frame.opener == "{":
                self.i += 1
                frame.arguments.append(self._end_choices(frame))
            elif kind == "|":
                self.i += 1
                frame.choices.append(self._end_operands(frame))
                self._skip_newline_after_bar()
            elif kind == "&":
                self.i += 1
                frame.operands.append(self._end_parts(frame))
            elif kind == "~":
                self.i += 1
                frame.negations += 1
            elif kind == "->" and len(frames) == 1:  # an alternative's name only shapes the parse tree
                self.i += 1
                self.expect("NAME", "a name")
                if self.token.kind not in ("NEWLINE", "|", "END", "}"):
                    raise self.unexpected("'|' or the end of the line")
            elif kind == "NEWLINE" and (len(frames) > 1 or self._continues()):
                self.i += 1
            elif kind in ("NEWLINE", "END") or (kind == "}" and len(frames) == 1 and self.nested):
                if len(frames) > 1:
                    raise self.source.invalid(f"{frame.opener!r} is never closed", frame.at)
                return self._end_choices(frame)
            elif kind == "NAME" and self._begins_template():
                frames.append(_LarkFrame("{", token.at, token.text))
                self.i += 2
            else:
                self._end_atom(frame, self._atom())

    def _begins_template(self) -> bool:
        """Whether ``name{`` begins a template; before a number or a comma it begins a repetition."""
        following = [token.kind for token in self.tokens[self.i + 1 : self.i + 3]]
        return following[:1] == ["{"] and following[1:] not in (["NUMBER"], [","])

    def _continues(self) -> bool:
        """Whether the next line starts with a bar and so continues the definition."""
        return self.tokens[self._after_newlines()].kind == "|"

    def _after_newlines(self) -> int:
        """The index of the next token that is not a newline."""
        i = self.i
        while self.tokens[i].kind == "NEWLINE":  # bounded: by the text
            i += 1
        return i

    def _skip_newline_after_bar(self) -> None:
        """Skip newlines after a bar: the definition goes on in the next line, unless that line begins a new one."""
        i = self._after_newlines()
        if i == self.i or self.tokens[i].kind in ("END", "DIRECTIVE", "!", "?"):
            return
        if self.tokens[i].kind == "NAME" and self.tokens[i + 1].kind in (":", ".", "[", "{"):
            return
        self.i = i

    def _atom(self) -> int:
        token = self.token
        kind, text = token.kind, token.text
        self.i += 1
        if kind == "STRING":
            if self.token.kind == "..":
                self.i += 1
                last = self.expect("STRING", "a character")
                ends = (self._character(token), self._character(last))
                if ends[0] > ends[1]:
                    raise self.source.invalid("this range ends before it begins", token.at)
                return self._node(LarkNodeKind.RANGE, ends, token.at)
            ignore_case = text.endswith("i")
            inner = text[1:-2] if ignore_case else text[1:-1]
            return self._node(LarkNodeKind.LITERAL, (unescape(inner, self.source, token.at), ignore_case), token.at)
        if kind == "REGEX":
            match = _REGEX.fullmatch(text)
            assert match is not None  # the lexer's expression is narrower
            return self._node(LarkNodeKind.PATTERN, match.groups(), token.at)
        if kind in ("NAME", "TOKEN", "REFERENCE"):
            return self._node(LarkNodeKind[kind], text, token.at)
        if kind == "DIRECTIVE" and text in ("%json", "%regex"):
            return self._node(
                LarkNodeKind.JSON if text == "%json" else LarkNodeKind.STRUCTURED_REGEX, token.value, token.at
            )
        if kind == "DIRECTIVE" and text == "%lark":
            return self._nested_grammar(token.at)
        if kind == "DIRECTIVE" and text not in JSON_DIRECTIVES:
            raise self.source.unsupported(f"{text} is not supported here", token.at, text)
        self.i -= 1
        raise self.unexpected("an expression")

    def _character(self, token: Token) -> str:
        text = unescape(token.text[1:-1], self.source, token.at) if token.text.endswith('"') else ""
        if len(text) != 1:
            raise self.source.invalid("the ends of a range are strings of one character", token.at)
        return text

    def _end_atom(self, frame: _LarkFrame, node: int) -> None:
        """Apply the ``~`` before an atom and the repetition after it, and add the result to the sequence."""
        at = self.document.nodes[node].at
        if frame.negations % 2:
            node = self._node(LarkNodeKind.NOT, None, at, node)
        frame.negations = 0
        bounds = self._bounds()
        if bounds is not None:
            node = self._node(LarkNodeKind.REPEAT, bounds, at, node)
            if self._bounds() is not None:
                raise self.source.invalid("two repetitions in a row: put the inner one in parentheses", at)
        frame.parts.append(node)

    def _bounds(self) -> tuple[int, int | None] | None:
        """The repetition at the current token, if there is one."""
        kind = self.token.kind
        following = self.tokens[self.i + 1].kind if kind != "END" else ""
        if kind in OPERATORS:
            self.i += 1
            return OPERATORS[kind]
        at = self.token.at
        if kind == "~" and following == "NUMBER":
            self.i += 1
            low = high = self.count()
            if self.token.kind == "..":
                self.i += 1
                high = self.count()
            return self.in_order(low, high, at)
        if kind == "{" and following in ("NUMBER", ","):
            return self.counts()
        return None

    def _close(self, frame: _LarkFrame) -> int:
        if frame.opener == "{":
            frame.arguments.append(self._end_choices(frame))
            return self._node(LarkNodeKind.TEMPLATE, frame.template, frame.at, *frame.arguments)
        node = self._end_choices(frame)
        return self._node(LarkNodeKind.REPEAT, (0, 1), frame.at, node) if frame.opener == "[" else node

    def _end_parts(self, frame: _LarkFrame) -> int:
        if frame.negations:
            raise self.source.invalid("'~' needs an operand", self.token.at)
        parts, frame.parts = frame.parts, []
        return parts[0] if len(parts) == 1 else self._node(LarkNodeKind.SEQUENCE, None, frame.at, *parts)

    def _end_operands(self, frame: _LarkFrame) -> int:
        operands = [*frame.operands, self._end_parts(frame)]
        frame.operands = []
        return operands[0] if len(operands) == 1 else self._node(LarkNodeKind.AND, None, frame.at, *operands)

    def _end_choices(self, frame: _LarkFrame) -> int:
        choices = [*frame.choices, self._end_operands(frame)]
        frame.choices = []
        return choices[0] if len(choices) == 1 else self._node(LarkNodeKind.CHOICE, None, frame.at, *choices)

    def _node(self, kind: LarkNodeKind, value: Any, at: int, *children: int) -> int:
        self.document.nodes.append(LarkNode(kind, value, children, at))
        return len(self.document.nodes) - 1

    def _other_definition(self, name: str) -> Exception:
        help = f"write {name}: … (Lark), or {name} ::= … in every rule (EBNF)"
        sign = ":=" if self.tokens[self.i - 1].kind == ":" else self.token.text
        return self.source.invalid(f"expected ':', found {sign!r}", self.token.at, help=help)
