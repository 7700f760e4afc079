"""What another language needs to write the values of a schema in its own style, as structural tags do.

Such a language reads the schema (`read_schema`) and extends the `Emitter` or brings its own `ObjectText`.
"""

from __future__ import annotations

from dotllm.languages.json_schema.algebra.normal_form import (
    ALL_CONSTANTS,
    ANY_OBJECT,
    ANY_STRING,
    FALSE_BIT,
    NO_NUMBER,
    NO_STRING,
    NULL_BIT,
    TRUE_BIT,
    ArrayConstraint,
    Node,
    NormalForm,
    ObjectConstraint,
)
from dotllm.languages.json_schema.algebra.objects import closed
from dotllm.languages.json_schema.arrays.items import array_expression
from dotllm.languages.json_schema.build import closed_or_open, parse, read_schema
from dotllm.languages.json_schema.emission.emitter import Emitter
from dotllm.languages.json_schema.emission.json_text import JsonText
from dotllm.languages.json_schema.emission.prelude import from_prelude
from dotllm.languages.json_schema.guidance_options import refuse as refuse_guidance_options
from dotllm.languages.json_schema.objects.members import object_expression
from dotllm.languages.json_schema.options import Options
from dotllm.languages.json_schema.reading.keywords import Keywords
from dotllm.languages.json_schema.strings.forbidden_substrings import containing_one_of
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.json_schema.strings.string_network import strings_of_length
from dotllm.languages.json_schema.unsatisfiable import unsatisfiable

__all__ = [
    "ALL_CONSTANTS",
    "ANY_OBJECT",
    "ANY_STRING",
    "FALSE_BIT",
    "NO_NUMBER",
    "NO_STRING",
    "NULL_BIT",
    "TRUE_BIT",
    "ArrayConstraint",
    "Emitter",
    "JsonText",
    "Keywords",
    "Node",
    "NormalForm",
    "ObjectConstraint",
    "Options",
    "StringLanguage",
    "array_expression",
    "closed",
    "closed_or_open",
    "containing_one_of",
    "from_prelude",
    "object_expression",
    "parse",
    "read_schema",
    "refuse_guidance_options",
    "strings_of_length",
    "unsatisfiable",
]
