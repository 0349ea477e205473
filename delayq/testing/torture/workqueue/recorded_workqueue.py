"""A work queue whose calls are recorded: each before it is sent and when its reply is read.

Its protocol has no tokens: the history numbers deliveries by the time they were requested. A lease lasts at least from
then on, and it was granted at the latest when the reply arrived; both times are of the clock of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from redis.exceptions import RedisError

from delayq.broker.requests import ScriptCall
from delayq.broker.transport.operation import Operation, Wait
from delayq.testing.torture.history import Recorder, digest, now
from delayq.testing.torture.recorded_calls import CallRecorder
from delayq.workqueue import AsyncWorkQueue, Item, KeyPrefix, WorkQueue
from delayq.workqueue.calls import ItemClaimReply

MARGIN = 5
"""Milliseconds by which a lease may end sooner: the server's clock has whole ones, and a script runs at one time."""
DELIVERED: ContextVar[int] = ContextVar("delivered")
"""The number of the last delivery to this thread or task."""

T = TypeVar("T")


class OperationRecorder(CallRecorder):
    """Records one operation of a queue, since threads and tasks share the queue."""

    def __init__(self, recorder: Recorder) -> None:
        self.record_to(recorder)

    def record(self, operation: Operation[T]) -> Operation[T]:
        """Return the same operation, with its calls recorded."""
        try:
            step = next(operation)
            while True:
                replies = yield step if isinstance(step, Wait) else [self._record_call(call) for call in step]
                step = operation.send(replies)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what an Operation[T] returns is a T

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Record a call that raises: one that Redis refuses is not executed, otherwise the outcome is unknown."""
        try:
            yield
        except RedisError as error:
            self.failed(error)
            raise

    def _record_call(self, call: Any) -> Any:
        """Record a call, unless it neither begins nor delivers nor ends anything."""
        if not isinstance(call, ScriptCall):
            return call
        name: str = call.script.name
        args: Any = call.args
        if name == "workqueue/add":
            return self.recorded(call, _status, "send", ids=[args[0].decode()], payloads=[digest(args[1])])
        if name == "workqueue/complete":
            return self.recorded(call, _status, "ack", ids=[args[0].decode()])
        if name == "workqueue/claim":
            requested, lease = now(), args[1]
            return self.recorded(call, lambda reply: _claim_columns(reply, requested, lease), "claim", lease=lease)
        return call


class _Recorded:
    def __init__(self, prefix: str, recorder: Recorder) -> None:
        super().__init__(KeyPrefix(prefix))  # type: ignore[call-arg]  # of a work queue
        self._recorder = recorder


class RecordedWorkQueue(_Recorded, WorkQueue):
    """A work queue, recorded."""

    def add_all(self, db: Any, items: Sequence[Item], *, known: bool) -> None:
        """Add items in one transaction, all or none."""
        recorder = OperationRecorder(self._recorder)
        ids, payloads = [item.id() for item in items], [digest(item.data()) for item in items]
        with db.pipeline(transaction=True) as pipeline:
            for item in items:
                (self.add_unique_item_to_pipeline if known else self.add_item_to_pipeline)(pipeline, item)
            number = recorder.begin("send", ids=ids, payloads=payloads)
            with recorder.failures():
                replies = pipeline.execute(raise_on_error=False)
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        statuses = "".join("-" if isinstance(reply, Exception) else f"{reply:d}" for reply in replies)
        recorder.end(number, statuses=statuses)
        if errors:
            raise errors[0]

    def _perform(self, db: Any, operation: Operation[T]) -> T:
        recorder = OperationRecorder(self._recorder)
        with recorder.failures():
            return super()._perform(db, recorder.record(operation))


class RecordedAsyncWorkQueue(_Recorded, AsyncWorkQueue):
    """A work queue for asyncio, recorded."""

    async def _perform(self, db: Any, operation: Operation[T]) -> T:
        recorder = OperationRecorder(self._recorder)
        with recorder.failures():
            return await super()._perform(db, recorder.record(operation))


def _status(done: bool) -> dict[str, Any]:  # noqa: FBT001 - a reply
    return {"statuses": f"{done:d}"}


def _claim_columns(claimed: ItemClaimReply, requested: int, lease: int) -> dict[str, Any]:
    """Return the columns of a claim's reply; `requested` in µs, `lease` in ms."""
    item = claimed.item
    if item is None:
        return {}
    DELIVERED.set(requested)
    columns = {"ids": [item.id()], "tokens": [requested], "payloads": [digest(item.data())]}
    return {"now": now() // 1000 + 1, "deadline": requested // 1000 + lease - MARGIN, **columns}
