"""The formats that are regular as they stand, each as a regular expression from its standard."""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format

# date-time, date, time: RFC 3339 §5.6 with the restrictions of §5.7; duration: its Appendix A.
#
# Months have their lengths and leap years their extra day. Forms that readers (Python's `datetime`, Pydantic,
# JavaScript's Date) refuse are left out or bounded: second 60 (RFC 3339 §5.7 allows it at the end of the few days that
# had one), t and z for T and Z (§5.6: generators should write the latter), the year 0000, fractions of more than
# fifteen digits, and durations with more digits than a 32-bit number of seconds for the time of day and 999,999,999
# days allow.
_DAY_31 = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_DAY_30 = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = "02-(?:0[1-9]|1[0-9]|2[0-8])"
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26]|0[48])00)"
_DATE = f"(?:{_YEAR}-(?:{_DAY_31}|{_DAY_30}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"

_HOUR_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]{1,15})?"
_TIME = f"{_HOUR_MINUTE}:[0-5][0-9]{_FRACTION}(?:Z|[+-]{_HOUR_MINUTE})"

_SIX, _EIGHT = "[0-9]{1,6}", "[0-9]{1,8}"
_SECONDS = f"(?:{_EIGHT}S)?"
_TIME_PART = f"T(?:{_SIX}H(?:{_SIX}M{_SECONDS})?|{_SIX}M{_SECONDS}|{_EIGHT}S)"
_DAYS = f"(?:{_EIGHT}D)?"
_DATE_PART = f"(?:{_SIX}Y(?:{_SIX}M{_DAYS})?|{_SIX}M{_DAYS}|{_EIGHT}D)"
_DURATION = f"P(?:{_DATE_PART}(?:{_TIME_PART})?|{_TIME_PART}|{_EIGHT}W)"


# ipv4: RFC 2673 §3.2 dotted-quad (no leading zeros, as in RFC 3986 §3.2.2); ipv6: RFC 4291 §2.2.
#
# Pydantic's names for strings that Python's `ipaddress` reads: ipvanyaddress; ipv4interface, ipv6interface,
# ipvanyinterface, an address with an optional prefix length (RFC 4632 §3.1, RFC 4291 §2.3); ipv4network, ipv6network,
# ipvanynetwork, the same with no bit set after the prefix. Checking this in every spelling of an IPv6 address would
# take tens of thousands of states, so a network with a prefix ends in ``::`` after a group other than 0, or its prefix
# is all 128 bits. Netmasks and zones are not allowed.
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


# email: RFC 5321 §4.1.2 Mailbox; idn-email: RFC 6531 §3.3; name-email (Pydantic's name): RFC 5322 §3.4 mailbox, with
# single spaces and without comments.
#
# Domains are fully qualified (RFC 5321 §2.3.5), as readers (Pydantic, zod, valibot) require: several labels, the last
# of which has two letters or more.
#
# The lengths of RFC 5321 §4.5.3.1 are not limits of the grammar: they say what must be read, and what those who write
# should not exceed. The local part's limit is kept, because a model that has begun a wrong one seldom ends it itself;
# the domain's would take too many states next to a pattern. Address literals are IPv4 and IPv6: no other tag has been
# registered. The labels of an internationalised domain consist of the letters, marks and digits of RFC 5892 §2.1 (lower
# case); contextual rules and normal forms are not checked.
_SNUM = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]{1,2})"
_ADDRESS_LITERAL = rf"\[(?:{_SNUM}(?:\.{_SNUM}){{3}}|[Ii][Pp][Vv]6:{IPV6})\]"
_NON_ASCII = f"{chr(0x80)}-{chr(0x10FFFF)}"
_LETTERS = r"\p{Ll}\p{Lo}\p{Lm}\p{Mn}\p{Mc}\p{Nd}"


def _mailbox(non_ascii: str, letters: str) -> str:
    atom = f"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{non_ascii}-]+"
    local = rf'(?:{atom}(?:\.{atom})*|"(?:[ !#-\[\]-~{non_ascii}]|\\[ -~])*")'
    label = f"[A-Za-z0-9{letters}](?:[A-Za-z0-9{letters}-]*[A-Za-z0-9{letters}])?"
    top = f"[A-Za-z{letters}]{{2,63}}"
    return rf"{local}@(?:(?:{label}\.)+{top}|{_ADDRESS_LITERAL})"


_LONG_LOCAL_PART = r'(?:[^"@]{65,}@(?s:.*)|"(?s:.{63,})"@[^"]*)'

_WORD = r"[A-Za-z0-9\p{L}\p{M}\p{N}!#$%&'*+/=?^_`{|}~.-]+"
_NAME = rf'(?:{_WORD}(?: {_WORD})*|"[ !#-\[\]-~]*[!#-\[\]-~]")'


# base64: RFC 4648 §4; base64url: §5. Padded (§3.2), with zeros for the bits that the last digit does not use (§3.5):
# encoders must write zeros, and decoders may insist on them.
#
# OpenAPI's ``byte`` stays an annotation: validators of JSON Schema do not know it, and in four of MaskBench's valid
# documents its strings are not base64.
def _encoding(last: str) -> str:
    digit = f"[A-Za-z0-9{last}]"
    return f"(?:{digit}{{4}})*(?:{digit}[AQgw]==|{digit}{{2}}[AEIMQUYcgkosw048]=)?"


# fraction (Pydantic's name): the strings that Python's ``fractions.Fraction`` reads, without white space, underscores,
# exponents and plus signs; each number has at most 32 digits.
_DIGITS = "[0-9]{1,32}"
_NOT_ZERO = "[1-9][0-9]{0,31}"


# hostname: RFC 1123 §2.1: labels of at most 63 letters, digits and inner hyphens, at most 253 characters in all.
#
# A label that begins with ``xn--`` is Punycode (RFC 5891 §4.4); whether it decodes to a valid label is not regular, so
# such labels are not allowed. idn-hostname (RFC 5890) needs Punycode for its lengths, normal form C and rules between
# distant characters, and is refused by name.
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_PUNYCODE = r"(?:.*\.)?[Xx][Nn]--.*"


# json-pointer: RFC 6901 §3; relative-json-pointer: draft-handrews-relative-json-pointer-01 §3.
#
# Later drafts of the latter added an index manipulation (``0+1/a``), which older dialects of JSON Schema do not know;
# it is not allowed in any dialect.
_POINTER = "(?:/(?:[^/~]|~[01])*)*"


# uri, uri-reference: RFC 3986 Appendix A; iri, iri-reference: RFC 3987 §2.2. Both are regular as they stand.
PERCENT = "%[0-9A-Fa-f]{2}"
_DELIMITERS = "!$&'()*+,;="
_UNRESERVED = "A-Za-z0-9._~"

# RFC 3987 §2.2 ucschar and iprivate, as the inside of a character class
_UCSCHAR_RANGES = [(0xA0, 0xD7FF), (0xF900, 0xFDCF), (0xFDF0, 0xFFEF)]
_UCSCHAR_RANGES += [(plane << 16, (plane << 16) + 0xFFFD) for plane in range(1, 14)]
_UCSCHAR_RANGES += [(0xE1000, 0xEFFFD)]
_PRIVATE_RANGES = [(0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)]


def _class(ranges: list[tuple[int, int]]) -> str:
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges)


UCSCHAR = _class(_UCSCHAR_RANGES)
PRIVATE = _class(_PRIVATE_RANGES)


def _reference(unicode: str, private: str, *, absolute: bool) -> str:
    """A URI (or IRI); unless ``absolute``, a relative reference, too."""

    def chars(extra: str, count: str = "*") -> str:
        return f"(?:[{_UNRESERVED}{unicode}{_DELIMITERS}{extra}-]|{PERCENT}){count}"

    scheme = "[A-Za-z][A-Za-z0-9+.-]*:"
    future = rf"[Vv][0-9A-Fa-f]+\.[A-Za-z0-9._~{_DELIMITERS}:-]+"
    host = rf"(?:\[(?:{IPV6}|{future})\]|{chars('')})"
    authority = f"(?:{chars(':')}@)?{host}(?::[0-9]*)?"
    segments = f"(?:/{chars(':@')})*"
    rooted = f"//{authority}{segments}|/(?:{chars(':@', '+')}{segments})?"
    rootless = f"{chars(':@', '+')}{segments}"
    tail = rf"(?:\?{chars(':@/?' + private)})?(?:#{chars(':@/?')})?"
    whole = f"{scheme}(?:{rooted}|{rootless})?{tail}"
    if absolute:
        return whole
    no_scheme = f"{chars('@', '+')}{segments}"
    return f"(?:{whole}|(?:{rooted}|{no_scheme})?{tail})"


# uri-template: RFC 6570 §2, with its erratum 6937 (an apostrophe is a literal).
_LITERAL = rf"(?:[!#$&'(-;=?-\[\]_a-z~{UCSCHAR}{PRIVATE}]|{PERCENT})"
_NAME_CHARACTER = f"(?:[A-Za-z0-9_]|{PERCENT})"
_VARIABLE = rf"{_NAME_CHARACTER}(?:\.?{_NAME_CHARACTER})*(?::[1-9][0-9]{{0,3}}|\*)?"
_EXPRESSION = rf"\{{[+#./;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*\}}"


# uuid: RFC 4122 §3, hexadecimal in either case, any version and variant; uuid1 to uuid8 (Pydantic's names): RFC 9562
# §4, of that version and its variant.
_HEX = "[0-9A-Fa-f]"


def _of_version(version: int) -> str:
    return f"{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-[89ABab]{_HEX}{{3}}-{_HEX}{{12}}"


FORMATS = (
    Format("date-time", "RFC 3339 §5.6 date-time", f"{_DATE}T{_TIME}"),
    Format("date", "RFC 3339 §5.6 full-date", _DATE),
    Format("time", "RFC 3339 §5.6 full-time", _TIME),
    Format("duration", "RFC 3339 Appendix A duration", _DURATION),
    Format("ipv4", "RFC 2673 §3.2 dotted-quad", IPV4),
    Format("ipv6", "RFC 4291 §2.2", IPV6),
    Format("ipvanyaddress", "ipv4 or ipv6", f"(?:{IPV4}|{IPV6})"),
    Format("ipv4interface", "RFC 4632 §3.1", _IPV4_INTERFACE),
    Format("ipv6interface", "RFC 4291 §2.3", _IPV6_INTERFACE),
    Format("ipvanyinterface", "ipv4interface or ipv6interface", f"(?:{_IPV4_INTERFACE}|{_IPV6_INTERFACE})"),
    Format("ipv4network", "RFC 4632 §3.1", _ipv4_network()),
    Format("ipv6network", "RFC 4291 §2.3", _ipv6_network()),
    Format("ipvanynetwork", "ipv4network or ipv6network", f"(?:{_ipv4_network()}|{_ipv6_network()})"),
    Format("name-email", "RFC 5322 §3.4 mailbox", f"(?:{_NAME} <{_mailbox('', '')}>|{_mailbox('', '')})"),
    Format("email", "RFC 5321 §4.1.2 Mailbox", _mailbox("", ""), _LONG_LOCAL_PART),
    Format("idn-email", "RFC 6531 §3.3 Mailbox", _mailbox(_NON_ASCII, _LETTERS), _LONG_LOCAL_PART),
    Format("base64", "RFC 4648 §4", _encoding("+/")),
    Format("base64url", "RFC 4648 §5", _encoding("_-")),
    Format("json-pointer", "RFC 6901 §3", _POINTER),
    Format("relative-json-pointer", "draft-handrews-relative-json-pointer-01 §3", f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})"),
    Format("uri", "RFC 3986 URI", _reference("", "", absolute=True)),
    Format("uri-reference", "RFC 3986 URI-reference", _reference("", "", absolute=False)),
    Format("iri", "RFC 3987 IRI", _reference(UCSCHAR, PRIVATE, absolute=True)),
    Format("iri-reference", "RFC 3987 IRI-reference", _reference(UCSCHAR, PRIVATE, absolute=False)),
    Format("uuid", "RFC 4122 §3 UUID", f"{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}"),
    *(Format(f"uuid{version}", f"RFC 9562 §5.{version}", _of_version(version)) for version in range(1, 9)),
    Format("fraction", "Python fractions.Fraction", rf"-?{_DIGITS}(?:/{_NOT_ZERO}|\.{_DIGITS})?"),
    Format("hostname", "RFC 1123 §2.1", rf"{_LABEL}(?:\.{_LABEL})*", _PUNYCODE, 253),
    Format("uri-template", "RFC 6570 §2 URI-Template", f"(?:{_LITERAL}|{_EXPRESSION})*"),
)
