"""The stream queue under torture: what a delay queue goes through, without due times, cancelling and replacing."""

from __future__ import annotations

from dataclasses import asdict, astuple
from typing import Any

from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import Executor
from delayq.options import QueueOptions
from delayq.queue.sending.message_options import NewMessage
from delayq.streams import AsyncStreamQueue, StreamQueue
from delayq.streams.keys import StreamKeys
from delayq.testing.torture.callback_engine import CallbackEngine
from delayq.testing.torture.disturbing.planted import STREAM_TYPES, plant
from delayq.testing.torture.engine_interface import QueueSnapshot
from delayq.testing.torture.history import Recorder, ScanRecord
from delayq.testing.torture.process_task import ProcessTask
from delayq.testing.torture.streams.recorded_stream import RecordedStreamCalls
from delayq.testing.torture.streams.stream_scan import scan
from delayq.testing.torture.workload import Action, payload_of, profile_of

GROUP = "workers"
"""The default group of a stream queue."""
STATES = ("ready", "active", "backoff", "dead")
"""The states that a stream has."""


class StreamEngine(CallbackEngine):
    """See `Engine`."""

    def create(self, task: ProcessTask, options: QueueOptions, *, is_async: bool = False) -> Any:
        kind = AsyncStreamQueue if is_async else StreamQueue
        return kind(_name(task), **options)

    def record(self, queue: Any, recorder: Recorder) -> None:
        calls = RecordedStreamCalls(queue._calls, recorder)  # noqa: SLF001 - a queue does not expose its calls
        queue._context.calls = queue._calls = queue._dead._calls = calls  # noqa: SLF001

    def perform(self, queue: Any, action: Action, dues: list[int]) -> None:  # noqa: ARG002 - streams have no due times
        payloads = [payload_of(id, action.life) for id in action.ids]
        queue.send_many(
            NewMessage(payload, id=id, retries=profile_of(payload).retries)
            for id, payload in zip(action.ids, payloads, strict=True)
        )

    def poll(self, queue: Any) -> QueueSnapshot:
        counts = queue.counts()
        shown = {state: count for state, count in asdict(counts).items() if state in STATES}
        return QueueSnapshot(counts=shown, living=counts.living)

    def scan(self, task: ProcessTask, direct: Executor, *, own: bool) -> ScanRecord:
        return scan(direct, StreamKeys.of(_name(task)), GROUP, round(task.lease * 1000), own=own)

    def plant(self, task: ProcessTask, direct: Executor) -> None:
        plant(direct, StreamKeys.of(_name(task)), STREAM_TYPES)

    def remove(self, task: ProcessTask, direct: Executor) -> None:
        direct.call(RedisCommand(("UNLINK", *astuple(StreamKeys.of(_name(task)))), int))


def _name(task: ProcessTask) -> str:
    """Return the key of the stream, which has no prefix of its own."""
    return f"{task.prefix}.{task.queue}"
