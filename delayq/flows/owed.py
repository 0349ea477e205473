"""What a consumer owes Redis: settlements, kept until each has been answered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from delayq.calls import Calls
from delayq.config import Settings, nack_wait
from delayq.message import Holding, kept
from delayq.script import MOST_IDS, MOST_MOVED
from delayq.values import Failure, Rejection
from delayq.verdict import Completion, Verdict

log = logging.getLogger("delayq.consumer")

_ACK = Verdict.ACK
"""Of most messages; to ask an enumeration for a member, or to hash one, takes its time before Python 3.12."""


class Owed:
    """Settlements on their way, by verdict, in batches of at most a thousand."""

    def __init__(self, calls: Calls, settings: Settings, settled: Callable[[Sequence[Holding]], None]) -> None:
        """Tell `settled` which holdings need to be held no longer."""
        self._settings = settings
        self._told = settled
        self._queues: dict[Verdict, list[Holding]] = {
            verdict: [] for verdict in Verdict if verdict is not Verdict.NOTHING
        }
        self._acked = self._queues[_ACK]
        self._said: dict[Holding, Failure | Rejection] = {}
        """Of the failed and the rejected: what a call has to say besides the receipt."""
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

    @property
    def next(self) -> int:
        """How many the next calls settle."""
        return sum(min(len(queue), _most(verdict)) for verdict, queue in self._queues.items())

    def add(self, completions: Iterable[Completion]) -> None:
        """Take on settlements; what was settled by hand needs none."""
        for holdings, verdict, text, delay, _ in completions:
            queue = self._acked if verdict is _ACK else self._queues.get(verdict)
            for holding in holdings:
                if holding.settled or queue is None:
                    self._told([holding])
                    continue
                holding.settled = True
                queue.append(holding)
                if verdict is not _ACK:
                    self._say(holding, verdict, text, delay)

    def _say(self, holding: Holding, verdict: Verdict, text: str, delay: int | None) -> None:
        if verdict is Verdict.NACK:
            wait = self._settings.backoff.delay(holding.delivery.attempt) if delay is None else delay
            self._said[holding] = Failure(*holding.receipt, nack_wait(wait / 1000), kept(text))
        elif verdict is Verdict.REJECT:
            self._said[holding] = Rejection(*holding.receipt, kept(text), "")

    def settle(self) -> Iterator[tuple[Any, Callable[[str], None]]]:
        """Yield the calls that settle what is owed, each with the reader of its answer."""
        for verdict, queue in self._queues.items():
            if queue:
                first = queue[: _most(verdict)]
                told = verdict in (Verdict.NACK, Verdict.REJECT)
                items = [self._said[one] if told else one.receipt for one in first]
                yield self._calls[verdict](items), partial(self._answered, verdict)

    def _answered(self, verdict: Verdict, answer: str) -> None:
        queue = self._queues[verdict]
        settled = queue[: len(answer)]
        del queue[: len(answer)]
        if self._said:
            for holding in settled:
                self._said.pop(holding, None)
        self._told(settled)
        if "0" in answer:
            late = [holding.delivery.id for holding, digit in zip(settled, answer, strict=True) if digit == "0"]
            text = "%d messages were settled elsewhere before this %s: %s"
            log.warning(text, len(late), verdict.name.lower(), ", ".join(late[:5]), extra={"ids": late})


def _most(verdict: Verdict) -> int:
    return MOST_MOVED if verdict in (Verdict.REJECT, Verdict.RELEASE) else MOST_IDS
