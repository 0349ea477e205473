"""The buffer between a consumer and its workers."""

import math
import threading
from types import SimpleNamespace

import pytest

from delayq.broker.message.attributes import NONE
from delayq.broker.replies import ClaimedMessage
from delayq.errors import UndecodableError
from delayq.values.backoff import FailurePolicy
from delayq.values.outcomes import Reject
from delayq.values.times import monotonic
from delayq.worker.delivery.disposition import Disposition
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.delivery.message import Message
from delayq.worker.drivers.work_buffer import Callback, WorkBuffer

SETTINGS = SimpleNamespace(policy=FailurePolicy.of(60, None, 0))


def decode(data):
    if data == b"bad":
        raise UndecodableError("undecodable: bad")
    return data.decode()


def deliveries(*payloads, retries_left=3):
    return [
        InFlightDelivery(ClaimedMessage(text, 7, text.encode(), retries_left, 0, 1, b""), 0.0, 0, math.inf, NONE)
        for text in payloads
    ]


def laid(*payloads, most=None, retries_left=3):
    """Return a buffer with these messages, and their deliveries."""
    buffer = WorkBuffer(
        Callback(print, most), Message, SimpleNamespace(decode=decode, queue="q", settings=SETTINGS), None
    )
    held = deliveries(*payloads, retries_left=retries_left)
    buffer.put(held)
    return buffer, held


def payloads(given):
    return [message.payload for message in given]


def test_get_returns_one_message_without_batch():
    buffer, held = laid("a", "b")
    batch, taken, given = buffer.get()
    assert taken == held[:1]
    assert given.payload == "a"
    assert held[0].batch is batch
    assert held[1].batch is None
    assert buffer.waiting


@pytest.mark.parametrize(("most", "first"), [(1, ["a"]), (2, ["a", "b"]), (3, ["a", "b", "c"]), (9, ["a", "b", "c"])])
def test_get_returns_up_to_a_batch(most, first):
    buffer, held = laid("a", "b", "c", most=most)
    batch, taken, given = buffer.get()
    assert payloads(given) == first
    assert taken == held[: len(first)]
    assert {one.batch for one in taken} == {batch}


@pytest.mark.parametrize("most", [None, 5])
def test_get_from_an_empty_buffer_returns_none(most):
    buffer, _ = laid(most=most)
    assert buffer.get() is None
    assert not buffer.waiting
    assert not buffer.finished


@pytest.mark.parametrize("most", [None, 1])
def test_delivery_with_a_lost_lease_is_not_started(most):
    buffer, held = laid("a", most=most)
    held[0].lost = True
    assert buffer.get()[2] is None
    ((left, disposition, _, _, took),) = buffer.drain()
    assert (left, disposition, took) == (held, Disposition.NOTHING, None)


def test_delivery_whose_lease_is_over_is_not_started_but_released():
    buffer, held = laid("a", "b", most=2)
    held[0].deadline = monotonic() - 0.001
    _, taken, _ = buffer.get()
    assert taken == held[1:]
    ((left, disposition, _, _, took),) = buffer.drain()
    assert (left, disposition, took) == (held[:1], Disposition.RELEASE, None)


@pytest.mark.parametrize("most", [None, 2])
def test_result_that_cannot_be_read_costs_one_attempt(most):
    class Broken(Reject):
        @property
        def reason(self):
            raise SystemExit("no reason")

        @reason.setter
        def reason(self, _):
            pass

    buffer, _ = laid("a", "b", most=most)
    batch, taken, _ = buffer.get()
    buffer.complete(batch, taken, Broken("why"), None)
    completions = buffer.drain()
    for one, delivery in zip(completions, taken, strict=True):  # the messages of a batch have delays of their own
        assert one[:4] == ([delivery], Disposition.NACK, "SystemExit: no reason", 60_000)
    assert [one.took is None for one in completions] == [False, True][: len(taken)]


@pytest.mark.parametrize(
    ("retries_left", "means"), [(3, Disposition.NACK), (1, Disposition.NACK), (0, Disposition.REJECT)]
)
def test_undecodable_message_has_failed_and_is_left_out(retries_left, means):
    buffer, (a, bad, c) = laid("a", "bad", "c", most=3, retries_left=retries_left)
    _, taken, given = buffer.get()
    assert payloads(given) == ["a", "c"]
    assert taken == [a, c]
    ((left, disposition, text, _, took),) = buffer.drain()
    assert (left, disposition, text, took) == ([bad], means, "undecodable: bad", None)


def test_reason_of_a_codec_that_raises_undecodable_says_so():
    def decode(data):
        raise UndecodableError("not mine")

    buffer = WorkBuffer(
        Callback(print, None), Message, SimpleNamespace(decode=decode, queue="q", settings=SETTINGS), None
    )
    buffer.put(deliveries("a", retries_left=0))
    buffer.get()
    assert buffer.drain()[0].text == "undecodable: not mine"


def test_completion_is_drained_once():
    buffer, held = laid("a", "b", most=2)
    batch, taken, _ = buffer.get()
    buffer.complete(batch, taken, None, None)
    assert buffer.finished
    ((done, disposition, _, _, took),) = buffer.drain()
    assert (done, disposition) == (held, Disposition.ACK)
    assert took >= 0
    assert not buffer.finished
    assert buffer.drain() == []


def test_withdraw_returns_untaken_deliveries_in_order():
    buffer, held = laid("a", "b", "c")
    buffer.get()
    withdrawn = []
    buffer.withdraw(withdrawn)
    assert withdrawn == held[1:]
    assert buffer.get() is None


def test_concurrent_workers_lose_and_repeat_nothing():
    buffer, held = laid(*(f"m{n}" for n in range(2000)), most=3)
    ended = []

    def work():
        while (taken := buffer.get()) is not None:
            buffer.complete(*taken[:2], None, None)
        ended.append(True)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    done = []
    while len(ended) < 8 or buffer.finished:
        done += [one.claimed.id for completion in buffer.drain() for one in completion.deliveries]
    for worker in workers:
        worker.join()
    assert sorted(done) == sorted(one.claimed.id for one in held)


def test_only_the_first_caller_concludes_a_batch():
    buffer, _ = laid("a")
    batch, _, _ = buffer.get()
    replies = []
    asking = [threading.Thread(target=lambda: replies.append(batch.conclude())) for _ in range(20)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert sorted(replies) == [False] * 19 + [True]
