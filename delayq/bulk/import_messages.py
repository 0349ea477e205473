"""Imports the messages of an exported file: sends them with their ids, so that it can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal

from delayq.broker.context import QueueContext
from delayq.broker.requests import Outgoing, OutgoingTable
from delayq.bulk.connection import context_of, target_of
from delayq.bulk.load_run import begin_load, digest_of, file_uri, window_of
from delayq.bulk.loaded import Loaded
from delayq.bulk.message_files import FileEntry, MessageFile
from delayq.bulk.message_lines import ENDED, outgoing_of
from delayq.bulk.send_options import MAX_PAYLOAD, OnError, send_options
from delayq.bulk.table_sender import Refusal, TableSender
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

    def _counts(self) -> dict[str, int]:
        return {**super(Imported, self)._counts(), "dead left out": self.dead}


def import_messages(
    file: str | Path | BinaryIO,
    queue: str,
    *,
    dead: Dead = "skip",
    run: str | None = None,
    on_error: OnError = "fail",
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

    The lines of a batch are checked before one of them is sent. Raises the error of an invalid line, with its place,
    unless `on_error` is "collect"; its text ends with what the run has stored, as does the note of a
    `KeyboardInterrupt`.
    """
    options = send_options(
        batch_size=batch_size,
        max_rows_per_second=max_rows_per_second,
        on_conflict="skip",
        on_error=on_error,
        default_retries=3,
        max_payload=MAX_PAYLOAD,
    )
    if dead not in ("skip", "send"):
        raise ConfigurationError(f"dead must be 'skip' or 'send', not {short_repr(dead)}")
    target = target_of(queue, url, prefix, deadline)
    if run is not None:
        check_run(run)
    reader = MessageFile(Path(file) if isinstance(file, str) else file)
    source = digest_of([file_uri(file)] if isinstance(file, str | Path) else [])
    window = window_of(dedupe_window)
    begun = begin_load(target, None, None, run=run, source=source, has_due=True, dedupe_window=window)
    begun = replace(begun, verb="import")
    sender = TableSender(target, options, begun.name)
    left_out = 0
    with begun.telling_what_is_stored():
        for batch in reader.batches():
            messages, refusals, ended = _read(batch, context_of(target), dead)
            left_out += ended
            if refusals:
                places = [f"{reader.name}:{entry.place}" for entry in batch]
                sender.refuse(refusals, places.__getitem__)
            if messages:
                sender.send_table(OutgoingTable(*zip(*messages, strict=True)))
            if report is not None:
                report(reader.done, reader.total)
        begun.commit(sender.refusals, sender.refused)
    return Imported(**asdict(begun.result(past=0, later=0, cancelled={})), dead=left_out)


def _read(batch: list[FileEntry], context: QueueContext, dead: Dead) -> tuple[list[Outgoing], list[Refusal], int]:
    """Return the messages to send, those that are invalid, and how many dead ones are left out."""
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
            refusals.append(Refusal(index, id, error))
    return messages, refusals, left_out
