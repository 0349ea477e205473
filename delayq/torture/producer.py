"""A producer of a run, as a process: sends its share of the messages, and does to some what users do to theirs.

It keeps what the guarantee asks of users: a send that raised is sent again under the same ids until it returns.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count

from delayq.clock import moment
from delayq.errors import DelayqError
from delayq.producer import NewMessage
from delayq.queue import DelayQueue
from delayq.torture.history import Recorder
from delayq.torture.process import Task, at_the_end, bear, read_task, ready, record
from delayq.torture.workload import Deed, deeds, fate_of, payload_of

PAUSE = 0.05
"""Seconds after which what raised is done again."""


class Producer:
    """Does deed after deed, each at its time."""

    def __init__(self, task: Task, queue: DelayQueue[bytes], recorder: Recorder) -> None:
        """Send to `queue`."""
        self.gone = threading.Event()
        """Set when nobody waits for the rest any more."""
        self._queue = queue
        self._calls = record(queue, recorder)
        self._clock = task.clock()
        self._server = (0, 0.0)
        mine = deeds(
            task.seed,
            task.number,
            producers=task.producers,
            messages=task.messages,
            seconds=task.seconds,
            batch=task.batch,
        )
        self._todo = list(zip(mine, count(), strict=False))
        heapq.heapify(self._todo)

    def run(self) -> None:
        """Do all of them."""
        began = time.monotonic()
        while self._todo and not self.gone.is_set():
            deed, _ = heapq.heappop(self._todo)
            self.gone.wait(max(0.0, began + deed.at - time.monotonic()))
            self._do(deed)

    def _do(self, deed: Deed) -> None:
        now = self._now()
        dues = [now + round(ahead * 1000) for ahead in deed.ahead]
        if deed.what == "cancel":
            self._insist(lambda: self._queue.cancel(deed.ids[0]))
        elif deed.what == "reschedule":
            self._insist(lambda: self._queue.reschedule(deed.ids[0], at=moment(dues[0])))
        else:
            payloads = [payload_of(id, deed.life) for id in deed.ids]
            messages = [
                NewMessage(payload, at=moment(due), id=id, retries=fate_of(payload).retries)
                for id, due, payload in zip(deed.ids, dues, payloads, strict=True)
            ]
            self._insist(lambda: self._queue.send_many(messages, replace=deed.what == "replace"))

    def _insist(self, act: Callable[[], object]) -> None:
        while not self.gone.is_set():
            try:
                act()
            except DelayqError as error:
                bear(self._calls, error)
                self.gone.wait(PAUSE)
            else:
                return

    def _now(self) -> int:
        """Return the server's time (ms); while it is down, what it would be."""
        asked, local = self._clock(), time.monotonic()
        if asked:
            self._server = asked, local
        return round(self._server[0] + (local - self._server[1]) * 1000)


def main() -> None:
    """Be a producer: `python -m delayq.torture.producer`, with its task in the environment."""
    task = read_task()
    with Recorder(task.history, task.process) as recorder, DelayQueue(task.queue, **task.options()) as queue:
        producer = Producer(task, queue, recorder)
        at_the_end(producer.gone.set)
        ready()
        producer.run()


if __name__ == "__main__":
    main()
