"""json-pointer: RFC 6901 §3; relative-json-pointer: draft-handrews-relative-json-pointer-01 §3.

Later drafts of the latter added an index manipulation (``0+1/a``), which older dialects of JSON Schema do not know;
it is not allowed in any dialect.
"""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format

_POINTER = "(?:/(?:[^/~]|~[01])*)*"

JSON_POINTER_FORMATS = (
    Format("json-pointer", "RFC 6901 §3", _POINTER),
    Format("relative-json-pointer", "draft-handrews-relative-json-pointer-01 §3", f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})"),
)
