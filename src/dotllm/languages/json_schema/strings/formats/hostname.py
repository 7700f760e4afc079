"""hostname: RFC 1123 §2.1: labels of at most 63 letters, digits and inner hyphens, at most 253 characters in all.

A label that begins with ``xn--`` is Punycode (RFC 5891 §4.4); whether it decodes to a valid label is not regular, so
such labels are not allowed. idn-hostname (RFC 5890) needs Punycode for its lengths, normal form C and rules between
distant characters, and is refused by name.
"""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_PUNYCODE = r"(?:.*\.)?[Xx][Nn]--.*"

HOSTNAME_FORMATS = (Format("hostname", "RFC 1123 §2.1", rf"{_LABEL}(?:\.{_LABEL})*", _PUNYCODE, 253),)
