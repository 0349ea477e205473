"""Names, kinds, links and attributes are those of the semantic conventions for messaging."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as contexts
from opentelemetry.trace import SpanKind, StatusCode

from delayq import (
    AsyncDelayQueue,
    DelayQueue,
    Discard,
    QueueFullError,
    Reject,
    Retry,
    Snooze,
    StoppedByCallbackError,
    StopWorker,
)
from delayq.streams import StreamQueue
from delayq.telemetry import instrument
from tests.telemetry.recorded import Recorded, linked

COMMON = {"messaging.system", "messaging.destination.name", "messaging.client.id", "server.address"}
OPERATION = {"messaging.operation.name", "messaging.operation.type"}
ID, COUNT = "messaging.message.id", "messaging.batch.message_count"
CONVENTION = {
    # operation: kind, type, what else a single message has
    "send": (SpanKind.PRODUCER, "send", {ID}),
    "receive": (SpanKind.CLIENT, "receive", {ID}),
    "process": (SpanKind.CONSUMER, "process", {ID, "messaging.delayq.attempt", "messaging.delayq.outcome"}),
    "ack": (SpanKind.CLIENT, "settle", {ID}),
}


def check_convention(recorded, url, queue="orders"):
    assert [one.name for one in recorded.spans()] == [f"{name} {queue}" for name in CONVENTION]
    for span, (name, (kind, of_type, more)) in zip(recorded.spans(), CONVENTION.items(), strict=True):
        group = {"messaging.consumer.group.name"} if queue == "stream" else set()
        assert (span.kind, set(span.attributes)) == (kind, COMMON | OPERATION | group | more), name
        assert span.attributes["messaging.system"] == "delayq"
        assert span.attributes["messaging.destination.name"] == queue
        assert span.attributes["messaging.operation.name"] == name
        assert span.attributes["messaging.operation.type"] == of_type
        assert span.attributes["messaging.message.id"] == "a"
        assert span.attributes["server.address"] in url
        assert span.parent is None
    send, receive, process, _ = recorded.spans()
    assert linked(receive) == linked(process) == [send.context.span_id]
    assert process.context.trace_id != send.context.trace_id  # a link and not a parent
    assert process.attributes["messaging.delayq.outcome"] == "acked"


def test_spans_of_a_message(open_queue, recorded, redis_url):
    queue = open_queue(lambda message: None)
    queue.send_delay_msg("x", id="a")
    queue.run(burst=True)
    check_convention(recorded, redis_url)


def test_spans_of_a_message_with_asyncio(recorded, redis_url):
    async def consume():
        async with AsyncDelayQueue("orders", url=redis_url) as queue:
            instrument(queue, **recorded.providers)

            @queue.callback
            async def work(message):
                pass

            await queue.send_delay_msg("x", id="a")
            await queue.run(burst=True)

    asyncio.run(consume())
    check_convention(recorded, redis_url)


def test_spans_of_a_message_of_a_stream(recorded, redis_url):
    with StreamQueue("stream", url=redis_url, callback=lambda message: None) as queue:
        instrument(queue, **recorded.providers)
        queue.send("x", id="a")
        queue.run(burst=True)
    check_convention(recorded, redis_url, "stream")


def test_metrics_of_a_message(open_queue, recorded):
    def work(message):
        if message.payload == "bad":
            raise ValueError

    queue = open_queue(work)
    queue.send_many(["good", "bad"], retries=0)
    queue.run(burst=True)
    duration, once = "messaging.client.operation.duration", {("process", ""): 1, ("process", "ValueError"): 1}
    points = recorded.points()
    assert points.pop(duration).keys() == {("send", ""), ("receive", ""), ("ack", ""), ("nack", "")}
    assert points == {
        "messaging.client.sent.messages": {("send", ""): 2},
        "messaging.client.consumed.messages": {("receive", ""): 2},
        "messaging.process.duration": once,
        "messaging.delayq.lateness": {("process", ""): 2},
    }


OUTCOMES = {
    "acked": lambda message: message.payload,
    "nacked": lambda message: False,
    "retried": lambda message: Retry("x", delay="1h"),
    "snoozed": lambda message: Snooze("1h"),
    "rejected": lambda message: Reject("x"),
    "discarded": lambda message: Discard("x"),
    "failed": lambda message: ValueError("x"),
    "released": lambda message: message.release(delay="1h"),
    "stopped": lambda message: StopWorker("x"),
}


def test_outcomes_are_told_apart(open_queue, recorded):
    def work(message):
        result = OUTCOMES[message.payload](message)
        if isinstance(result, Exception):
            raise result
        return result

    queue = open_queue(work)
    for outcome in OUTCOMES:
        queue.send_delay_msg(outcome, id=outcome, retries=0)
    with pytest.raises(StoppedByCallbackError):
        queue.run(burst=True)
    spans = {one.attributes["messaging.message.id"]: one for one in recorded.spans("process")}
    assert {id: one.attributes["messaging.delayq.outcome"] for id, one in spans.items()} == {id: id for id in OUTCOMES}
    failed = [id for id, one in spans.items() if one.status.status_code is StatusCode.ERROR]
    assert failed == [id for id, one in spans.items() if "error.type" in one.attributes] == ["failed"]
    settled = {"ack", "nack", "release", "reject", "discard"}
    assert {one.attributes["messaging.operation.name"] for one in recorded.spans()} >= settled


@pytest.mark.parametrize("recording", [True, False])
def test_the_text_of_an_exception_is_only_in_its_event(open_queue, recorded, recording):
    def work(message):
        raise ValueError("private")

    queue = open_queue(work, record_exceptions=recording)
    queue.send_delay_msg("x", retries=0)
    queue.run(burst=True)
    (span,) = recorded.spans("process")
    assert (span.attributes["error.type"], span.status.description) == ("ValueError", None)
    assert [one.attributes["exception.message"] for one in span.events] == ["private"] * recording
    assert ("private" in recorded.everything()) is recording


@pytest.mark.parametrize("created", [False, True])
def test_a_batch_has_one_span_or_one_for_each_message(open_queue, recorded, created):
    queue = open_queue(create_spans=created)
    queue.batch_callback(lambda messages: None)
    queue.send_many(["x", "y", "z"])
    queue.run(burst=True)
    (send,), creates, (process,) = recorded.spans("send"), recorded.spans("create"), recorded.spans("process")
    assert send.kind is (SpanKind.CLIENT if created else SpanKind.PRODUCER)
    assert [one.kind for one in creates] == [SpanKind.PRODUCER] * len(creates)
    assert [one.parent.span_id for one in creates] == [send.context.span_id] * 3 * created
    assert (send.attributes[COUNT], process.attributes[COUNT]) == (3, 3)
    origins = [one.context.span_id for one in creates] or [send.context.span_id] * 3
    assert linked(process) == origins
    assert linked(send) == [one.context.span_id for one in creates]


def test_a_message_settled_by_hand_is_settled_within_its_span(open_queue, recorded):
    queue = open_queue(lambda message: message.ack())
    queue.send_delay_msg("x")
    queue.run(burst=True)
    (settle,), (process,) = recorded.spans("ack"), recorded.spans("process")
    assert settle.parent.span_id == process.context.span_id


def test_a_lease_is_received_within_the_span_of_its_caller(open_queue, recorded):
    queue = open_queue()
    queue.send_delay_msg("x")
    with recorded.traces.get_tracer("app").start_as_current_span("caller") as caller, queue.lease():
        pass
    for operation in ("receive", "ack"):
        (span,) = recorded.spans(operation)
        assert span.parent.span_id == caller.get_span_context().span_id


def test_spans_of_the_application_are_below(open_queue, recorded):
    tracer = recorded.traces.get_tracer("app")

    def work(message):
        with tracer.start_as_current_span("query"):
            assert message.headers["tenant"] == "a"
            assert baggage.get_baggage("user") == "b"

    queue = open_queue(work)
    with tracer.start_as_current_span("request") as request:
        token = contexts.attach(baggage.set_baggage("user", "b"))
        queue.send_delay_msg("x", headers={"tenant": "a"})
        contexts.detach(token)
        queue.start_consume(burst=True).wait()
    (send,), (process,) = recorded.spans("send"), recorded.spans("process")
    (query,) = [one for one in recorded.spans() if one.name == "query"]
    assert send.parent.span_id == request.get_span_context().span_id
    assert query.parent.span_id == process.context.span_id
    assert process.parent is None


def test_headers_of_the_message_win_and_stay_within_their_limit(open_queue, recorded):
    seen = []
    queue = open_queue(lambda message: seen.append(message.headers))
    own = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    queue.send_delay_msg("x", headers=own)
    queue.run(burst=True)
    long = {"text": "x" * 16_350}
    queue.send_delay_msg("x", headers=long)
    queue.run(burst=True)
    assert seen == [own, long]
    assert linked(recorded.spans("process")[0]) == [0xB7AD6B7169203331]
    assert linked(recorded.spans("process")[1]) == []


def test_a_send_that_fails_is_an_error(redis_url, recorded):
    with DelayQueue("orders", url=redis_url, max_length=1) as queue:
        instrument(queue, **recorded.providers)
        queue.send_delay_msg("x")
        for send in (lambda: queue.send_delay_msg("x"), lambda: queue.send_many(["x", "y"])):
            with pytest.raises(QueueFullError):
                send()
    kind = "delayq.errors.QueueFullError"
    assert [one.attributes.get("error.type") for one in recorded.spans("send")] == [None, kind, kind]
    assert recorded.points()["messaging.client.sent.messages"] == {("send", ""): 1, ("send", kind): 3}


def test_a_consumer_started_within_a_span_does_not_join_its_trace(recorded, redis_url):
    async def consume():
        async with AsyncDelayQueue("orders", url=redis_url) as queue:
            instrument(queue, **recorded.providers)
            queue.callback(lambda message: None)
            with recorded.traces.get_tracer("app").start_as_current_span("start-up"):
                await queue.send_many(["x", "y"])
                await queue.run(burst=True)

    asyncio.run(consume())
    below = [one.name for one in recorded.spans() if one.parent is not None]
    assert below == ["send orders"]


def test_a_function_that_returns_a_coroutine_has_one_span(recorded, redis_url):
    async def consume():
        async with AsyncDelayQueue("orders", url=redis_url) as queue:
            instrument(queue, **recorded.providers)

            async def work(message):
                await asyncio.sleep(0)
                with recorded.traces.get_tracer("app").start_as_current_span("query"):
                    return False

            queue.callback(lambda message: work(message))
            await queue.send_delay_msg("x", retries=0)
            await queue.run(burst=True)

    asyncio.run(consume())
    (query,) = [one for one in recorded.spans() if one.name == "query"]
    (process,) = recorded.spans("process")
    assert process.attributes["messaging.delayq.outcome"] == "nacked"
    assert query.parent.span_id == process.context.span_id


def test_contexts_of_concurrent_callbacks_do_not_mix(recorded, redis_url):
    tracer = recorded.traces.get_tracer("app")

    async def consume():
        async with AsyncDelayQueue("orders", url=redis_url, concurrency=20) as queue:
            instrument(queue, **recorded.providers)
            all_run = asyncio.Barrier(20)

            @queue.callback
            async def work(message):
                before = trace.get_current_span()
                await all_run.wait()
                with tracer.start_as_current_span(f"query {message.id}"):
                    await asyncio.sleep(0)
                assert trace.get_current_span() is before

            await queue.send_many([{"n": n} for n in range(20)])
            await queue.run(burst=True)

    asyncio.run(consume())
    ids = {one.context.span_id: one.attributes["messaging.message.id"] for one in recorded.spans("process")}
    queries = recorded.spans("query")
    assert len(queries) == len(ids) == 20
    assert all(one.name == f"query {ids[one.parent.span_id]}" for one in queries)


def test_a_queue_without_an_sdk_sends_no_headers(redis_url, monkeypatch):
    seen, later = [], Recorded()
    with DelayQueue("orders", url=redis_url, callback=lambda message: seen.append(message.headers)) as queue:
        instrument(queue)
        queue.send_many(["x"])
        queue.run(burst=True)
        assert seen == [{}]
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: later.traces)
        queue.send_delay_msg("x")  # the SDK was set up after all
        queue.run(burst=True)
    assert seen[1].keys() == {"traceparent"}
    assert len(later.spans()) == 4
