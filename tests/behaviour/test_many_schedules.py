"""Schedules for many people: labels and prefixes, pages, and changes of many at once."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError, Schedule
from delayq.broker.keys import Keys
from delayq.schedules.info import Occurrence
from tests.behaviour.places import everywhere

USERS = {f"{kind}-{user}": (f"user:{user}", f"kind:{kind}") for user in (1, 2, 11) for kind in ("digest", "ping")}
"""Six schedules and their labels."""
SUMMER = datetime(2190, 7, 1, tzinfo=UTC)


@pytest.fixture
def users(queue):
    """A queue with a cron schedule and an interval for each of three users."""
    queue.schedules.add_many(
        Schedule(name, labels=labels, payload=name, start=SUMMER, **rule)
        for name, labels in USERS.items()
        for rule in [{"every": "1h"} if name.startswith("ping") else {"cron": "0 9 * * *", "tz": "Europe/Berlin"}]
    )
    return queue


def names(queue, **selection) -> list[str]:
    """List the names of schedules, which must be the same page by page."""
    found = [info.name for info in queue.schedules.list(**selection)]
    paged, cursor = [], None
    while True:
        page = queue.schedules.page(**selection, limit=2, cursor=cursor)
        assert len(page.schedules) <= 2
        paged += [info.name for info in page.schedules]
        cursor = page.cursor
        if cursor is None:
            assert paged == found
            return found


@everywhere
def test_schedules_are_found_by_label_and_prefix(users):
    assert names(users) == sorted(USERS)
    assert names(users, label="user:1") == ["digest-1", "ping-1"]
    assert names(users, label="kind:ping") == ["ping-1", "ping-11", "ping-2"]
    assert names(users, label="kind:ping", prefix="ping-1") == ["ping-1", "ping-11"]
    assert names(users, prefix="digest-1") == ["digest-1", "digest-11"]
    assert names(users, label="user:1", prefix="x") == names(users, label="user") == names(users, prefix="x") == []
    assert users.schedules.get("ping-2").labels == ("kind:ping", "user:2")


@everywhere
def test_labels_follow_their_schedules(users, redis_client):
    users.schedules.add("ping-1", every="1h", labels=["user:2"])
    assert names(users, label="user:1") == ["digest-1"]
    assert names(users, label="user:2") == ["digest-2", "ping-1", "ping-2"]
    assert users.schedules.add("ping-1", every="1h", labels=["user:2", "user:2"]) == "unchanged"
    users.schedules.remove("ping-2")
    users.schedules.pause("ping-1")
    assert names(users, label="user:2") == ["digest-2", "ping-1"]
    assert users.schedules.remove(prefix="digest-") == 3
    assert users.schedules.remove(label="kind:ping") == 1
    assert users.schedules.remove(prefix="ping") == 1
    assert not redis_client.exists(Keys.of("delayq", users.name).schedule_labels)


@everywhere
def test_schedules_with_a_label_are_paused_and_resumed(users):
    users.schedules.pause("digest-1")
    assert users.schedules.pause(label="user:1") == 1
    assert [info.name for info in users.schedules.list() if info.state == "paused"] == ["digest-1", "ping-1"]
    assert users.schedules.pause(label="user:1") == users.schedules.pause(label="user:9") == 0
    assert users.schedules.resume(prefix="ping") == users.schedules.resume("digest-1") == 1
    assert {info.state for info in users.schedules.list()} == {"active"}


@everywhere
def test_zone_of_a_user_is_changed_and_everything_else_kept(users):
    before = users.schedules.get("digest-1")
    assert users.schedules.set(label="user:1", tz="America/New_York") == 1
    after = users.schedules.get("digest-1")
    assert (before.next.hour, after.next.hour, after.tz) == (7, 13, "America/New_York")
    same = ("cron", "payload", "start", "labels", "retries", "misfire", "fired")
    assert all(getattr(before, name) == getattr(after, name) for name in same)
    assert users.schedules.get("ping-1").tz == "UTC"
    assert users.schedules.get("digest-2").tz == "Europe/Berlin"
    assert users.schedules.set(label="user:1", tz="America/New_York") == 0


@everywhere
def test_any_option_of_a_schedule_can_be_changed(users):
    set_ = users.schedules.set
    users.schedules.pause("ping-1")
    assert set_("ping-1", cron="30 9 * * *", tz="Asia/Tokyo") == set_("digest-1", every="2h") == 1
    ping, digest = users.schedules.get("ping-1"), users.schedules.get("digest-1")
    assert (ping.cron, ping.tz, ping.every, ping.state) == ("30 9 * * *", "Asia/Tokyo", None, "paused")
    assert (digest.cron, digest.tz, digest.every) == (None, "UTC", timedelta(hours=2))
    assert set_(prefix="digest", payload=[1], headers={"a": "b"}, retries=9, count=5, labels=["x"]) == 3
    info = users.schedules.get("digest-2")
    assert (info.payload, info.headers, info.retries, info.count) == ([1], {"a": "b"}, 9, 5)
    assert (info.cron, info.tz, info.start) == ("0 9 * * *", "Europe/Berlin", SUMMER)
    assert names(users, label="x") == ["digest-1", "digest-11", "digest-2"]
    assert set_(label="x", labels=[], start=None) == 3
    assert names(users, label="x") == []
    assert users.schedules.get("digest-2").next < SUMMER


@everywhere
def test_days_of_the_wall_clock_keep_their_zone(users):
    set_, get = users.schedules.set, users.schedules.get
    assert set_("ping-1", every="2d", tz="Europe/Berlin", start=None) == 1
    assert (get("ping-1").tz, get("ping-1").next.hour) == ("Europe/Berlin", 23)  # midnight there, in winter
    assert set_("ping-1", every="1w") == set_("ping-1", tz="Asia/Tokyo") == 1
    assert (get("ping-1").tz, get("ping-1").every, get("ping-1").next.hour) == ("Asia/Tokyo", timedelta(days=7), 15)
    with pytest.raises(ConfigurationError, match="with tz, every must be whole days"):
        set_("ping-1", every="90m")
    assert set_("ping-1", every="90m", tz=None) == 1
    assert (get("ping-1").tz, get("ping-1").every) == ("UTC", timedelta(minutes=90))
    assert set_("ping-1", tz="Asia/Tokyo") == 0


@pytest.mark.parametrize(
    ("selection", "options", "error"),
    [
        ({"label": "user:1"}, {"tz": "Europe/Pari"}, "schedule digest-1: unknown time zone 'Europe/Pari'"),
        ({"label": "user:1"}, {"zone": "UTC"}, "unknown option 'zone'"),
        ({"label": "user:1"}, {}, "set what"),
        ({"label": "user:1"}, {"end": SUMMER - timedelta(days=1)}, "schedule digest-1: end is before start"),
        ({"name": "ping-1"}, {"every": None}, "schedule ping-1: give cron, every or rrule"),
        ({"name": "ping-1"}, {"every": "1h", "tz": "UTC"}, "schedule ping-1: with tz, every must be whole days"),
        ({}, {"tz": "UTC"}, "select schedules: give a name"),
        ({"name": "ping-1", "label": "user:1"}, {"tz": "UTC"}, "select schedules: give a name"),
        ({"label": "user 1"}, {"tz": "UTC"}, "label must be 1 to 100 of"),
        ({"prefix": "user:"}, {"tz": "UTC"}, "schedule name must be"),
    ],
)
def test_refused_change_leaves_all_schedules_as_they_are(users, selection, options, error):
    before = users.schedules.list()
    with pytest.raises(ConfigurationError, match=error):
        users.schedules.set(**selection, **options)
    assert users.schedules.list() == before


@pytest.mark.parametrize(
    ("labels", "error"),
    [
        ("user:1", "labels must be a list of texts, not 'user:1'"),
        (7, "labels must be a list of texts, not 7"),
        (["a b"], "label must be 1 to 100 of"),
        ([""], "label must be 1 to 100 of"),
        ([f"l{n}" for n in range(11)], "a schedule may have 10 labels, not 11"),
    ],
)
def test_invalid_labels_are_refused(queue, labels, error):
    with pytest.raises(ConfigurationError, match=error):
        queue.schedules.add("s", every="1h", labels=labels)


@everywhere
def test_next_occurrences_of_a_label_come_in_order(users):
    users.schedules.set("ping-1", every="5h", count=2)
    hours = [(one.name, one.time.isoformat()[5:16]) for one in users.schedules.upcoming(9, label="user:1")]
    assert hours == [
        ("ping-1", "07-01T00:00"),
        ("ping-1", "07-01T05:00"),
        *[("digest-1", f"07-0{day}T09:00") for day in range(1, 8)],
    ]
    assert users.schedules.upcoming(1, prefix="ping-2") == [Occurrence("ping-2", SUMMER)]
    assert len(users.schedules.upcoming(40)) == 40
    users.schedules.pause(label="user:1")
    assert users.schedules.upcoming(label="user:1") == []


@pytest.mark.long
@everywhere
def test_pages_have_every_schedule_of_many(queue):
    all_names = [f"{'ab'[n % 2]}{n}" for n in range(2500)]
    random.shuffle(all_names)
    queue.schedules.add_many(Schedule(name, every="1d", labels=["all"] if name[0] == "a" else []) for name in all_names)
    for selection in ({}, {"prefix": "b"}, {"label": "all"}, {"prefix": "b24"}):
        expected = {
            name for name in all_names if name.startswith("a" if "label" in selection else selection.get("prefix", ""))
        }
        found, cursor = [], None
        while True:
            page = queue.schedules.page(**selection, limit=300, cursor=cursor)
            assert len(page.schedules) < 600
            found += [info.name for info in page.schedules]
            cursor = page.cursor
            if cursor is None:
                break
        assert set(found) == expected
        assert [info.name for info in queue.schedules.list(**selection)] == sorted(expected)
    assert queue.schedules.pause(prefix="b") == queue.schedules.remove(label="all") == 1250


def test_label_left_behind_in_the_index_finds_nothing(users, redis_client):
    key = Keys.of("delayq", users.name).schedule_labels
    redis_client.zadd(key, {"user:1 ping-2": 0, "user:1 gone": 0})
    assert names(users, label="user:1") == ["digest-1", "ping-1"]
    assert users.schedules.pause(label="user:1") == 2
    assert users.schedules.remove(label="user:1") == 2
    assert users.schedules.get("ping-2") is not None


def test_foreign_cursor_is_refused(users):
    for cursor in ("x", "@", 7, "@a b"):
        with pytest.raises(ConfigurationError, match=r"cursor .* is not from a page of schedules"):
            users.schedules.page(cursor=cursor)
    for limit in (0, 1001):
        with pytest.raises(ConfigurationError, match="limit"):
            users.schedules.page(limit=limit)
