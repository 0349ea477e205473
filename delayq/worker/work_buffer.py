"""The workbench of a consumer: what lies there to be processed, and what has been; the same for threads and tasks.

The flow's driver lays claimed messages down and takes completions away. A worker takes a batch up, calls the callback
with it and puts it back. Nothing here waits, and no lock is needed: what several threads touch are single operations
on a deque and a list.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from delayq.clock import monotonic
from delayq.errors import UndecodableError
from delayq.message import Batch, Holding, Tools
from delayq.verdict import Completion, Verdict, acknowledged, judge, judge_batch


class Callback(NamedTuple):
    """What a queue has registered: a function that takes a message, or lists of at `most` so many."""

    function: Callable[[Any], Any]
    most: int | None = None

    @property
    def batch(self) -> int:
        """Messages it takes at a time."""
        return self.most or 1


class Workbench:
    """What the workers of one consumer are to process, and what they have processed."""

    def __init__(self, callback: Callback, kind: Callable[..., Any], tools: Tools, executor: Any) -> None:
        """Begin with nothing; the callback is given messages of a `kind`."""
        self.function = callback.function
        self._single = callback.most is None
        self._most = callback.batch
        self._kind = kind
        self._tools = tools
        self._executor = executor
        self._backlog: deque[Holding] = deque()
        self._completions: list[Completion] = []

    # For the driver

    def lay(self, holdings: Iterable[Holding]) -> None:
        """Have these processed, in this order."""
        self._backlog.extend(holdings)

    def recall(self, recalled: list[Holding]) -> None:
        """Move what no worker has taken up to the end of a list."""
        try:
            while True:
                recalled.append(self._backlog.popleft())
        except IndexError:
            return

    def clear(self) -> list[Completion]:
        """Take away what has been processed."""
        taken = self._completions[:]
        del self._completions[: len(taken)]  # workers append meanwhile
        return taken

    @property
    def waiting(self) -> bool:
        """Whether there is something to take up."""
        return bool(self._backlog)

    @property
    def finished(self) -> bool:
        """Whether there is something to take away."""
        return bool(self._completions)

    # For a worker

    def take(self) -> tuple[Batch, list[Holding], Any] | None:
        """Take up what is there for one call of the callback; None if nothing is.

        Returns the batch with what it holds and what the callback is to be given: a message or a list of them; or
        None, if nothing is left. Left out is what has lost its lease, and what cannot be decoded, which is rejected.
        """
        backlog = self._backlog
        holdings: list[Holding] = []
        try:
            while len(holdings) < self._most:
                holdings.append(backlog.popleft())
        except IndexError:
            if not holdings:
                return None
        started = monotonic()
        batch = Batch.begun(started)
        messages = []
        for holding in holdings:
            holding.batch = batch
            if holding.lost:
                self._completions.append(Completion([holding], Verdict.NOTHING))
                continue
            try:
                messages.append(self._kind(holding, self._tools, self._executor, started))
            except UndecodableError as error:
                self._completions.append(Completion([holding], Verdict.REJECT, str(error)))
        if len(messages) < len(holdings):
            holdings = [message._holding for message in messages]  # noqa: SLF001 - what a message wraps
        if self._single and messages:
            return batch, holdings, messages[0]
        return batch, holdings, messages or None

    def put_back(self, batch: Batch, holdings: list[Holding], result: object, error: BaseException | None) -> float:
        """Judge a batch by what the callback has returned or raised; returns the local time."""
        now = monotonic()
        if error is None and result is None:
            self._completions.append(acknowledged(holdings, now - batch.started))
        elif self._single:
            self._completions.append(Completion(holdings, *judge(holdings, result, error), now - batch.started))
        else:
            self._completions.extend(judge_batch(holdings, result, error, now - batch.started))
        return now
