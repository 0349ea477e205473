"""Producers and a consumer that work while servers fail, and counts of sent and delivered messages."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from delayq import DelayqError, DelayQueue, Message
from tests.support.waiting import wait_until

PRODUCERS = 3
GAP = 0.002
"""Seconds between two sends of a producer."""
INSTANT = 0.05
"""Seconds by which the time of an answer, as a producer takes it, may be off on a busy machine."""
UNDOABLE = {"lease": "5s"}
"""Options for tests in which a claim or an ack may be undone: the message returns when its lease expires."""


@dataclass
class Load:
    """Three producers and a consumer on one queue; `with` starts them, `finish` ends them and adds up."""

    url: str
    name: str
    prefix: str
    options: dict[str, Any] = field(default_factory=dict)
    returned: dict[str, float] = field(default_factory=dict)
    """Ids of the sends that returned, with the time when."""
    failed: list[DelayqError] = field(default_factory=list)
    started: Counter[str] = field(default_factory=Counter)
    """How often the callback was called with each id."""
    last_start: float = 0.0

    def __enter__(self) -> Self:
        self._ending = threading.Event()
        self._consumer = self._open(callback=self._work, concurrency=4)
        self._consuming = self._consumer.start_consume()
        self._threads = [threading.Thread(target=self._produce, daemon=True) for _ in range(PRODUCERS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(60)
        self._consumer.stop_consume(1)
        self._consumer.close()

    def goes_on(self, sends: int = 200) -> None:
        """Return when so many more sends have returned, and as many callbacks were called."""
        sent, started = len(self.returned) + sends, len(self.started) + sends
        wait_until(lambda: len(self.returned) >= sent and len(self.started) >= started, 30, "the load does not go on")

    def sends_again(self, since: float, timeout: float = 30) -> float:
        """Return the seconds from a moment to the first send that has begun and returned after it."""
        # A send under way at the moment may return by what happened before; the next one of its producer does not.
        wait_until(lambda: len(self._after(since)) > PRODUCERS, timeout, "no send returns")
        return self._after(since)[0] - since

    def consumes_again(self, since: float, timeout: float = 30) -> float:
        """Return the seconds from a moment to the first callback after it."""
        wait_until(lambda: self.last_start > since, timeout, "nothing is consumed")
        return self.last_start - since

    def finish(self) -> None:
        """End the producers, and wait until the queue is empty."""
        self._ending.set()
        for thread in self._threads:
            thread.join(60)
        wait_until(lambda: self._consumer.counts().living == 0, 40, "the queue is not emptied", every=0.05)

    def lost(self, *, but_at: Iterable[float] = ()) -> set[str]:
        """Return the ids whose send returned and which were never delivered, but for sends at these moments."""
        never = set(self.returned) - set(self.started)
        return {id for id in never if all(abs(self.returned[id] - at) > INSTANT for at in but_at)}

    @property
    def doubled(self) -> set[str]:
        """The ids that were delivered more than once."""
        return {id for id, times in self.started.items() if times > 1}

    def _open(self, **options: Any) -> DelayQueue[Any]:
        return DelayQueue(self.name, url=self.url, prefix=self.prefix, **self.options, **options)

    def _after(self, since: float) -> list[float]:
        return [at for at in list(self.returned.values()) if at > since]

    def _work(self, message: Message[Any]) -> None:
        self.started[message.id] += 1
        self.last_start = time.monotonic()

    def _produce(self) -> None:
        with self._open() as queue:
            while not self._ending.is_set():
                try:
                    sent = queue.send_delay_msg("load")
                except DelayqError as error:
                    self.failed.append(error)
                else:
                    self.returned[sent.id] = time.monotonic()
                time.sleep(GAP)
