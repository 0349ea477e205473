"""What a consumer reports of started callbacks, and a message that it has to run alone."""

from __future__ import annotations

from delayq.broker.requests import UNSTARTED, Release
from delayq.errors import UnavailableError
from delayq.worker.parts.start_reports import ALONE_FOR, REPORT_AFTER, WITHDRAWN_EVERY, StartReports
from tests.support.loop_harness import LoopHarness, claimed


def consumer(*ids, **options):
    """Return a consumer that has claimed these messages."""
    harness = LoopHarness(reports=True, **options)
    harness.wake()
    assert harness.reply(ready_to_unack=claimed(*ids)) == list(ids)
    return harness


def claim_alone(harness, *, left=0):
    """Let a consumer claim `z`, which is to run alone; returns its receipt."""
    assert harness.reply(ready_to_unack=claimed("z", left=left)._replace(alone=True)) == []
    return harness.loop.parts.find(StartReports).alone.receipt


def test_claims_say_that_starts_are_reported():
    harness = LoopHarness(reports=True)
    harness.wake()
    assert harness.ask("ready_to_unack").options["consumer_id"] == "me" + UNSTARTED


def test_callback_is_reported_once_it_has_run_for_a_while():
    harness = consumer("a", "b", prefetch=1)
    harness.begin("a")
    assert harness.sleeps == REPORT_AFTER
    harness.wake()
    assert harness.ask("start").what == harness.receipts("a")
    harness.reply()
    harness.wake(after=1)
    assert "start" not in harness.asked


def test_quick_callbacks_are_not_reported():
    harness = consumer("a", "b", prefetch=1)
    harness.begin("a")
    for id, after in [("a", "b"), ("b", None)]:
        harness.wake(after=REPORT_AFTER / 2, done=[harness.done(id)])
        assert "start" not in harness.asked
        harness.reply()
        if after:
            harness.begin(after)


def test_callback_that_could_not_be_reported_is_reported_again():
    harness = consumer("a", "b", prefetch=1)
    harness.begin("a")
    harness.wake()
    harness.reply(start=UnavailableError("gone"))
    harness.wake(after=1)
    assert harness.ask("start").what == harness.receipts("a")


def test_consumer_looks_for_what_it_is_asked_to_return_while_workers_are_busy():
    harness = consumer("a", "b", "c", prefetch=2)
    harness.begin("a")
    harness.wake()
    harness.reply()
    assert harness.sleeps == WITHDRAWN_EVERY
    harness.wake()
    assert harness.ask("is_withdrawn").what == ["b", "c"]
    harness.reply(is_withdrawn=True)
    assert harness.sleeps == 0
    harness.wake()
    assert harness.recalls
    harness.tell(withdrawn=["b", "c"])
    assert harness.ask("release").what == harness.releases("b", "c")
    harness.reply()
    assert harness.in_flight == ["a"]


def test_consumer_that_is_asked_for_what_has_just_started_keeps_what_it_claims_later():
    harness = consumer("a", "b", prefetch=1)
    harness.begin("a")
    harness.wake()
    harness.reply()
    harness.wake()
    harness.reply(is_withdrawn=True, done=[harness.done("a")])
    harness.begin("b")
    harness.wake(woken=True)
    assert harness.reply(ready_to_unack=claimed("c")) == ["c"]
    harness.wake()
    assert not harness.recalls


def test_consumer_that_is_asked_to_return_nothing_releases_nothing():
    harness = consumer("a", "b", prefetch=1)
    harness.begin("a")
    for _ in range(3):
        harness.wake()
        harness.reply(is_withdrawn=False)
        assert not harness.recalls


def test_message_that_is_to_run_alone_is_reported_before_it_starts():
    harness = LoopHarness(reports=True)
    harness.wake()
    receipt = claim_alone(harness)
    assert harness.sleeps == 0
    harness.wake()
    assert harness.ask("start").what == [receipt]
    assert "ready_to_unack" not in harness.asked
    assert harness.reply() == ["z"]


def test_message_that_is_to_run_alone_waits_for_a_free_worker():
    harness = consumer("a", prefetch=1)
    harness.begin("a")
    harness.wake(after=0, woken=True)
    receipt = claim_alone(harness)
    harness.wake(after=REPORT_AFTER)
    assert harness.ask("start").what == harness.receipts("a")
    harness.reply()
    harness.wake(after=1, done=[harness.done("a")])
    assert harness.ask("start").what == [receipt]
    assert harness.reply() == ["z"]


def test_message_that_is_to_run_alone_and_lost_its_lease_does_not_start():
    harness = LoopHarness(reports=True)
    harness.wake()
    claim_alone(harness)
    harness.wake()
    assert harness.reply(start="0") == []
    assert harness.in_flight == []


def test_message_that_is_to_run_alone_is_kept_while_redis_is_away():
    harness = LoopHarness(reports=True)
    harness.wake()
    receipt = claim_alone(harness)
    harness.wake()
    assert harness.reply(start=UnavailableError("gone")) == []
    harness.wake()
    assert harness.ask("start").what == [receipt]


def test_stop_releases_a_message_that_waits_to_run_alone():
    harness = consumer("a", prefetch=1)
    harness.begin("a")
    harness.wake(woken=True)
    receipt = claim_alone(harness)
    harness.stop(within=9)
    harness.wake()
    harness.tell()
    assert harness.ask("release").what == [Release(*receipt, unstarted=True)]


def test_message_that_is_to_run_alone_waits_until_no_callback_runs_but_not_for_ever():
    harness = consumer("a", concurrency=2)
    harness.begin("a")
    harness.wake(after=0, woken=True)
    receipt = claim_alone(harness)
    harness.wake(after=REPORT_AFTER)
    assert harness.ask("start").what == harness.receipts("a")
    harness.reply()
    harness.wake(after=ALONE_FOR)
    assert harness.ask("start").what == [receipt]
    assert harness.reply() == ["z"]


def test_nothing_is_claimed_beside_a_message_that_has_just_started_alone():
    harness = LoopHarness(reports=True, concurrency=2)
    harness.wake()
    claim_alone(harness, left=1)
    harness.wake()
    harness.reply()
    harness.begin("z")
    for after, claims in [(ALONE_FOR / 2, False), (ALONE_FOR / 2, True)]:
        harness.wake(after=after)
        assert ("ready_to_unack" in harness.asked) == claims
        harness.reply()


def test_messages_are_claimed_again_when_the_one_that_ran_alone_has_ended():
    harness = LoopHarness(reports=True, concurrency=2)
    harness.wake()
    claim_alone(harness, left=1)
    harness.wake()
    harness.reply()
    harness.begin("z")
    harness.wake(after=0, done=[harness.done("z")])
    assert "ready_to_unack" in harness.asked


def test_fixed_prefetch_lets_a_message_that_is_to_run_alone_wait_without_polling():
    harness = consumer("a", prefetch=1)
    harness.begin("a")
    harness.wake(after=0, woken=True)
    claim_alone(harness)
    for _ in range(3):
        harness.wake()
        harness.reply()
    harness.wake(after=ALONE_FOR)
    harness.reply()
    assert harness.sleeps > REPORT_AFTER
