"""Cancel and reschedule a message in every state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError
from tests.behaviour.places import bring, everywhere

pytestmark = everywhere

REPLIES = {"active": "running", "dead": "dead", "gone": "gone", "acked": "gone"}
WAITING = ("pending", "ready", "backoff", "retry")


@pytest.mark.parametrize("state", WAITING)
def test_waiting_message_can_be_cancelled(queue, state):
    bring(queue, state)

    assert queue.cancel("m") == "cancelled"
    assert queue.get("m") is None
    assert queue.counts().living == 0


@pytest.mark.parametrize(("state", "reply"), REPLIES.items())
def test_cancel_returns_the_state_it_cannot_cancel(queue, state, reply):
    bring(queue, state)
    before = queue.get("m")

    assert queue.cancel("m") == reply
    assert queue.get("m") == before


@pytest.mark.parametrize("state", WAITING)
def test_second_cancel_returns_gone(queue, state):
    bring(queue, state)

    assert [queue.cancel("m"), queue.cancel("m")] == ["cancelled", "gone"]
    assert queue.stats().totals["cancelled"] == 1


@pytest.mark.parametrize("state", WAITING)
def test_cancelled_message_is_never_delivered(queue, state):
    seen = []
    queue.callback(seen.append)
    bring(queue, state)
    queue.cancel("m")
    queue.send_delay_msg("another", id="another")

    queue.run(burst=True)

    assert [message.id for message in seen] == ["another"]


@pytest.mark.parametrize("state", WAITING)
def test_waiting_message_can_be_rescheduled(queue, state):
    bring(queue, state)
    before = queue.get("m")

    assert queue.reschedule("m", "2h") == "rescheduled"

    after = queue.get("m")
    assert after.state == "pending"
    assert timedelta(minutes=119) < after.due - queue.stats().at < timedelta(minutes=121)
    assert (after.payload, after.attempts, after.retries_left) == (before.payload, before.attempts, before.retries_left)
    assert queue.counts().living == queue.counts().pending == 1


@pytest.mark.parametrize(("state", "reply"), REPLIES.items())
def test_reschedule_returns_the_state_it_cannot_reschedule(queue, state, reply):
    bring(queue, state)
    before = queue.get("m")

    assert queue.reschedule("m", 5) == reply
    assert queue.get("m") == before


def test_a_message_can_be_rescheduled_to_a_time(queue):
    bring(queue, "pending")
    when = datetime(2033, 5, 18, tzinfo=UTC)

    queue.reschedule("m", at=when)

    assert queue.get("m").due == when


@pytest.mark.parametrize("state", WAITING)
def test_message_can_be_rescheduled_to_an_earlier_time(queue, state):
    bring(queue, state)
    attempts = queue.get("m").attempts

    queue.reschedule("m", 0)

    with queue.lease() as message:
        assert (message.id, message.attempt) == ("m", attempts + 1)


def test_message_rescheduled_to_a_later_time_is_not_delivered_at_its_old_time(queue):
    bring(queue, "ready")
    queue.reschedule("m", 60)

    with queue.lease() as message:
        assert message is None


def test_reschedule_needs_either_delay_or_at(queue):
    bring(queue, "pending")

    with pytest.raises(ConfigurationError, match="give delay or at"):
        queue.reschedule("m")
    with pytest.raises(ConfigurationError, match="not both"):
        queue.reschedule("m", 5, at=datetime(2033, 5, 18, tzinfo=UTC))
