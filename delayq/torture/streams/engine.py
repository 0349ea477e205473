"""A stream queue under torture: what a delay queue goes through, but for times, and for what a stream cannot do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, astuple, fields
from typing import Any

from delayq.config import QueueOptions
from delayq.errors import DelayqError
from delayq.executor import Executor
from delayq.producer import NewMessage
from delayq.streams import AsyncStreamQueue, StreamQueue
from delayq.streams.keys import StreamKeys
from delayq.torture.callbacks import CallbackEngine
from delayq.torture.engine import Looked, WrongCountError
from delayq.torture.history import Final, Recorder
from delayq.torture.process import Task
from delayq.torture.streams.recorded import RecordedStreamCalls
from delayq.torture.streams.scan import scan
from delayq.torture.workload import Deed, fate_of, payload_of
from delayq.values import Command

REDRIVING = 0.01
"""How often a look redrives."""
SHOWN = ("ready", "active", "backoff", "dead")
"""The states that a stream knows."""


class StreamEngine(CallbackEngine):
    """See `Engine`."""

    does = frozenset({"send"})

    def open(self, options: QueueOptions, task: Task) -> StreamQueue[bytes]:
        """See `CallbackEngine.open`."""
        return StreamQueue(_name(task), **_but_for_prefix(options))

    def open_async(self, options: QueueOptions, task: Task) -> AsyncStreamQueue[bytes]:
        """See `CallbackEngine.open_async`."""
        return AsyncStreamQueue(_name(task), **_but_for_prefix(options))

    def record(self, queue: Any, recorder: Recorder) -> RecordedStreamCalls:
        """See `CallbackEngine.record`."""
        calls = RecordedStreamCalls(queue._calls, recorder)  # noqa: SLF001 - the face has no door to its calls
        queue._tools.calls = queue._calls = queue._dead._calls = calls  # noqa: SLF001
        return calls

    def do(self, queue: Any, deed: Deed, dues: list[int]) -> None:  # noqa: ARG002 - a stream has no due times
        """See `CallbackEngine.do`."""
        payloads = [payload_of(id, deed.life) for id in deed.ids]
        queue.send_many(
            NewMessage(payload, id=id, retries=fate_of(payload).retries)
            for id, payload in zip(deed.ids, payloads, strict=True)
        )

    def look(self, queue: Any, chance: random.Random) -> None:
        """Read whatever can be read, and send dead messages again now and then."""
        counts = queue.counts()
        if min(astuple(counts)) < 0:
            raise WrongCountError(f"negative: {counts}")
        queue.dead.list(limit=5)
        if chance.random() < REDRIVING:
            queue.dead.redrive(everything=True)

    @contextmanager
    def view(self, task: Task, direct: Executor) -> Iterator[StreamView]:
        """See `Engine.view`."""
        with StreamQueue[Any](_name(task), **_but_for_prefix(task.hasty())) as queue:
            yield StreamView(queue, direct, round(task.lease * 1000))


class StreamView:
    """See `View`."""

    def __init__(self, queue: StreamQueue[Any], direct: Executor, lease: int) -> None:
        """Look with `queue`; read all of it over `direct`, which is more patient. `lease` in ms."""
        self._queue = queue
        self._direct = direct
        self._lease = lease
        self._keys = StreamKeys.of(queue.name)

    def look(self) -> Looked | None:
        """See `View.look`."""
        try:
            counts = self._queue.counts()
        except DelayqError:
            return None
        told = {state: count for state, count in asdict(counts).items() if state in SHOWN}
        return Looked.counted(told, counts.living)

    def scan(self, *, own: bool) -> Final:
        """See `View.scan`."""
        return scan(self._direct, self._keys, self._queue.group, self._lease, own=own)

    def remove(self) -> None:
        """See `View.remove`."""
        every = tuple(getattr(self._keys, part.name) for part in fields(self._keys))
        self._direct.call(Command(("UNLINK", *every), int))


def _name(task: Task) -> str:
    return f"{task.prefix}.{task.queue}"


def _but_for_prefix(options: QueueOptions) -> QueueOptions:
    """Return the options of a queue as those of a stream, whose key is the user's."""
    return {name: value for name, value in options.items() if name != "prefix"}  # type: ignore[return-value]
