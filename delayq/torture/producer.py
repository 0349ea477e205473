"""A producer of a run, as a process: sends its share of the messages, and does to some what users do to theirs.

It keeps what the guarantee asks of users: a send that raised is sent again under the same ids until it returns.
"""

from __future__ import annotations

import heapq
import threading
import time
from itertools import count

from delayq.torture.engine import Sender
from delayq.torture.engines import ENGINES
from delayq.torture.history import Recorder
from delayq.torture.process import Task, at_the_end, read_task, ready
from delayq.torture.workload import Deed, deeds

PAUSE = 0.05
"""Seconds after which what raised is done again."""


class Producer:
    """Does deed after deed, each at its time."""

    def __init__(self, task: Task, sender: Sender) -> None:
        """Send with `sender`."""
        self.gone = threading.Event()
        """Set when nobody waits for the rest any more."""
        self._sender = sender
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
        does = ENGINES[task.engine].does
        self._todo = list(zip((deed for deed in mine if deed.what in does), count(), strict=False))
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
        while not self.gone.is_set() and not self._sender.attempt(deed, dues):
            self.gone.wait(PAUSE)

    def _now(self) -> int:
        """Return the server's time (ms); while it is down, what it would be."""
        asked, local = self._clock(), time.monotonic()
        if asked:
            self._server = asked, local
        return round(self._server[0] + (local - self._server[1]) * 1000)


def main() -> None:
    """Be a producer: `python -m delayq.torture.producer`, with its task in the environment."""
    task = read_task()
    with Recorder(task.history, task.process) as recorder, ENGINES[task.engine].sender(task, recorder) as sender:
        producer = Producer(task, sender)
        at_the_end(producer.gone.set)
        ready()
        producer.run()


if __name__ == "__main__":
    main()
