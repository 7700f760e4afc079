"""email: RFC 5321 §4.1.2 Mailbox; idn-email: RFC 6531 §3.3.

Lengths of RFC 5321 §4.5.3.1 are what an implementation must at least handle, not limits of the grammar. Address
literals are IPv4 and IPv6: no other tag has been registered. The labels of an internationalised domain consist of the
letters, marks and digits of RFC 5892 §2.1 (lower case); contextual rules and normal forms are not checked.
"""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format
from dotllm.languages.json_schema.strings.formats.ip import IPV6

_SNUM = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]{1,2})"
_LITERAL = rf"\[(?:{_SNUM}(?:\.{_SNUM}){{3}}|[Ii][Pp][Vv]6:{IPV6})\]"
_NON_ASCII = f"{chr(0x80)}-{chr(0x10FFFF)}"
_LETTERS = r"\p{Ll}\p{Lo}\p{Lm}\p{Mn}\p{Mc}\p{Nd}"


def _mailbox(non_ascii: str, letters: str) -> str:
    atom = f"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{non_ascii}-]+"
    local = rf'(?:{atom}(?:\.{atom})*|"(?:[ !#-\[\]-~{non_ascii}]|\\[ -~])*")'
    label = f"[A-Za-z0-9{letters}](?:[A-Za-z0-9{letters}-]*[A-Za-z0-9{letters}])?"
    return rf"{local}@(?:{label}(?:\.{label})*|{_LITERAL})"


EMAIL_FORMATS = (
    Format("email", "RFC 5321 §4.1.2 Mailbox", _mailbox("", "")),
    Format("idn-email", "RFC 6531 §3.3 Mailbox", _mailbox(_NON_ASCII, _LETTERS)),
)
