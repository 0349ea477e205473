"""What a consumer owes Redis: settlements, kept until each has been answered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from delayq.calls import Calls, Failure, Rejection
from delayq.config import Settings, nack_wait
from delayq.message import Holding, kept
from delayq.script import MOST_IDS
from delayq.verdict import Completion, Verdict

log = logging.getLogger("delayq.consumer")


class Owed:
    """Settlements on their way, by verdict, in batches of at most a thousand."""

    def __init__(self, calls: Calls, settings: Settings, settled: Callable[[list[Holding]], None]) -> None:
        """Tell `settled` which holdings need to be held no longer."""
        self._settings = settings
        self._told = settled
        self._queues: dict[Verdict, list[tuple[Holding, Any]]] = {
            verdict: [] for verdict in Verdict if verdict is not Verdict.NOTHING
        }
        self._calls: dict[Verdict, Callable[[list[Any]], Any]] = {
            Verdict.ACK: calls.ack,
            Verdict.DISCARD: partial(calls.ack, discarded=True),
            Verdict.NACK: calls.nack,
            Verdict.REJECT: calls.reject,
            Verdict.RELEASE: calls.release,
        }

    def __bool__(self) -> bool:
        """Whether anything is still to be settled."""
        return any(self._queues.values())

    def __len__(self) -> int:
        """Return how many settlements are on their way."""
        return sum(map(len, self._queues.values()))

    def add(self, completion: Completion) -> None:
        """Take on a settlement."""
        holding, verdict, text, delay, _ = completion
        item: Any = holding.receipt
        id, token = holding.receipt
        if verdict is Verdict.NACK:
            if delay is None:
                delay = self._settings.backoff.delay(holding.delivery.attempt)
            item = Failure(id, token, nack_wait(delay / 1000), kept(text))
        elif verdict is Verdict.REJECT:
            item = Rejection(id, token, kept(text), "")
        holding.settled = True
        self._queues[verdict].append((holding, item))

    def settle(self) -> Iterator[tuple[Any, Callable[[str], None]]]:
        """Yield the calls that settle what is owed, each with the reader of its answer."""
        for verdict, queue in self._queues.items():
            if queue:
                yield self._calls[verdict]([item for _, item in queue[:MOST_IDS]]), partial(self._answered, verdict)

    def _answered(self, verdict: Verdict, answer: str) -> None:
        queue = self._queues[verdict]
        settled = [holding for holding, _ in queue[: len(answer)]]
        del queue[: len(answer)]
        self._told(settled)
        late = [holding.delivery.id for holding, digit in zip(settled, answer, strict=True) if digit == "0"]
        if late:
            text = "%d messages were settled elsewhere before this %s: %s"
            log.warning(text, len(late), verdict.name.lower(), ", ".join(late[:5]), extra={"ids": late})
