"""Pausing a queue: nothing starts, everything else goes on, and it ends by `until` or by `resume`."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest

from delayq import ConfigurationError, Pause
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

pytestmark = everywhere


def test_paused_queue_gives_nothing_and_goes_on_after_resume(open_queue):
    queue = open_queue()
    queue.send_delay_msg("waiting", id="a")
    assert queue.pause(reason="deploy") == Pause(None, "deploy")
    with queue.lease() as message:
        assert message is None
    queue.send_delay_msg("sent meanwhile", id="b")
    assert queue.counts().paused == queue.stats().counts.paused == Pause(None, "deploy")
    assert queue.resume()
    assert not queue.resume()
    assert queue.counts().paused is None
    taken = {message.id for message in queue.lease(n=10)}
    assert taken == {"a", "b"}


@pytest.mark.long
def test_pause_ends_by_itself(open_queue):
    queue = open_queue()
    queue.send_delay_msg("x", id="a")
    made = queue.pause("300ms")
    assert timedelta(0) < made.until - datetime.now(UTC) < timedelta(seconds=1)
    began = monotonic()
    with queue.lease(block=5) as message:
        assert message.id == "a"
    assert 0.2 < monotonic() - began < 2.5


def test_pausing_again_changes_end_and_reason(open_queue):
    queue = open_queue()
    queue.pause("1h", reason="deploy")
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    assert queue.pause(at, reason="still") == Pause(at, "still") == queue.counts().paused


def test_lease_that_waits_is_woken_by_resume(open_queue):
    queue, other = open_queue(), open_queue()
    queue.pause()
    queue.send_delay_msg("x", id="a")
    taken = []
    waiting = threading.Thread(target=lambda: taken.extend(message.id for message in other.lease(block=20)))
    waiting.start()
    queue.resume()
    waiting.join(10)
    assert taken == ["a"]


def test_burst_takes_a_paused_queue_for_an_empty_one(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.id))
    queue.send_delay_msg("x", id="a")
    queue.pause()
    queue.run(burst=True)
    assert seen == []
    assert queue.counts().ready + queue.counts().pending == 1
    queue.resume()
    queue.run(burst=True)
    assert seen == ["a"]


def test_consumer_returns_what_it_has_not_started_and_is_woken_by_resume(open_queue):
    """One worker, three prefetched messages; the tick is the only reason to look."""
    release, started = threading.Event(), []

    def callback(message):
        started.append((message.id, monotonic()))
        if len(started) == 1:
            release.wait(20)

    queue, other = open_queue(callback=callback, concurrency=1, prefetch=10, tick=0.2), open_queue()
    other.send_many([str(n) for n in range(4)])
    queue.start_consume()
    wait_until(lambda: started and other.counts().active == 4)
    other.pause(reason="deploy")
    wait_until(lambda: other.counts().active == 1)
    release.set()
    wait_until(lambda: other.stats().totals.get("acked") == 1)
    other.send_delay_msg("meanwhile")
    wait_until(lambda: other.counts().ready == 4)
    assert len(started) == 1
    assert other.counts().living == 4
    other.resume()
    wait_until(lambda: other.counts().living == 0)
    assert len({id for id, _ in started}) == len(started) == 5
    assert other.stats().totals["delivered"] >= 5


def test_everything_but_starting_goes_on(open_queue):
    queue = open_queue()
    queue.send_delay_msg("running", id="running")
    (running,) = queue.lease("100ms", n=1)
    queue.pause()
    assert running.extend("1m")
    assert running.ack()
    queue.send_delay_msg("x", "1h", id="later")
    assert queue.reschedule("later", 0) == "rescheduled"
    assert queue.cancel("later") == "cancelled"


def test_pauses_are_events(open_queue):
    queue = open_queue(events=True)
    made = queue.pause("1h", reason="deploy: 10 % off")
    queue.resume()
    queue.resume()
    found = [(event.kind, event.id, event.due, event.reason) for event in queue.events()]
    assert found == [("paused", None, made.until, "deploy: 10 % off"), ("resumed", None, None, None)]


@pytest.mark.parametrize(
    ("until", "reason", "text"),
    [
        (datetime(2020, 1, 1, tzinfo=UTC), "", "has passed"),
        (datetime(2099, 1, 1), "", "naive"),  # noqa: DTZ001 - that is the point
        (0, "", "until must be between"),
        (-5, "", "until must be between"),
        ("soon", "", "until must look like"),
        (None, "x" * 201, "at most 200"),
        (None, "two\nlines", "one line"),
        (None, None, "one line"),
    ],
)
def test_bad_pause_is_refused_and_stores_nothing(open_queue, until, reason, text):
    queue = open_queue()
    with pytest.raises(ConfigurationError, match=text):
        queue.pause(until, reason=reason)
    assert queue.counts().paused is None
