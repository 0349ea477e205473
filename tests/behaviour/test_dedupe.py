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
    """A queue that remembers."""
    return open_queue(dedupe_window="1h")


def end(queue, how, id="m"):
    """Let a message come to an end."""
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
def test_what_was_settled_is_not_sent_again(queue, how):
    end(queue, how)

    for replace in (False, True):
        sent = queue.send_delay_msg("again", id="m", replace=replace)
        assert (sent.status, sent.new) == (SendStatus.SETTLED, False)
    assert queue.counts().living == 0


def test_among_many_the_settled_are_told_apart(queue):
    end(queue, "acked", "a")
    queue.send_delay_msg("there", 60, id="b")

    sent = queue.send_many([NewMessage(n, id=id) for n, id in enumerate("abca")])

    assert [one.status for one in sent] == ["settled", "exists", "new", "settled"]
    assert sent.new == ["c"]


def test_what_lives_or_never_lived_is_no_matter_of_the_window(queue):
    assert queue.send_delay_msg("hello", 60, id="m").status == "new"
    assert queue.send_delay_msg("hello", 60, id="m").status == "exists"
    assert queue.send_delay_msg("hello", 60, id="m", replace=True).status == "replaced"
    assert queue.send_delay_msg("hello", 60).new


def test_after_the_window_an_id_is_free_again(open_queue):
    queue = open_queue(dedupe_window="300ms")
    end(queue, "acked")
    assert queue.send_delay_msg("again", id="m").status == "settled"

    wait_until(lambda: queue.send_delay_msg("again", id="m").new)
    assert queue.get("m").payload == "again"


@pytest.mark.parametrize("how", ["rejected", "spent"])
def test_a_dead_message_can_be_redriven_and_is_remembered_anew(queue, how):
    end(queue, how)

    assert queue.dead.redrive("m").redriven == 1
    assert queue.send_delay_msg("again", id="m").status == "exists"
    with queue.lease() as message:
        assert (message.id, message.payload) == ("m", "hello")
    assert queue.send_delay_msg("again", id="m").status == "settled"


def test_what_is_settled_can_neither_be_cancelled_nor_rescheduled(queue):
    end(queue, "acked")

    assert queue.cancel("m") == "gone"
    assert queue.reschedule("m", 60) == "gone"


def test_what_was_purged_is_free_and_what_was_settled_before_is_not(queue):
    end(queue, "acked", "settled")
    queue.send_delay_msg("hello", 60, id="purged")
    queue.purge()

    assert queue.send_delay_msg("again", 60, id="purged").new
    assert queue.send_delay_msg("again", 60, id="settled").status == "settled"


def test_of_too_many_the_oldest_are_forgotten(open_queue):
    queue = open_queue(dedupe_window="1h", dedupe_max=2)
    for id in "abcd":
        at = queue.stats().at
        end(queue, "acked", id)
        wait_until(lambda at=at: queue.stats().at > at)

    assert [queue.send_delay_msg("again", 60, id=id).status for id in "abcd"] == ["new", "new", "settled", "settled"]


# For all processes


def test_it_is_switched_on_for_every_process(open_queue):
    plain = open_queue()
    end(plain, "acked", "before")
    open_queue(dedupe_window="1h").open()
    end(plain, "acked", "after")

    assert plain.send_delay_msg("again", 60, id="before").new
    assert plain.send_delay_msg("again", 60, id="after").status == "settled"


def test_it_is_switched_off_for_every_process_and_forgets(open_queue, queue):
    end(queue, "acked")
    open_queue(dedupe_window=0).open()
    assert queue.send_delay_msg("again", id="m").new

    queue.lease(n=1)
    open_queue(dedupe_window="1h").open()
    assert queue.cancel("m") == "running"
    assert queue.send_delay_msg("again", id="m").status == "exists"


@pytest.mark.parametrize("state", ["acked", "gone"])
def test_without_a_window_an_id_is_free_when_its_message_is_settled(open_queue, state):
    queue = open_queue()
    bring(queue, state)

    assert queue.send_delay_msg("again", id="m").new
