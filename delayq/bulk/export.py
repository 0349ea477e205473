"""Exports the messages of a queue to a file, which an import sends again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Final, TypeVar

import msgspec

from delayq.bulk.connection import TargetQueue, check_queue, connect, context_of, partitions_of, target_of
from delayq.bulk.export_file import ExportProgress, open_export
from delayq.bulk.files.message_lines import lines_of
from delayq.errors import ConfigurationError, short_repr
from delayq.privacy.redaction import Redacted
from delayq.queue.sweeps.stored_messages import StoredPosition, StoredTable, read_stored
from delayq.values.states import MESSAGE_STATES, State
from delayq.values.times import Duration
from delayq.worker.drivers.own_threads import OwnThreads

T = TypeVar("T")
_NEXT: Final = True
_LAST: Final = False
"""What the thread is told: to read a part, or that no other is wanted."""


def read_ahead(parts: Iterator[T]) -> Iterator[T]:
    """Yield what an iterator yields, always one ahead; its errors are raised here.

    A reader that stops, or is interrupted, does not wait for what is being read: a server may take long to answer.
    """
    turns: SimpleQueue[bool] = SimpleQueue()
    found: SimpleQueue[T | BaseException] = SimpleQueue()

    def read() -> None:
        while turns.get() is not _LAST:
            try:
                found.put(next(parts))
            except BaseException as error:  # noqa: BLE001 - raised by who waits for it
                found.put(error)
                return

    if OwnThreads().start(read, "delayq read-ahead") is None:  # no room: read without it
        yield from parts
        return
    try:
        # Two turns, so that the thread asks for a part as soon as it has read the one before. If it was woken for that,
        # it would have to wait for the interpreter's lock until the work on the one before is done.
        turns.put(_NEXT)
        turns.put(_NEXT)
        while not isinstance(part := found.get(), BaseException):
            yield part
            turns.put(_NEXT)
        if not isinstance(part, StopIteration):
            raise part
    finally:
        turns.put(_LAST)


def export_messages(
    queue: str,
    file: str | Path | BinaryIO,
    *,
    states: Sequence[State | str] | None = None,
    resume: bool = False,
    reveal: bool = False,
    url: str | None = None,
    prefix: str = "delayq",
    deadline: Duration | None = None,
    report: Callable[[int], None] | None = None,
) -> Mapping[str, int]:
    """Write the messages in these states (all by default) to a file, one JSON object a line; returns how many by state.

    A file whose name ends with `.parquet` becomes Parquet. A file appears when it is complete. With `resume`, an export
    to it that was interrupted goes on. A stream gets the lines as they are read. The queue is read in short calls, with
    the memory of a page; `report` is told after each how many messages are written.

    What stays in its state meanwhile is exported. A message that changes its state may be exported twice, which an
    import tells by its id, and one that becomes pending again may be missed: pause the queue for an exact copy.

    What the queue redacts is hidden, unless `reveal`. Lines with hidden values have the encoding `redacted`, and cannot
    be imported: a backup needs `reveal`.

    Raises `ConfigurationError` if there is no such queue, and if the file cannot be written.
    """
    target = target_of(queue, url, prefix, deadline)
    wanted = _states(states)
    check_queue(target)
    hidden = [] if reveal else connect(target).call(context_of(partitions_of(target)[0]).calls.redact_paths())
    shown = Redacted(hidden).decode if hidden else None
    begun = ExportProgress(queue, prefix, list(wanted), hidden)
    if not isinstance(file, str | Path):
        counts: Counter[str] = Counter()
        for messages, _ in read_ahead(_pages(target, wanted, StoredPosition())):
            file.write(_lines(messages, shown, counts))
            _report(report, counts)
        return dict(counts)
    with open_export(Path(file), begun, resume=resume) as (out, progress):
        counts = Counter(progress.counts)
        for messages, position in read_ahead(_pages(target, wanted, progress.position)):
            out.write(_lines(messages, shown, counts))
            if position is None or position.is_lasting:
                out.note(msgspec.structs.replace(begun, position=position, counts=dict(counts)))
            _report(report, counts)
        out.finish()
    return dict(counts)


def _pages(
    target: TargetQueue, states: Sequence[State], position: StoredPosition | None
) -> Iterator[tuple[StoredTable, StoredPosition | None]]:
    """Yield pages, each with the position after it."""
    targets = partitions_of(target)
    while position is not None:
        number = position.partition
        messages, after = connect(target).perform(read_stored(context_of(targets[number]), position, states))
        if after is not None:
            position = after._replace(partition=number)
        else:
            position = StoredPosition(partition=number + 1) if number + 1 < len(targets) else None
        yield messages, position


def _lines(messages: StoredTable, shown: Callable[[bytes], bytes] | None, counts: Counter[str]) -> bytes:
    counts.update(messages.states)
    if shown is not None:
        messages = messages._replace(payloads=list(map(shown, messages.payloads)))
    return lines_of(messages)


def _report(report: Callable[[int], None] | None, counts: Counter[str]) -> None:
    if report is not None:
        report(counts.total())


def _states(states: Sequence[State | str] | None) -> tuple[State, ...]:
    """Return which states are wanted, in the order of all."""
    given = MESSAGE_STATES if states is None else states
    if isinstance(given, str) or not given or not all(one in MESSAGE_STATES for one in given):
        raise ConfigurationError(f"states must be some of {', '.join(MESSAGE_STATES)}, not {short_repr(states)}")
    return tuple(state for state in MESSAGE_STATES if state in given)
