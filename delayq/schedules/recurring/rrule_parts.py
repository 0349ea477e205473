"""Reads the parts of an RRULE (RFC 5545, 3.3.10), and refuses what is not valid or not supported by its name."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from delayq.errors import ConfigurationError, InvalidValueError, short_repr
from delayq.values.times import timestamp

MAX_TEXT = 500
"""The maximum of characters of an RRULE."""
MAX_COUNT = 10_000
"""The maximum of COUNT: the last occurrence is looked for from the start on."""
MAX_INTERVAL = 1000
_NO_LIMIT = 999_999_999
DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
FREQUENCIES = ["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY"]
"""As dateutil numbers them. More often than that, an interval or a cron expression is the better rule."""
_DAY = re.compile(r"(?P<n>[+-]?\d{1,2})?(?P<day>MO|TU|WE|TH|FR|SA|SU)")
_UNTIL = re.compile(r"\d{8}(T\d{6}Z?)?")
_RANGES = {
    "BYMONTH": (1, 12),
    "BYWEEKNO": (-53, 53),
    "BYYEARDAY": (-366, 366),
    "BYMONTHDAY": (-31, 31),
    "BYHOUR": (0, 23),
    "BYMINUTE": (0, 59),
    "BYSECOND": (0, 59),
    "BYSETPOS": (-366, 366),
}
_WITHIN = {
    "BYWEEKNO": {"YEARLY"},
    "BYYEARDAY": {"YEARLY", "HOURLY"},
    "BYMONTHDAY": {"YEARLY", "MONTHLY", "DAILY", "HOURLY"},
}
"""The frequencies that a part may limit, where it is not all of them."""


_GREGORIAN = {"RSCALE=GREGORIAN", "SKIP=OMIT"}
"""What is the case without saying so."""
_NAMES = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_RANGES}


@dataclass(frozen=True, slots=True)
class RRuleParts:
    """An RRULE, read."""

    frequency: str
    interval: int
    count: int | None
    until: int | None
    """The last moment, in milliseconds since 1970; of a time in UTC."""
    until_wall: int | None
    """The last second of the wall clock; of a date or a local time."""
    week_start: int
    days: list[tuple[int, int]]
    """The weekdays, of which Monday is 0, each with which one of the month or the year it is, 0 for all."""
    numbers: dict[str, list[int]]
    """The values of the other parts that begin with BY, sorted."""
    left_out: tuple[str, ...] = ()
    """The parts that a lenient reader does not know."""


def read_rrule(text: str, *, lenient: bool = False) -> RRuleParts:
    """Return the parts of an RRULE; raises `ConfigurationError` that names the part that is wrong.

    A `lenient` reader, of what others have written, takes combinations that the standard excludes, has no limits, and
    leaves out parts that it does not know.
    """
    if lenient:
        parts, left_out = _split_known(text)
        return replace(_parts(parts, lenient=True), left_out=left_out)
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or len(text) > MAX_TEXT:
        raise InvalidValueError(f"rrule must be a text such as 'FREQ=MONTHLY;BYDAY=-1FR', not {short_repr(text)}")
    return _parts(_split(text))


def _parts(parts: dict[str, str], *, lenient: bool = False) -> RRuleParts:
    frequency = parts.get("FREQ", "")
    if frequency not in FREQUENCIES:
        hint = ": use every or cron" if frequency in ("MINUTELY", "SECONDLY") else ""
        raise _wrong("FREQ", parts, f"must be one of {', '.join(FREQUENCIES)}{hint}")
    numbers = {name: _numbers(name, parts) for name in _RANGES if name in parts}
    days = [_day(one, parts) for one in parts["BYDAY"].split(",")] if "BYDAY" in parts else []
    if not lenient:
        _check_together(frequency, parts, any(n for _, n in days))
    if "COUNT" in parts and "UNTIL" in parts and not lenient:
        raise _wrong("COUNT", parts, "cannot be together with UNTIL")
    week_start = parts.get("WKST", "MO")
    if week_start not in DAYS:
        raise _wrong("WKST", parts, f"must be one of {', '.join(DAYS)}")
    until, until_wall = _until(parts)
    return RRuleParts(
        frequency,
        _number("INTERVAL", parts, _NO_LIMIT if lenient else MAX_INTERVAL) if "INTERVAL" in parts else 1,
        _number("COUNT", parts, _NO_LIMIT if lenient else MAX_COUNT) if "COUNT" in parts else None,
        until,
        until_wall,
        DAYS.index(week_start),
        sorted(set(days)),
        numbers,
    )


def _split_known(text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the parts that are known, and the others."""
    words = [word for word in text.upper().split(";") if word not in _GREGORIAN]
    if calendar := next((word for word in words if word.startswith("RSCALE")), None):
        raise InvalidValueError(f"rrule part {short_repr(calendar)} is not supported")
    known = [word for word in words if word.partition("=")[0] in _NAMES and not word.startswith("COUNT=-")]
    others = [word for word in words if word.partition("=")[0] not in _NAMES]
    return _split(";".join(known)), tuple(others)


def _split(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in text.strip().upper().removeprefix("RRULE:").split(";"):
        name, sign, value = part.partition("=")
        if not sign or not value:
            raise InvalidValueError(f"rrule part {short_repr(part)} is not valid: it must be NAME=VALUE")
        if name not in _NAMES:
            start = ": give start" if name.startswith("DTSTART") else ""
            raise InvalidValueError(f"rrule part {short_repr(part)} is not supported{start}")
        if name in parts:
            raise InvalidValueError(f"rrule part {short_repr(part)} is not valid: {name} is given twice")
        parts[name] = value
    return parts


def _check_together(frequency: str, parts: dict[str, str], numbered: bool) -> None:  # noqa: FBT001
    for name, frequencies in _WITHIN.items():
        if name in parts and frequency not in frequencies:
            raise _wrong(name, parts, f"cannot be together with FREQ={frequency}")
    if numbered and (frequency not in ("YEARLY", "MONTHLY") or "BYWEEKNO" in parts):
        raise _wrong("BYDAY", parts, "may have numbers with FREQ=MONTHLY and FREQ=YEARLY only, and without BYWEEKNO")
    if "BYSETPOS" in parts and not any(name.startswith("BY") and name != "BYSETPOS" for name in parts):
        raise _wrong("BYSETPOS", parts, "needs another part that begins with BY")


def _wrong(name: str, parts: dict[str, str], why: str) -> ConfigurationError:
    part = f"{name}={parts[name]}" if name in parts else name
    return ConfigurationError(f"rrule part {short_repr(part)} is not valid: it {why}")


def _number(name: str, parts: dict[str, str], most: int) -> int:
    value = parts[name]
    if not value.isdecimal() or len(value) > len(str(most)) or not 1 <= int(value) <= most:
        raise _wrong(name, parts, f"must be 1 to {most:,}")
    return int(value)


def _numbers(name: str, parts: dict[str, str]) -> list[int]:
    least, most = _RANGES[name]
    found = set()
    for text in parts[name].split(","):
        if not re.fullmatch(r"[+-]?\d{1,3}", text) or not least <= int(text) <= most or (least < 0 and not int(text)):
            raise _wrong(name, parts, f"must have numbers of {least} to {most}" + (", not 0" if least < 0 else ""))
        found.add(int(text))
    return sorted(found)


def _day(text: str, parts: dict[str, str]) -> tuple[int, int]:
    found = _DAY.fullmatch(text)
    most = 5 if parts["FREQ"] == "MONTHLY" else 53
    if found is None or (found["n"] and not 1 <= abs(int(found["n"])) <= most):
        raise _wrong("BYDAY", parts, "must have days such as MO, 2TU or -1FR")
    return DAYS.index(found["day"]), int(found["n"] or 0)


def _until(parts: dict[str, str]) -> tuple[int | None, int | None]:
    """Return the last moment, or the last second of the wall clock; a date is meant with all of its hours."""
    text = parts.get("UNTIL")
    if text is None:
        return None, None
    why = "must be a date such as 20271231, a local time such as 20271231T090000, or one in UTC with a Z at its end"
    if not _UNTIL.fullmatch(text):
        raise _wrong("UNTIL", parts, why)
    try:
        at = datetime.strptime(text.removesuffix("Z"), "%Y%m%dT%H%M%S" if "T" in text else "%Y%m%d").replace(tzinfo=UTC)
        if "T" not in text:
            at += timedelta(days=1, seconds=-1)
        until = timestamp(at)
    except (ValueError, OverflowError, ConfigurationError):
        raise _wrong("UNTIL", parts, why) from None
    return (until, None) if text.endswith("Z") else (None, until // 1000)
