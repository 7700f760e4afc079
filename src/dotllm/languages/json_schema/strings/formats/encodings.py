"""base64: RFC 4648 §4; base64url: §5. Padded (§3.2), with zeros for the bits that the last digit does not use (§3.5):
encoders must write zeros, and decoders may insist on them.

OpenAPI's ``byte`` stays an annotation: validators of JSON Schema do not know it, and in four of MaskBench's valid
documents its strings are not base64."""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format


def _encoding(last: str) -> str:
    digit = f"[A-Za-z0-9{last}]"
    return f"(?:{digit}{{4}})*(?:{digit}[AQgw]==|{digit}{{2}}[AEIMQUYcgkosw048]=)?"


ENCODING_FORMATS = (
    Format("base64", "RFC 4648 §4", _encoding("+/")),
    Format("base64url", "RFC 4648 §5", _encoding("_-")),
)
