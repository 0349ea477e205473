"""When to remind of a thing: rules, as values or from a TOML file. Plain Python; `plan` carries them out on Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from datetime import time, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from delayq.clock import Duration, milliseconds
from delayq.config import check_retries, whole
from delayq.errors import ConfigurationError, shown
from delayq.keys import check_name
from delayq.spark.given import did_you_mean

MOST_REPEATS = 1000
"""Reminders of one rule for one thing: beyond them lies a wrong number, not a plan."""
DAY = 86_400_000
"""Milliseconds of a day on the wall clock; how long it really is, is the zone's to say."""

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAYS = re.compile(r"([0-9]+(?:\.[0-9]+)?)([wd])")
_AT = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")


class Span(NamedTuple):
    """A way along the calendar, and then along the clock."""

    days: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by which a thing that happens gets its reminders; `ConfigurationError` says what is wrong with one.

    A reminder is due `offset` from the time of the thing. Days and weeks are days of the calendar in the zone of the
    thing, as in RFC 5545: a day earlier is the same time on the wall clock, be that 23, 24 or 25 hours. Hours and less
    are counted by the clock: `"-1d"` and `"-24h"` differ where summer time begins. In `"-1d2h"` the days go first. A
    `timedelta` of whole days counts days, any other goes by the clock like a number, which is seconds.

    `repeats` reminders follow one another, each `every` after the one before, and each is then moved: by `at` to that
    time on the wall clock of the same local day (which may be later), by `weekdays` back to the last of them on or
    before it, at the same time of day. What falls together by that is one reminder; they are numbered from 0 in the
    order of time.

    A wall-clock time that a change of the clock skips is moved on by as much as the clock was (02:30 becomes 03:30);
    one that comes twice is the first of the two. What no part of the rule moves stays at its instant.
    """

    name: str
    """The name, in ids and payloads: a rule under another name plans other messages."""
    _: KW_ONLY
    offset: Duration = 0
    """From the time of the thing to the first reminder: `"-2h"` is before it, `"30m"` after."""
    at: str | time | None = None
    """The time on the wall clock, `"09:00"`; by default as the offset leaves it."""
    weekdays: str | Sequence[str] | None = None
    """The days allowed, `"mon-fri"`, `"sat,sun"` or a list; by default all."""
    repeats: int = 1
    """How many reminders, 1 to 1,000."""
    every: Duration | None = None
    """From one reminder to the next, `"1d"`; needed if there are several."""
    payload: Sequence[str] | None = None
    """The columns of the things that go along; by default all but `id`, `time` and `zone`, which can be named here.

    A reminder counts as changed if what it carries has changed."""
    retries: int = 3
    """Redeliveries of its messages."""

    def __post_init__(self) -> None:
        check_name(self.name, "rule name")
        whole(self.repeats, self._called("repeats"), 1, MOST_REPEATS)
        check_retries(self.retries, self._called("retries"))
        if self.payload is not None:
            columns = _texts(self.payload)
            if columns is None:
                raise ConfigurationError(f"{self._called('payload')} must list columns, not {shown(self.payload)}")
            object.__setattr__(self, "payload", columns)
        if (self.every is None) != (self.repeats == 1):
            raise ConfigurationError(f"{self._called('repeats')} above 1 and every go together; give both or none")
        _ = self.shift, self.step, self.clock, self.back  # each checks what it is made of

    @property
    def shift(self) -> Span:
        """The way from the time of the thing to the first reminder."""
        return _span(self.offset, self._called("offset"), signed=True)

    @property
    def step(self) -> Span:
        """The way from each reminder to the next."""
        if self.every is None:
            return Span(0, 0)
        step = _span(self.every, self._called("every"))
        if step == (0, 0):
            raise ConfigurationError(f"{self._called('every')} must be longer than nothing")
        return step

    @property
    def clock(self) -> int | None:
        """The milliseconds from 00:00 to `at` on the wall clock."""
        if self.at is None:
            return None
        text = self.at.isoformat() if isinstance(self.at, time) else self.at
        found = _AT.fullmatch(text) if isinstance(text, str) else None
        if not found:
            raise ConfigurationError(f"{self._called('at')} must look like '09:00' or '17:30:15', not {shown(self.at)}")
        hour, minute, second = (int(part or 0) for part in found.groups())
        return ((hour * 60 + minute) * 60 + second) * 1000

    @property
    def back(self) -> tuple[int, ...]:
        """How many days to go back to an allowed one, from Monday, Tuesday … Sunday."""
        allowed = range(7) if self.weekdays is None else _weekdays(self.weekdays, self._called("weekdays"))
        return tuple(min((day - other) % 7 for other in allowed) for day in range(7))

    def _called(self, field: str) -> str:
        return f"rule {self.name!r}: {field}"


def check_rules(rules: Rule | Iterable[Rule]) -> tuple[Rule, ...]:
    """Return rules that can stand in one plan: at least one, and no name twice; `ConfigurationError` for others."""
    checked = (rules,) if isinstance(rules, Rule) else tuple(rules)
    for rule in checked:
        if not isinstance(rule, Rule):
            raise ConfigurationError(f"a plan is made by rules, not by {shown(rule)}")
    if not checked:
        raise ConfigurationError("a plan needs at least one rule")
    names = [rule.name for rule in checked]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{names.count(name)} rules have the name {name!r}; each needs its own")
    return checked


def read_rules(path: str | Path) -> tuple[Rule, ...]:
    """Return the rules of a TOML file, a table `[rules.NAME]` each, with the fields of `Rule` as keys.

    `ConfigurationError` names the file, the rule and what would be right.
    """
    import tomllib

    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"the rules in {path} cannot be read: {error}") from error
    for key in tables:
        if key != "rules":
            hint = did_you_mean(key, ("rules",)) or "; a rule is a table [rules.NAME]"
            raise ConfigurationError(f"{path}: unknown table {key!r}{hint}")
    rules = tables.get("rules", {})
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
    total = milliseconds(value, name)
    days = 0
    if isinstance(value, timedelta):
        days = total // DAY if total % DAY == 0 else 0
    elif isinstance(value, str):
        for number, unit in _DAYS.findall(value):
            count = float(number) * (7 if unit == "w" else 1)
            if count % 1:
                raise ConfigurationError(f"{name} must count whole days, not {shown(value)}; '36h' is a day and a half")
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
                raise ConfigurationError(f"{name} must be like 'mon-fri' or 'sat,sun', not {shown(value)}{hint}")
        start = _WEEKDAYS.index(first)
        end = _WEEKDAYS.index(last) if dash else start
        allowed |= {(start + step) % 7 for step in range((end - start) % 7 + 1)}
    return allowed


def _texts(value: object) -> tuple[str, ...] | None:
    """Return a list of texts, None for what is none."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        return None
    return tuple(value)
