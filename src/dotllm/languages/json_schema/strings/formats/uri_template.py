"""uri-template: RFC 6570 §2, with its erratum 6937 (an apostrophe is a literal)."""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format
from dotllm.languages.json_schema.strings.formats.uri import PERCENT, PRIVATE, UCSCHAR

_LITERAL = rf"(?:[!#$&'(-;=?-\[\]_a-z~{UCSCHAR}{PRIVATE}]|{PERCENT})"
_NAME_CHARACTER = f"(?:[A-Za-z0-9_]|{PERCENT})"
_VARIABLE = rf"{_NAME_CHARACTER}(?:\.?{_NAME_CHARACTER})*(?::[1-9][0-9]{{0,3}}|\*)?"
_EXPRESSION = rf"\{{[+#./;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*\}}"

URI_TEMPLATE_FORMATS = (Format("uri-template", "RFC 6570 §2 URI-Template", f"(?:{_LITERAL}|{_EXPRESSION})*"),)
