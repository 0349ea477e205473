"""When a consumer tells that it works, and what: by its own clock, in turns that it makes anyway."""

from __future__ import annotations

import os
from contextlib import suppress
from types import SimpleNamespace

import pytest

from delayq.broker.calls import Calls
from delayq.broker.context import QueueContext
from delayq.broker.engine import STREAMS
from delayq.broker.keys import Keys
from delayq.broker.message.attributes import NONE
from delayq.broker.replies import ClaimedMessage, ClaimReply
from delayq.broker.stored_presence import MAX_NAMED, MAX_QUEUES, PresenceReply, read_entry
from delayq.errors import ServerError, UnavailableError
from delayq.options import read_settings
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.loop.consumer_loop import ConsumerLoop
from delayq.worker.loop.loop_steps import RoundTrip, Sleep, StepResult
from delayq.worker.parts.presence import PRESENCE_EVERY, Presence, Tally
from delayq.worker.pool.fair_pool import FairPool
from delayq.worker.pool.pool_loop import LOOK_AGAIN, TOGETHER, RestingPresence
from tests.support.loop_harness import Asking

REPORTING = {"presence", "keep_presence"}
CALLS = Calls(Keys.of("delayq", "q"))


def context(**options):
    return QueueContext(CALLS, read_settings(options), lambda data: data, "q")


def presence(*, held=(), **options):
    settings = {name: options.pop(name) for name in ("tick", "concurrency", "lease") if name in options}
    some = Presence(context(**settings), "me", **options)
    some.turns = []
    some.connect(SimpleNamespace(deliveries=held, take_turns=lambda *turn, workers: some.turns.append(turn)))
    return some


def delivery(id, started=None):
    one = InFlightDelivery(ClaimedMessage(id, 1, b"secret", 3, 0, 1, b""), 0.0, 0, 99.0, NONE)
    one.batch = None if started is None else Batch(started, [True])
    return one


def told(of, now):
    """Return the entry that is told now; None for none."""
    planned = [*of.plan(now)]
    if not planned:
        return None
    ((call, read),) = planned
    assert (call.script.name in REPORTING, call.args[1], read) == (True, "me", of.read)
    return read_entry(call.args[4 if call.script.name == "presence" else 3])


def test_it_tells_at_the_start_and_then_every_ten_seconds():
    some = presence()
    assert told(some, 100.0).up == 0
    assert told(some, 100.0 + PRESENCE_EVERY - 0.01) is None
    assert told(some, 100.0 + PRESENCE_EVERY).up == 10_000
    assert told(some, 111.0) is None
    assert told(some, 125.5).up == 25_500


def names(some, number):
    """Return the scripts of so many reports that follow each other."""
    return [call.script.name for at in range(number) for call, _ in some.plan(100.0 + 10 * at)]


def test_one_of_thirty_reports_of_an_idle_consumer_tidies_up():
    assert names(presence(), 61) == [
        "presence",
        *["keep_presence"] * 29,
        "presence",
        *["keep_presence"] * 29,
        "presence",
    ]


def test_a_report_with_counts_is_added_to_the_history():
    tally = Tally()
    some = presence(tally=tally)
    assert names(some, 1) == ["presence"]
    tally.move(1)
    assert [call.script.name for at in (110.0, 120.0) for call, _ in some.plan(at)] == ["presence", "keep_presence"]


def turns(workers, *, before=0, now=1_000_000, **options):
    """Return how often to look, and how long after a report at `now`, with so many workers."""
    some = presence(**options)
    told(some, 100.0)
    some.read(PresenceReply(0, before, workers, now))
    ((every, at),) = some.turns
    return every, (at - 100.0) % every


def test_workers_share_their_looks_two_in_a_tick_or_more():
    assert [turns(workers)[0] for workers in (1, 2, 3, 6, 8, 20, 100)] == [1, 1, 1.5, 3, 4, 4, 4]


def test_each_of_the_workers_looks_at_a_time_of_its_own_by_the_clock_of_the_server():
    found = [turns(20, before=before)[1] for before in range(20)]
    assert found == pytest.approx([number / 5 for number in range(20)])
    later = [turns(20, before=before, now=1_001_900)[1] for before in range(20)]
    assert sorted(later) == pytest.approx([0.1 + number / 5 for number in range(20)])


def test_a_look_is_never_rarer_than_a_quarter_of_a_lease_unless_the_tick_is():
    assert turns(20, lease="8s")[0] == 2
    assert turns(20, lease="1s")[0] == 1
    assert turns(20, tick="10s", lease="1m")[0] == 15


def test_it_tells_who_it_is():
    entry = told(presence(concurrency=3), 5.0)
    assert (entry.host, entry.pid) == (os.uname().nodename, os.getpid())
    assert (entry.queues, entry.served, entry.concurrency, entry.every) == (["q"], 1, 3, 10_000)


def test_a_burst_tells_only_if_it_lasts():
    some = presence(burst=True)
    assert told(some, 100.0) is None
    assert some.leave() == []
    assert told(some, 109.0) is None
    assert told(some, 110.0).up == 10_000


def test_a_long_tick_makes_fewer_beats_and_says_so():
    some = presence(tick="25s")
    assert told(some, 0.0).every == 25_000
    assert told(some, 24.0) is None
    assert told(some, 25.0)


def test_it_names_what_runs_the_longest_first_and_counts_what_it_holds():
    held = [delivery("late", 109.0), delivery("first", 100.0), delivery("waits")]
    entry = told(presence(held=held), 110.0)
    assert (entry.held, entry.running) == (3, [("first", 10_000), ("late", 1000)])


def test_it_names_a_hundred_of_the_longest():
    entry = told(presence(held=[delivery(f"m{number}", float(number)) for number in range(MAX_NAMED + 1)]), 1000.0)
    assert (entry.held, len(entry.running), entry.running[-1][0]) == (101, 100, "m99")


def test_it_names_ten_of_many_queues():
    pool = FairPool(4, strict=False)
    pool.queues = {number: SimpleNamespace(context=SimpleNamespace(queue=f"q{number}")) for number in range(1000)}
    entry = told(presence(served=pool.served, concurrency=4), 0.0)
    assert (entry.queues, entry.served) == ([f"q{number}" for number in range(10)], 1000)


def test_an_entry_stays_below_16_kib():
    some = presence(served=lambda: (["q" * 128] * MAX_QUEUES, 1000), held=[delivery("m" * 128, -1e6)] * 1000)
    ((call, _),) = some.plan(0.0)
    assert len(call.args[4]) < 16_384
    assert b"secret" not in call.args[4]


def test_a_stop_removes_what_was_stored():
    some = presence()
    assert some.leave() == []
    told(some, 0.0)
    some.read(0)
    (call,) = some.leave()
    assert (call.script.name, call.args[1:]) == ("presence", ["me", 0, 3_600_000, "", 2160, ""])
    assert some.leave() == []


def test_a_refusal_is_logged_once_until_a_beat_is_accepted(caplog):
    some = presence()
    for now in (0.0, 10.0):
        told(some, now)
        some.read(ServerError("NOPERM no rights"))
    assert some.leave() == []
    assert caplog.text.count("NOPERM no rights") == 1
    told(some, 20.0)
    some.read(0)
    told(some, 30.0)
    some.read(ServerError("NOPERM again"))
    assert caplog.text.count("Redis refuses its reports") == 2


def test_no_answer_at_the_end_of_a_stop_is_no_refusal(caplog):
    some = presence()
    told(some, 0.0)
    some.read(UnavailableError("gone"))
    assert len(some.leave()) == 1
    assert caplog.text == ""


def test_a_stream_tells_nothing():
    of_streams = QueueContext(Asking(STREAMS), read_settings({}), lambda data: data, "q")
    some = ConsumerLoop(of_streams, "me", presence=lambda tally: presence(tally=tally))
    assert some.parts.find(Presence) is None


# In the loop of a consumer


def trips(loop_, *, turns):
    """Return the names of the calls in each round trip of a loop whose queue is empty, and the loop itself."""
    run, now, found = loop_.run(), 100.0, []
    step = next(run)
    while len(found) < turns:
        result = StepResult(now)
        if isinstance(step, RoundTrip):
            found.append([getattr(getattr(call, "script", None), "name", "EXISTS") for call in step.calls])
            result.replies = [reply(call) for call in step.calls]
        elif isinstance(step, Sleep):
            now += step.seconds
            result.now = now
        step = run.send(result)
    return found, run, now


def reply(call):
    """Return what an empty queue replies."""
    texts = {
        "collect_garbage": b"0 0 0",
        "presence": b"0 0 1 100000",
        "keep_presence": b"0 0 1 100000",
        "pending_to_ready": b"0 -1 -1 0 0 100000 -1 -1 0 0 -1",
    }
    name = getattr(getattr(call, "script", None), "name", "")
    if "unack" in name:
        return ClaimReply(100_000, 0, 0, [])
    return call.parse(texts.get(name, 0))


def loop(**options):
    return ConsumerLoop(context(), "me", presence=lambda tally: presence(tally=tally, **options))


def test_a_beat_travels_in_a_turn_that_is_made_anyway():
    found, _, _ = trips(loop(), turns=25)
    with_presence = [number for number, names in enumerate(found) if REPORTING & {*names}]
    assert with_presence[0] == 0
    assert 10 <= with_presence[1] - with_presence[0] <= 12
    assert all(len(names) > 1 for names in found if REPORTING & {*names})


def test_a_refused_beat_is_no_reason_to_wait():
    some = loop()
    run = some.run()
    next(run)
    step = run.send(StepResult(100.0))
    replies = [ServerError("NOPERM") if call.script.name == "presence" else reply(call) for call in step.calls]
    assert any(isinstance(one, ServerError) for one in replies)
    run.send(StepResult(100.1, replies=replies))
    assert (some.refusals.error, some.refusals.wait_until) == (None, 0.0)


def test_a_loop_that_ends_removes_its_entry():
    _, run, now = trips(loop(), turns=2)
    assert until_end(run, now) == [["presence"]]


def until_end(run, now):
    """Stop a loop; return the names of the calls of each round trip that it makes."""
    found = []
    with suppress(StopIteration):
        while True:
            step = run.send(StepResult(now, stop_at=now + 1))
            found += [[call.script.name for call in step.calls]] if isinstance(step, RoundTrip) else []
    return found


def test_a_loop_that_redis_does_not_answer_ends_at_once():
    some = loop()
    _, run, now = trips(some, turns=2)
    some.refusals.error = UnavailableError("gone")
    assert "presence" not in [name for step in until_end(run, now) for name in step]


# Of the queues of a worker that rest


def part(*, rests=True, tells=True):
    queue = SimpleNamespace(loop=SimpleNamespace(parts=SimpleNamespace(beside=[presence()] if tells else [])))
    return SimpleNamespace(queue=queue, ended=False, rests_until=9.0 if rests else None)


def resting(*parts):
    found = RestingPresence()
    for one in parts:
        found.add(one)
    return found


def test_queues_that_rest_beat_in_any_round_trip():
    found = resting(part(), part(rests=False))
    assert len([*found.plan(0.0)]) == 1
    assert [*found.plan(9.0)] == []
    assert len([*found.plan(10.0)]) == 1


def test_a_queue_that_comes_to_rest_is_looked_at_within_a_second():
    one = part(rests=False)
    found = resting(one)
    assert [*found.plan(0.0)] == []
    one.rests_until = 9.0
    assert [*found.plan(LOOK_AGAIN - 0.1)] == []
    assert len([*found.plan(LOOK_AGAIN)]) == 1


def test_a_round_trip_takes_some_beats_along_and_the_next_one_more():
    found = resting(*(part() for _ in range(TOGETHER + 7)))
    assert [len([*found.plan(0.0)]) for _ in range(3)] == [TOGETHER, 7, 0]


def test_a_queue_that_has_ended_is_forgotten():
    one = part()
    found = resting(one)
    one.ended = True
    assert [*found.plan(0.0)] == []
    one.ended = False
    assert [*found.plan(99.0)] == []


def test_streams_are_not_looked_after():
    assert [*resting(part(tells=False)).plan(0.0)] == []


def test_a_worker_of_many_queues_beats_about_twice_a_second_for_all():
    pool = FairPool(1, strict=False)
    pool.queues = dict.fromkeys(range(1000))
    a_second = sum(1 / pool.presence_every(number) for number in range(1000))
    assert 1.5 < a_second < 3
    pool.queues = dict.fromkeys(range(13))
    assert {pool.presence_every(number) for number in range(13)} == {PRESENCE_EVERY}
