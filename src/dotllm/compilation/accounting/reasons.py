"""The name under which /metrics counts a refusal: one of a closed set.

`SpecError.keyword` names the refused part, often by a word of the user's: a rule that is not defined, an unknown field,
the name of a Unicode property. As the value of a label each such word would be a time series for ever, and would show
one customer's names to all readers of the metrics. So only words of ours and of the standards become labels. For all
others the label is the class of the error. The user's word is in the error's message.
"""

from __future__ import annotations

from dotllm.errors import SpecError

_JSON_SCHEMA = frozenset(
    {"$schema", "$id", "$ref", "$dynamicRef", "$recursiveRef", "type", "enum", "const", "format", "pattern"}
    | {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependencies", "dependentSchemas", "dependentRequired"}
    | {"multipleOf", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "maxLength", "minLength"}
    | {"items", "additionalItems", "prefixItems", "contains", "minContains", "maxContains", "maxItems", "minItems"}
    | {"uniqueItems", "unevaluatedItems", "unevaluatedProperties", "properties", "patternProperties", "required"}
    | {"additionalProperties", "propertyNames", "maxProperties", "minProperties"}
    | {"order", "whitespace", "whitespace_pattern", "number"}
)
_REGEX = frozenset(
    {"regex", "anchor", "atomic group", "back-reference", "backtracking verb", "branch reset", "character class"}
    | {"conditional", "locale flag", "look-around", "recursion", "repetition"}
    | {"\\G", "\\K", "\\R", "\\X", "\\C"}
)
_GRAMMARS = frozenset(
    {"grammar", "left recursion", "special token", "template", "flags", "start", "stop", "max_tokens", "temperature"}
    | {"%json", "%regex", "%ignore", "%import", "%declare", "%override", "%extend", "%lark", "%llguidance"}
    | {"%grammar_options", "allow_invalid_utf8", "end token", "(=", "::", "@", "[]", "\\x", "unordered"}
)
_STRUCTURAL_TAGS = frozenset(
    {"structural_tag", "structures", "schema", "json_schema", "any_order", "at_least_one", "begin", "content"}
    | {"elements", "end", "excludes", "loop", "max", "max_chars", "max_whitespace_cnt", "min", "rules", "separator"}
    | {"finite_numbers", "stop_after_first", "style", "tags", "token", "triggers", "value"}
)
_OURS = frozenset(
    {"budget", "choice", "json_object", "length", "memory", "nesting", "size", "steps", "time"}
    | {"stop_token_ids", "tokens_left", "vocabulary"}
)

KNOWN = _JSON_SCHEMA | _REGEX | _GRAMMARS | _STRUCTURAL_TAGS | _OURS


def reason(error: SpecError) -> str:
    """The label of a refusal: its keyword if that is a `KNOWN` word, else its class without "Error", as ever."""
    return error.keyword if error.keyword in KNOWN else type(error).__name__.removesuffix("Error")
