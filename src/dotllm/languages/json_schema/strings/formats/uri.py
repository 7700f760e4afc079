"""uri, uri-reference: RFC 3986 Appendix A; iri, iri-reference: RFC 3987 §2.2. Both are regular as they stand."""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format
from dotllm.languages.json_schema.strings.formats.ip import IPV6

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

    def some(extra: str, count: str = "*") -> str:
        return f"(?:[{_UNRESERVED}{unicode}{_DELIMITERS}{extra}-]|{PERCENT}){count}"

    scheme = "[A-Za-z][A-Za-z0-9+.-]*:"
    future = rf"[Vv][0-9A-Fa-f]+\.[A-Za-z0-9._~{_DELIMITERS}:-]+"
    host = rf"(?:\[(?:{IPV6}|{future})\]|{some('')})"
    authority = f"(?:{some(':')}@)?{host}(?::[0-9]*)?"
    segments = f"(?:/{some(':@')})*"
    rooted = f"//{authority}{segments}|/(?:{some(':@', '+')}{segments})?"
    rootless = f"{some(':@', '+')}{segments}"
    tail = rf"(?:\?{some(':@/?' + private)})?(?:#{some(':@/?')})?"
    whole = f"{scheme}(?:{rooted}|{rootless})?{tail}"
    if absolute:
        return whole
    no_scheme = f"{some('@', '+')}{segments}"
    return f"(?:{whole}|(?:{rooted}|{no_scheme})?{tail})"


URI_FORMATS = (
    Format("uri", "RFC 3986 URI", _reference("", "", absolute=True)),
    Format("uri-reference", "RFC 3986 URI-reference", _reference("", "", absolute=False)),
    Format("iri", "RFC 3987 IRI", _reference(UCSCHAR, PRIVATE, absolute=True)),
    Format("iri-reference", "RFC 3987 IRI-reference", _reference(UCSCHAR, PRIVATE, absolute=False)),
)
