"""`instrument` and `delayq worker --otel`: which queues they take, and that a failing SDK stops nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import sys

import pytest
from opentelemetry import propagate
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler

from delayq import AsyncDelayQueue, AsyncWorker, ConfigurationError, DelayQueue, Worker
from delayq.telemetry import instrument
from delayq.testing.queue_factory import moved
from tests.support import processes
from tests.telemetry.recorded import Recorded

APP = """
import atexit
from opentelemetry import metrics, trace
from tests.telemetry.recorded import Recorded, linked
from delayq import DelayQueue

recorded = Recorded()
trace.set_tracer_provider(recorded.traces)
metrics.set_meter_provider(recorded.meters)
queue = DelayQueue("orders")

@queue.callback
def work(message):
    pass

@atexit.register
def report():
    (process,) = recorded.spans("process")
    print(process.links[0].context.trace_id, linked(process)[0], sorted(recorded.points()))
"""


class Failing:
    """Fails whatever is asked of it."""

    def __getattr__(self, name):
        def fail(*_, **__):
            raise RuntimeError("broken")

        return fail


class FailingSampler(Sampler):
    def should_sample(self, *_, **__):
        raise RuntimeError("broken")

    def get_description(self):
        return "broken"


def broken_parts():
    sampler = Recorded(sampler=FailingSampler())
    processor = Recorded()
    processor.traces.add_span_processor(Failing())
    return {
        "sampler": sampler.providers,
        "processor": processor.providers,
        "providers": {"tracer_provider": Failing(), "meter_provider": Failing()},
    }


@pytest.mark.table("part", [*broken_parts(), "propagator"])
def test_a_failing_sdk_stops_nothing(redis_url, caplog, monkeypatch, part):
    providers = broken_parts().get(part) or Recorded().providers
    if part == "propagator":
        monkeypatch.setattr(propagate, "extract", Failing().extract)
        monkeypatch.setattr(propagate, "inject", Failing().inject)
    caplog.clear()
    seen = []
    with DelayQueue(part, url=redis_url, callback=lambda message: seen.append(message.payload)) as queue:
        instrument(queue, create_spans=True, **providers)
        queue.send_delay_msg(1)
        queue.send_many([2, 3])
        queue.run(burst=True)
        assert sorted(seen) == [1, 2, 3]
        assert queue.stats().totals["acked"] == 3
    said = [one for one in caplog.records if one.name == "delayq.telemetry"]
    assert [one.getMessage() for one in said] == ["OpenTelemetry failed, and the queue goes on without it"]


def test_what_is_not_sampled_is_counted_and_propagated():
    recorded, seen = Recorded(sampler=ALWAYS_OFF), []
    with DelayQueue("orders", url="memory://", callback=lambda message: seen.append(message.headers)) as queue:
        instrument(queue, **recorded.providers)
        queue.send_delay_msg("x")
        queue.run(burst=True)
    assert recorded.spans() == []
    assert recorded.points()["messaging.process.duration"] == {("process", ""): 1}
    assert seen[0]["traceparent"].endswith("-00") or seen[0]["traceparent"].endswith("-02")


def test_a_worker_records_each_of_its_queues(redis_url, recorded):
    options = {"url": redis_url, "callback": lambda message: None, "tick": "50ms"}
    with DelayQueue("tenant-a", **options) as first, DelayQueue("tenant-b", **options) as second:
        instrument(first, **recorded.providers)
        for queue in (first, second):
            queue.send_delay_msg("x")
        Worker.matching("tenant-*", first).run(burst=True)
        first.send_delay_msg("after")  # is no send of the queues that the worker has made of it
    assert sorted(one.name for one in recorded.spans("process")) == ["process tenant-a", "process tenant-b"]
    assert [one.name for one in recorded.spans("send")] == ["send tenant-a"] * 2
    assert [len(one.links) for one in recorded.spans("process") if one.name.endswith("a")] == [1]


def test_an_asyncio_worker_records_tasks_by_name(redis_url, recorded):
    async def consume():
        async with AsyncDelayQueue("a", url=redis_url) as first, AsyncDelayQueue("b", url=redis_url) as second:
            instrument(first, second, **recorded.providers)

            @first.task
            async def remind(user):
                pass

            @second.task
            def blocking(user):
                pass

            await remind.send(1)
            await blocking.send(1)
            await AsyncWorker({first: 1, second: 1}).run(burst=True)

    asyncio.run(consume())
    names = {one.name: one.attributes["messaging.delayq.name"] for one in recorded.spans("process")}
    assert names == {"process a": "remind", "process b": "blocking"}
    assert all(len(one.links) == 1 for one in recorded.spans("process"))


def test_a_queue_that_the_test_kit_moves_is_recorded(redis_url, recorded):
    with DelayQueue("orders", url=redis_url, callback=lambda message: None) as queue:
        instrument(queue, **recorded.providers)
        with moved(queue, "memory://", "elsewhere"):
            queue.send_delay_msg("x")
            queue.run(burst=True)
    assert [one.name.split()[0] for one in recorded.spans()] == ["send", "receive", "process", "ack"]


def test_it_takes_queues_before_they_are_consumed(redis_url, recorded):
    with pytest.raises(ConfigurationError, match="instrument takes delay queues and stream queues, not 'orders'"):
        instrument("orders")
    with DelayQueue("orders", url=redis_url, callback=lambda message: None) as queue:
        queue.start_consume()
        with pytest.raises(ConfigurationError, match="queue orders is being consumed: instrument it before"):
            instrument(queue)
        queue.stop_consume()
        for _ in range(2):
            instrument(queue, **recorded.providers)
        queue.send_delay_msg("x")
        queue.run(burst=True)
    assert len(recorded.spans("process")) == 1


def test_a_trace_goes_from_process_to_process(redis_url, recorded, tmp_path, open_queue):
    (tmp_path / "app.py").write_text(APP)
    open_queue().send_delay_msg("x")
    command = [sys.executable, "-m", "delayq", "--url", redis_url, "worker", "app", "--burst", "--otel"]
    done = processes.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    trace_id, span_id, *names = done.stdout.split(maxsplit=2)
    (send,) = recorded.spans("send")
    assert (int(trace_id), int(span_id)) == (send.context.trace_id, send.context.span_id)
    assert "messaging.process.duration" in json.loads(names[0].replace("'", '"'))


def test_payloads_headers_and_errors_of_users_are_not_recorded(open_queue, recorded):
    word = "c4n4ry"

    def work(message):
        message.nack(error=word) if message.attempt == 1 else message.reject(word)

    queue = open_queue(work, create_spans=True)
    queue.send_delay_msg({word: word}, headers={word: word})
    queue.send_many([{word: word}])
    queue.run(burst=True)
    assert len(recorded.spans("process")) == 4
    assert word not in recorded.everything()


def test_the_command_names_the_extra(redis_url, monkeypatch, without, tmp_path, caplog):
    from click.testing import CliRunner

    from delayq.cli import main

    monkeypatch.setattr("delayq.cli.worker.worker.configure_logging", lambda *_, **__: None)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "app_without_sdk.py").write_text(
        f"from delayq import DelayQueue\nqueue = DelayQueue('q', url={redis_url!r}, callback=print)\n"
    )
    words = ["worker", "app_without_sdk", "--burst", "--otel"]
    with caplog.at_level(logging.WARNING, "delayq.worker"):
        assert CliRunner().invoke(main, words).exit_code == 0
    assert "OpenTelemetry has no SDK here" in caplog.text
    without("opentelemetry", "delayq.telemetry")
    refused = CliRunner().invoke(main, words)
    assert (refused.exit_code, refused.stderr) == (2, "delayq: telemetry needs the extra: pip install 'delayq[otel]'\n")
