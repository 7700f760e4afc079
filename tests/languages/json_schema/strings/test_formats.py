"""Formats against the JSON-Schema-Test-Suite, the standard library and brute force."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import re
import shutil
import subprocess
import uuid
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dotllm.errors import UnsupportedError
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.strings.formats import registry as formats
from dotllm.languages.json_schema.strings.formats.regex import is_pattern
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from tests.cases import few
from tests.conftest import SHARED_DATA
from tests.grammar.reference import Recogniser, accepts
from tests.languages.json_schema.scalar_texts import acceptor, grammar_of, spelled

SUITE = SHARED_DATA / "json-schema-test-suite" / "tests"
DRAFTS = ["draft7", "draft2020-12"]


def suite_cases() -> list[tuple[str, str, bool, str]]:
    """(format, text, valid, description) of the suite's optional/format tests, without texts that are not Unicode."""
    found: dict[tuple[str, str], tuple[str, str, bool, str]] = {}
    for draft in DRAFTS:
        for path in sorted((SUITE / draft / "optional" / "format").glob("*.json")):
            for group in json.loads(path.read_text()):
                name = group["schema"].get("format")
                for case in group["tests"]:
                    if name in formats.FORMATS and name != "regex" and isinstance(case["data"], str):
                        found[name, case["data"]] = (name, case["data"], case["valid"], case["description"])
    return list(found.values())


# Whether a Punycode label is valid depends on what it encodes, which no automaton sees, so none is allowed.
STRICTER = re.compile(r"(^|\.)xn--", re.IGNORECASE)


@pytest.mark.skipif(not SUITE.exists(), reason="the JSON-Schema-Test-Suite is not here")
def test_suite() -> None:
    cases = suite_cases()
    assert len(cases) > 300
    wrong = []
    for name, text, valid, description in cases:
        accepted = formats.FORMATS[name].accepts(text)
        # Left out because readers refuse it: second 60, lower-case t and z, durations of too many digits.
        refused = name in ("time", "date-time") and (":60" in text or text != text.upper())
        refused = refused or (name == "duration" and len(text) > 40)
        if accepted != valid and not (name == "hostname" and STRICTER.search(text) and not accepted) and not refused:
            wrong.append((name, text, valid, description))
    assert wrong == []


@pytest.mark.parametrize("name", sorted(set(formats.FORMATS) - {"regex"}))
def test_grammar_is_the_automaton(name: str) -> None:
    language = StringLanguage.format(name)
    assert language is not None and not language.is_empty()
    accepts = acceptor(language)
    texts = [text for known, text, _, _ in suite_cases() if known == name] if SUITE.exists() else []
    # The oracle is slow, and the automaton of host names is large.
    for text in [*texts[: 1 if name == "hostname" else 60], *SAMPLES.get(name, [])[:3]]:
        if len(text) < 100:
            assert accepts(spelled(text)) == formats.FORMATS[name].accepts(text) == language.contains(text), text


SAMPLES = {
    "date-time": ["2024-02-29T23:59:60.25+00:00", "2024-02-30T00:00:00Z"],
    "time": ["23:59:60Z", "12:00:00.123456789012345Z", "12:00:00.1234567890123456Z", "12:00:00z"],
    "duration": ["P1Y2M3DT4H5M6S", "P999999W", "P1Y1D", "PT1234567H"],
    "ipv4network": ["10.0.0.0/8", "10.0.0.1/8", "1.2.3.4"],
    "ipv6network": ["2001:db8::/32", "2001:db8::/31", "::1/128"],
    "uuid4": ["2eb8aa08-aa98-41ea-b4aa-73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d16380"],
    "base64": ["", "YQ==", "YR==", "YWI=", "YWJj", "YWJ"],
    "fraction": ["1/3", "-1.5", "1/0"],
    "name-email": ["Ann B <ann@x.de>", "ann@x.de", "Ann B ann@x.de"],
    "email": ['"a\\"b"@x.de', '"a"b"@x.de', "a@[IPv6:::1]", "a@[1.2.3.4]", "a@-b.de"],
    "hostname": ["a.XN--b", "x" * 63 + ".y"],
    "uri": ["a:", "http://[v1.a]:80/?#", "http://a b", "x:%41"],
}


def test_hostname_lengths() -> None:
    accepts = formats.FORMATS["hostname"].accepts
    assert accepts("a." * 126 + "b") and not accepts("a." * 126 + "bc") and not accepts("a." * 127 + "b")
    assert accepts("x" * 63 + ".y") and not accepts("x" * 64)


# -- against other implementations -------------------------------------------------------------------------------------


def some_edits(samples: list[str], alphabet: str) -> st.SearchStrategy[str]:
    """A sample with up to three edits."""

    @st.composite
    def edited(draw: st.DrawFn) -> str:
        text = draw(st.sampled_from(samples))
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, len(text)))
            kind = draw(st.integers(0, 2))
            new = draw(st.sampled_from(alphabet))
            text = text[:at] + (new if kind else "") + text[at + (kind < 2) :]
        return text

    return edited()


def is_date(text: str) -> bool:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


@given(some_edits(["2024-02-29", "1900-02-28", "0000-12-31", "9999-04-30"], "0123456789-T "))
@settings(max_examples=few(400))
def test_date(text: str) -> None:
    assert formats.FORMATS["date"].accepts(text) == is_date(text)


def test_every_day_of_some_years() -> None:
    accepts = formats.FORMATS["date"].accepts
    for year in (1900, 2000, 2023, 2024, 2100):
        for month in range(14):
            for day in range(33):
                text = f"{year}-{month:02}-{day:02}"
                assert accepts(text) == is_date(text)


def is_ip(kind: Any, text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return text.isascii() and "%" not in text  # RFC 4291 has no zones


@given(some_edits(["1.2.3.4", "255.255.255.255", "0.10.99.200"], "0123456789. "))
@settings(max_examples=few(400))
def test_ipv4(text: str) -> None:
    assert formats.FORMATS["ipv4"].accepts(text) == is_ip(ipaddress.IPv4Address, text)


@given(
    some_edits(
        ["::", "1::", "::1", "1:2:3:4:5:6:7:8", "1:2:3::8", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4"], "0129aFg:.%"
    )
)
@settings(max_examples=few(800))
def test_ipv6(text: str) -> None:
    assert formats.FORMATS["ipv6"].accepts(text) == is_ip(ipaddress.IPv6Address, text)


@given(some_edits(["2024-02-29T12:30:59Z", "1999-12-31t23:59:59.123+01:30"], "0123456789-:TZ.+ "))
@settings(max_examples=few(400))
def test_date_time(text: str) -> None:
    shape = re.fullmatch(r"(.{10})T([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(Z|[+-]([0-9]{2}):([0-9]{2}))", text)
    expected = False
    if shape and is_date(shape[1]):
        hour, minute, second = int(shape[2]), int(shape[3]), int(shape[4])
        away = (int(shape[7]), int(shape[8])) if shape[7] else (0, 0)
        expected = hour < 24 and minute < 60 and second < 60 and away[0] < 24 and away[1] < 60
        expected = expected and len(shape[5] or "") <= 16
    assert formats.FORMATS["date-time"].accepts(text) == expected


@given(some_edits(["ann@example.com", "a.b+c@x-1.de", "a@b", "joe@1.2.3.4", "a@sub.example.museum"], "a1.-@Z"))
@settings(max_examples=few(400))
def test_domains_of_mailboxes_are_fully_qualified(text: str) -> None:
    """Pydantic and zod require a fully qualified domain; the pattern here is RFC 5321's atoms with zod's domain."""
    atom = "[A-Za-z0-9+-]+"
    expected = re.fullmatch(rf"{atom}(\.{atom})*@([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{{2,63}}", text)
    for name in ("email", "name-email"):
        assert formats.FORMATS[name].accepts(text) == (expected is not None)
    assert formats.FORMATS["idn-email"].accepts("실례@실례.테스트")
    assert not formats.FORMATS["idn-email"].accepts("실례@실례")


@pytest.mark.parametrize("name", ["email", "idn-email"])
@pytest.mark.parametrize("local", ["a", "a.", '"', "\\"], ids=["atom", "atoms", "quoted", "escaped"])
def test_a_mailbox_ends(name: str, local: str) -> None:
    """A local part has at most 64 characters (RFC 5321 §4.5.3.1.1), so that a model cannot write one for ever."""

    def mailbox(length: int) -> str:
        if local in '"\\':
            pairs = r"\"" * ((length - 2) // 2) if local == "\\" else ""
            return f'"{pairs}{"a" * (length - 2 - len(pairs))}"@b.de'
        return f"{(local * length)[: length - 1]}a@b.de"

    for length in (3, 63, 64, 65, 66, 200):
        assert formats.FORMATS[name].accepts(mailbox(length)) == (length <= 64), length


@given(some_edits(["2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"], "0af-Gg{"))
@settings(max_examples=few(200))
def test_uuid(text: str) -> None:
    expected = re.fullmatch("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text) is not None
    assert formats.FORMATS["uuid"].accepts(text) == expected


def uri_parts(text: str) -> bool:
    """RFC 3986: split a URI as in its Appendix B, and then check the characters of each part."""
    if not text.isascii() or re.search(r"%(?![0-9A-Fa-f]{2})", text):
        return False
    match = re.fullmatch(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", text, re.DOTALL)
    if match is None or match[1] is None or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", match[1]):
        return False
    character = r"[A-Za-z0-9._~!$&'()*+,;=%-]"
    if match[2] is not None:
        authority = re.fullmatch(rf"(?:(?:{character}|:)*@)?({character}*|\[(.*)\])(?::[0-9]*)?", match[2], re.DOTALL)
        if authority is None:
            return False
        literal = authority[2]
        future = r"[Vv][0-9A-Fa-f]+\.(?:[A-Za-z0-9._~!$&'()*+,;=-]|:)+"
        if literal is not None and not is_ip(ipaddress.IPv6Address, literal) and not re.fullmatch(future, literal):
            return False
        if match[3] and not match[3].startswith("/"):
            return False
    elif match[3].startswith("//"):
        return False
    return all(
        re.fullmatch(rf"(?:{character}|[:@/{extra}])*", part or "") is not None
        for part, extra in ((match[3], ""), (match[4], "?"), (match[5], "?"))
    )


URIS = [
    "http://a.b/c?d=e#f",
    "urn:x:y",
    "http://u:p@[::1]:80/a//b",
    "file:///x",
    "a:/b",
    "http://[v1.x]/",
    "x://",
    "x:",
]


@given(some_edits(URIS, "aZ0:/?#[]@!%4{\\é "))
@settings(max_examples=few(800))
def test_uri(text: str) -> None:
    assert formats.FORMATS["uri"].accepts(text) == uri_parts(text)


# -- regex, which is not regular ---------------------------------------------------------------------------------------

VALID = ["", "|", "a", "^value1|value2$", "old text", "^/api/(.*)$", r"([abc])+\s+$", "(?<name>x)", "((?<a>x)|y)*"]
VALID += ["(?<=a+)b", "[]", "[^]", r"\cA", "a{2}", "a{2,}?", "a{2,3}", "a{10,11}", "a{9,10}", "a{99,100}", "[a-z0-9_-]"]
VALID += [r"[\w.-]+@[\w-]+", "a*?", "(?:a|b)*", r"[\u4e00-\u9fa5]", r"[\u0600-\u06ff]", r"[\x00-\x1f]", "[^/]+", "é+"]
VALID += [r"\d{3}", r"\p{Lu}", "[+-.]", "[-a]", "[^-a]", r"[\]\\]", "(?!x)y", r"\u{1F600}", '"']
INVALID = ["[", "(", ")", "^(abc]", r"\a", "(?P<name>x)", "(?#c)a", "(?i)abc", r"\Z", "a{2,1}", "a{10,9}", "a{100,99}"]
INVALID += ["[z-a]", "a**", "[a", "\\", r"[\x20-\x1f]", r"[\u06ff-\u0600]", "+", "?a", r"\u{110000}", "(?<1>a)"]
# Also invalid, but not for `is_pattern`, which judges only enum and const.
INVALID_HERE = ["x{2,3", r"\p{Foo}", "(?<n>a)(?<n>b)"]
# Valid, but left out of the grammar.
LEFT_OUT = [r"(a)\1", r"(?<n>a)\k<n>", r"\0", "(?<a>x)(?<b>y)", "[а-я]"]


def test_regex() -> None:
    language = StringLanguage.format("regex")
    assert language is not None and not language.is_empty()
    accepts = acceptor(language)
    assert [text for text in VALID if not accepts(spelled(text))] == []
    assert [text for text in INVALID + INVALID_HERE if accepts(spelled(text))] == []
    assert [text for text in LEFT_OUT if accepts(spelled(text))] == []
    assert [text for text in [*VALID, *LEFT_OUT] if not language.contains(text)] == []
    assert [text for text in INVALID if language.contains(text)] == []


def random_patterns(count: int) -> list[str]:
    """Patterns that random walks write in the format regex."""
    language = StringLanguage.format("regex")
    assert language is not None
    grammar = grammar_of(language)
    random = Random(7)
    interesting = b"()[]{}|*+?\\^-,<>=!:$.xu01289afzd"
    found = []
    for _ in range(count):
        recogniser = Recogniser(grammar)
        written = bytearray()
        while len(written) < 60 and not (recogniser.can_finish and written):
            allowed = [byte for byte in recogniser.allowed_bytes() if byte < 0x80]
            preferred = [byte for byte in allowed if byte in interesting]
            byte = random.choice(preferred if preferred and random.random() < 0.9 else allowed)
            if len(written) > 30 and 0x22 in allowed and written[-1:] != b"\\":
                byte = 0x22
            assert recogniser.feed(byte)
            written.append(byte)
        if recogniser.can_finish:
            found.append(json.loads(written))
    return found


def test_random_walks_are_patterns() -> None:
    patterns = random_patterns(40)
    assert len(patterns) > 10
    assert [pattern for pattern in patterns if not is_pattern(pattern)] == []


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not here")
def test_ecmascript_agrees() -> None:
    """The judge is a real ECMAScript engine, with the u flag."""
    script = """
        const words = JSON.parse(require("fs").readFileSync(0, "utf8"));
        const valid = words.map((word) => { try { new RegExp(word, "u"); return true; } catch { return false; } });
        console.log(JSON.stringify(valid));
    """
    good, bad = [*VALID, *LEFT_OUT, *random_patterns(40)], [*INVALID, *INVALID_HERE]
    words = json.dumps(good + bad)
    out = subprocess.run(["node", "-e", script], input=words, capture_output=True, text=True, check=True).stdout
    verdicts = dict(zip(good + bad, json.loads(out), strict=True))
    assert [word for word in good if not verdicts[word]] == []
    assert [word for word in bad if verdicts[word]] == []


def test_regex_with_other_conditions_is_refused() -> None:
    language = StringLanguage.format("regex")
    assert language is not None
    assert (language & StringLanguage.finite(["a", "["])).values == {"a"}
    with pytest.raises(UnsupportedError):
        grammar_of(language & StringLanguage.length(2))
    with pytest.raises(UnsupportedError):
        (~language).is_empty()


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["int32", "jwt", "password", "URI", "unknown", "", "color"])
def test_other_formats_are_annotations(name: str) -> None:
    assert StringLanguage.format(name) is None


def test_what_cannot_be_decided_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError) as caught:
        StringLanguage.format("idn-hostname")
    assert caught.value.keyword == "format" and "idn-hostname" in caught.value.message


def test_regex_beside_a_pattern_of_plain_texts() -> None:
    """If every string that satisfies the other conditions is a regular expression, the format adds nothing."""
    language = StringLanguage.format("regex")
    assert language is not None
    accepted = acceptor(
        language & StringLanguage.pattern("^[0-9]{2}:[0-9]{2}(\\.[a-z|$]+)?$") & StringLanguage.length(1)
    )
    assert accepted('"12:30"') and accepted('"12:30.a|b$"') and not accepted('"12:3"')


def networks(random: Random, version: int) -> str:
    """An address that often ends in zeros, perhaps with a prefix."""
    if version == 4:
        address = ".".join(str(random.choice([0, 0, 128, 192, 255, random.randrange(256)])) for _ in range(4))
        return address + random.choice(["", f"/{random.randrange(35)}"])
    count = random.randrange(9)
    groups = [f"{random.choice([1, 8, 16, 256, 0x8000, 0xFF00, random.randrange(1, 65536)]):x}" for _ in range(count)]
    address = ":".join(groups) + ("" if count == 8 else "::")
    return address + random.choice(["", f"/{random.randrange(131)}"])


@pytest.mark.parametrize("version", [4, 6])
def test_networks_and_interfaces(version: int) -> None:
    """Against `ipaddress`; IPv6 networks with all eight groups are left out unless their prefix has 128 bits."""
    random = Random(version)
    network, interface = getattr(ipaddress, f"IPv{version}Network"), getattr(ipaddress, f"IPv{version}Interface")
    allowed = 0
    for _ in range(4000):
        text = networks(random, version)
        for name, kind in ((f"ipv{version}network", network), (f"ipv{version}interface", interface)):
            found = formats.FORMATS[name].accepts(text)
            valid = is_ip(kind, text)
            assert found <= valid and found <= formats.FORMATS[name.replace(f"v{version}", "vany")].accepts(text)
            assert found == valid or ("::" not in text and "network" in name), (name, text)
            allowed += found
    assert allowed > 1000


def test_uuids_of_a_version() -> None:
    for version in (1, 3, 4, 5):
        made = {1: uuid.uuid1, 4: uuid.uuid4}.get(version)
        text = str(made() if made else getattr(uuid, f"uuid{version}")(uuid.NAMESPACE_DNS, "x.de"))
        for other in range(1, 9):
            assert formats.FORMATS[f"uuid{other}"].accepts(text) is (other == version)
            assert formats.FORMATS[f"uuid{other}"].accepts(text.upper()) is (other == version)
    assert not any(formats.FORMATS[f"uuid{v}"].accepts(str(uuid.UUID(int=0))) for v in range(1, 9))


@given(st.binary(max_size=12), st.text("AQgw=+/-_", max_size=9))
@settings(max_examples=few(400))
def test_base64(data: bytes, text: str) -> None:
    """Precisely what an encoder writes (RFC 4648 §3.5)."""
    for name, encode, decode in (
        ("base64", base64.b64encode, base64.b64decode),
        ("base64url", base64.urlsafe_b64encode, base64.urlsafe_b64decode),
    ):
        assert formats.FORMATS[name].accepts(encode(data).decode())
        try:
            is_written = encode(decode(text)).decode() == text
        except ValueError:
            is_written = False
        assert formats.FORMATS[name].accepts(text) == is_written, name


def test_a_regex_that_is_not_empty() -> None:
    """This is the only length that can be combined with a format that is not regular."""
    grammar = json_schema_to_grammar({"type": "string", "format": "regex", "minLength": 1}, any_whitespace=False)
    free = json_schema_to_grammar({"type": "string", "format": "regex"}, any_whitespace=False)
    for text in ('""', '"a"', '"a|"', '"|"', '"(?<n>a)"', '"(a"', '"^$"', '"a{2,3}"'):
        assert accepts(grammar, text.encode()) == (text != '""' and accepts(free, text.encode())), text
    with pytest.raises(UnsupportedError):
        json_schema_to_grammar({"type": "string", "format": "regex", "minLength": 2})
