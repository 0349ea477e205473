"""The work queue under torture: items are added, leased, completed and cleaned, with clients of redis-py.

These clients send each command once, so after an error its outcome is unknown. Producers then add again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from delayq.broker.requests import RedisCommand
from delayq.broker.transport.clients import Cluster
from delayq.broker.transport.executor import Executor, open_async_executor, open_executor
from delayq.errors import ConfigurationError
from delayq.options import QueueOptions, read_settings
from delayq.testing.torture.engine_interface import Engine, QueueSnapshot, WrongCountError
from delayq.testing.torture.history import Recorder, ScanRecord
from delayq.testing.torture.process_task import ProcessTask, on_shutdown, report_ready
from delayq.testing.torture.workload import Action, payload_of
from delayq.testing.torture.workqueue.recorded_workqueue import RecordedAsyncWorkQueue, RecordedWorkQueue
from delayq.testing.torture.workqueue.workqueue_scan import keys_of, scan
from delayq.testing.torture.workqueue.workqueue_worker import PROFILES, WorkQueueWorker
from delayq.workqueue import Item, KeyPrefix, WorkQueue
from delayq.workqueue.keys import WorkQueueKeys

MAX_LIVES = 3
"""How often an id is sent at most."""


@dataclass(slots=True)
class OpenWorkQueue:
    """A work queue, the client to use it with, and the task of the process."""

    queue: WorkQueue
    db: Any
    task: ProcessTask
    last: Action | None = None
    """The last action that a producer has tried."""


class WorkQueueEngine(Engine):
    """See `Engine`."""

    @contextmanager
    def open(
        self, task: ProcessTask, options: QueueOptions, recorder: Recorder | None = None
    ) -> Iterator[OpenWorkQueue]:
        queue = RecordedWorkQueue(_prefix(task), recorder) if recorder else WorkQueue(KeyPrefix(_prefix(task)))
        with closing(open_executor(options, read_settings(options))) as executor:
            if isinstance(executor.client, Cluster):
                raise ConfigurationError("the torture of a work queue needs a single server, not a Redis Cluster")
            yield OpenWorkQueue(queue, executor.client, task)

    def perform(self, queue: Any, action: Action, dues: list[int]) -> None:  # noqa: ARG002 - items have no due times
        """Add items in all possible ways: one by one and in a transaction, known to be new and not."""
        items = [Item(payload_of(id, action.life, PROFILES), id=id) for id in action.ids]
        shared = any(id.startswith("all") for id in action.ids)
        known = action.life == 0 and not shared and action is not queue.last
        queue.last = action
        if crc32(action.ids[0].encode()) % 4:
            queue.queue.add_all(queue.db, items, known=known)
            return
        for item in items:
            (queue.queue.add_unique_item if known else queue.queue.add_item)(queue.db, item)

    def inspect(self, queue: Any, chance: random.Random) -> None:
        """Read counts and an item, which is either unchanged or gone."""
        number = chance.randrange(queue.task.messages)
        id = f"p{1 + number * queue.task.producers // queue.task.messages}-{number}"
        works, db = queue.queue, queue.db
        counts = (works.queue_len(db), works.processing(db), *works.counts(db))
        data = works.get_item_data(db, id)
        if min(counts) < 0 or data not in (None, *(payload_of(id, life, PROFILES) for life in range(MAX_LIVES))):
            raise WrongCountError(f"counts {counts}, data of {id}: {data!r}")

    def work(self, task: ProcessTask, recorder: Recorder) -> None:
        stopped = threading.Event()
        on_shutdown(stopped.set)
        with self.open(task, task.options(), recorder) as opened:
            report_ready()
            WorkQueueWorker(task, recorder, opened.queue, opened.db, stopped).run()

    async def work_async(self, task: ProcessTask, recorder: Recorder) -> None:
        stopped = threading.Event()
        on_shutdown(stopped.set)
        options = task.options()
        executor = open_async_executor(options, read_settings(options))
        queue = RecordedAsyncWorkQueue(_prefix(task), recorder)
        report_ready()
        await WorkQueueWorker(task, recorder, queue, executor.client, stopped).run_async()
        await executor.close()

    def poll(self, queue: Any) -> QueueSnapshot:
        ready, active = queue.queue.counts(queue.db)
        return QueueSnapshot(counts={"ready": ready, "active": active}, living=ready + active)

    def scan(self, task: ProcessTask, direct: Executor, *, own: bool) -> ScanRecord:
        return scan(direct, WorkQueueKeys(KeyPrefix(_prefix(task))), task.lease, own=own)

    def remove(self, task: ProcessTask, direct: Executor) -> None:
        for key in keys_of(direct, f"{_prefix(task)}:*"):
            direct.call(RedisCommand(("UNLINK", key), int))


def _prefix(task: ProcessTask) -> str:
    return f"{task.prefix}:{task.queue}"
