"""What is prefetched beside a callback that lasts, and when it is released."""

import pytest

from delayq.errors import ServerError
from delayq.worker.parts.in_flight import MAX_UNSTARTED, PREFETCH_SECONDS
from tests.support.loop_harness import LoopHarness, claimed


def behind_a_slow_callback(**options):
    """A consumer of quick callbacks, one of which has just begun and lasts; "b" and "c" wait behind it."""
    harness = LoopHarness(**{"tick": 60, "lease": 3600} | options)
    harness.hold("first")
    harness.begin("first")
    harness.wake(after=0.001, done=[harness.done("first", took=0.001)], woken=True)
    assert harness.reply(ready_to_unack=claimed("a", "b", "c")) == ["a", "b", "c"]
    harness.begin("a")
    return harness


def released(harness):
    """Let the time pass for which messages may wait; the workers have not taken them. Returns what it releases."""
    harness.wake(after=MAX_UNSTARTED)
    assert harness.recalls
    harness.tell(withdrawn=["b", "c"])
    return harness.ask("release").what


def test_sleep_ends_when_prefetched_messages_have_waited_too_long():
    assert behind_a_slow_callback().sleeps == MAX_UNSTARTED


def test_what_waits_too_long_for_a_busy_worker_is_released():
    harness = behind_a_slow_callback()
    assert released(harness) == harness.releases("b", "c")
    harness.reply()
    assert harness.in_flight == ["a"]
    assert harness.sleeps > MAX_UNSTARTED


def test_after_a_release_nothing_is_claimed_until_a_callback_has_ended():
    harness = behind_a_slow_callback()
    released(harness)
    assert "ready_to_unack" not in harness.asked
    harness.reply()
    assert not harness.listens
    harness.wake(after=5, woken=True)
    assert harness.ask("ready_to_unack").what == 0
    harness.reply()
    harness.wake(after=1, done=[harness.done("a", took=7)], woken=True)
    assert harness.ask("ready_to_unack").what == 1  # 0.9 of 1 ms and 0.1 of 7 s


def test_release_that_was_refused_is_sent_again():
    harness = behind_a_slow_callback()
    released(harness)
    harness.reply(release=ServerError("refused"))
    assert harness.sleeps == 1
    harness.wake()
    assert harness.ask("release").what == harness.releases("b", "c")


def test_what_free_workers_are_about_to_take_is_not_released():
    harness = behind_a_slow_callback(concurrency=3)
    harness.wake(after=2 * MAX_UNSTARTED)
    assert not harness.recalls


def test_overdue_callback_does_not_keep_a_worker_busy():
    harness = behind_a_slow_callback(max_consume_duration=0.5, lease=1.5, concurrency=2)
    harness.wake(after=0.6)
    harness.reply()
    harness.wake(after=2 * MAX_UNSTARTED)
    assert not harness.recalls


def test_fixed_prefetch_is_kept():
    harness = behind_a_slow_callback(prefetch=2)
    harness.wake(after=60)
    assert not harness.recalls


@pytest.mark.parametrize(("lasts", "wanted"), [(0.9, 98), (1.1, 0)])
def test_running_callback_that_lasts_ends_prefetching_before_it_is_measured(lasts, wanted):
    harness = behind_a_slow_callback()
    harness.loop.in_flight.prefetch.grow(100, more=True)
    harness.wake(after=lasts * PREFETCH_SECONDS, woken=True)
    assert harness.ask("ready_to_unack").what == wanted  # of 100, "b" and "c" wait already
