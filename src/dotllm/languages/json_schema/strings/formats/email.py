"""email: RFC 5321 §4.1.2 Mailbox; idn-email: RFC 6531 §3.3; name-email (Pydantic's name): RFC 5322 §3.4 mailbox, with
single spaces and without comments.

Domains are fully qualified (RFC 5321 §2.3.5), as readers (Pydantic, zod, valibot) require: several labels, the last
of which has two letters or more.

The lengths of RFC 5321 §4.5.3.1 are minimums that an implementation must handle, not limits of the grammar. Address
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
    top = f"[A-Za-z{letters}]{{2,63}}"
    return rf"{local}@(?:(?:{label}\.)+{top}|{_LITERAL})"


_WORD = r"[A-Za-z0-9\p{L}\p{M}\p{N}!#$%&'*+/=?^_`{|}~.-]+"
_NAME = rf'(?:{_WORD}(?: {_WORD})*|"[ !#-\[\]-~]*[!#-\[\]-~]")'

EMAIL_FORMATS = (
    Format("name-email", "RFC 5322 §3.4 mailbox", f"(?:{_NAME} <{_mailbox('', '')}>|{_mailbox('', '')})"),
    Format("email", "RFC 5321 §4.1.2 Mailbox", _mailbox("", "")),
    Format("idn-email", "RFC 6531 §3.3 Mailbox", _mailbox(_NON_ASCII, _LETTERS)),
)
