"""uuid: RFC 4122 §3, hexadecimal in either case, any version and variant."""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format

UUID_FORMATS = (Format("uuid", "RFC 4122 §3 UUID", "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"),)
