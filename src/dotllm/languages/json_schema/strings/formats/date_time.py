"""date-time, date, time: RFC 3339 §5.6 with the restrictions of §5.7; duration: its Appendix A.

Months have their lengths and leap years their day. A second 60 is the last one of a UTC day: its local time and its
offset must add up to 23:59. For that, offsets beside a second 60 are multiples of 15 minutes, as all are that have been
in use since leap seconds exist (any offset would need 1,440 local times to be told apart); which days had one is not
checked.
"""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format

_DAY_31 = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_DAY_30 = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = "02-(?:0[1-9]|1[0-9]|2[0-8])"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = f"(?:[0-9]{{4}}-(?:{_DAY_31}|{_DAY_30}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"

_HOUR_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]+)?"
_LAST_MINUTE = 23 * 60 + 59


def _clock(minutes: int) -> str:
    return f"{minutes // 60 % 24:02}:{minutes % 60:02}"


def _leap_seconds() -> str:
    """The times of a second 60, grouped by local time."""
    choices = [f"23:59:60{_FRACTION}[Zz]"]
    for offset in range(0, 24 * 60, 15):
        # The other offset that has the same local time is a day's complement of this one, and negative.
        negative = (24 * 60 - offset) % (24 * 60)
        choices.append(rf"{_clock(_LAST_MINUTE + offset)}:60{_FRACTION}(?:\+{_clock(offset)}|-{_clock(negative)})")
    return "|".join(choices)


_TIME = f"(?:{_HOUR_MINUTE}:[0-5][0-9]{_FRACTION}(?:[Zz]|[+-]{_HOUR_MINUTE})|{_leap_seconds()})"

_TIME_PART = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DATE_PART = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_DURATION = f"P(?:{_DATE_PART}(?:{_TIME_PART})?|{_TIME_PART}|[0-9]+W)"

DATE_TIME_FORMATS = (
    Format("date-time", "RFC 3339 §5.6 date-time", f"{_DATE}[Tt]{_TIME}"),
    Format("date", "RFC 3339 §5.6 full-date", _DATE),
    Format("time", "RFC 3339 §5.6 full-time", _TIME),
    Format("duration", "RFC 3339 Appendix A duration", _DURATION),
)
