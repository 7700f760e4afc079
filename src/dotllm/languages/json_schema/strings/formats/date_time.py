"""date-time, date, time: RFC 3339 §5.6 with the restrictions of §5.7; duration: its Appendix A.

Months have their lengths and leap years their extra day. Forms that readers (Python's `datetime`, Pydantic,
JavaScript's Date) refuse are left out or bounded: second 60 (RFC 3339 §5.7 allows it at the end of the few days that
had one), t and z for T and Z (§5.6: generators should write the latter), the year 0000, fractions of more than
fifteen digits, and durations with more digits than a 32-bit number of seconds for the time of day and 999,999,999
days allow.
"""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format

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

DATE_TIME_FORMATS = (
    Format("date-time", "RFC 3339 §5.6 date-time", f"{_DATE}T{_TIME}"),
    Format("date", "RFC 3339 §5.6 full-date", _DATE),
    Format("time", "RFC 3339 §5.6 full-time", _TIME),
    Format("duration", "RFC 3339 Appendix A duration", _DURATION),
)
