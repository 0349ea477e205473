"""Each attempt is linked to the send, and to the attempt that failed before, in whatever process."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from delayq import AsyncDelayQueue, DelayQueue, Retry, Snooze, StoppedByCallbackError, StopWorker
from delayq.broker.message.attributes import Attributes
from delayq.telemetry import instrument
from delayq.telemetry.process_spans import links_to
from tests.telemetry.recorded import Recorded, linked

HEX = "0123456789abcdef"


def check_chain(recorded, attempts=3):
    """Check that each attempt is linked to the send, and to the one before."""
    (send,) = recorded.spans("send")
    spans = sorted(recorded.spans("process"), key=lambda one: one.start_time)
    assert [one.attributes["messaging.delayq.attempt"] for one in spans] == list(range(1, attempts + 1))
    before = [[], *([one.context.span_id] for one in spans)]
    assert [linked(one) for one in spans] == [[send.context.span_id, *before[n]] for n in range(attempts)]
    assert len({one.context.trace_id for one in [send, *spans]}) == attempts + 1  # links, and no parents
    for span, earlier in zip(spans[1:], spans, strict=False):
        link = span.links[1].context
        assert (link.trace_id, link.is_remote) == (earlier.context.trace_id, True)
        assert link.trace_flags.sampled


def fail(message):
    raise ValueError("boom")


FAILURES = {
    "returns False": lambda message: False,
    "raises": fail,
    "is nacked by hand": lambda message: message.nack(),
    "is to be retried": lambda message: Retry("busy"),
}


@pytest.mark.parametrize("fails", FAILURES.values(), ids=FAILURES)
def test_an_attempt_is_linked_to_the_one_before_that(open_queue, recorded, fails):
    queue = open_queue(lambda message: fails(message) if message.attempt < 3 else None)
    queue.send_delay_msg("x", name="mail", retries=2)
    queue.run(burst=True)
    check_chain(recorded)
    assert {one.attributes["messaging.delayq.name"] for one in recorded.spans("process")} == {"mail"}
    assert recorded.points()["messaging.delayq.lateness"] == {("process", ""): 1}  # of the first attempt alone


def test_an_attempt_is_linked_to_the_one_before_that_took_too_long(open_queue, recorded):
    again = Event()

    def work(message):
        if message.attempt == 2:
            again.set()
        assert again.wait(30)

    queue = open_queue(work)
    queue.send_delay_msg("x", timeout="50ms", retries=1)
    queue.run(burst=True)
    check_chain(recorded, 2)


def test_an_attempt_is_linked_to_the_one_before_with_asyncio(recorded, redis_url):
    async def consume():
        async with AsyncDelayQueue("orders", url=redis_url, nack_delay="50ms") as queue:
            instrument(queue, **recorded.providers)

            @queue.callback
            async def work(message):
                await asyncio.sleep(0)
                if message.attempt < 3:
                    raise ValueError

            await queue.send_delay_msg("x", retries=2)
            await queue.run(burst=True)

    asyncio.run(consume())
    check_chain(recorded)


def test_an_attempt_is_linked_to_one_of_another_worker(open_queue, recorded):
    def stop(message):
        message.nack()
        return StopWorker("enough")

    worker, another = open_queue(stop), open_queue(lambda message: None)
    worker.send_delay_msg("x", retries=1)
    with pytest.raises(StoppedByCallbackError):
        worker.run(burst=True)
    another.run(burst=True)
    check_chain(recorded, 2)


def test_a_redriven_message_is_linked_to_its_last_attempt(open_queue, recorded):
    works = []
    queue = open_queue(lambda message: bool(works))
    queue.send_delay_msg("x", id="a", retries=0)
    queue.run(burst=True)
    works.append(True)
    assert queue.dead.redrive(id="a").redriven == 1
    queue.run(burst=True)
    first, second = recorded.spans("process")
    assert first.context.span_id in linked(second)


def test_each_message_of_a_batch_is_linked_to_its_attempt_before(open_queue, recorded):
    queue, calls = open_queue(), []

    def work(messages):
        calls.append(len(messages))
        return [message.attempt == 2 for message in messages]

    queue.batch_callback(work)
    queue.send_many(["x", "y"], retries=1)
    queue.run(burst=True)
    first, *others = recorded.spans("process")
    assert len(first.links) == 2
    again = [one for one in others if first.context.span_id in linked(one)]
    assert sum(linked(one).count(first.context.span_id) for one in again) == 2
    assert calls[0] == 2


def test_what_a_callback_has_reported_stays_beside_the_span(open_queue, recorded):
    def work(message):
        message.report(message.attempt)
        seen.append(queue.get("a").progress)
        return message.attempt == 3

    seen = []
    queue = open_queue(work)
    queue.send_delay_msg("x", id="a", retries=2, name="mail", timeout="20s")
    queue.run(burst=True)
    assert seen == [1, 2, 3]
    check_chain(recorded)


def test_a_snoozed_message_is_linked_to_the_attempt_that_failed(open_queue, recorded):
    outcomes = [False, Snooze("50ms"), None]
    queue = open_queue(lambda message: outcomes.pop(0))
    queue.send_delay_msg("x", retries=1)
    queue.run(burst=True)
    (send,), (first, *others) = recorded.spans("send"), recorded.spans("process")
    assert [linked(one) for one in others] == [[send.context.span_id, first.context.span_id]] * 2


@pytest.mark.parametrize("instrumented", [False, True], ids=["no SDK", "not sampled"])
def test_nothing_is_stored_of_what_is_not_recorded(instrumented):
    recorded, stored = Recorded(sampler=ALWAYS_OFF), []

    def work(message):
        stored.append(message.delivery.claimed.attributes)
        return message.attempt == 2

    with DelayQueue("orders", url="memory://", callback=work, nack_delay="0s") as queue:
        if instrumented:
            instrument(queue, **recorded.providers)
        queue.send_delay_msg("x", retries=1)
        queue.run(burst=True)
    assert [not one for one in stored] == [True, True]


@pytest.mark.parametrize(
    "text",
    ["", "x", HEX * 2, HEX * 4, "0" * 48, "0" * 32 + HEX, HEX * 2 + "0" * 16, "G" * 48, HEX * 3 + "\n"],
    ids=["none", "short", "no span", "long", "zeros", "no trace", "zero span", "no hex", "newline"],
)
def test_what_is_no_span_is_no_link(text):
    assert links_to(text) == []
    (link,) = links_to(HEX * 3)
    assert (link.context.trace_id, link.context.span_id) == (int(HEX * 2, 16), int(HEX, 16))
    assert Attributes.of(f"span={text} name=a".encode()).name == "a"
