"""Tokens → LarkGrammar: definitions, statements and the expressions in them.

The expressions need no recursion: a frame per open bracket holds what has been read inside it. Precedence, from the
loosest: ``|``, ``&``, one after another, the repetitions, ``~`` before something.
"""

from __future__ import annotations

import re
from typing import Any

from dotllm.languages.lark.lexer import JSON_DIRECTIVES, LarkToken, tokenise
from dotllm.languages.lark.strings import unescape
from dotllm.languages.lark.syntax import Definition, LarkGrammar, LarkNode, LarkNodeKind, is_terminal
from dotllm.languages.source import Source

MAX_COUNT = 2**30 - 1

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_OPERATORS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_REGEX = re.compile(r"/(.*)/([a-z]*)", re.DOTALL)
_WITHOUT_EFFECT = frozenset({"capture", "capture_name", "stop_capture", "stop_capture_name"})
_REFUSED = {
    "stop": "it takes text back that has been generated; use suffix=",
    "max_tokens": "it counts tokens, which is no property of the text; use a repetition range",
    "temperature": "it changes how tokens are sampled, not what is allowed; set it on the request",
}


class _LarkFrame:
    """An open bracket: the alternatives before, the operands of & before, the sequence so far."""

    __slots__ = ("arguments", "at", "choices", "negations", "opener", "operands", "parts", "template")

    def __init__(self, opener: str, at: int, template: str = "") -> None:
        self.opener = opener
        self.at = at
        self.template = template
        self.arguments: list[int] = []
        self.choices: list[int] = []
        self.operands: list[int] = []
        self.parts: list[int] = []
        self.negations = 0


class Parser:
    """One parse of one text."""

    def __init__(self, text: str) -> None:
        self.source = Source(text)
        self.tokens = tokenise(self.source)
        self.i = 0
        self.document = LarkGrammar([], {}, {}, {}, [], {})

    @property
    def token(self) -> LarkToken:
        """The next one, which is not yet read."""
        return self.tokens[self.i]

    def parse(self) -> LarkGrammar:
        """The whole grammar. Raises `InvalidSpecError` or `UnsupportedError` with line and column."""
        while True:
            while self.token.kind == "NEWLINE":
                self.i += 1
            if self.token.kind == "END":
                return self.document
            if self.token.kind == "DIRECTIVE":
                self._statement()
            else:
                self._definition()
            if self.token.kind not in ("NEWLINE", "END"):
                raise self._unexpected("the end of the line")

    # --- definitions and statements

    def _definition(self) -> None:
        while self.token.kind in ("!", "?"):  # they shape parse trees
            self.i += 1
        at = self.token.at
        name = self._expect("NAME", "a rule, a terminal or a statement").text
        parameters = self._parameters() if self.token.kind == "{" else ()
        if self.token.kind == ".":  # a priority: it chooses between parses, and never what is one
            self.i += 1
            self._expect("NUMBER", "a priority")
        first = len(self.document.nodes)
        lazy, suffix = self._attributes() if self.token.kind == "[" else (False, None)
        self._expect(":", "':'")
        definition = Definition(name, first, self._expansions(), at, parameters, lazy, suffix)
        group = self.document.terminals if is_terminal(name) else self.document.rules
        if name in group or name in self.document.imports:
            raise self.source.invalid(f"{name} is defined twice", at, name)
        if is_terminal(name) and parameters:
            raise self.source.unsupported(f"terminal {name} is a template", at, "template")
        group[name] = definition

    def _parameters(self) -> tuple[str, ...]:
        names = []
        self.i += 1
        while True:
            names.append(self._expect("NAME", "a parameter").text)
            if self.token.kind != ",":
                break
            self.i += 1
        self._expect("}", "'}'")
        return tuple(names)

    def _attributes(self) -> tuple[bool, int | None]:
        """``[lazy, suffix="…"]``: whether it is lazy, and the node of its suffix."""
        lazy, suffix = False, None
        self.i += 1
        while self.token.kind != "]":
            key = self._expect("NAME", "an attribute")
            has_value = self.token.kind == "="
            self.i += has_value
            if key.text in _REFUSED:
                raise self.source.unsupported(f"{key.text}= is not supported: {_REFUSED[key.text]}", key.at, key.text)
            if key.text == "suffix" and has_value:
                suffix = self._atom()
            elif key.text == "lazy" and not has_value:
                lazy = True
            elif key.text in _WITHOUT_EFFECT:
                self.i += has_value
            else:
                raise self.source.invalid(f"unknown attribute {key.text}", key.at, key.text)
            if self.token.kind != ",":
                break
            self.i += 1
        self._expect("]", "']'")
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
            self.document.options.update(token.value)
        elif token.text in ("%declare", "%override", "%extend", "%lark"):
            raise self.source.unsupported(f"{token.text} is not supported", token.at, token.text)
        else:
            raise self.source.invalid(f"unexpected {token.text}", token.at, token.text)

    def _import(self) -> None:
        module = self._expect("NAME", "'common'")
        if module.text != "common":
            raise self.source.unsupported("only the library 'common' can be imported", module.at, "%import")
        self.i += self.token.kind == "."
        if self.token.kind == "(":
            self.i += 1
            names = [self._expect("NAME", "a terminal of 'common'")]
            while self.token.kind == ",":
                self.i += 1
                names.append(self._expect("NAME", "a terminal of 'common'"))
            self._expect(")", "')'")
            for name in names:
                self._add_import(name.text, name)
            return
        name = self._expect("NAME", "a terminal of 'common'")
        local = name.text
        if self.token.kind == "->":
            self.i += 1
            local = self._expect("NAME", "a name").text
        self._add_import(local, name)

    def _add_import(self, local: str, name: LarkToken) -> None:
        document = self.document
        if local in document.imports or local in document.terminals or local in document.rules:
            raise self.source.invalid(f"{local} is defined twice", name.at, local)
        document.imports[local] = (name.text, name.at)

    # --- expressions

    def _expansions(self) -> int:
        """Everything up to the end of a definition; returns its node."""
        frames = [_LarkFrame("", self.token.at)]
        while True:
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
            elif kind == "->" and len(frames) == 1:  # the name of an alternative shapes the parse tree
                self.i += 1
                self._expect("NAME", "a name")
                if self.token.kind not in ("NEWLINE", "|", "END"):
                    raise self._unexpected("'|' or the end of the line")
            elif kind == "NEWLINE" and (len(frames) > 1 or self._continues()):
                self.i += 1
            elif kind in ("NEWLINE", "END"):
                if len(frames) > 1:
                    raise self.source.invalid(f"{frame.opener!r} is never closed", frame.at)
                return self._end_choices(frame)
            elif kind == "NAME" and self._begins_template():
                frames.append(_LarkFrame("{", token.at, token.text))
                self.i += 2
            else:
                self._end_atom(frame, self._atom())

    def _begins_template(self) -> bool:
        """``name{`` is a template, unless a number or a comma follows: that is a repetition."""
        following = [token.kind for token in self.tokens[self.i + 1 : self.i + 3]]
        return following[:1] == ["{"] and following[1:] not in (["NUMBER"], [","])

    def _continues(self) -> bool:
        """Whether the line that follows continues the definition: it starts with a bar."""
        i = self.i
        while self.tokens[i].kind == "NEWLINE":
            i += 1
        return self.tokens[i].kind == "|"

    def _skip_newline_after_bar(self) -> None:
        """A bar at the end of a line goes on in the next one, unless that begins a definition."""
        i = self.i
        while self.tokens[i].kind == "NEWLINE":
            i += 1
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
                last = self._expect("STRING", "a character")
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
        if kind == "NAME":
            return self._node(LarkNodeKind.NAME, text, token.at)
        if kind == "TOKEN":
            return self._node(LarkNodeKind.TOKEN, text, token.at)
        if kind == "REFERENCE":
            return self._node(LarkNodeKind.REFERENCE, text, token.at)
        if kind == "DIRECTIVE" and text in ("%json", "%regex"):
            return self._node(
                LarkNodeKind.JSON if text == "%json" else LarkNodeKind.STRUCTURED_REGEX, token.value, token.at
            )
        if kind == "DIRECTIVE" and text not in JSON_DIRECTIVES:
            raise self.source.unsupported(f"{text} is not supported here", token.at, text)
        self.i -= 1
        raise self._unexpected("an expression")

    def _character(self, token: LarkToken) -> str:
        text = unescape(token.text[1:-1], self.source, token.at) if token.text.endswith('"') else ""
        if len(text) != 1:
            raise self.source.invalid("the ends of a range are strings of one character", token.at)
        return text

    def _end_atom(self, frame: _LarkFrame, node: int) -> None:
        """Apply the ~ before an atom and the repetition behind it, and add it to the sequence."""
        at = self.document.nodes[node].at
        if frame.negations % 2:
            node = self._node(LarkNodeKind.NOT, None, at, node)
        frame.negations = 0
        bounds = self._bounds()
        if bounds is not None:
            node = self._node(LarkNodeKind.REPEAT, bounds, at, node)
            if self._bounds() is not None:
                raise self.source.invalid("two repetitions in a row: put the inner one into parentheses", at)
        frame.parts.append(node)

    def _bounds(self) -> tuple[int, int | None] | None:
        """The repetition that stands here, if one does."""
        kind = self.token.kind
        following = self.tokens[self.i + 1].kind if kind != "END" else ""
        if kind in _OPERATORS:
            self.i += 1
            return _OPERATORS[kind]
        at = self.token.at
        if kind == "~" and following == "NUMBER":
            self.i += 1
            low = high = self._count()
            if self.token.kind == "..":
                self.i += 1
                high = self._count()
            return self._checked(low, high, at)
        if kind == "{" and following in ("NUMBER", ","):
            self.i += 1
            low = 0 if self.token.kind == "," else self._count()
            upper: int | None = low
            if self.token.kind == ",":
                self.i += 1
                upper = self._count() if self.token.kind == "NUMBER" else None
            self._expect("}", "'}'")
            return self._checked(low, upper, at)
        return None

    def _count(self) -> int:
        token = self._expect("NUMBER", "a number")
        if not token.text.isdigit() or len(token.text) > 10 or int(token.text) > MAX_COUNT:
            raise self.source.invalid(f"{token.text} is no number of repetitions", token.at)
        return int(token.text)

    def _checked(self, low: int, high: int | None, at: int) -> tuple[int, int | None]:
        if high is not None and high < low:
            raise self.source.invalid(f"at least {low} and at most {high} times is never", at)
        return low, high

    def _close(self, frame: _LarkFrame) -> int:
        if frame.opener == "{":
            frame.arguments.append(self._end_choices(frame))
            return self._node(LarkNodeKind.TEMPLATE, frame.template, frame.at, *frame.arguments)
        node = self._end_choices(frame)
        return self._node(LarkNodeKind.REPEAT, (0, 1), frame.at, node) if frame.opener == "[" else node

    def _end_parts(self, frame: _LarkFrame) -> int:
        if frame.negations:
            raise self.source.invalid("'~' stands before nothing", self.token.at)
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

    # --- tokens

    def _expect(self, kind: str, what: str) -> LarkToken:
        token = self.token
        if token.kind != kind:
            raise self._unexpected(what)
        self.i += 1
        return token

    def _unexpected(self, what: str) -> Exception:
        token = self.token
        found = {"END": "the end of the grammar", "NEWLINE": "the end of the line"}.get(token.kind, repr(token.text))
        return self.source.invalid(f"expected {what}, found {found}", token.at)
