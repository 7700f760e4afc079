"""ipv4: RFC 2673 §3.2 dotted-quad (no leading zeros, as in RFC 3986 §3.2.2); ipv6: RFC 4291 §2.2."""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"

_GROUP = "[0-9A-Fa-f]{1,4}"
_LAST_TWO = f"(?:{_GROUP}:{_GROUP}|{IPV4})"


def _ipv6() -> str:
    """The nine forms of RFC 3986 §3.2.2: eight groups, or ``::`` for at least one of them."""
    forms = [f"(?:{_GROUP}:){{6}}{_LAST_TWO}"]
    for before in range(8):  # at most this many groups before the "::"
        head = f"(?:(?:{_GROUP}:){{0,{before - 1}}}{_GROUP})?" if before else ""
        after = 7 - before
        tail = f"(?:{_GROUP}:){{{after - 2}}}{_LAST_TWO}" if after >= 2 else _GROUP * after
        forms.append(f"{head}::{tail}")
    return "(?:" + "|".join(forms) + ")"


IPV6 = _ipv6()

IP_FORMATS = (
    Format("ipv4", "RFC 2673 §3.2 dotted-quad", IPV4),
    Format("ipv6", "RFC 4291 §2.2", IPV6),
)
