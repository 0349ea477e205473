"""A work queue whose calls are written into the history before they are sent and when they are answered.

Its protocol has no tokens: a history numbers deliveries by when they were asked for. A lease lasts from then on, at
least, and was given when it was answered, at the latest; both are told by the clock of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from redis.exceptions import RedisError, ResponseError

from delayq.torture.history import Answer, Invoke, Recorder, digest, now
from delayq.workqueue import AsyncWorkQueue, Item, KeyPrefix, WorkQueue
from delayq.workqueue.calls import Claimed, Run, Work

MARGIN = 5
"""Milliseconds by which a lease may be over sooner: the server's clock has only whole ones, and a script its own."""
DELIVERED: ContextVar[int] = ContextVar("delivered")
"""The number of the last delivery to this thread or task."""

T = TypeVar("T")


class Told(NamedTuple):
    """How a script's call is told."""

    op: Any
    columns: Callable[[Run[Any]], dict[str, Any]]
    answer: Callable[[Invoke, Any], Answer]


class Operation:
    """One operation of a queue, as it is told."""

    def __init__(self, recorder: Recorder) -> None:
        """Tell `recorder`."""
        self._recorder = recorder
        self._asked: Invoke | None = None

    def steps(self, work: Work[T]) -> Work[T]:
        """Return the same work, with its calls told."""
        answer = None
        try:
            while True:
                step = work.send(answer)
                told = _TOLD.get(step.script.name) if isinstance(step, Run) else None
                answer = yield self._told(step, told) if isinstance(step, Run) and told else step
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what a Work[T] returns is a T

    def begin(self, op: Any, **columns: Any) -> Invoke:
        """Tell that a call is about to be sent."""
        self._asked = Invoke(at=now(), call=self._recorder.next_call(), op=op, **columns)
        self._recorder.write(self._asked)
        return self._asked

    def end(self, answer: Answer) -> None:
        """Tell what it was answered."""
        self._recorder.write(answer)
        self._asked = None

    def failed(self, error: RedisError) -> None:
        """Tell that the call under way raised: what Redis refuses was not carried out, all else is in doubt."""
        if self._asked is not None:
            refused = isinstance(error, ResponseError)
            text = str(error)[:200]
            outcome: Any = "fail" if refused else "unknown"
            self.end(Answer(at=now(), call=self._asked.call, outcome=outcome, error=text))

    def _told(self, run: Run[Any], told: Told) -> Run[Any]:
        asked = self.begin(told.op, **told.columns(run))

        def parse(reply: Any) -> Any:
            value = run.parse(reply)
            self.end(told.answer(asked, value))
            return value

        return run._replace(parse=parse)


class RecordedWorkQueue(WorkQueue):
    """A work queue, told."""

    def __init__(self, prefix: str, recorder: Recorder) -> None:
        """Tell `recorder` of the queue with this prefix."""
        super().__init__(KeyPrefix(prefix))
        self._recorder = recorder

    def add_all(self, db: Any, items: Sequence[Item], *, known: bool) -> None:
        """Add items by one transaction, all or none."""
        told = Operation(self._recorder)
        columns = {"ids": [item.id() for item in items], "payloads": [digest(item.data()) for item in items]}
        with db.pipeline(transaction=True) as pipeline:
            for item in items:
                (self.add_unique_item_to_pipeline if known else self.add_item_to_pipeline)(pipeline, item)
            asked = told.begin("send", **columns)
            try:
                answers = pipeline.execute(raise_on_error=False)
            except RedisError as error:
                told.failed(error)
                raise
        refused = [answer for answer in answers if isinstance(answer, Exception)]
        digits = "".join("-" if isinstance(answer, Exception) else f"{answer:d}" for answer in answers)
        told.end(Answer(at=now(), call=asked.call, digits=digits))
        if refused:
            raise refused[0]

    def _perform(self, db: Any, work: Work[T]) -> T:
        told = Operation(self._recorder)
        try:
            return super()._perform(db, told.steps(work))
        except RedisError as error:
            told.failed(error)
            raise


class RecordedAsyncWorkQueue(AsyncWorkQueue):
    """A work queue for asyncio, told."""

    def __init__(self, prefix: str, recorder: Recorder) -> None:
        """Tell `recorder` of the queue with this prefix."""
        super().__init__(KeyPrefix(prefix))
        self._recorder = recorder

    async def _perform(self, db: Any, work: Work[T]) -> T:
        told = Operation(self._recorder)
        try:
            return await super()._perform(db, told.steps(work))
        except RedisError as error:
            told.failed(error)
            raise


def _answered(asked: Invoke, done: bool) -> Answer:  # noqa: FBT001 - an answer
    return Answer(at=now(), call=asked.call, digits=f"{done:d}")


def _leased(asked: Invoke, claimed: Claimed) -> Answer:
    at, item = now(), claimed.item
    if item is None:
        return Answer(at=at, call=asked.call)
    DELIVERED.set(asked.at)
    return Answer(
        at=at,
        call=asked.call,
        now=at // 1000 + 1,
        deadline=asked.at // 1000 + asked.lease - MARGIN,
        ids=[item.id()],
        tokens=[asked.at],
        payloads=[digest(item.data())],
    )


def _about(run: Run[Any]) -> dict[str, Any]:
    """Return the columns of a call about one item: its id is the first argument."""
    return {"ids": [run.args[0].decode()]}  # type: ignore[union-attr]  # ids are bytes


def _adding(run: Run[Any]) -> dict[str, Any]:
    return {**_about(run), "payloads": [digest(run.args[1])]}  # type: ignore[arg-type]  # data is bytes


_TOLD = {
    "workqueue/add": Told("send", _adding, _answered),
    "workqueue/claim": Told("claim", lambda run: {"lease": run.args[1]}, _leased),
    "workqueue/complete": Told("ack", _about, _answered),
}
"""By the scripts that begin, deliver or end something."""
