"""What a relay does, as steps that its driver takes: in the database, and in Redis. No I/O, so asyncio shares it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

from delayq.broker.transport.operation import Operation
from delayq.errors import (
    CannotConnectError,
    ConfigurationError,
    DelayqError,
    NoReplyError,
    NotReplicatedError,
    QueueFullError,
)
from delayq.outbox.relaying.relayed_batches import first_of_each_id, move
from delayq.outbox.relaying.row_store import RowStore
from delayq.outbox.rows import Taken, TakenRow, stored_name
from delayq.queue.delay_base import DelayBase
from delayq.safe_log import SafeLog
from delayq.values.times import monotonic

log = SafeLog("delayq.outbox")

POLL = 0.2
"""Seconds between two looks at a database that does not tell of commits, or while another relay works."""
HEARTBEAT = 10.0
"""Seconds between two looks at a database that does."""
PATIENCE = 2.0
"""Seconds in which Redis must answer: meanwhile a transaction is open."""
_FIRST_PAUSE, _MAX_PAUSE = 0.1, 2.0
"""Seconds in which a queue is left alone whose Redis does not answer, or is full."""
_PASSING = (NoReplyError, QueueFullError, CannotConnectError, NotReplicatedError)
"""Errors of a queue, and of no row: what is to be sent waits."""


class InDatabase(NamedTuple):
    """A step that is taken with the connection of the relay."""

    act: Callable[[Any], Any]


class InRedis(NamedTuple):
    """A step that is taken by the executor of a queue."""

    queue: Any
    operation: Operation[None] | None = None
    """None to open the queue, before a transaction waits for it."""


class UntilCommit(NamedTuple):
    """A step that waits for the next commit."""

    seconds: float | None
    """After how many seconds to look again at the latest; None as the database says: by NOTIFY, or by looking."""


Steps = Generator[InDatabase | InRedis | UntilCommit, Any, None]
"""What a driver does, one after another; it sends back what each step returns, and throws errors of delayq in."""
_Batch = Generator[InDatabase | InRedis | UntilCommit, Any, float | None]
"""A batch; returns after how many seconds to look again at the latest, 0 for at once, None for at the next commit."""


class RelaySteps:
    """The state of a relay between its batches."""

    def __init__(self, store: RowStore, queues: Sequence[DelayBase[Any, Any]], kind: type[DelayBase[Any, Any]]) -> None:
        """Relay to these queues; raise `ConfigurationError` for none, or those of another kind."""
        if not queues:
            raise ConfigurationError("name the queues that the relay sends to")
        for queue in queues:
            if not isinstance(queue, kind):
                raise ConfigurationError(f"this relay sends to a {kind.__name__}, not to {queue!r:.60}")
        self.queues: Mapping[str, DelayBase[Any, Any]] = {stored_name(queue): queue for queue in queues}
        self._store = store
        self.moved = 0
        """Rows that were done."""
        self.error: DelayqError | None = None
        """Why queues are left alone for now, of one of them."""
        self.stopped = False
        self._paused: dict[str, tuple[float, float]] = {}
        """Until when (monotonic) a queue is left alone, and for how many seconds it was."""

    def run(self, *, burst: bool, listens: bool) -> Steps:
        """Do batch after batch until stopped; with `burst`, until all is sent that no other relay works on."""
        yield InDatabase(lambda connection: self._store.open(connection, self.queues, listens=listens))
        while not self.stopped:
            seconds = yield from self._batch()
            if burst and self.error is not None:
                raise self.error
            if seconds == 0:
                continue
            if burst:
                return
            yield UntilCommit(seconds)

    def once(self) -> Steps:
        """Do one batch."""
        yield InDatabase(lambda connection: self._store.open(connection, self.queues, listens=False))
        yield from self._batch()

    def _batch(self) -> _Batch:
        """Take a batch of rows, do what they say, and delete them."""
        names = yield from self._open()
        if not names:
            return self._pause_left()
        taken: Taken = yield InDatabase(lambda connection: self._store.take(connection, names))
        done: list[int] = []
        refused: dict[int, str] = {}
        repeats = False
        for name, rows in taken.rows.items():
            firsts = first_of_each_id(rows)
            repeats |= len(firsts) < len(rows)
            try:
                yield from self._move(self.queues[name], firsts, taken.now, done, refused)
                self._paused.pop(name, None)
            except _PASSING as error:
                self._pause(name, error)
        if taken.now:
            yield InDatabase(lambda connection: self._store.settle(connection, done, refused))
        self.moved += len(done)
        if not self._paused:
            self.error = None
        if taken.more or repeats or refused:
            return 0
        waits = [self._pause_left()] if self._paused else []
        return min([*waits, POLL]) if taken.held else min(waits, default=None)

    def _open(self) -> Generator[InRedis, Any, list[str]]:
        """Return the names of the queues that rows can be sent to for now, which are open."""
        names, now = [], monotonic()
        for name, queue in self.queues.items():
            if self._paused.get(name, (0, 0))[0] > now:
                continue
            try:
                if queue.executor.opening:
                    yield InRedis(queue)
                names.append(name)
            except _PASSING as error:
                self._pause(name, error)
        return names

    def should_retry(self) -> Callable[[Exception], bool]:
        """Return whether a call that Redis has not answered is made again: not for long."""
        end = monotonic() + PATIENCE
        return lambda _: not self.stopped and monotonic() < end

    def _move(
        self,
        queue: DelayBase[Any, Any],
        rows: list[TakenRow],
        now: int,
        done: list[int],
        refused: dict[int, str],
    ) -> Generator[InRedis, Any, None]:
        """Do what rows say; if Redis refuses, one by one, to find out which it refuses."""
        try:
            yield InRedis(queue, move(queue, rows, now))
        except _PASSING:
            raise
        except DelayqError as error:
            if len(rows) > 1:
                for row in rows:
                    yield from self._move(queue, [row], now, done, refused)
                return
            (row,) = rows
            refused[row.seq] = f"{type(error).__name__}: {error}"
            text = "%s: Redis refuses to %s %s, and it waits for `delayq outbox retry`: %s"
            log.error(text, queue.name, row.operation, row.id, error)  # noqa: TRY400 - it is no fault of the program
        else:
            done += [row.seq for row in rows]

    def _pause(self, name: str, error: DelayqError) -> None:
        _, before = self._paused.get(name, (0.0, 0.0))
        pause = min(_MAX_PAUSE, 2 * before or _FIRST_PAUSE)
        if not before:
            log.warning("%s: nothing can be sent, trying again: %s", name, error)
        self._paused[name] = monotonic() + pause, pause
        self.error = error

    def _pause_left(self) -> float:
        return max(0.001, min(until for until, _ in self._paused.values()) - monotonic())
