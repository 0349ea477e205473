"""Turns of a plain queue: one call settles and claims, and what is not due yet is held until it is."""

import pytest

from delayq.broker.replies import TurnReply
from delayq.errors import ServerError, UnavailableError
from delayq.worker.delivery.disposition import Disposition
from delayq.worker.loop.plain_turns import CLAIM_LEAD, LATE_ACK, PLAIN_AGAIN
from delayq.worker.parts.ahead import SLEW
from tests.support.loop_harness import SERVER, LoopHarness, claimed

NOT_PLAIN = TurnReply("", None)


def consumer(**options):
    """A consumer of a plain queue that knows that nothing is there."""
    settings = {"promotes": False, "plain": True, "concurrency": 2, "prefetch": 0, "tick": 1000}
    harness = LoopHarness(**settings | options)
    harness.wake()
    harness.reply()
    return harness


def due_claimed(harness, *ids, late=0, due_in=None, left=0):
    """A reply with messages due `late` ms ago, or soon if that is negative; the next one is due in so many seconds."""
    times = {} if due_in is None else {"next_due": harness.server(harness.now + due_in)}
    reply = claimed(*ids, left=left)
    now = harness.server(harness.now)
    for one in reply.messages:
        one.due = now - late
    return reply._replace(**times)


def claim(harness, *ids, **reply):
    """Wake it, and let it claim these; returns what starts at once."""
    harness.wake(after=0.1, woken=True)
    assert harness.asked[-1:] == ["turn"]
    return harness.reply(turn=due_claimed(harness, *ids, **reply))


def running(*ids, due_in=None, **options):
    """A consumer whose callbacks run for these messages."""
    harness = consumer(**options)
    assert claim(harness, *ids, due_in=due_in) == list(ids)
    harness.begin(*ids)
    return harness


def held(*ids, late=-20, **options):
    """A consumer that holds these, due in 20 ms."""
    harness = consumer(**options)
    assert claim(harness, *ids, late=late) == []
    return harness


def started(harness):
    """Let it start what is due; returns the ids."""
    return harness.reply()


# Calls


def test_a_wakeup_is_answered_by_one_call():
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    assert harness.asked == ["turn"]
    assert harness.ask("turn").what == 2
    assert harness.ask("turn").options == {"lease": 30_000, "consumer_id": "me", "ahead": 25, "receipts": []}


def test_what_is_acknowledged_goes_with_the_claim():
    harness = running("a", due_in=0.5)
    harness.wake(after=0.5, done=[harness.done("a")])
    assert harness.asked == ["turn"]
    assert harness.ask("turn").options["receipts"] == harness.receipts("a")
    assert harness.reply(turn=due_claimed(harness, "b")) == ["b"]
    assert harness.in_flight == ["b"]


def test_with_nothing_due_an_acknowledgement_goes_alone_at_once():
    harness = running("a", due_in=10.0)
    harness.wake(after=0.1, done=[harness.done("a")])
    assert harness.asked == ["turn"]
    assert (harness.ask("turn").what, harness.ask("turn").options["receipts"]) == (0, harness.receipts("a"))
    harness.reply()
    assert harness.in_flight == []


def test_a_turn_that_settles_claims_what_is_due_within_ahead():
    harness = running("a", due_in=0.12, settle_within=0)
    harness.wake(after=0.1, done=[harness.done("a")])
    assert harness.ask("turn").what == 2
    harness.reply(turn=due_claimed(harness, due_in=0.02))


@pytest.mark.parametrize(("due_in", "waits"), [(0.0101, True), (0.2, False)])
def test_an_acknowledgement_waits_while_something_is_due_within_that(due_in, waits):
    harness = running("a", due_in=0.1 + due_in)
    harness.wake(after=0.1, done=[harness.done("a")])
    assert harness.asked == ([] if waits else ["turn"])
    if waits:
        assert 0 < harness.sleeps <= 0.01
        harness.wake()
        assert harness.ask("turn").options["receipts"] == harness.receipts("a")


def test_an_acknowledgement_waits_while_something_held_starts_within_that():
    harness = running("a")
    claim(harness, "b", late=-15)
    harness.wake(after=0.006, done=[harness.done("a")])
    assert harness.sleeps == pytest.approx(0.015 * (1 + SLEW) - 0.006, abs=1e-5)
    harness.wake()
    assert started(harness) == ["b"]
    assert harness.sleeps == pytest.approx(0.001, abs=2e-5)  # 10 ms since it ended
    harness.wake()
    assert harness.ask("turn").options["receipts"] == harness.receipts("a")


def test_a_failure_does_not_wait():
    harness = running("a", due_in=0.105)
    harness.wake(after=0.1, done=[harness.done("a", Disposition.NACK)])
    assert harness.asked[0] == "nack"


# Queues that are not plain


def test_a_queue_that_is_not_plain_is_served_in_the_general_way():
    harness = running("a", due_in=0.5)
    harness.wake(after=0.5, done=[harness.done("a")])
    harness.reply(turn=NOT_PLAIN)
    assert harness.in_flight == ["a"]
    harness.wake()
    assert harness.asked == ["ack", "pending_to_unack"]
    harness.reply()
    assert harness.in_flight == []


def test_a_wakeup_is_kept_for_the_general_way():
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    harness.reply(turn=NOT_PLAIN)
    harness.wake()
    assert harness.asked == ["pending_to_unack"]


def test_after_a_minute_it_is_taken_for_plain_again():
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    harness.reply(turn=NOT_PLAIN)
    harness.settle_down()
    for after, name in ((PLAIN_AGAIN - 1, "pending_to_unack"), (2, "turn")):
        harness.wake(after=after, woken=True)
        assert harness.asked[-1] == name
        harness.reply()
        harness.settle_down()


def test_what_only_ack_can_settle_is_settled_by_it():
    harness = running("a", "b", due_in=10.0)
    harness.wake(after=0.1, done=[harness.done("a"), harness.done("b")])
    harness.reply(turn=TurnReply("?1", claimed(), harness.micros(harness.now)))
    assert harness.in_flight == ["a"]
    harness.wake()
    assert (harness.asked, harness.ask("ack").what) == (["ack"], harness.receipts("a"))
    harness.reply()
    assert harness.in_flight == []
    harness.wake(after=LATE_ACK, woken=True)
    assert harness.asked == ["turn"]


def test_the_general_way_claims_nothing_ahead():
    harness = running("a", due_in=1.0)
    assert harness.loop.outlook.lead > 0
    harness.wake(after=1.0, done=[harness.done("a")])
    harness.reply(turn=TurnReply("?", due_claimed(harness, due_in=0.05)._replace(now=harness.server(harness.now)), 0))
    assert harness.loop.outlook.lead == 0


# Refusals and stops


@pytest.mark.parametrize("error", [UnavailableError("gone"), ServerError("no")])
def test_what_a_turn_could_not_settle_is_settled_again(error):
    harness = running("a", due_in=0.5)
    harness.wake(after=0.5, done=[harness.done("a")])
    harness.tell(replies=[error])
    assert harness.in_flight == ["a"]
    harness.wake()
    assert harness.ask("turn").options["receipts"] == harness.receipts("a")


def test_a_stop_settles_in_the_general_way():
    harness = running("a", due_in=0.105)
    harness.stop(within=10)
    harness.wake(after=0.1)
    harness.tell()
    harness.wake(after=0.1, done=[harness.done("a")])
    assert harness.ask("ack").what == harness.receipts("a")


def test_an_acknowledgement_that_waits_is_settled_by_a_stop():
    harness = running("a", due_in=0.108)
    harness.wake(after=0.1, done=[harness.done("a")])
    assert harness.sleeps > 0
    harness.stop(within=10)
    harness.wake(after=0)
    harness.tell()
    assert harness.ask("ack").what == harness.receipts("a")


def test_a_stop_returns_what_is_held_for_when_it_is_due():
    harness = held("a", "b")
    harness.stop(within=10)
    harness.wake(after=0.005)
    harness.tell()
    (release, other) = harness.ask("release").what
    assert (release.id, other.id, release.unstarted) == ("a", "b", True)
    assert release.delay == other.delay == 16  # 15 ms, and what the clocks may differ, rounded up
    harness.reply()
    assert harness.ended or harness.asked == []


# What is held


def test_what_is_not_due_yet_starts_when_it_is():
    harness = held("a", "b")
    assert harness.in_flight == []
    assert harness.sleeps == pytest.approx(0.02 * (1 + SLEW), abs=1e-6)
    harness.wake()
    assert started(harness) == ["a", "b"]
    assert harness.in_flight == ["a", "b"]


def test_each_starts_at_its_time():
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    reply = due_claimed(harness, "a", "b", "c")
    for one, soon in zip(reply.messages, (0, 5, 15), strict=True):
        one.due += soon
    assert harness.reply(turn=reply) == ["a"]
    for id, after in (("b", 0.005), ("c", 0.01)):
        assert harness.sleeps == pytest.approx(after * (1 + SLEW), abs=1e-6)
        harness.wake()
        assert started(harness) == [id]


@pytest.mark.parametrize(("ids", "left"), [("a", 1), ("ab", 0)])
def test_each_that_is_held_takes_a_runner(ids, left):
    harness = held(*ids)
    assert harness.capacity == left
    assert harness.listens is (left > 0)
    harness.wake(after=0.021)
    assert started(harness) == list(ids)
    assert harness.capacity == left


def test_a_wakeup_makes_it_look_whether_what_it_holds_is_asked_for():
    harness = held("a", reports=True)
    harness.wake(after=0.001, woken=True)
    assert harness.ask("is_withdrawn").what == ["a"]
    harness.reply(is_withdrawn=False, turn=due_claimed(harness))
    harness.wake()
    assert started(harness) == ["a"]


def test_what_is_asked_for_goes_back_at_once():
    harness = held("a", reports=True)
    harness.wake(after=0.001, woken=True)
    harness.reply(is_withdrawn=True, turn=due_claimed(harness))
    harness.wake()
    (release,) = harness.ask("release").what
    assert (release.id, release.delay) == ("a", 20)
    harness.reply()
    harness.settle_down()
    assert (harness.in_flight, harness.capacity) == ([], 2)


def test_a_wakeup_with_nothing_held_makes_it_look_for_nothing():
    harness = consumer(reports=True)
    harness.wake(after=0.001, woken=True)
    assert harness.asked == ["turn"]


# How far ahead


def test_it_claims_a_round_trip_and_a_little_before_what_is_due():
    harness = consumer()
    claim(harness, due_in=0.5)
    assert harness.sleeps == pytest.approx(0.5 - CLAIM_LEAD, abs=0.0015)
    harness.wake()
    assert harness.asked == ["turn"]


@pytest.mark.parametrize(
    ("options", "ahead"), [({"ahead": 0}, 0), ({"ahead": 1}, 1000), ({"lease": 0.1, "ahead": 1}, 33)]
)
def test_it_claims_as_far_ahead_as_the_option_and_a_third_of_the_lease_allow(options, ahead):
    harness = consumer(**options)
    harness.wake(after=0.1, woken=True)
    assert harness.ask("turn").options["ahead"] == ahead


def test_without_ahead_it_claims_what_is_due_when_it_is():
    harness = consumer(ahead=0)
    claim(harness, due_in=0.5)
    assert harness.sleeps == 0.5


def test_a_burst_claims_nothing_ahead():
    harness = LoopHarness(plain=True, promotes=False, burst=True, concurrency=2, prefetch=0)
    harness.wake()
    harness.reply(ready_to_unack=claimed("a"))
    harness.begin("a")
    harness.wake(after=0.1, woken=True)
    assert harness.ask("turn").options["ahead"] == 0


def test_where_a_test_sets_the_clock_nothing_is_claimed_ahead(monkeypatch):
    monkeypatch.setattr("tests.support.loop_harness.Asking.clock", lambda: SERVER)
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    assert harness.ask("turn").options["ahead"] == 0
