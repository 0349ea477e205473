"""Rules that say when reminders are due, as Python values or from a TOML file, and the times that they give.

The times of `RuleTimes` are microseconds since 1970: those of an instant, or of a wall clock as if it were UTC. A
wall-clock time that a clock change skips is moved on by as much as the clock; of one that occurs twice, the first is
used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from delayq.broker.keys import check_name
from delayq.bulk.option_columns import RuleOptions, check_rule_options
from delayq.errors import ConfigurationError, did_you_mean, short_repr
from delayq.values.checks import check_int, check_retries
from delayq.values.times import Duration, to_millis
from delayq.values.toml_tables import read_tables

MAX_REPEATS = 1000
"""Reminders of one rule for one row; a higher number is surely a mistake."""
DAY = 86_400_000
"""Milliseconds of a day on the wall clock; its real length depends on the zone."""

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAYS = re.compile(r"([0-9]+(?:\.[0-9]+)?)([wd])")
_AT = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")


class Span(NamedTuple):
    """A shift by calendar days, and then by elapsed time."""

    days: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for the reminders of each row of a table; raises `ConfigurationError` if it is invalid.

    A reminder is due `offset` from the row's time. Days and weeks are calendar days in the row's zone, as in RFC
    5545: a day earlier is the same time on the wall clock, after 23, 24 or 25 hours. Hours and smaller units are
    elapsed time, so `"-1d"` and `"-24h"` differ where summer time begins. In `"-1d2h"` the days are applied first. A
    `timedelta` of whole days counts calendar days; any other, like a number (seconds), is elapsed time.

    There are `repeats` reminders, each `every` after the one before. Then each is moved: `at` sets the time on the wall
    clock of the same local day (possibly later); `weekdays` moves it back to the last allowed day, at the same time of
    day. Reminders that coincide become one. They are numbered from 0 in order of time.

    A wall-clock time that is skipped by a clock change is moved on by as much as the clock (02:30 becomes 03:30); of
    one that occurs twice, the first is used. A reminder that no part of the rule moves stays at its instant.
    """

    name: str
    """The name; it is part of ids and payloads, so renaming a rule plans new messages."""
    _: KW_ONLY
    offset: Duration = 0
    """From the row's time to the first reminder: `"-2h"` is before it, `"30m"` after."""
    at: str | time | None = None
    """The time on the wall clock, such as `"09:00"`; by default unchanged."""
    weekdays: str | Sequence[str] | None = None
    """The allowed days: `"mon-fri"`, `"sat,sun"` or a list; by default all."""
    repeats: int = 1
    """The number of reminders, 1 to 1,000."""
    every: Duration | None = None
    """From one reminder to the next, such as `"1d"`; required if there are several."""
    payload: Sequence[str] | None = None
    """The columns to put into the payload; by default all but `id`, `time` and `zone`, which may be listed as well.

    A reminder counts as changed if its payload has changed."""
    retries: int = 3
    """Retries of its messages."""
    options: RuleOptions = field(default_factory=dict, hash=False)
    """Options of its messages as those of a send, such as `{"name": "remind", "priority": 5, "expires": "1d"}`.

    They are columns of the plan. Like `retries`, they are not what a reminder counts as changed for."""
    where: str | None = None
    """The rows that the rule is for, as a Spark SQL condition such as `"event = 'open'"`; by default all.

    It may use every column of the table, and must depend on nothing else. A condition that is null is not true."""

    def __post_init__(self) -> None:
        check_name(self.name, "rule name")
        check_int(self.repeats, self._field("repeats"), 1, MAX_REPEATS)
        check_retries(self.retries, self._field("retries"))
        if self.payload is not None:
            columns = _texts(self.payload)
            if columns is None:
                raise ConfigurationError(f"{self._field('payload')} must list columns, not {short_repr(self.payload)}")
            object.__setattr__(self, "payload", columns)
        if self.where is not None and not (isinstance(self.where, str) and self.where.strip()):
            raise ConfigurationError(f"{self._field('where')} must be a condition, not {short_repr(self.where)}")
        if (self.every is None) != (self.repeats == 1):
            raise ConfigurationError(f"{self._field('repeats')} above 1 needs every, and every needs repeats above 1")
        check_rule_options(self.options, self._field("options"))
        _ = self.shift, self.step, self.clock, self.back  # each validates its fields

    @property
    def shift(self) -> Span:
        """The shift from the row's time to the first reminder."""
        return _span(self.offset, self._field("offset"), signed=True)

    @property
    def step(self) -> Span:
        """The shift from each reminder to the next."""
        if self.every is None:
            return Span(0, 0)
        step = _span(self.every, self._field("every"))
        if step == (0, 0):
            raise ConfigurationError(f"{self._field('every')} must be above 0")
        return step

    @property
    def clock(self) -> int | None:
        """The milliseconds from 00:00 to `at`; None if it is not set."""
        if self.at is None:
            return None
        text = self.at.isoformat() if isinstance(self.at, time) else self.at
        match = _AT.fullmatch(text) if isinstance(text, str) else None
        if not match:
            raise ConfigurationError(
                f"{self._field('at')} must look like '09:00' or '17:30:15', not {short_repr(self.at)}"
            )
        hour, minute, second = (int(part or 0) for part in match.groups())
        return ((hour * 60 + minute) * 60 + second) * 1000

    @property
    def back(self) -> tuple[int, ...]:
        """The days back to an allowed day: from Monday, Tuesday … Sunday."""
        allowed = range(7) if self.weekdays is None else _weekdays(self.weekdays, self._field("weekdays"))
        return tuple(min((day - other) % 7 for other in allowed) for day in range(7))

    def _field(self, field: str) -> str:
        return f"rule {self.name!r}: {field}"


def check_rules(rules: Rule | Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules of a plan: at least one, with unique names; raises `ConfigurationError` otherwise."""
    checked = (rules,) if isinstance(rules, Rule) else tuple(rules)
    for rule in checked:
        if not isinstance(rule, Rule):
            raise ConfigurationError(f"rules must be Rule objects, not {short_repr(rule)}")
    if not checked:
        raise ConfigurationError("a plan needs at least one rule")
    names = [rule.name for rule in checked]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{names.count(name)} rules are named {name!r}: names must be unique")
    return checked


def read_rules(path: str | Path) -> tuple[Rule, ...]:
    """Return the rules of a TOML file: one table `[rules.NAME]` per rule, with the fields of `Rule` as keys.

    Raises `ConfigurationError`, which names the file and the rule.
    """
    rules = read_tables(path, "rules")
    if not isinstance(rules, dict) or not all(isinstance(table, dict) for table in rules.values()):
        raise ConfigurationError(f"{path}: each rule must be a table [rules.NAME]")
    try:
        return check_rules(_rule(name, table) for name, table in rules.items())
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _rule(name: str, table: dict[str, Any]) -> Rule:
    known = tuple(field.name for field in fields(Rule) if field.name != "name")
    for key in table:
        if key not in known:
            raise ConfigurationError(f"rule {name!r}: unknown key {key!r}{did_you_mean(key, known)}")
    return Rule(name, **table)


def _span(value: Duration, name: str, *, signed: bool = False) -> Span:
    sign = 1
    if signed and isinstance(value, str) and value[:1] in {"-", "+"}:
        sign, value = (-1 if value[0] == "-" else 1), value[1:]
    elif signed and not isinstance(value, str) and _is_negative(value):
        sign, value = -1, -value
    total = to_millis(value, name)
    days = 0
    if isinstance(value, timedelta):
        days = total // DAY if total % DAY == 0 else 0
    elif isinstance(value, str):
        for number, unit in _DAYS.findall(value):
            count = float(number) * (7 if unit == "w" else 1)
            if count % 1:
                raise ConfigurationError(
                    f"{name} must have whole days, not {short_repr(value)}; write a day and a half as '36h'"
                )
            days += int(count)
    return Span(sign * days, sign * (total - days * DAY))


def _is_negative(value: object) -> bool:
    return value < timedelta(0) if isinstance(value, timedelta) else isinstance(value, int | float) and value < 0


def _weekdays(value: str | Sequence[str], name: str) -> set[int]:
    parts = value.split(",") if isinstance(value, str) else _texts(value)
    allowed: set[int] = set()
    for part in parts or [""]:
        first, dash, last = (word.strip() for word in part.lower().partition("-"))
        for day in (first, last) if dash else (first,):
            if day not in _WEEKDAYS:
                hint = did_you_mean(day, _WEEKDAYS)
                raise ConfigurationError(f"{name} must look like 'mon-fri' or 'sat,sun', not {short_repr(value)}{hint}")
        start = _WEEKDAYS.index(first)
        end = _WEEKDAYS.index(last) if dash else start
        allowed |= {(start + step) % 7 for step in range((end - start) % 7 + 1)}
    return allowed


def _texts(value: object) -> tuple[str, ...] | None:
    """Return a list of texts as a tuple, None for anything else."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        return None
    return tuple(value)


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock
_DAY = DAY * 1000
_WEEK = 7 * _DAY
_SECOND = 1_000_000
_OFFSET = re.compile(r"([+-])(0\d|1[0-7]):([0-5]\d)")
_MONDAY = 4 * _DAY
"""Day 0 was a Thursday."""
NOT_IANA = (
    *("ACT", "AET", "AGT", "ART", "AST", "BET", "BST", "CAT", "CNT", "CST", "CTT", "EAT", "ECT"),
    *("IET", "IST", "JST", "MIT", "NET", "NST", "PLT", "PNT", "PRT", "PST", "SST", "VST"),
)
"""Abbreviations that Java accepts as a zone, but rarely the intended one: BST is Bangladesh to it."""
_NOT_ZONES = frozenset({*NOT_IANA, "localtime", "posixrules"})
"""Names that are not zones, or that are other zones on another machine."""
_EDGE = 9 * _DAY
"""What a zone and allowed days may move a time by, and the difference of a wall clock to an instant."""
FIRST, LAST = -62_135_596_800 * _SECOND, 253_402_300_800 * _SECOND - 1
"""The times that can be computed, in microseconds since 1970: the years 1 to 9999."""


class RuleTimes:
    """The due times of one rule."""

    def __init__(self, rule: Rule) -> None:
        self._shift, self._step, self._repeats = rule.shift, rule.step, rule.repeats
        self._clock = None if rule.clock is None else rule.clock * 1000
        self._back = rule.back
        self._places = rule.clock is not None or any(rule.back)

    def of(self, time: int, zone: str) -> list[int]:
        """Return the due times for a row's time, in order and without doubles."""
        first = _moved(time, self._shift.days, self._shift.milliseconds, zone)
        days, milliseconds = self._step
        times = [_moved(first, days * n, milliseconds * n, zone) for n in range(self._repeats)]
        return sorted({self._placed(one, zone) for one in times} if self._places else set(times))

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and the last time (µs) of a row whose due times can all be computed."""
        shifts = [days * _DAY + milliseconds * 1000 for days, milliseconds in (self._shift, self._step)]
        reach = shifts[1] * (self._repeats - 1)
        return FIRST + _EDGE - min(0, shifts[0]), LAST - _EDGE - max(0, shifts[0] + reach, reach)

    def _placed(self, time: int, zone: str) -> int:
        """Set the wall-clock time, and move back to an allowed day."""
        wall = to_wall(time, zone)
        clock = wall % _DAY
        day = wall - clock
        back = self._back[(day - _MONDAY) % _WEEK // _DAY]
        # Unmoved times keep their instant: from the wall clock, the second of two equal times would become the first.
        if self._clock is None and not back:
            return time
        return from_wall(day - back * _DAY + (clock if self._clock is None else self._clock), zone)


def _moved(time: int, days: int, milliseconds: int, zone: str) -> int:
    """Add calendar days, then elapsed time."""
    if days:
        time = from_wall(to_wall(time, zone) + days * _DAY, zone)
    return time + milliseconds * 1000


def to_wall(time: int, zone: str) -> int:
    """Return what the wall clocks of a zone show at an instant."""
    return time + _offset_at(time // _SECOND, zone) * _SECOND


def from_wall(wall: int, zone: str) -> int:
    """Return when the wall clocks of a zone show a time."""
    return wall - _offset_of_wall(wall // _SECOND, zone) * _SECOND


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return the names of the zones that plans accept beside offsets: those of Python's time zone data."""
    return frozenset(available_timezones()) - _NOT_ZONES


def is_zone(name: str) -> bool:
    """Return whether plans accept a zone: a name of the IANA, or an offset such as +05:45."""
    return name in zone_names() or _OFFSET.fullmatch(name) is not None


@lru_cache(maxsize=1 << 12)
def zone_of(name: str) -> tzinfo:
    """Return a zone by its IANA name, or by an offset such as +05:45; raises `KeyError`, `ValueError` or `OSError`."""
    if found := _OFFSET.fullmatch(name):
        sign, hours, minutes = found.groups()
        return timezone((-1 if sign == "-" else 1) * timedelta(hours=int(hours), minutes=int(minutes)))
    return ZoneInfo(name)


@lru_cache(maxsize=1 << 16)
def _offset_at(second: int, zone: str) -> int:
    at = (_EPOCH + timedelta(seconds=second)).replace(tzinfo=UTC).astimezone(zone_of(zone))
    return _seconds(at)


@lru_cache(maxsize=1 << 16)
def _offset_of_wall(second: int, zone: str) -> int:
    # The first of two equal times; of a skipped one, the offset before the change, which moves it on.
    return _seconds((_EPOCH + timedelta(seconds=second)).replace(tzinfo=zone_of(zone), fold=0))


def _seconds(at: datetime) -> int:
    offset = at.utcoffset()
    return 0 if offset is None else int(offset.total_seconds())
