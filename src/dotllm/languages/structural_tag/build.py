"""Structural tags → Grammar, in both request forms.

``{"type": "structural_tag", "format": {...}}`` with the formats of xgrammar 0.2.8, and the legacy
``{"structures": [{"begin", "schema", "end"}], "triggers": [...]}``, which is triggered_tags over JSON Schemas.

*Special tokens.* If the text of a begin, end, trigger or constant names a special token of the tokenizer, the token
is matched by its id: it has no bytes, and its name written in ordinary tokens is not the token. The server stops at
an end token, so an end token is matched only at the end of the answer; elsewhere its name is ordinary text.

*Ends.* Free text inside a tag runs until the first end string, as in xgrammar, so a parser that looks for the end
finds the same place. All free text in a tag, however deeply nested, therefore excludes the tag's end strings. An
inner tag has end strings of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dotllm.errors import InvalidSpecError, Pointer
from dotllm.grammar import Expression, Grammar
from dotllm.grammar.end_tokens import keep_last
from dotllm.languages.json_input import read_json, stack_limit
from dotllm.languages.json_schema import Options, schema_expression
from dotllm.languages.json_schema.reading.remedies import TYPE_NAMES
from dotllm.languages.structural_tag.compiler import Fields, TagCompiler
from dotllm.languages.structural_tag.formats import FORMATS, legacy_tag, triggered
from dotllm.languages.token_names import TokenNames


def structural_tag_to_grammar(
    spec: Mapping[str, Any] | str, *, token_names: TokenNames | None = None, options: Options | None = None
) -> Grammar:
    """The texts of a structural tag. ``token_names``: the tokenizer's. Raises SpecError with a JSON Pointer."""
    if isinstance(spec, str):
        spec = read_json(spec, "the structural tag")
    options = options or Options()
    if options != Options():  # a wrong option is refused even if the tag contains no JSON
        schema_expression({"type": "null"}, Grammar(), options)
    grammar = Grammar()
    compiler = TagCompiler(grammar, token_names or TokenNames(), options, FORMATS)
    with stack_limit("the structural tag"):
        grammar.start = _start(compiler, Fields(spec, Pointer()))
        keep_last(grammar, compiler.token_names.named_ends, compiler.spelt)
    return grammar


def _start(compiler: TagCompiler, spec: Fields) -> Expression:
    """The expression of the whole specification. Raises InvalidSpecError for another ``type``, or without a format."""
    if spec.has("structures"):
        triggers = spec.strings("triggers")
        items = [*spec.objects("structures")]
        tags = [legacy_tag(compiler, item) for item in items]
        spec.require_type("structural_tag")
        spec.finish()
        return triggered(
            compiler, tags, triggers, [], (), Pointer() / "triggers", at_least_one=False, stop_after_first=False
        )
    kind = spec.string("type", "structural_tag")
    if kind != "structural_tag" or not spec.has("format"):
        raise _without_format(spec, kind)
    expression = compiler.format(spec.any("format"), Pointer() / "format", ())
    spec.finish()
    return expression


def _without_format(spec: Fields, kind: str) -> InvalidSpecError:
    """The refusal of a value that is not a structural tag; it may be a bare format, a schema or a tag."""
    wrapped = '{"type": "structural_tag", "format": {…}}'
    if kind in FORMATS:
        whole = wrapped.replace("{…}", '{"type": "' + kind + '", …}')
        help = f"put the format into a structural tag: {whole}"
    elif kind in TYPE_NAMES:
        help = f'put the schema into a format, {{"type": "json_schema", "json_schema": {{…}}}}, and that into {wrapped}'
    elif spec.has("begin"):
        help = f'a tag is a format of type "tag"; put it into {wrapped}'
    else:
        help = f"write {wrapped}"
    if kind == "structural_tag":
        return InvalidSpecError("the field 'format' is missing", location=Pointer(), keyword="format", help=help)
    return InvalidSpecError("'type' must be 'structural_tag'", location=Pointer() / "type", keyword="type", help=help)
