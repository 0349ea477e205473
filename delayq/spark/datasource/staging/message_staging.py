"""Claims messages for the batches of a stream, and acknowledges them once Spark has committed: work of the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from delayq.broker.message.ids import new_id
from delayq.broker.replies import CountsReply
from delayq.broker.requests import ScriptCall
from delayq.broker.staged import (
    MAX_STAGED,
    ReaderState,
    StagedMessages,
    StageReply,
    begin_reading,
    commit_staged_call,
    forget_reader,
    read_reader,
    read_readers,
    read_receipts,
    read_staged,
    stage_call,
)
from delayq.broker.transport.operation import Operation
from delayq.bulk.connection import TargetQueue, calls_of, connect, context_of
from delayq.errors import ConfigurationError
from delayq.safe_log import SafeLog
from delayq.spark.datasource.staging.withholding import withhold_unready

log = SafeLog("delayq.spark")

FORGOTTEN_AFTER = 7 * 86_400_000
"""Milliseconds after which a reader that was not heard of is forgotten, besides its lease: its messages came back."""
READ_AT_ONCE = 4
"""Numbers that one command reads: each has about a mebibyte at most, or one large message more."""
ROUND = 4
"""Calls that claim, or commit, in one round trip."""


class Due(NamedTuple):
    """What a query may still claim."""

    waiting: int
    """Messages that are due, and not claimed."""
    oldest: int
    """When the oldest of them was due (ms since 1970); -1 if none is."""


class Claimed(NamedTuple):
    """Where the claims of a batch end, and how many messages this run has claimed for it."""

    number: int
    messages: int


class MessageStaging:
    """The claims of one reader, in one run of its query.

    Each operation may be repeated: what was claimed or committed before is not claimed or acknowledged again. They
    raise `ConfigurationError` once another run has begun with the same checkpoint.
    """

    def __init__(self, target: TargetQueue, reader: str, *, lease: int) -> None:
        """Prepare the operations of a reader with leases of so many milliseconds."""
        self._target = target
        self._reader = reader
        self._lease = lease
        self._run = new_id()
        self._first = 0
        """The first number that this run has claimed itself, and leased therefore; 0 before."""

    def begin(self) -> None:
        """Begin the run, so that others with the same checkpoint end; forget readers that are gone for good."""
        connect(self._target).perform(self._begin())

    def stage(self, after: int, most: int) -> Claimed:
        """Claim up to `most` messages that are due, unless some after `after` are claimed already, for no batch yet.

        The last number is `after` if nothing is due.
        """
        return connect(self._target).perform(self._stage(after, most))

    def commit(self, through: int) -> None:
        """Acknowledge the messages up to a number that are still leased, and delete what is stored of them."""
        acked, late = connect(self._target).perform(self._commit(through))
        if late:
            log.warning(
                "%d messages of queue %r were claimed again, because a batch took longer than its lease of %d s",
                *(late, self._target.queue, self._lease // 1000),
            )
        log.debug("acknowledged %d messages of queue %r", acked, self._target.queue)

    def renew(self, first: int, last: int) -> None:
        """Renew the leases of a batch that a run before has claimed."""
        connect(self._target).perform(self._renew(first, last if self._first == 0 else min(last, self._first - 1)))

    def _begin(self) -> Operation[None]:
        calls = calls_of(self._target)
        now, readers = yield [calls.time(), read_readers(calls)]
        for name, state in readers.items():
            if name != self._reader and state.heard + state.lease + FORGOTTEN_AFTER < now:
                yield forget_reader(calls, name, range(state.first, state.last + 1))
        yield [begin_reading(calls, self._reader, self._run)]

    def _state(self) -> Operation[ReaderState]:
        calls = calls_of(self._target)
        state: ReaderState
        (state,) = yield [read_reader(calls, self._reader)]
        if not state.run:  # Redis has lost it: the numbers go on after those of the checkpoint
            yield [begin_reading(calls, self._reader, self._run)]
        self._check(state.run in ("", self._run))
        return state

    def _stage(self, after: int, most: int) -> Operation[Claimed]:
        calls = calls_of(self._target)
        state = yield from self._state()
        if state.last > after:  # claimed by a call whose reply no batch has used
            (now,) = yield [calls.time()]
            yield from self._withhold(range(after + 1, state.last + 1), now)
            return Claimed(state.last, 0)
        yield [calls.unack_to_retry()]
        left, looks = most, 0
        while left:
            # The first round trip finds whether anything is due.
            ends = range(0, min(left, (ROUND if looks else 1) * MAX_STAGED), MAX_STAGED)
            claims = [self._claim(min(MAX_STAGED, left - done), after) for done in ends]
            replies = yield [call for claim in claims for call in (calls.pending_to_ready(), claim)]
            promoted, staged = replies[::2], replies[1::2]
            self._check(all(one.number >= 0 for one in staged))
            if any(one.garbage for one in promoted):
                yield [calls.collect(context_of(self._target).settings)]
            found, looks = sum(one.staged for one in staged), looks + 1
            self._first = self._first or (after + 1 if found else 0)
            yield from self._withhold([one.number for one in staged if one.unsure], staged[-1].now)
            after, left = max(after, staged[-1].number), left - found
            # The server may have known the script that claims, and had to load the other, which ran after it.
            if not found and (looks > 1 or not promoted[-1].waiting):
                break
        return Claimed(after, most - left)

    def _withhold(self, numbers: Sequence[int], now: int) -> Operation[None]:
        context = context_of(self._target)
        return withhold_unready(context, self._reader, numbers, now=now, lease=self._lease)

    def _claim(self, wanted: int, after: int) -> ScriptCall[StageReply]:
        names = {"consumer_id": f"spark:{self._reader}", "reader": self._reader, "run": self._run}
        return stage_call(calls_of(self._target), wanted, lease=self._lease, after=after, **names)

    def _commit(self, through: int) -> Operation[tuple[int, int]]:
        calls = calls_of(self._target)
        state = yield from self._state()
        numbers, acked, late = [*range(state.first, min(state.last, through) + 1)], 0, 0
        while numbers:
            now, later = numbers[:ROUND], numbers[ROUND:]
            replies = yield [commit_staged_call(calls, one, reader=self._reader, run=self._run) for one in now]
            self._check(all(one.acked >= 0 for one in replies))
            acked, late = acked + sum(one.acked for one in replies), late + sum(one.late for one in replies)
            numbers = [*(number for number, one in zip(now, replies, strict=True) if one.more), *later]
        return acked, late

    def _renew(self, first: int, last: int) -> Operation[None]:
        calls = calls_of(self._target)
        for start in range(first, last + 1, ROUND):
            numbers = range(start, min(start + ROUND, last + 1))
            (receipts,) = yield [read_receipts(calls, self._reader, numbers)]
            for at in range(0, len(receipts), MAX_STAGED):
                yield [calls.extend(receipts[at : at + MAX_STAGED], lease=self._lease)]

    def _check(self, is_latest: bool) -> None:  # noqa: FBT001 - whether to raise
        if not is_latest:
            raise ConfigurationError(
                f"another query consumes queue {self._target.queue!r} with the same checkpoint: stop one of them, or"
                " give each a checkpoint of its own"
            )


def read_due(target: TargetQueue) -> Due:
    """Return what may be claimed of a queue now."""
    counts: CountsReply = connect(target).call(calls_of(target).counts())
    return Due(counts.overdue + counts.throttled, counts.oldest_due)


def read_numbers(target: TargetQueue, reader: str, first: int, last: int) -> Iterator[list[StagedMessages]]:
    """Yield the messages of a reader between two numbers, both inclusive, some at a time; what is gone is left out."""
    executor, calls = connect(target), calls_of(target)
    for start in range(first, last + 1, READ_AT_ONCE):
        yield executor.call(read_staged(calls, reader, range(start, min(start + READ_AT_ONCE, last + 1))))
