"""JSON Schemas for arguments that a model writes as XML-like parameters, in the styles that xgrammar names.

The top level is an object whose members are written one after another, each between an opening and a closing text. A
string value is written raw (it ends at the closing text and so cannot contain it), every other value as JSON. As for
JSON, the normal form (`languages.json_schema`) says which keys exist, which are required, and which values they may
have; only the text differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from dotllm.automata.dfa import Budget, Dfa
from dotllm.charset import ANY_CHAR
from dotllm.errors import InvalidSpecError, Pointer, UnsupportedError
from dotllm.grammar import Expression, Grammar
from dotllm.languages.json_schema.algebra.normal_form import (
    ALL_CONSTANTS,
    ANY_STRING,
    FALSE_BIT,
    NO_NUMBER,
    NO_STRING,
    NULL_BIT,
    TRUE_BIT,
    Node,
    NormalForm,
)
from dotllm.languages.json_schema.build import closed_or_open, parse, read_schema
from dotllm.languages.json_schema.emission.emitter import Emitter
from dotllm.languages.json_schema.emission.prelude import from_prelude
from dotllm.languages.json_schema.guidance_options import refuse as refuse_guidance_options
from dotllm.languages.json_schema.json_text import JsonText
from dotllm.languages.json_schema.objects.members import object_expression
from dotllm.languages.json_schema.options import Options
from dotllm.languages.json_schema.reading.keywords import Keywords
from dotllm.languages.json_schema.strings.forbidden_substrings import containing_one_of
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.json_schema.strings.string_network import strings_of_length
from dotllm.languages.json_schema.unsatisfiable import unsatisfiable
from dotllm.languages.tag_dispatch import tag_dispatch

# Raw strings, which must not contain their closing text or an excluded text.


def raw_string(language: StringLanguage, grammar: Grammar, texts: tuple[str, ...]) -> Expression:
    """The strings of a language in which none of ``texts`` occurs."""
    if language is ANY_STRING:
        return tag_dispatch(grammar, [], texts, loop=True)
    values = [value for value in sorted(language.values) if not any(text in value for text in texts)]
    choices = [grammar.literals(value.encode() for value in values)]
    choices += [strings_of_length(grammar, dfa - _holding(texts), low, high) for dfa, low, high in language.parts()]
    return grammar.alt(choices)


def some_characters(grammar: Grammar, most: int, texts: tuple[str, ...]) -> Expression:
    """Up to ``most`` characters in which none of ``texts`` occurs."""
    if not texts:
        return grammar.repeat(grammar.chars(ANY_CHAR), 0, most)
    return strings_of_length(grammar, ~_holding(texts), 0, most)


@lru_cache(maxsize=16)
def _holding(texts: tuple[str, ...]) -> Dfa:
    return containing_one_of(texts, Budget())


# The common part of all argument notations: they write objects and refuse schemas that they cannot write.

_LISTED = "name the keys under properties, or list the items in an enum: others can be compared only in JSON"


def not_found(name: str) -> UnsupportedError:
    """The refusal of a property whose name readers of a notation would lose."""
    message = f"readers of this notation cannot find a property named {name!r}"
    return UnsupportedError(message, keyword="properties", help="rename it: use letters, digits, '_', '-' and '.'")


def not_compared(keyword: str) -> UnsupportedError:
    """The refusal of ``keyword``, because of which keys or items must differ that are not written as JSON."""
    message = f"{keyword} cannot be enforced here, because arrays and objects are not written as JSON"
    return UnsupportedError(message, keyword=keyword, help=_LISTED)


def require_objects(emitter: Emitter, form: NormalForm, schema: Any) -> None:
    """Raise InvalidSpecError for a schema that allows no objects, with the reason if it allows nothing."""
    if form.objects:
        return
    if form.constants or form.arrays or form.number is not NO_NUMBER or form.string is not NO_STRING:
        raise InvalidSpecError("the schema of parameters must allow objects", location=Pointer(), keyword="type")
    raise unsatisfiable(emitter, schema, emitter.keywords.document.scope)


class Style(NamedTuple):
    """``before`` + key + ``after`` + ``kinds[kind of the value]`` + value + ``close``.

    ``kinds``: the texts for string, number, boolean, null, array, object; a style in which all are equal does not
    write a value's kind. A raw string follows directly; JSON may have white space around it. ``is_trimmed``: a reader
    strips a line break from each end of a value.
    """

    before: str
    after: str
    close: str
    kinds: tuple[str, str, str, str, str, str] = ("", "", "", "", "", "")
    is_trimmed: bool = False

    @property
    def says_kinds(self) -> bool:
        """Whether the text before a value says its kind, or at least whether it is a string."""
        return self.kinds[0] != self.kinds[1]


def _said(string: str, other: str) -> tuple[str, str, str, str, str, str]:
    return (string, other, other, other, other, other)


_NULL = 3  # the index of null in ``kinds``
_DSML = "｜DSML｜"
STYLES = {
    "qwen_xml": Style("<parameter=", ">", "</parameter>"),
    "qwen_trimmed_xml": Style("<parameter=", ">", "</parameter>", is_trimmed=True),
    "minimax_xml": Style('<parameter name="', '">', "</parameter>"),
    "glm_xml": Style("<arg_key>", "</arg_key>", "</arg_value>", ("<arg_value>",) * 6),
    "deepseek_xml": Style(
        f'<{_DSML}parameter name="', '" string="', f"</{_DSML}parameter>", _said('true">', 'false">')
    ),
    "deepseek_v4_1_xml": Style(
        f'<{_DSML} parameter name="', '" string="', f"</{_DSML} parameter>", _said('true">', 'false">')
    ),
    "kimi_k3_xml": Style(
        '<|open|>argument key="', '" type="', "<|close|>argument<|sep|>",
        tuple(f'{kind}"<|sep|>' for kind in ("string", "number", "boolean", "null", "array", "object")),  # type: ignore[arg-type]
    ),
}  # fmt: skip
# Strings that a trimming reader leaves as they are.
_TRIMMED = StringLanguage.pattern(r"^([^\n]([\s\S]*[^\n])?)?$")
_NAMES = StringLanguage.pattern(r"^[a-zA-Z_][a-zA-Z0-9_]*$")

Text = Callable[[str], Expression]


class Arguments(Emitter):
    """Writes the objects of a schema in some notation."""

    def top(self, node: Node, schema: Any) -> Expression:
        """The objects of the node of ``schema``. Raises InvalidSpecError if it allows none."""
        form = self.algebra.form(node)
        require_objects(self, form, schema)
        objects = self.grammar.alt(self.outermost(form))
        self.finish()
        return objects

    def outermost(self, form: NormalForm) -> list[Expression]:
        """The objects of a form, each as all arguments of a call, constraint by constraint."""
        return self.objects(form)


def written(
    schema: Any,
    grammar: Grammar,
    options: Options,
    writer: Callable[[Keywords, Options], Arguments],
    *,
    always_closed: bool = False,
) -> Expression:
    """The objects that ``schema`` allows, in the notation of ``writer``. ``always_closed``: they have only the keys
    that the schema describes, whatever the options say."""
    parsed = parse(schema) if isinstance(schema, str) else schema
    refuse_guidance_options(parsed)

    def write(options: Options) -> Expression:
        if always_closed and options.additional_properties == "open":
            options = options._replace(additional_properties="closed")
        keywords, root = read_schema(parsed, options)
        return writer(keywords, options).top(root, parsed)

    return closed_or_open(write, grammar, options)


def styled_expression(schema: Any, grammar: Grammar, options: Options, style: Style, text: Text) -> Expression:
    """The objects that ``schema`` allows, written in ``style``. ``text`` writes fixed text (special tokens by id)."""
    return written(schema, grammar, options, lambda keywords, options: _Writer(grammar, keywords, options, style, text))


def _may_be_anything(form: NormalForm) -> bool:
    """Whether a form allows values of every type."""
    return form.constants == ALL_CONSTANTS and form.number is not NO_NUMBER and bool(form.arrays and form.objects)


class _Writer(Arguments):
    """Values below the top level are JSON, as `Emitter` writes them."""

    def __init__(self, grammar: Grammar, keywords: Keywords, options: Options, style: Style, text: Text) -> None:
        super().__init__(from_prelude(grammar, options), keywords, options)
        self.style = style
        self.write = text

    def outermost(self, form: NormalForm) -> list[Expression]:
        members = _Members(self)
        return [object_expression(members, constraint) for constraint in form.objects]

    def parameter_value(self, node: Node) -> Expression:
        """The text after the key: the value with its kind, and the closing text."""
        form = self.algebra.form(node)
        grammar, blank = self.grammar, self.text.whitespace
        choices: list[Expression] = []
        may_be_raw = form.string is not NO_STRING
        line: list[Expression] = []  # allowed before and after a string
        if may_be_raw:
            string = self.strings(form)
            if self.style.is_trimmed and string is not ANY_STRING:
                string, line = string & _TRIMMED, [grammar.optional(grammar.literal("\n"))]
            raw = raw_string(string, grammar, (self.style.close, *self.options.excludes))
            choices.append(grammar.seq([self.write(self.style.kinds[0]), *line, raw, *line]))
        if may_be_raw and not self.style.says_kinds and _may_be_anything(form):  # a reader reads any value as a string
            return grammar.seq([grammar.alt(choices), self.write(self.style.close)])
        for kind, part in enumerate((self.numbers, self._booleans, self._nulls, self.arrays, self.objects), 1):
            written = part(form)
            if written:
                # among strings, a reader recognises null only if it stands alone
                around = line if kind == _NULL and may_be_raw and not self.style.says_kinds else [blank]
                value = grammar.alt(written)
                choices.append(grammar.seq([self.write(self.style.kinds[kind]), *around, value, *around]))
        return grammar.seq([grammar.alt(choices), self.write(self.style.close)])

    def _booleans(self, form: NormalForm) -> list[Expression]:
        return self.constants(form, FALSE_BIT | TRUE_BIT)

    def _nulls(self, form: NormalForm) -> list[Expression]:
        return self.constants(form, NULL_BIT)


class _Members(JsonText):
    """The top level's emitter and its text, as `object_expression` needs them: members are written as parameters."""

    def __init__(self, writer: _Writer) -> None:
        self.writer = writer
        self.grammar = writer.grammar
        self.options = writer.options
        self.algebra = writer.algebra
        self.text = self
        self.comma = self.grammar.empty()

    def value(self, node: Node) -> Expression:
        return self.writer.parameter_value(node)

    def values(self, nodes: Iterable[Node]) -> list[Expression]:
        return [self.value(node) for node in nodes]

    def spend(self, edges: int, keyword: str) -> None:
        self.writer.spend(edges, keyword)

    def _key(self, key: Expression, value: Expression) -> Expression:
        writer, style = self.writer, self.writer.style
        after = writer.write(style.after)
        if style is STYLES["glm_xml"]:
            after = self.grammar.seq([after, writer.text.whitespace])
        return self.grammar.seq([writer.text.whitespace, writer.write(style.before), key, after, value])

    def named_member(self, name: str, value: Expression) -> Expression:
        if any(text in name for text in self.options.excludes):
            return self.grammar.never()
        style = self.writer.style
        if style is STYLES["kimi_k3_xml"]:
            name = name.replace("&", "&amp;").replace('"', "&quot;")
        if not name or style.after[0] in name or (name != name.strip() and not style.says_kinds):
            raise not_found(name)
        return self._key(self.grammar.literal(name), value)

    def named_members(self, names: Sequence[str], values: Sequence[Expression]) -> Sequence[Expression]:
        return [self.named_member(name, value) for name, value in zip(names, values, strict=True)]

    def member(self, keys: StringLanguage, value: Expression) -> Expression:
        name = raw_string(keys & _NAMES, self.grammar, self.options.excludes)
        return self._key(name, value)

    def object(
        self,
        states: int,
        finals: Sequence[int],
        edges: Sequence[tuple[int, Expression, int]],
        distinct: str | None = None,
    ) -> Expression:
        if distinct is not None:
            raise not_compared(distinct)
        network = self.grammar.network(states, 0, finals, edges)
        return self.grammar.seq([network, self.writer.text.whitespace])
