"""A year of daily reminders in virtual time, against an oracle that goes through the days of each user.

Users in 60 zones have a time of their own. They move, pause, snooze and leave; both clock changes come, a zone gets
other rules by new time zone data, and no worker runs for two days.
"""

from __future__ import annotations

import zoneinfo
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from delayq import DelayQueue, Schedule, Snooze
from delayq.schedules import definition
from delayq.schedules.recurring import local_times
from delayq.testing import drain
from tests.support.zones import write_release, write_zone

BEGIN, END = datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
OUTAGE = datetime(2027, 6, 7, 12, 0, 30, tzinfo=UTC), datetime(2027, 6, 9, 12, 0, 30, tzinfo=UTC)
NEW_RULES = datetime(2027, 9, 1, 12, 0, 30, tzinfo=UTC)
"""When new time zone data is installed."""
LATE = timedelta(minutes=1)
"""After this time an occurrence counts as missed, and only the latest missed one is delivered."""
SNOOZED = timedelta(minutes=10)
OWN = "Test/Zone"
NAMES = """
Africa/Cairo Africa/Casablanca Africa/Johannesburg Africa/Lagos Africa/Nairobi America/Anchorage
America/Argentina/Buenos_Aires America/Bogota America/Caracas America/Chicago America/Denver America/Halifax
America/Havana America/Los_Angeles America/Mexico_City America/New_York America/Nuuk America/Phoenix
America/Santiago America/Sao_Paulo America/St_Johns Asia/Almaty Asia/Bangkok Asia/Beirut Asia/Dhaka Asia/Dubai
Asia/Gaza Asia/Hong_Kong Asia/Jakarta Asia/Jerusalem Asia/Kabul Asia/Karachi Asia/Kathmandu Asia/Kolkata
Asia/Manila Asia/Seoul Asia/Singapore Asia/Tehran Asia/Tokyo Asia/Vladivostok Atlantic/Azores Atlantic/Reykjavik
Australia/Adelaide Australia/Brisbane Australia/Eucla Australia/Lord_Howe Australia/Sydney Europe/Athens
Europe/Berlin Europe/Dublin Europe/Istanbul Europe/Lisbon Europe/London Europe/Moscow Pacific/Apia
Pacific/Auckland Pacific/Chatham Pacific/Honolulu Pacific/Kiritimati
"""
ZONES = (OWN, *NAMES.split())


@dataclass
class User:
    """What a user does in the year, each at a time at which nothing is due."""

    name: str
    zone: str
    at: time
    moves: tuple[datetime, str] | None = None
    pauses: tuple[datetime, datetime] | None = None
    leaves: datetime | None = None
    snoozes: set[int] = field(default_factory=set)
    """The numbers of the deliveries that are put off."""


def draw(number: int, random: Random) -> list[User]:
    """Return users, of which some do something."""

    def some_day(first: int, last: int) -> datetime:
        day = BEGIN + timedelta(days=random.randint(first, last))
        return outside(day.replace(hour=random.randrange(24), minute=random.randrange(60), second=30))

    users = []
    for n in range(number):
        # Many in the hours that clock changes skip or repeat.
        at = time(random.choice([0, 1, 2, 2, 3, 7, 8, 9, 9, 9, 12, 18, 23]), random.randrange(0, 60, 5))
        user = User(f"user-{n}", ZONES[n % len(ZONES)], at, snoozes=set(random.sample(range(300), 4)))
        if n % 3 == 0:
            user.moves = some_day(60, 140), random.choice(ZONES)
        if n % 4 == 0:
            first = some_day(30, 330)
            user.pauses = first, outside(first + timedelta(days=random.randint(1, 30)))
        if n % 7 == 0:
            user.leaves = some_day(200, 364)
        users.append(user)
    return users


def outside(at: datetime) -> datetime:
    """Return a time, or a later one if the workers are down then."""
    return at + timedelta(days=3) if OUTAGE[0] <= at <= OUTAGE[1] else at


def acts_of(users: list[User]) -> Iterator[tuple[datetime, Callable[[DelayQueue[Any]], object]]]:
    """Yield what the users do, and when."""
    for user in users:
        chosen = user.name
        if user.moves:
            yield user.moves[0], partial(lambda queue, **to: queue.schedules.set(**to), label=chosen, tz=user.moves[1])
        if user.pauses:
            yield user.pauses[0], partial(lambda queue, label: queue.schedules.pause(label=label), label=chosen)
            yield user.pauses[1], partial(lambda queue, label: queue.schedules.resume(label=label), label=chosen)
        if user.leaves:
            yield user.leaves, partial(lambda queue, label: queue.schedules.remove(label=label), label=chosen)


def local_time(day: date, at: time, zone: ZoneInfo) -> datetime:
    """Return when the clock of a zone first shows a time of a day, or a later one if it skips it."""
    wanted = datetime.combine(day, at)
    found = wanted.replace(tzinfo=zone).astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) == wanted:
        return found
    found -= timedelta(hours=3)
    while found.astimezone(zone).replace(tzinfo=None) < wanted:
        found += timedelta(minutes=1)
    return found


def days_of(user: User) -> Iterator[datetime]:
    """Yield each time of the year at which the user is to be reminded, if the workers run."""
    for name, first, last in spans(user):
        zone = OLD_OWN if name == OWN and first < NEW_RULES else ZoneInfo(name)
        day = first.date() - timedelta(days=2)
        while day <= last.date() + timedelta(days=2):
            due = local_time(day, user.at, zone)
            if first < due <= last and not (user.pauses and user.pauses[0] < due <= user.pauses[1]):
                yield due
            day += timedelta(days=1)


def spans(user: User) -> Iterator[tuple[str, datetime, datetime]]:
    """Yield the zones in which the user lives, and from when to when."""
    end = user.leaves or END
    cuts = [BEGIN, NEW_RULES, end] if user.moves is None else [BEGIN, user.moves[0], NEW_RULES, end]
    for first, last in pairwise(cuts):
        moved = user.moves is not None and first >= user.moves[0]
        yield (user.moves[1] if moved else user.zone), first, min(last, end)  # type: ignore[index]


OLD_OWN = ZoneInfo("Etc/GMT-1")
"""What the made-up zone is by the old data: an hour ahead of UTC; by the new data, two."""


def expected(user: User) -> list[tuple[datetime, str]]:
    """Return when the user is reminded, and how each reminder ends."""
    dues = sorted(days_of(user))
    missed = [due for due in dues if OUTAGE[0] < due <= OUTAGE[1] - LATE]
    dues = sorted({due for due in dues if due not in missed} | set(missed[-1:]))
    rows: list[tuple[datetime, str]] = []
    for number, due in enumerate(dues):
        at = max(due, OUTAGE[1]) if OUTAGE[0] < due <= OUTAGE[1] else due
        if number in user.snoozes:
            rows += [(at, "snoozed"), (at + SNOOZED, "acked")]
        else:
            rows.append((at, "acked"))
    # A reminder that was put off into the outage comes after it.
    return sorted((OUTAGE[1] if OUTAGE[0] < at < OUTAGE[1] else at, how) for at, how in rows)


@pytest.fixture
def database(tmp_path):
    """`database(release, hours)` installs time zone data in which the made-up zone is so many hours ahead of UTC."""
    before = zoneinfo.TZPATH

    def forget() -> None:
        ZoneInfo.clear_cache()
        local_times.zone_release.cache_clear()
        definition._read.cache_clear()

    def install(release: str, hours: int) -> None:
        folder = tmp_path / release
        write_zone(folder / OWN, hours)
        write_release(folder, release)
        zoneinfo.reset_tzpath(to=[str(folder), *before])
        forget()

    yield install
    zoneinfo.reset_tzpath(to=before)
    forget()


def sleeper(users: list[User]) -> Callable[[Any], None]:
    """Return a callback that puts off some reminders of each user, once each."""
    snoozes = {user.name: user.snoozes for user in users}
    numbers: Counter[str] = Counter()
    put_off: set[str] = set()

    def remind(message: Any) -> None:
        name = message.payload["user"]
        if message.id in put_off:
            return
        numbers[name] += 1
        if numbers[name] - 1 in snoozes[name]:
            put_off.add(message.id)
            raise Snooze(SNOOZED)

    return remind


def schedule_of(user: User) -> Schedule:
    cron = f"{user.at.minute} {user.at.hour} * * *"
    payload = {"user": user.name}
    return Schedule(user.name, cron=cron, tz=user.zone, payload=payload, labels=[user.name], late_after=LATE)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [8, pytest.param(60, marks=pytest.mark.torture)])
def test_everybody_is_reminded_at_their_time_for_a_year(delayq_clock, redis_url, database, number):
    users = draw(number, Random(number))
    database("2031a", 1)
    delayq_clock.move_to(BEGIN)

    def install_new_rules(queue):
        database("2031b", 2)
        assert queue.schedules.replan().zones_before == "2031a"

    acts = [*acts_of(users), (NEW_RULES, install_new_rules), (END, lambda queue: None)]
    acts.append((OUTAGE[0], lambda queue: delayq_clock.move_to(OUTAGE[1])))
    delivered = []
    with DelayQueue("daily", url=redis_url, callback=sleeper(users)) as queue:
        queue.schedules.add_many(map(schedule_of, users))
        assert queue.schedules.replan().zones == "2031a"
        for at, act in sorted(acts, key=lambda one: one[0]):
            delivered += drain(queue, until=at, most=100_000)
            act(queue)
        assert not queue.counts().dead

    rows = defaultdict(list)
    for one in delivered:
        rows[one.payload["user"]].append((one.at, one.outcome))
    for user in users:
        assert sorted(rows[user.name]) == [row for row in expected(user) if row[0] <= END], user
    assert len(delivered) > 300 * number
