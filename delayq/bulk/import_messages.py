"""Imports the messages of an exported file: sends them with their ids, so that it can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from delayq.broker.context import QueueContext
from delayq.broker.requests import Outgoing, OutgoingTable
from delayq.bulk.connection import context_of, target_of
from delayq.bulk.load_run import begin_load, digest_of, file_uri, window_of
from delayq.bulk.loaded import Loaded
from delayq.bulk.local_files import is_file
from delayq.bulk.message_files import FileEntry, MessageFile
from delayq.bulk.message_lines import ENDED, outgoing_of
from delayq.bulk.read_ahead import read_ahead
from delayq.bulk.send_options import MAX_PAYLOAD, send_options
from delayq.bulk.table_sender import Refusal, TableSender
from delayq.checks import check_bool
from delayq.errors import ConfigurationError, DelayqError, short_repr
from delayq.queue.bulk_runs import check_run
from delayq.times import Duration

Dead = Literal["skip", "send"]
"""What becomes of messages that are dead, or about to be: left out, or sent again."""
Report = Callable[[int, int | None], None]
"""Told what is done, and of how much: in bytes of lines, or rows of Parquet; None if unknown."""


@dataclass(frozen=True, slots=True)
class Imported(Loaded):
    """The result of an import: its record in the run ledger, and how many messages it left out."""

    dead: int = 0
    """Dead messages of the file that were not sent."""
    first_refusal: str = ""
    """The place of the first invalid line, and what is wrong with it; '' if all are valid."""

    def _counts(self) -> dict[str, int]:
        return {**super(Imported, self)._counts(), "dead left out": self.dead}


def import_messages(
    file: str | Path | BinaryIO,
    queue: str,
    *,
    dead: Dead = "skip",
    run: str | None = None,
    strict: bool = False,
    batch_size: int = 200,
    max_rows_per_second: float | None = None,
    dedupe_window: Duration | None = None,
    url: str | None = None,
    prefix: str = "delayq",
    deadline: Duration | None = None,
    report: Report | None = None,
) -> Imported:
    """Send the messages of a file that `export_messages` has written, or of a stream of its lines.

    They get their ids, payloads, due times, retries, headers and attributes, and wait as pending. A message whose id is
    in the queue is left as it is. Repeatable like a load: the import of the same file resumes the unfinished run, and
    an id that has been settled is refused within the `dedupe_window` of the queue, one day if it has none yet. The dead
    are left out, or with `dead="send"` sent again as by a redrive.

    An invalid line is refused, and the rest sent: `refused` says how many, and `queue.refusals(run)` which, with their
    places. With `strict`, the whole file is checked first, and the error of the first invalid line raised: then nothing
    is sent. The note of a `KeyboardInterrupt` says what the run has stored.
    """
    check_bool(strict, "strict")
    options = send_options(
        batch_size=batch_size,
        max_rows_per_second=max_rows_per_second,
        on_conflict="skip",
        on_error="collect",
        default_retries=3,
        max_payload=MAX_PAYLOAD,
    )
    if dead not in ("skip", "send"):
        raise ConfigurationError(f"dead must be 'skip' or 'send', not {short_repr(dead)}")
    target = target_of(queue, url, prefix, deadline)
    if run is not None:
        check_run(run)
    path = Path(file) if isinstance(file, str) else file
    reader = MessageFile(path)
    is_rereadable = isinstance(path, Path) and is_file(path)
    if strict:
        if not is_rereadable:
            raise ConfigurationError("strict needs a file: a stream can be read only once")
        _check(reader, context_of(target), dead)
        reader = MessageFile(path)
    source = digest_of([file_uri(file)] if isinstance(file, str | Path) else [])
    window = window_of(dedupe_window)
    begun = begin_load(target, None, None, run=run, source=source, has_due=True, dedupe_window=window)
    begun = replace(begun, verb="import")
    sender = TableSender(target, options, begun.name)
    left_out, first = 0, ""
    with begun.telling_what_is_stored():
        parts = _parts(reader, context_of(target), dead)
        # A thread that waits for a stream could not be interrupted.
        for part in read_ahead(parts) if is_rereadable else parts:
            left_out += part.left_out
            if part.refusals:
                first = first or str(part.refusals[0].error)
                sender.refuse(part.refusals, str)
            if part.messages:
                sender.send_table(OutgoingTable(*zip(*part.messages, strict=True)))
            if report is not None:
                report(part.done, reader.total)
        begun.commit(sender.refusals, sender.refused)
    return Imported(**asdict(begun.result(past=0, later=0, cancelled={})), dead=left_out, first_refusal=first)


def _check(reader: MessageFile, context: QueueContext, dead: Dead) -> None:
    """Raise the error of the first invalid line of a file."""
    for part in _parts(reader, context, dead):
        if part.refusals:
            raise type(part.refusals[0].error)(f"{part.refusals[0].error}; nothing was sent")


class _ReadLines(NamedTuple):
    """A batch of lines that has been read and checked."""

    messages: list[Outgoing]
    refusals: list[Refusal]
    """The invalid lines."""
    left_out: int
    """How many dead messages are not to be sent."""
    done: int
    """How much of the file has been read: bytes of lines, or rows of Parquet."""


def _parts(reader: MessageFile, context: QueueContext, dead: Dead) -> Iterator[_ReadLines]:
    """Yield what each batch of a file has."""
    for batch in reader.batches():
        yield _part(batch, reader, context, dead)


def _part(batch: list[FileEntry], reader: MessageFile, context: QueueContext, dead: Dead) -> _ReadLines:
    messages: list[Outgoing] = []
    refusals: list[Refusal] = []
    left_out = 0
    for index, entry in enumerate(batch):
        id = ""
        try:
            line = entry.decode()
            id = line.id
            if line.state in ENDED and dead == "skip":
                left_out += 1
            else:
                messages.append(outgoing_of(line, context))
        except DelayqError as error:
            place = f"{reader.name}:{entry.place}{f' (id {id!r:.140})' if id else ''}"
            refusals.append(Refusal(index, id, type(error)(f"{place}: {error}")))
    return _ReadLines(messages, refusals, left_out, reader.done)
