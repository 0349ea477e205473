"""The dedupe window: an id that was settled is not sent again, for as long as the queue remembers it."""

from __future__ import annotations

import pytest

from delayq import Discard, NewMessage, Reject, SendStatus
from tests.behaviour.places import bring, everywhere
from tests.support.waiting import wait_until

pytestmark = everywhere

ENDINGS = ["acked", "discarded", "cancelled", "rejected", "spent"]


@pytest.fixture
def queue(open_queue):
    """A queue with a dedupe window."""
    return open_queue(dedupe_window="1h")


def end(queue, how, id="m"):
    """Send a message and settle it."""
    queue.send_delay_msg("hello", 60 if how == "cancelled" else 0, id=id, retries=0)
    match how:
        case "acked":
            with queue.lease() as message:
                assert message.id == id
        case "discarded":
            with queue.lease():
                raise Discard("no need")
        case "cancelled":
            assert queue.cancel(id) == "cancelled"
        case "rejected":
            with queue.lease():
                raise Reject("no")
        case "spent":
            (message,) = queue.lease(n=1)
            message.nack(error="boom")
            queue.lease()  # collects


@pytest.mark.parametrize("how", ENDINGS)
def test_settled_id_is_not_sent_again(queue, how):
    end(queue, how)

    for replace in (False, True):
        sent = queue.send_delay_msg("again", id="m", replace=replace)
        assert (sent.status, sent.new) == (SendStatus.SETTLED, False)
    assert queue.counts().living == 0


def test_send_many_reports_settled_ids(queue):
    end(queue, "acked", "a")
    queue.send_delay_msg("there", 60, id="b")

    sent = queue.send_many([NewMessage(n, id=id) for n, id in enumerate("abca")])

    assert [one.status for one in sent] == ["settled", "exists", "new", "settled"]
    assert sent.new == ["c"]


def test_dedupe_window_ignores_ids_that_are_not_settled(queue):
    assert queue.send_delay_msg("hello", 60, id="m").status == "new"
    assert queue.send_delay_msg("hello", 60, id="m").status == "exists"
    assert queue.send_delay_msg("hello", 60, id="m", replace=True).status == "replaced"
    assert queue.send_delay_msg("hello", 60).new


def test_id_can_be_sent_again_after_the_window(open_queue):
    queue = open_queue(dedupe_window="300ms")
    end(queue, "acked")
    assert queue.send_delay_msg("again", id="m").status == "settled"

    wait_until(lambda: queue.send_delay_msg("again", id="m").new)
    assert queue.get("m").payload == "again"


@pytest.mark.parametrize("how", ["rejected", "spent"])
def test_redriven_message_is_remembered_again_when_it_is_settled(queue, how):
    end(queue, how)

    assert queue.dead.redrive("m").redriven == 1
    assert queue.send_delay_msg("again", id="m").status == "exists"
    with queue.lease() as message:
        assert (message.id, message.payload) == ("m", "hello")
    assert queue.send_delay_msg("again", id="m").status == "settled"


def test_settled_message_cannot_be_cancelled_or_rescheduled(queue):
    end(queue, "acked")

    assert queue.cancel("m") == "gone"
    assert queue.reschedule("m", 60) == "gone"


def test_purged_ids_can_be_sent_again_but_settled_ids_cannot(queue):
    end(queue, "acked", "settled")
    queue.send_delay_msg("hello", 60, id="purged")
    queue.purge()

    assert queue.send_delay_msg("again", 60, id="purged").new
    assert queue.send_delay_msg("again", 60, id="settled").status == "settled"


def test_dedupe_max_forgets_the_oldest_ids(open_queue):
    queue = open_queue(dedupe_window="1h", dedupe_max=2)
    for id in "abcd":
        at = queue.stats().at
        end(queue, "acked", id)
        wait_until(lambda at=at: queue.stats().at > at)

    assert [queue.send_delay_msg("again", 60, id=id).status for id in "abcd"] == ["new", "new", "settled", "settled"]


# For all processes


def test_window_is_switched_on_for_every_process(open_queue):
    plain = open_queue()
    end(plain, "acked", "before")
    open_queue(dedupe_window="1h").open()
    end(plain, "acked", "after")

    assert plain.send_delay_msg("again", 60, id="before").new
    assert plain.send_delay_msg("again", 60, id="after").status == "settled"


def test_switching_the_window_off_forgets_ids_for_every_process(open_queue, queue):
    end(queue, "acked")
    open_queue(dedupe_window=0).open()
    assert queue.send_delay_msg("again", id="m").new

    queue.lease(n=1)
    open_queue(dedupe_window="1h").open()
    assert queue.cancel("m") == "running"
    assert queue.send_delay_msg("again", id="m").status == "exists"


@pytest.mark.parametrize("state", ["acked", "gone"])
def test_without_a_window_a_settled_id_can_be_sent_again(open_queue, state):
    queue = open_queue()
    bring(queue, state)

    assert queue.send_delay_msg("again", id="m").new
