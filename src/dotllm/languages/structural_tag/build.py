"""Structural tags → Grammar, in both request forms.

``{"type": "structural_tag", "format": {...}}`` with the formats of xgrammar 0.2.8, and the legacy
``{"structures": [{"begin", "schema", "end"}], "triggers": [...]}``, which is triggered_tags over JSON Schemas.

*Special tokens.* Where the text of a begin, end, trigger or constant names a special token of the tokenizer, that
token is matched by its id: it has no bytes, and writing its name out in ordinary tokens is something else. At an end
token the server stops, so one is matched only at the end of the answer; elsewhere its name is text like any other.

*Ends.* Free text inside a tag runs until the first end string, as in xgrammar: a parser that looks for the end finds
the same place. So all free text in a tag knows the tag's end strings, however deep it stands. A tag inside the tag has
its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dotllm.errors import InvalidSpecError, Pointer
from dotllm.grammar import Expression, Grammar
from dotllm.grammar.end_tokens import keep_last
from dotllm.languages.json_input import read_json, stack_limit
from dotllm.languages.json_schema import Options
from dotllm.languages.structural_tag.combinations import COMBINATIONS
from dotllm.languages.structural_tag.compiler import TagCompiler
from dotllm.languages.structural_tag.contents import CONTENTS
from dotllm.languages.structural_tag.fields import Fields
from dotllm.languages.structural_tag.tags import TAGS, legacy_tag, triggered
from dotllm.languages.token_names import TokenNames

_FORMATS = {**CONTENTS, **COMBINATIONS, **TAGS}


def structural_tag_to_grammar(
    spec: Mapping[str, Any] | str, *, token_names: TokenNames | None = None, options: Options | None = None
) -> Grammar:
    """The texts of a structural tag. ``token_names``: the tokenizer's; ``options``: how JSON is written.

    Raises:
        SpecError: the structural tag is refused; ``location`` is a JSON Pointer.
    """
    if isinstance(spec, str):
        spec = read_json(spec, "the structural tag")
    grammar = Grammar()
    compiler = TagCompiler(grammar, token_names or TokenNames(), options or Options(), _FORMATS)
    with stack_limit("the structural tag"):
        grammar.start = _start(compiler, Fields(spec, Pointer()))
        keep_last(grammar, compiler.token_names.named_ends, compiler.spelt)
    return grammar


def _start(compiler: TagCompiler, spec: Fields) -> Expression:
    """The whole specification.

    Raises:
        InvalidSpecError: ``type`` is another one.
    """
    if spec.has("structures"):
        triggers = spec.strings("triggers")
        items = [Fields(item, Pointer() / "structures" / i) for i, item in enumerate(spec.items("structures"))]
        tags = [legacy_tag(compiler, item) for item in items]
        spec.any("type", None)
        spec.finish()
        return triggered(
            compiler, tags, triggers, [], (), Pointer() / "triggers", at_least_one=False, stop_after_first=False
        )
    kind = spec.string("type", "structural_tag")
    if kind != "structural_tag":
        raise InvalidSpecError("'type' must be 'structural_tag'", location=Pointer() / "type", keyword="type")
    found = compiler.format(spec.any("format"), Pointer() / "format", ())
    spec.finish()
    return found
