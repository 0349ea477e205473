"""The presence of consumers is read in pages; a sample of the entries without an end is removed."""

from __future__ import annotations

import pytest

from delayq.broker.calls import Calls
from delayq.broker.stored_presence import (
    HOUR,
    SILENT_KEPT,
    HourCounts,
    PresenceReply,
    history_call,
    keep_presence_call,
    presence_call,
    workers_page_call,
    write_counts,
)
from delayq.broker.transport.executor import open_executor
from delayq.options import read_settings
from tests.lua.cases.presence import ENTRY, LASTS, TEXT, report, told
from tests.support.scripts import KEYS, NOW, World, calls, deliver, observe, plant

MANY = {f"w{number}": number for number in range(1500)}


def test_a_page_has_all_of_a_few(executor):
    plant(executor, told({"v": -5, "w": 7}, TEXT) + World(workers={"x": TEXT}, beats={"y": 5}))
    page = executor.call(workers_page_call(calls, "0", limit=10))
    assert (page.now, page.cursor) == (NOW, "0")
    assert {(one.consumer_id, one.ends, one.entry.pid) for one in page.workers} == {
        ("v", NOW - 5, 7),
        ("w", NOW + 7, 7),
    }
    assert {one.entry.running[0] for one in page.workers} == {*ENTRY.running}


def test_workers_are_read_in_pages(executor):
    plant(executor, told(MANY, TEXT))
    cursor, found = "0", {}
    while cursor != "0" or not found:
        page = executor.call(workers_page_call(calls, cursor, limit=100))
        cursor = page.cursor
        found |= {one.consumer_id: one.ends - NOW for one in page.workers}
        assert len(page.workers) < 300
    assert found == MANY


def test_a_page_ends_with_a_mebibyte(executor):
    large = TEXT.replace("}", " " * 100_000 + "}")
    plant(executor, told({f"w{number}": 5 for number in range(100)}, large))
    page = executor.call(workers_page_call(calls, "0", limit=100))
    assert 10 <= len(page.workers) < 60
    assert page.cursor != "0"


def test_entries_without_an_end_are_removed_a_hundred_at_a_time(executor):
    plant(executor, World(workers=dict.fromkeys(MANY, "{}")))
    assert deliver(executor, report(), sequence=1).removed == 100
    assert len(observe(executor).workers) == 1401
    for sequence in range(2, 200):
        deliver(executor, report(), sequence=sequence)
    assert observe(executor) == told({"w": LASTS}, TEXT)


def test_entries_without_an_end_are_found_among_others(executor):
    plant(executor, told(MANY) + World(workers={"x": "{}"}))
    for sequence in range(1, 1000):
        if deliver(executor, report(), sequence=sequence).removed:
            break
    assert observe(executor) == told(MANY) + told({"w": LASTS}, TEXT)


@pytest.mark.parametrize(
    ("others", "before", "workers"),
    [
        ({}, 0, 1),
        ({"w": 5}, 0, 1),
        ({"x": 5, "y": -1, "z": -SILENT_KEPT}, 0, 2),
        ({"a": 0, "b": 5, "c": -1, "x": 5}, 2, 4),
        ({f"x{number:03}": 5 for number in range(150)}, 0, 101),
    ],
)
def test_a_beat_stores_the_same_and_removes_nothing(executor, others, before, workers):
    plant(executor, told(others))
    for _ in range(2):
        assert executor.call(keep_presence_call(calls, "w", ENTRY)) == PresenceReply(0, before, workers, NOW)
        assert observe(executor) == told(others) + told({"w": LASTS}, TEXT)


def test_a_full_redis_takes_a_beat(start_redis):
    executor = open_executor({"url": start_redis().url}, read_settings({"deadline": 0.001}))
    plant(executor, told({"w": 5}))
    executor.client.config_set("maxmemory", "1")
    executor.call(keep_presence_call(calls, "w", ENTRY))
    assert observe(executor) == told({"w": LASTS}, TEXT)
    executor.close()


@pytest.mark.parametrize(
    "call", [workers_page_call(Calls(KEYS), "0", limit=1), keep_presence_call(Calls(KEYS), "w", ENTRY)]
)
def test_a_reply_is_not_of_a_later_time(real_executor, call):
    for _ in range(30):
        reply = real_executor.call(call)
        seconds, rest = real_executor.client.time()
        assert reply.now * 1000 <= int(seconds) * 1_000_000 + int(rest)


def test_hours_are_read_the_latest_first(executor):
    hour, counts = NOW // HOUR, HourCounts(3, lateness=(*range(14),))
    plant(
        executor,
        World(
            history={
                "first": "0",
                "total": "12 7",
                f"{hour}": write_counts(counts),
                f"{hour - 2}": "4",
                f"{hour - 1}": "x",
            }
        ),
    )
    total = HourCounts(12, 7)
    assert executor.call(history_call(calls, limit=3)) == (NOW, [counts, None, HourCounts(4)], total)
    assert executor.call(history_call(calls, limit=2, last=hour - 1)) == (NOW, [None, HourCounts(4)], total)
    assert executor.call(history_call(calls, limit=1000, last=hour - 2)).hours == [HourCounts(4), *[None] * 999]


def test_an_hour_begins_with_its_first_millisecond(executor):
    hour = NOW // HOUR + 1
    for now in (hour * HOUR - 1, hour * HOUR):
        at = Calls(KEYS, clock=lambda now=now: now)
        deliver(executor, presence_call(at, "w", None, HourCounts(now % HOUR + 1)), sequence=now)
        assert executor.call(history_call(at, limit=1))[:2] == (now, [HourCounts(now % HOUR + 1)])
    found = executor.call(history_call(calls, limit=2, last=hour))
    assert (found.hours, found.total) == ([HourCounts(1), HourCounts(HOUR)], HourCounts(HOUR + 1))


def test_hours_are_not_read_at_a_later_time(real_executor):
    for _ in range(30):
        found = real_executor.call(history_call(Calls(KEYS), limit=1))
        seconds, rest = real_executor.client.time()
        assert found.now * 1000 <= int(seconds) * 1_000_000 + int(rest)


def test_a_record_is_short():
    most = 10**13
    assert len(write_counts(HourCounts(*[most] * 7, 10**15, (most,) * 14))) < 400
