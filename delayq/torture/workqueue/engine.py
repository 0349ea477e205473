"""A work queue under torture: items that are added, leased, completed and cleaned, over clients of redis-py.

Such a client executes a call once or is in doubt over it, for it is made to try only once. Whoever adds tries again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from redis.exceptions import RedisError

from delayq.clients import Cluster
from delayq.config import QueueOptions, read_settings
from delayq.errors import ConfigurationError
from delayq.executor import Executor, open_async_executor, open_executor
from delayq.torture.engine import Looked, WrongCountError
from delayq.torture.history import Final, Recorder
from delayq.torture.process import Task, at_the_end, ready
from delayq.torture.workload import Deed, payload_of
from delayq.torture.workqueue import worker
from delayq.torture.workqueue.recorded import RecordedAsyncWorkQueue, RecordedWorkQueue
from delayq.torture.workqueue.scan import keys_of, scan
from delayq.values import Command
from delayq.workqueue import Item, KeyPrefix, WorkQueue
from delayq.workqueue.keys import Keys

LIVES = 3
"""Lives that an id has at most."""


class WorkEngine:
    """See `Engine`."""

    does = frozenset({"send"})

    @contextmanager
    def sender(self, task: Task, recorder: Recorder) -> Iterator[Adder]:
        """See `Engine.sender`."""
        with _client(task.options()) as db:
            yield Adder(RecordedWorkQueue(_prefix(task), recorder), db)

    @contextmanager
    def inspector(self, task: Task, recorder: Recorder) -> Iterator[Reader]:  # noqa: ARG002 - it changes nothing
        """See `Engine.inspector`."""
        with _client(task.options()) as db:
            yield Reader(WorkQueue(KeyPrefix(_prefix(task))), db, task)

    def work(self, task: Task, recorder: Recorder) -> None:
        """See `Engine.work`."""
        gone = threading.Event()
        at_the_end(gone.set)
        with _client(task.options()) as db:
            queue = RecordedWorkQueue(_prefix(task), recorder)
            ready()
            worker.work(worker.flows(task, recorder, gone.is_set), queue, db, gone.set)

    async def work_async(self, task: Task, recorder: Recorder) -> None:
        """See `Engine.work_async`."""
        gone = threading.Event()
        at_the_end(gone.set)
        options = task.options()
        executor = open_async_executor(options, read_settings(options))
        queue = RecordedAsyncWorkQueue(_prefix(task), recorder)
        ready()
        flows = worker.flows(task, recorder, gone.is_set)
        await worker.work_async(flows, queue, executor.client, gone.set)
        await executor.close()

    @contextmanager
    def view(self, task: Task, direct: Executor) -> Iterator[WorkView]:
        """See `Engine.view`."""
        with _client(task.hasty()) as db:
            yield WorkView(WorkQueue(KeyPrefix(_prefix(task))), db, direct, task)


class Adder:
    """Adds items in all the ways that there are."""

    def __init__(self, queue: RecordedWorkQueue, db: Any) -> None:
        """Add to `queue` over `db`."""
        self._queue = queue
        self._db = db
        self._doubted: Deed | None = None

    def attempt(self, deed: Deed, dues: list[int]) -> bool:  # noqa: ARG002 - items have no due times
        """See `Sender.attempt`: what was tried before is not known to be new."""
        items = [Item(payload_of(id, deed.life, worker.FATES), id=id) for id in deed.ids]
        ours = deed.life == 0 and not any(id.startswith("all") for id in deed.ids)
        known = ours and deed is not self._doubted
        try:
            if crc32(deed.ids[0].encode()) % 4:
                self._queue.add_all(self._db, items, known=known)
            else:
                for item in items:
                    (self._queue.add_unique_item if known else self._queue.add_item)(self._db, item)
        except RedisError as error:
            self._doubted = deed
            worker.expect(error)
            return False
        return True


class Reader:
    """Reads what can be read of a work queue."""

    def __init__(self, queue: WorkQueue, db: Any, task: Task) -> None:
        """Read over `db`."""
        self._queue = queue
        self._db = db
        self._task = task

    def look(self, chance: random.Random) -> None:
        """Read counts and an item, which is as it was added or is not there."""
        number = chance.randrange(self._task.messages)
        producer = 1 + number * self._task.producers // self._task.messages
        id = f"p{producer}-{number}"
        try:
            counts = (self._queue.queue_len(self._db), self._queue.processing(self._db), *self._queue.counts(self._db))
            data = self._queue.get_item_data(self._db, id)
        except RedisError as error:
            worker.expect(error)
            return
        if min(counts) < 0 or data not in (None, *(payload_of(id, life, worker.FATES) for life in range(LIVES))):
            raise WrongCountError(f"counts {counts}, and of {id} {data!r}")


class WorkView:
    """See `View`."""

    def __init__(self, queue: WorkQueue, db: Any, direct: Executor, task: Task) -> None:
        """Look over `db`; read all of it over `direct`, which is more patient."""
        self._queue = queue
        self._db = db
        self._direct = direct
        self._lease = task.lease
        self._keys = Keys(KeyPrefix(_prefix(task)))

    def look(self) -> Looked | None:
        """See `View.look`."""
        try:
            waiting, processing = self._queue.counts(self._db)
        except RedisError:
            return None
        return Looked.counted({"ready": waiting, "active": processing}, waiting + processing)

    def scan(self, *, own: bool) -> Final:
        """See `View.scan`."""
        return scan(self._direct, self._keys, self._lease, own=own)

    def remove(self) -> None:
        """See `View.remove`."""
        for key in keys_of(self._direct, f"{self._keys.prefix}:*"):
            self._direct.call(Command(("UNLINK", key), int))


def _prefix(task: Task) -> str:
    return f"{task.prefix}:{task.queue}"


@contextmanager
def _client(options: QueueOptions) -> Iterator[Any]:
    """Yield a client of redis-py that sends each command once."""
    executor = open_executor(options, read_settings(options))
    try:
        if isinstance(executor.client, Cluster):
            raise ConfigurationError("a work queue is put under torture on a single server, not on a Redis Cluster")
        yield executor.client
    finally:
        executor.close()
