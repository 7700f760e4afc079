"""ipv4: RFC 2673 §3.2 dotted-quad (no leading zeros, as in RFC 3986 §3.2.2); ipv6: RFC 4291 §2.2.

Pydantic's names for strings that Python's `ipaddress` reads: ipvanyaddress; ipv4interface, ipv6interface,
ipvanyinterface, an address with an optional prefix length (RFC 4632 §3.1, RFC 4291 §2.3); ipv4network, ipv6network,
ipvanynetwork, the same with no bit set after the prefix. Checking this in every spelling of an IPv6 address would
take tens of thousands of states, so a network with a prefix ends in ``::`` after a group other than 0, or its prefix
is all 128 bits. Netmasks and zones are not allowed.
"""

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


def _numbers(low: int, high: int) -> str:
    """Decimal numbers from ``low`` to ``high``."""
    tens: dict[int, list[int]] = {}
    for number in range(low, high + 1):
        tens.setdefault(number // 10, []).append(number % 10)
    return "(?:" + "|".join(f"{ten or ''}[{ones[0]}-{ones[-1]}]" for ten, ones in tens.items()) + ")"


def _ipv4_network() -> str:
    """One form for each place of the last set bit: its octet, and the number of unset bits after it."""
    forms = [IPV4, f"0\\.0\\.0\\.0/{_numbers(0, 32)}"]
    for octets in range(1, 5):
        for zeros in range(8):
            last = "|".join(str(value) for value in range(1, 256) if value & -value == 1 << zeros)
            address = rf"(?:{_OCTET}\.){{{octets - 1}}}(?:{last})" + r"\.0" * (4 - octets)
            forms.append(f"{address}/{_numbers(8 * octets - zeros, 32)}")
    return "(?:" + "|".join(forms) + ")"


def _ipv6_network() -> str:
    """``a:b::/p``: one form for each number of groups and each number of unset bits at the end of the last group."""
    ends = [
        *("[0-9A-Fa-f]{0,3}[13579BDFbdf]", "[0-9A-Fa-f]{0,3}[26AEae]", "[0-9A-Fa-f]{0,3}[4Cc]", "[0-9A-Fa-f]{0,3}8"),
        *("[0-9A-Fa-f]{0,2}[13579BDFbdf]0", "[0-9A-Fa-f]{0,2}[26AEae]0", "[0-9A-Fa-f]{0,2}[4Cc]0"),
        *("[0-9A-Fa-f]{0,2}80", "[0-9A-Fa-f]?[13579BDFbdf]00", "[0-9A-Fa-f]?[26AEae]00", "[0-9A-Fa-f]?[4Cc]00"),
        *("[0-9A-Fa-f]?800", "[13579BDFbdf]000", "[26AEae]000", "[4Cc]000", "8000"),
    ]
    forms = [f"{IPV6}(?:/128)?", f"::/{_numbers(0, 128)}"]
    for groups in range(1, 8):
        for zeros, end in enumerate(ends):
            least = 16 * groups - zeros
            forms.append(f"(?:{_GROUP}:){{{groups - 1}}}{end}::/{_numbers(least, 128)}")
    return "(?:" + "|".join(forms) + ")"


_IPV4_INTERFACE = f"{IPV4}(?:/{_numbers(0, 32)})?"
_IPV6_INTERFACE = f"{IPV6}(?:/{_numbers(0, 128)})?"

IP_FORMATS = (
    Format("ipv4", "RFC 2673 §3.2 dotted-quad", IPV4),
    Format("ipv6", "RFC 4291 §2.2", IPV6),
    Format("ipvanyaddress", "ipv4 or ipv6", f"(?:{IPV4}|{IPV6})"),
    Format("ipv4interface", "RFC 4632 §3.1", _IPV4_INTERFACE),
    Format("ipv6interface", "RFC 4291 §2.3", _IPV6_INTERFACE),
    Format("ipvanyinterface", "ipv4interface or ipv6interface", f"(?:{_IPV4_INTERFACE}|{_IPV6_INTERFACE})"),
    Format("ipv4network", "RFC 4632 §3.1", _ipv4_network()),
    Format("ipv6network", "RFC 4291 §2.3", _ipv6_network()),
    Format("ipvanynetwork", "ipv4network or ipv6network", f"(?:{_ipv4_network()}|{_ipv6_network()})"),
)
