"""Plans to compare with: due times by zoneinfo, in zones with unusual clock changes, and input that is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from delayq.bulk.reminder_rules import Rule

NEW_YORK = "America/New_York"


def at(text):
    """Parse an instant."""
    return datetime.fromisoformat(text).astimezone(UTC)


ZONES = [
    *("UTC", "Asia/Kathmandu", NEW_YORK, "Europe/Berlin", "Europe/Dublin", "Australia/Lord_Howe", "Pacific/Apia"),
    *("America/Sao_Paulo", "America/St_Johns", "Asia/Tehran", "Antarctica/Troll", "Africa/Cairo", "Pacific/Kwajalein"),
]
RULES = [
    Rule("two-hours", offset="-2h"),
    Rule("after", offset="26h"),
    Rule("day-before", offset="-1d"),
    Rule("day-and-more", offset="-1d90m"),
    Rule("morning", offset="-1d", at="09:00"),
    Rule("night", offset="-2h", at="02:30"),
    Rule("midnight", at="00:00", weekdays="mon-fri"),
    Rule("weekday", offset="-2h", weekdays="mon-fri"),
    Rule("sundays", offset="1d", at="01:30", weekdays="sun"),
    Rule("daily", offset="-2d", repeats=4, every="1d"),
    Rule("daily-at", offset="-3d", at="02:30", repeats=5, every="1d"),
    Rule("working", offset="-5d", at="23:59:59", weekdays="mon-fri", repeats=6, every="1d"),
    Rule("hourly", offset="-3h", repeats=7, every="1h"),
    Rule("hourly-back", offset="-30h", weekdays="sat", repeats=9, every="5h"),
    Rule("weekly", offset="-1w", repeats=2, every="1w30m"),
]


@cache
def changes(zone):
    """Return the instants, to the minute, of the clock changes of a zone in some years."""
    info = ZoneInfo(zone)
    reply = []
    for first, years in ((1993, 1), (2011, 1), (2016, 1)):
        low = datetime(first, 1, 1, tzinfo=UTC)
        for day in range(366 * years):
            before, after = low + timedelta(days=day), low + timedelta(days=day + 1)
            if before.astimezone(info).utcoffset() == after.astimezone(info).utcoffset():
                continue
            while after - before > timedelta(minutes=1):
                middle = before + (after - before) / 2
                same = middle.astimezone(info).utcoffset() == before.astimezone(info).utcoffset()
                before, after = (middle, after) if same else (before, middle)
            reply.append(after.replace(second=0, microsecond=0))
    return reply


def moments(zone):
    """Return instants days and hours around the clock changes of a zone, and some others."""
    yield from (at("2012-02-29T12:34:56.789012+00:00"), at("2013-12-31T23:59:59.999999+00:00"))
    for change in changes(zone):
        for days in (-1, 0, 2):
            for minutes in (-90, -31, 0, 29, 60, 120, 600):
                yield change + timedelta(days=days, minutes=minutes)


def wall_clock(instant, zone):
    return instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)


def instant_of(wall, zone):
    return wall.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC)


def moved(instant, zone, span):
    if span.days:
        instant = instant_of(wall_clock(instant, zone) + timedelta(days=span.days), zone)
    return instant + timedelta(milliseconds=span.milliseconds)


def expected(rule, instant, zone):
    """Compute the due times of a rule with zoneinfo."""
    reply = set()
    for number in range(rule.repeats):
        due = moved(moved(instant, zone, rule.shift), zone, type(rule.step)(*(part * number for part in rule.step)))
        wall = before = wall_clock(due, zone)
        if rule.at is not None:
            hour, minute, second = map(int, f"{rule.at}:00".split(":")[:3])
            wall = wall.replace(hour=hour, minute=minute, second=second, microsecond=0)
        while wall.strftime("%a").lower() not in DAYS[rule.weekdays]:
            wall -= timedelta(days=1)
        reply.add(instant_of(wall, zone) if wall != before or rule.at is not None else due)
    return sorted(reply)


WEEK = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS = {None: WEEK, "mon-fri": WEEK[:5], "sat": ["sat"], "sun": ["sun"]}


# Refused input


MIDDAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
INVALID_ROWS = [
    ([(None, MIDDAY, "UTC"), (None, MIDDAY, "UTC"), ("a", None, "X")], "id is null in 2 of 3 rows"),
    ([("a", MIDDAY, "UTC"), ("b", None, "UTC")], "time is null in 1 of 2 rows, for example of 'b'"),
    ([("a", MIDDAY, None), ("b", MIDDAY, "UTC")], "zone is null in 1 of 2 rows, for example of 'a'"),
    (
        [("a", MIDDAY, "America/NewYork"), ("b", MIDDAY, "UTC")],
        "zone is unknown in 1 of 2 rows, for example 'America/NewYork' of 'a', did you mean 'America/New_York'?",
    ),
    ([("a", MIDDAY, "BST")], "zone is unknown in 1 of 1 rows, for example 'BST' of 'a'"),
    ([("a", MIDDAY, "")], "zone is unknown in 1 of 1 rows, for example '' of 'a'"),
    ([("a", MIDDAY, " UTC")], "zone is unknown in 1 of 1 rows, for example ' UTC' of 'a'"),
    (
        [(id, MIDDAY, "UTC") for id in "abcabda"],
        "2 ids occur in more than one row, for example 'a': ids must be unique",
    ),
]
NOT_LOCAL_TIMES = [
    "tomorrow",
    "2013-02-30 09:00",
    "2013-01-31T09:00:00Z",
    "2013-01-31 09:00+01:00",
    "2013-01-31 25:00",
    "9:00",
    "",
]
