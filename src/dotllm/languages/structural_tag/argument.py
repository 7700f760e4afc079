"""The single argument of a custom tool's call, ``input``, which a grammar describes.

A ``json_schema`` with ``input_grammar`` (a ``syntax``, ``lark`` or ``regex``, and a ``definition``) stands for an
object with a single string, ``input``, which is a text of the grammar. ``style`` names the notation. So the call of a
custom tool is written as chat templates write the call of a function with one argument, and every tool parser reads
it (docs/structural-tags.md).
"""

from __future__ import annotations

from typing import Any

from dotllm.errors import UnsupportedError
from dotllm.grammar import Expression, Grammar
from dotllm.grammar.transform import require_text
from dotllm.languages.cfg import grammar_to_grammar
from dotllm.languages.json_schema import Options
from dotllm.languages.json_schema.emission.prelude import from_prelude
from dotllm.languages.quoted import Quoting, quoted
from dotllm.languages.regex import regex_to_expression
from dotllm.languages.structural_tag import gemma, markup
from dotllm.languages.structural_tag.compiler import Fields, TagCompiler, located
from dotllm.languages.structural_tag.styles import STYLES
from dotllm.suggestions import did_you_mean

NAME = "input"
"""The argument's name."""
SYNTAXES = ("lark", "regex")


def argument(compiler: TagCompiler, value: Any, fields: Fields, style: str, options: Options) -> Expression:
    """The object whose argument ``value``, the ``input_grammar`` of a format, describes. Raises SpecError."""
    inner = Fields(value, fields.at("input_grammar"))
    source = _source(compiler, inner)
    inner.finish()
    grammar, write = compiler.grammar, compiler.text
    space = from_prelude(grammar, options).whitespace

    def content(closing: str, *excludes: str, in_json: bool = False) -> Expression:
        quoting = Quoting((closing, *excludes) if not in_json else excludes, in_json=in_json)
        with located(inner.at("definition")):
            return quoted(source, grammar, quoting, closing)

    if style == "json":
        colon = grammar.optional(grammar.literal(" ")) if options.any_whitespace else grammar.empty()
        opening = [grammar.literal("{"), space, grammar.literal(f'"{NAME}":'), colon, grammar.literal('"')]
        string = content('"', *options.excludes, in_json=True)
        return grammar.seq([*opening, string, grammar.literal('"'), space, grammar.literal("}")])
    if style == markup.COHERE:
        close = "</cofl:value>"
        return grammar.seq(
            [space, write(f'<cofl:value name="{NAME}" type="raw">'), content(close), write(close), space]
        )
    if style == markup.MINIMAX_M3:
        close = f"{markup.MARK}</{NAME}>"
        return grammar.seq([space, write(f"{markup.MARK}<{NAME}>"), content(markup.MARK), write(close), space])
    if style == gemma.STYLE:
        quote, text = write(gemma.QUOTE), content(gemma.QUOTE, *options.excludes)
        opening = [grammar.literal("{"), space, grammar.literal(NAME), space, grammar.literal(":"), space]
        return grammar.seq([*opening, quote, text, quote, space, grammar.literal("}")])
    if style not in STYLES:
        raise unknown_style(style, fields)
    about = STYLES[style]
    line = "\n" if about.is_trimmed else ""  # a reader strips one from each end; the text's own remain
    after = [write(about.after), space] if about is STYLES["glm_xml"] else [write(about.after)]
    text = content(line + about.close, about.close, *options.excludes)
    ends = [grammar.literal(line)] if line else []
    value_ = [write(about.kinds[0]), *ends, text, *ends, write(about.close)]
    return grammar.seq([space, write(about.before), grammar.literal(NAME), *after, *value_, space])


def unknown_style(style: str, fields: Fields) -> UnsupportedError:
    """The refusal of a style that does not exist."""
    known = ("json", *STYLES, *markup.STYLES, gemma.STYLE)
    help = did_you_mean(style, known) or f"the styles are {', '.join(known)}"
    return UnsupportedError(f"unknown style {style!r}", location=fields.at("style"), keyword="style", help=help)


def _source(compiler: TagCompiler, inner: Fields) -> Grammar:
    """The grammar in ``input_grammar``. Raises SpecError if it is refused or matches no text, or its syntax is
    unknown."""
    syntax, definition = inner.string("syntax"), inner.string("definition")
    if syntax not in SYNTAXES:
        raise inner.wrong("syntax", f"'syntax' must be one of {', '.join(SYNTAXES)}, not {syntax!r}")
    with located(inner.at("definition")):
        if syntax == "lark":
            source = grammar_to_grammar(definition, "lark", compiler.token_names)
        else:
            source = Grammar()
            source.start = regex_to_expression(definition, source, search=False)
        require_text(source)  # next to other tools, one without any text would silently vanish
    return source
