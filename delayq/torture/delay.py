"""A delay queue under torture: everything that users do with one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, astuple
from typing import Any

from delayq.clock import moment
from delayq.config import QueueOptions
from delayq.doctor import removal
from delayq.errors import DelayqError
from delayq.executor import Executor
from delayq.keys import Keys
from delayq.producer import NewMessage
from delayq.queue import AsyncDelayQueue, DelayQueue
from delayq.states import State
from delayq.torture.callbacks import CallbackEngine
from delayq.torture.engine import Looked, WrongCountError
from delayq.torture.history import Final, Recorder
from delayq.torture.process import Task
from delayq.torture.recorded import RecordedCalls
from delayq.torture.scan import scan
from delayq.torture.workload import Deed, fate_of, payload_of

REDRIVING = 0.01
"""How often a look redrives."""


class DelayEngine(CallbackEngine):
    """See `Engine`."""

    does = frozenset({"send", "replace", "cancel", "reschedule"})

    def open(self, options: QueueOptions, task: Task) -> DelayQueue[bytes]:
        """See `CallbackEngine.open`."""
        return DelayQueue(task.queue, **options)

    def open_async(self, options: QueueOptions, task: Task) -> AsyncDelayQueue[bytes]:
        """See `CallbackEngine.open_async`."""
        return AsyncDelayQueue(task.queue, **options)

    def record(self, queue: Any, recorder: Recorder) -> RecordedCalls:
        """See `CallbackEngine.record`."""
        calls = RecordedCalls(queue._tools.calls.keys, recorder)  # noqa: SLF001 - the face has no door to its calls
        queue._tools.calls = calls  # noqa: SLF001
        return calls

    def do(self, queue: Any, deed: Deed, dues: list[int]) -> None:
        """See `CallbackEngine.do`."""
        if deed.what == "cancel":
            queue.cancel(deed.ids[0])
        elif deed.what == "reschedule":
            queue.reschedule(deed.ids[0], at=moment(dues[0]))
        else:
            payloads = [payload_of(id, deed.life) for id in deed.ids]
            messages = [
                NewMessage(payload, at=moment(due), id=id, retries=fate_of(payload).retries)
                for id, due, payload in zip(deed.ids, dues, payloads, strict=True)
            ]
            queue.send_many(messages, replace=deed.what == "replace")

    def look(self, queue: Any, chance: random.Random) -> None:
        """Read whatever can be read, and send dead messages again now and then."""
        counts, stats = queue.counts(), queue.stats()
        if min(*astuple(counts), *astuple(stats.counts), *stats.totals.values()) < 0:
            raise WrongCountError(f"negative: {counts}, {stats}")
        state = chance.choice(list(State))
        page = queue.list(state, limit=20)
        if any(message.state is not state for message in page.messages):
            raise WrongCountError(f"another state than {state}: {page}")
        for message in page.messages[:3]:
            queue.get(message.id)
        queue.dead.list(limit=5)
        if chance.random() < REDRIVING:
            queue.dead.redrive(everything=True)

    @contextmanager
    def view(self, task: Task, direct: Executor) -> Iterator[DelayView]:
        """See `Engine.view`."""
        with DelayQueue[Any](task.queue, **task.hasty()) as queue:
            yield DelayView(queue, direct)


class DelayView:
    """See `View`."""

    def __init__(self, queue: DelayQueue[Any], direct: Executor) -> None:
        """Look with `queue`; read all of it over `direct`, which is more patient."""
        self._queue = queue
        self._direct = direct
        self._keys = Keys.of(queue.prefix, queue.name)

    def look(self) -> Looked | None:
        """See `View.look`."""
        try:
            stats = self._queue.stats()
        except DelayqError:
            return None
        changes = sum(stats.totals.values())
        counts = asdict(stats.counts)
        return Looked(counts=counts, living=stats.counts.living, changes=changes, totals=stats.totals)

    def scan(self, *, own: bool) -> Final:
        """See `View.scan`."""
        return scan(self._direct, self._keys, own=own)

    def remove(self) -> None:
        """See `View.remove`."""
        self._direct.run(removal(self._keys, self._queue.prefix, self._queue.name))
