"""Looking at a queue over partitions: what they have adds up, and pages are merged by time."""

from __future__ import annotations

import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count, islice

import pytest

from delayq import ConfigurationError, EventKind, NewMessage, Pause
from tests.behaviour.places import everywhere
from tests.partitioned.places import PARTITIONS, claim, ids_of, one_of_each
from tests.support.waiting import wait_until

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def mixed(queue):
    """A queue with 120 messages due in any order, a third of which have the name "mail"."""
    numbers = [*range(120)]
    random.Random(1).shuffle(numbers)
    queue.send_many(
        NewMessage(n, id=f"m{n}", at=NOW + timedelta(hours=1, minutes=n), name="mail" if n % 3 == 0 else None)
        for n in numbers
    )
    return queue


# Numbers


@everywhere
def test_counts_and_totals_add_up(queue):
    queue.send_many([NewMessage("x", id=id, delay=60) for id in one_of_each()])
    queue.send_many([NewMessage("x", id=f"due{n}") for n in range(8)])
    first, second, third, *rest = claim(queue)
    assert first.ack()
    assert second.reject("broken")
    assert third.nack(delay=60, error="busy")

    counts, stats = queue.counts(), queue.stats()
    assert (counts.pending, counts.active, counts.backoff, counts.dead) == (4, 5, 1, 1)
    assert counts.living == 10
    assert stats.counts == counts
    assert len(rest) == 5
    totals = stats.totals
    assert (totals["sent"], totals["delivered"], totals["acked"], totals["nacked"]) == (12, 8, 1, 1)
    dues = [queue.get(id).due for id in one_of_each()]
    assert stats.next_due == min(dues)
    assert stats.next_deadline is not None


@everywhere
def test_history_and_forecast_add_up(mixed):
    mixed.send_many([NewMessage("x", id=f"due{n}") for n in range(8)])
    mixed.callback(lambda message: None)
    mixed.run(burst=True)

    total = mixed.history().total
    assert (total.delivered, total.acked, total.callbacks) == (8, 8, 8)
    forecast = mixed.forecast("1d")
    assert sum(bucket.pending for bucket in forecast.buckets) == 120
    assert forecast.names["mail"] == 40
    assert forecast.later == 0


def test_memory_adds_up(mixed):
    before = mixed.memory_usage(samples=0).total
    mixed.send_many(["x" * 1000] * 100, 60)
    assert mixed.memory_usage(samples=0).total > before + 100_000


def test_a_worker_is_listed_once_with_what_it_runs_of_all_partitions(open_queue, busy):
    queue = open_queue(partitions=PARTITIONS, callback=busy, concurrency=8)
    queue.send_many([NewMessage(id, id=id) for id in one_of_each()])
    queue.start_consume()
    wait_until(lambda: len(busy.seen) == 4)

    wait_until(lambda: [len(worker.running) for worker in queue.workers()] == [4])
    assert queue.stats().workers == 1


@everywhere
def test_nothing_is_merged_of_an_empty_queue(queue):
    queue.open()
    assert queue.list("pending").messages == []
    assert queue.list("pending").cursor is None
    assert queue.search("x").matches == []
    assert queue.workers() == queue.runs() == queue.schedules.list() == queue.dead.groups() == []
    assert queue.counts().living == queue.stats().totals.get("sent", 0) == 0
    assert queue.stats().next_due is None
    assert queue.purge() == 0
    assert queue.why().reasons
    assert [*queue.events()] == []


def test_examination_names_the_partition_of_what_it_finds(queue, redis_client):
    (id,) = ids_of(2, 1)
    queue.send_delay_msg("x", 60, id=id)
    redis_client.hdel("delayq:{reminders#2}:messages", id)

    found = queue.examine(deep=True).findings

    assert any("reminders#2" in finding.text and id in finding.ids for finding in found)
    queue.repair(deep=True)
    assert not any(finding.ids for finding in queue.examine(deep=True).findings)


# Pages


def pages(read, limit):
    """Read all pages; returns the ids in their order."""
    found, cursor, number = [], None, 0
    while True:
        page = read(limit=limit, cursor=cursor)
        assert len(page.messages) <= limit
        found += [message.id for message in page.messages]
        if (cursor := page.cursor) is None:
            return found
        number += 1
        assert number <= 1_000, "the pages do not end"


@everywhere
@pytest.mark.parametrize("limit", [1, 3, 7, 40, 119, 120, 1000])
def test_every_message_is_listed_once_in_the_order_of_time(mixed, limit):
    assert pages(lambda **how: mixed.list("pending", **how), limit) == [f"m{n}" for n in range(120)]


@pytest.mark.parametrize("limit", [2, 5, 11])
def test_pages_are_in_order_when_one_partition_has_most(queue, limit):
    crowd, few = ids_of(1, 80), [ids_of(number, 1)[0] for number in (0, 2, 3)]
    dues = {id: 60 + 2 * n for n, id in enumerate(crowd)} | {id: 61 + 50 * n for n, id in enumerate(few)}
    queue.send_many([NewMessage("x", id=id, delay=due) for id, due in dues.items()])

    assert pages(lambda **how: queue.list("pending", **how), limit) == sorted(dues, key=dues.__getitem__)


def test_a_page_may_be_of_a_time_alone(mixed):
    start, end = NOW + timedelta(hours=1, minutes=30), NOW + timedelta(hours=1, minutes=50)
    found = pages(lambda **how: mixed.list("pending", due_from=start, due_to=end, **how), 6)
    assert found == [f"m{n}" for n in range(30, 50)]


@pytest.mark.parametrize("state", ["ready", "active"])
def test_pages_of_other_states_have_every_message_once(queue, state):
    queue.send_many([NewMessage("x", id=f"m{n}") for n in range(50)])
    if state == "active":
        claim(queue)
    else:
        claim(queue, 1)  # it promotes what is due
    found = pages(lambda **how: queue.list(state, **how), 7)
    assert len(found) == len({*found}) == getattr(queue.counts(), state)


@pytest.mark.parametrize("cursor", ["x", "0", "", "eyJ9", "{}", "MTIz"])
def test_another_cursor_is_refused(mixed, cursor):
    with pytest.raises(ConfigurationError, match="cursor must be that of a page before"):
        mixed.list("pending", cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, 100_000])
def test_wrong_limits_are_refused(mixed, limit):
    with pytest.raises(ConfigurationError, match="limit"):
        mixed.list("pending", limit=limit)


@everywhere
@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_search_finds_every_match_once(queue, limit):
    queue.send_many([NewMessage(f"needle {n}", id=f"m{n}", delay=60) for n in range(60)])
    queue.send_many([NewMessage("hay", id=f"hay{n}", delay=60) for n in range(60)])
    found, cursor, searched = [], None, 0
    while True:
        page = queue.search("needle", limit=limit, cursor=cursor)
        assert len(page.matches) <= limit
        found += [match.message.id for match in page.matches]
        searched += page.searched
        if (cursor := page.cursor) is None:
            break
    assert sorted(found) == sorted(f"m{n}" for n in range(60))


def test_search_goes_on_after_so_many_searched(queue):
    queue.send_many([NewMessage("hay", id=f"m{n}", delay=60) for n in range(900)])
    searched, cursor, number = 0, None, 0
    while True:
        page = queue.search("needle", max_searched=100, cursor=cursor)
        searched, number = searched + page.searched, number + 1
        if (cursor := page.cursor) is None:
            break
    assert searched == 900
    assert number >= PARTITIONS


@pytest.mark.parametrize("cursor", ["x", "9:", "-1:", "4:", "1.5:"])
def test_another_cursor_of_a_search_is_refused(queue, cursor):
    with pytest.raises(ConfigurationError, match="cursor"):
        queue.search("x", cursor=cursor)


# Selections


@everywhere
def test_selections_count_and_change_what_matches_in_all_partitions(mixed):
    assert mixed.select(name="mail").count() == 40
    assert mixed.select(id_prefix="m11").count() == 11
    assert mixed.select(due_to=NOW + timedelta(hours=1, minutes=10)).reschedule(delay="2d") == {"rescheduled": 10}
    assert mixed.select(name="mail").cancel() == {"cancelled": 40}
    assert mixed.counts().pending == 80
    assert mixed.select(id_prefix="m1").kill()["killed"] == mixed.counts().dead > 0
    assert mixed.forget(id_prefix="m1").deaths > 0
    assert mixed.counts().dead == 0


def test_wrong_selections_are_refused_at_once(mixed):
    with pytest.raises(ConfigurationError):
        mixed.select(state="done")
    assert mixed.counts().pending == 120


# Pauses


@everywhere
def test_pause_holds_all_partitions_and_resume_frees_them(queue):
    assert queue.pause(reason="deploy") == Pause(None, "deploy")
    queue.send_many([NewMessage("x", id=id) for id in one_of_each()])
    assert list(queue.lease(n=10)) == []
    assert queue.counts().paused == queue.stats().counts.paused == Pause(None, "deploy")
    assert any("deploy" in reason.text for reason in queue.why().reasons)
    assert queue.resume()
    assert not queue.resume()
    assert queue.counts().paused is None
    assert {message.id for message in claim(queue)} == {*one_of_each()}


@everywhere
def test_names_are_paused_in_all_partitions(queue):
    queue.pause(name="mail")
    queue.send_many([NewMessage("x", id=id, name="mail") for id in one_of_each()])
    queue.send_many([NewMessage("x", id=f"free{n}") for n in range(4)])
    assert {message.id for message in claim(queue)} == {f"free{n}" for n in range(4)}
    assert queue.counts().throttled == 4
    assert queue.resume(name="mail")
    found: list[str] = []
    wait_until(lambda: found.extend(message.id for message in claim(queue)) or len(found) == 4)
    assert {*found} == {*one_of_each()}


# The event log


def logged(open_queue, **options):
    return open_queue(partitions=PARTITIONS, events=True, **options)


def send_slowly(queue, count):
    """Send messages, each a millisecond later than the one before."""
    for number in range(count):
        queue.send_delay_msg(number, 60, id=f"m{number}")
        at = queue.stats().at
        wait_until(lambda at=at: queue.stats().at > at)


@everywhere
def test_events_are_in_the_order_of_time_and_name_their_partitions(open_queue):
    queue = logged(open_queue)
    send_slowly(queue, 20)
    for number in range(20):
        queue.cancel(f"m{number}")

    events = [*queue.events()]

    assert [event.at for event in events] == sorted(event.at for event in events)
    assert [event.id for event in events if event.kind is EventKind.SENT] == [f"m{number}" for number in range(20)]
    assert all(queue.partition_of(event.id).name == f"reminders#{event.partition}" for event in events)
    assert Counter(event.kind for event in events) == {EventKind.SENT: 20, EventKind.CANCELLED: 20}


@pytest.mark.parametrize("read", [0, 1, 7, 25])
def test_reading_goes_on_from_the_offset_of_each_partition(open_queue, read):
    queue = logged(open_queue)
    send_slowly(queue, 25)
    offsets: dict[int, int] = {}
    first: list[str] = []
    events = queue.events()
    for _ in range(read):
        event = next(events)
        offsets[event.partition] = event.offset
        first.append(event.id)

    rest = [event.id for event in queue.events(offsets)]

    assert [*first, *rest] == [f"m{number}" for number in range(25)]


def test_events_are_followed(open_queue):
    queue = logged(open_queue)
    queue.send_many(range(10), 60)
    following = queue.events("now", follow=True)
    found: list[str] = []
    numbers = count()

    def follow():
        found.extend(event.id for event in islice(following, 8))

    def is_followed():  # the first ones may be sent before it reads where the logs end
        queue.send_delay_msg("x", 60, id=f"late{next(numbers)}")
        return len(found) == 8

    threading.Thread(target=follow, daemon=True).start()
    wait_until(is_followed, every=0.05)
    numbered = [int(id.removeprefix("late")) for id in found]
    assert numbered == [*range(numbered[0], numbered[0] + 8)]


@pytest.mark.parametrize("after", [5, "later", -1, None, 1.5, [0], {9: 0}, {"a": 1}, {0: "x"}])
def test_other_offsets_are_refused(open_queue, after):
    queue = logged(open_queue)
    queue.open()
    with pytest.raises(ConfigurationError, match="after must be|partition"):
        list(queue.events(after))
