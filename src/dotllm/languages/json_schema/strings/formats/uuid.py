"""uuid: RFC 4122 §3, hexadecimal in either case, any version and variant; uuid1 to uuid8 (Pydantic's names): RFC 9562
§4, of that version and its variant."""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format

_HEX = "[0-9A-Fa-f]"


def _of_version(version: int) -> str:
    return f"{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-[89ABab]{_HEX}{{3}}-{_HEX}{{12}}"


UUID_FORMATS = (
    Format("uuid", "RFC 4122 §3 UUID", f"{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}"),
    *(Format(f"uuid{version}", f"RFC 9562 §5.{version}", _of_version(version)) for version in range(1, 9)),
)
