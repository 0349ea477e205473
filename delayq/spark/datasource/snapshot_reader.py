"""Reads a queue as it is, a row for each message.

The queue lives on meanwhile, so what is read is not of one moment, but nothing is missed that only moves on. Messages
are divided by due time, as quantiles of what is pending. A task reads the pending of its division first, then scans for
what has been promoted out of it, then looks who has died since, and lists an id once, as it was first met.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from delayq.answers import Living
from delayq.calls import MOST_DUE
from delayq.clock import timestamp
from delayq.errors import DelayqError
from delayq.inspector import read_death
from delayq.spark.commands import pending_at, pending_before
from delayq.spark.connection import calls_of, connect
from delayq.spark.options import SnapshotOptions, snapshot_options
from delayq.spark.pushdown import narrowed
from delayq.spark.reading import check_queue
from delayq.spark.snapshot_rows import Rows
from delayq.states import State
from delayq.values import Call, Command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Place = tuple[int, bytes]
"""Due time (ms) and id: the order in which messages are divided."""

PAGE = 1000
"""Messages read in one call: a few milliseconds of the server's time."""
PAGE_WITH_PAYLOADS = 50
"""The same where their payloads come along, which may be a MiB each, and no room can be set."""
ROOM = 1 << 20
"""Bytes of payloads that a page of pending messages may hold."""
SOON = 3_600_000
"""Milliseconds within which what is pending may be promoted before its task has ended; such ids are remembered."""

_WORDS = {
    State.READY: "ready",
    State.ACTIVE: "leased",
    State.BACKOFF: "backoff",
    State.RETRY: "retry",
    State.GARBAGE: "garbage",
}
"""States of promoted messages, as records spell them."""


@dataclass(frozen=True)
class Division(InputPartition):
    """What one task reads: the living behind one place up to another one, or the dead."""

    after: Place
    """Excluded."""
    until: Place
    """Included."""
    since: int
    """Who died from then on (ms), when the read was planned, is left to the divisions of the living."""
    of_the_dead: bool = False

    def holds(self, due: int, id: bytes) -> bool:
        """Tell whether a message belongs to it."""
        return self.after < (due, id) <= self.until


class SnapshotReader(DataSourceReader):
    """Reads the messages of a queue with the columns of SNAPSHOT.

    Every message that is in the queue from the beginning of the reading to its end is listed, and once, in a state that
    it had meanwhile. Not promised of one that is rescheduled, replaced or redriven in that time: it may be missed or,
    if its due time goes from one division to another, be listed twice; nor of a reading that takes over an hour. What
    comes or goes meanwhile may be listed or not.
    """

    def __new__(cls, options: SnapshotOptions | None = None) -> Self:
        """Make one that takes filters if the options say so: Spark refuses such a reader unless it is set to push."""
        taking = options is not None and options.pushdown
        return super().__new__(_FilteredSnapshotReader if taking else cls)  # type: ignore[return-value]  # a subclass

    def __init__(self, options: SnapshotOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the queue; `ConfigurationError` if there is none of that name."""
        options = self._options
        check_queue(options.target)
        calls = calls_of(options.target)
        low = 0 if options.due_from is None else max(options.due_from, 0)
        high = MOST_DUE if options.due_to is None else options.due_to
        now, before, through = self._run(
            [calls.time(), pending_before(calls.keys, low), pending_before(calls.keys, high)]
        )
        ends: list[Place] = []
        if State.PENDING in options.states:
            # The last of each division but the last, which has no end but that of the window.
            ranks = {before + (through - before) * part // options.partitions for part in range(1, options.partitions)}
            found = self._run([pending_at(calls.keys, rank - 1) for rank in sorted(ranks) if rank > before])
            ends = [end for end in found if end is not None and (low, b"") < end < (high, b"")]
        bounds = [(low, b""), *ends, (high, b"")]
        if set(options.states) <= {State.DEAD}:
            return [Division(bounds[0], bounds[-1], MOST_DUE, of_the_dead=True)] if options.states else []
        divisions = [Division(*pair, now) for pair in pairwise(bounds) if pair[0] < pair[1]]
        if State.DEAD in options.states:
            divisions.append(Division(bounds[0], bounds[-1], now, of_the_dead=True))
        return divisions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one division."""
        if not isinstance(partition, Division):  # what Spark makes of no division at all
            return
        rows = Rows()
        for _ in self._dead(partition, rows) if partition.of_the_dead else self._living(partition, rows):
            if rows.are_many:
                yield rows.taken()
        if rows.count:
            yield rows.taken()

    def _living(self, division: Division, rows: Rows) -> Iterator[None]:
        states, met = self._options.states, set[bytes]()
        if State.PENDING in states:
            now = 0
            for page, behind in self._pages(division):
                now = page.now
                dues = list(map(int, page.times))
                some = _between(behind, division.until, page.ids, dues)
                rows.add_pending(page, dues, some)
                met.update(page.ids[some.start : min(some.stop, bisect_right(dues, now + SOON))])
                yield
            if division.after[0] > now:
                return  # none of these can have been promoted yet
        words = " ".join(word for state, word in _WORDS.items() if state in states)
        for scanned in self._scan(division, words) if words else ():
            for index, id in enumerate(scanned.ids):
                record = (scanned.records[index] or b"").decode().split(" ", 5)
                if id not in met and division.holds(int(record[1]), id):
                    met.add(id)
                    rows.add_promoted(scanned, index, record)
            yield
        if State.DEAD in states:
            yield from self._dead(division, rows, met)

    def _pages(self, division: Division) -> Iterator[tuple[Living, Place]]:
        """Read the pending of a division in pages, with the place behind which each is new.

        A page begins earlier, with the first of that due time, if the id there has gone.
        """
        calls, room = calls_of(self._options.target), ROOM if self._options.include_payload else 0
        behind = division.after
        while True:
            page = self._call(calls.snapshot("", limit=PAGE, cursor=behind[1], score=str(behind[0]), room=room))
            yield page, behind
            if not page.cursor:
                return
            behind = max(behind, (int(page.score), page.cursor))
            if behind >= division.until:
                return

    def _scan(self, division: Division, words: str) -> Iterator[Living]:
        """Scan for what has been promoted; whatever stays there throughout comes at least once."""
        calls, payloads = calls_of(self._options.target), self._options.include_payload
        limit, room = (PAGE_WITH_PAYLOADS, ROOM) if payloads else (PAGE, 0)
        low, high, cursor = division.after[0], division.until[0], b"0"
        while cursor:
            page = self._call(calls.snapshot(words, limit=limit, cursor=cursor, low=low, high=high, room=room))
            yield page
            cursor = page.cursor

    def _dead(self, division: Division, rows: Rows, met: set[bytes] | None = None) -> Iterator[None]:
        """Read the dead letter: what died before the planning, or since then the ids that were not met alive."""
        calls, payloads = calls_of(self._options.target), self._options.include_payload
        limit, preview = (PAGE_WITH_PAYLOADS, 1 << 40) if payloads else (PAGE, 0)
        cursor, score = ("", "") if met is None else ("-", str(division.since))
        while True:
            page = self._call(calls.page(State.DEAD, limit=limit, cursor=cursor, score=score, preview=preview))
            for row in page.rows:
                if met is None and int(row.score) >= division.since:
                    return
                if not row.payload:
                    continue  # trimmed, but for its time of death
                death = read_death(row.payload)
                id = row.id.rpartition(":")[0].encode()
                if division.holds(timestamp(death.due), id) and id not in (met or ()):
                    rows.add_dead(row, death, with_payload=payloads)
            yield
            cursor, score = page.cursor, page.score
            if not cursor:
                return

    def _call(self, call: Call[Any]) -> Any:
        return connect(self._options.target).call(call)

    def _run(self, commands: Sequence[Command[Any]]) -> list[Any]:
        answers = connect(self._options.target).run(commands)
        for answer in answers:
            if isinstance(answer, DelayqError):
                raise answer
        return answers


class _FilteredSnapshotReader(SnapshotReader):
    """Reads only what the filters of a query leave, as far as they are about states and due times."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Narrow down what is read; Spark filters again, so nothing has to be exact."""
        self._options = narrowed(self._options, filters)
        return filters


def _between(behind: Place, until: Place, ids: list[bytes], dues: list[int]) -> range:
    """Return which rows of a page come behind one place, up to another."""
    start, stop = 0, len(ids)
    while start < stop and (dues[start], ids[start]) <= behind:
        start += 1
    while stop > start and (dues[stop - 1], ids[stop - 1]) > until:
        stop -= 1
    return range(start, stop)


def read_messages(
    spark: SparkSession,
    queue: str,
    *,
    url: str | None = None,
    url_env: str | None = None,
    prefix: str = "delayq",
    states: Iterable[str] = tuple(State),
    due_from: datetime | None = None,
    due_to: datetime | None = None,
    partitions: int = 4,
    include_payload: bool = False,
) -> DataFrame:
    """Return the messages of a queue as they stand when the DataFrame is computed, with the columns of SNAPSHOT.

    Computed twice it may differ: `persist()` keeps it. What is due from `due_from` and before `due_to`, aware times, is
    read, in these states. The payload is null unless asked for. See `SnapshotReader` for what may be missed.

    Raises `ConfigurationError` for a wrong option; that the queue is there is checked when it is computed.
    """
    from delayq.spark import register

    register(spark)
    options = {
        "queue": queue,
        "url": url,
        "urlEnv": url_env,
        "prefix": prefix,
        "states": ",".join(states),
        "dueFrom": None if due_from is None else due_from.isoformat(),
        "dueTo": None if due_to is None else due_to.isoformat(),
        "partitions": str(partitions),
        "includePayload": str(include_payload).lower(),
    }
    given = {name: value for name, value in options.items() if value is not None}
    snapshot_options(given)
    return spark.read.format("delayq").options(**given).load()
