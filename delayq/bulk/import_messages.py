"""Imports the messages of an exported file: sends them with their ids, so that it can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from delayq.broker.context import QueueContext
from delayq.broker.requests import ImportedDeath, Outgoing, OutgoingTable
from delayq.bulk.connection import context_of, target_of
from delayq.bulk.dead_messages import ImportSender, dead_message_of
from delayq.bulk.load_run import begin_load, digest_of, file_uri, window_of
from delayq.bulk.loaded import Loaded
from delayq.bulk.local_files import is_file
from delayq.bulk.message_files import FileEntry, MessageFile
from delayq.bulk.message_lines import ENDED, outgoing_of
from delayq.bulk.read_ahead import read_ahead
from delayq.bulk.send_options import MAX_PAYLOAD, send_options
from delayq.bulk.table_sender import Refusal
from delayq.checks import check_bool
from delayq.errors import ConfigurationError, DelayqError, short_repr
from delayq.queue.bulk_runs import check_run
from delayq.times import Duration

Dead = Literal["keep", "send", "skip"]
"""What becomes of messages that are dead, or about to be: they stay dead, are sent again, or are left out."""
Report = Callable[[int, int | None], None]
"""Told what is done, and of how much: in bytes of lines, or rows of Parquet; None if unknown."""


@dataclass(frozen=True, slots=True)
class Imported(Loaded):
    """The result of an import: its record in the run ledger, and what became of dead messages and invalid lines."""

    dead: int = 0
    """Messages that this import has put into the dead letter; they are among the `new` ones."""
    left_out: int = 0
    """Dead messages of the file that were left out."""
    first_refusal: str = ""
    """The place of the first invalid line, and what is wrong with it; '' if all are valid."""

    def _counts(self) -> dict[str, int]:
        counts = super(Imported, self)._counts()
        return {"new": counts.pop("new"), "of them dead": self.dead, **counts, "dead left out": self.left_out}


def import_messages(
    file: str | Path | BinaryIO,
    queue: str,
    *,
    dead: Dead = "keep",
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
    an id that has been settled is refused within the `dedupe_window` of the queue, one day if it has none yet.

    Dead messages come into the dead letter, each with its reason, error, attempts and the time of its death, beside
    what is there; the queue's own `dead_max` and `dead_ttl` hold. Left out are ids that live in the queue, a death that
    is there, and an id that was settled after that death. With `dead="send"` they are sent again as by a redrive, with
    `dead="skip"` left out. The role producer may not write to the dead letter.

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
    if dead not in ("keep", "send", "skip"):
        raise ConfigurationError(f"dead must be 'keep', 'send' or 'skip', not {short_repr(dead)}")
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
    sender = ImportSender(target, options, begun.name)
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
            sender.bury(part.deaths)
            if report is not None:
                report(part.done, reader.total)
        begun.commit(sender.refusals, sender.refused)
    loaded = asdict(begun.result(past=0, later=0, cancelled={}))
    return Imported(**loaded, dead=sender.dead, left_out=left_out, first_refusal=first)


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
    """How many dead messages are to be left out."""
    done: int
    """How much of the file has been read: bytes of lines, or rows of Parquet."""
    deaths: list[ImportedDeath]
    """Those that come into the dead letter."""


def _parts(reader: MessageFile, context: QueueContext, dead: Dead) -> Iterator[_ReadLines]:
    """Yield what each batch of a file has."""
    for batch in reader.batches():
        yield _part(batch, reader, context, dead)


def _part(batch: list[FileEntry], reader: MessageFile, context: QueueContext, dead: Dead) -> _ReadLines:
    messages: list[Outgoing] = []
    refusals: list[Refusal] = []
    deaths: list[ImportedDeath] = []
    left_out = 0
    for index, entry in enumerate(batch):
        id = ""
        try:
            line = entry.decode()
            id = line.id
            if dead == "send" or line.state not in ENDED:
                messages.append(outgoing_of(line, context))
            elif dead == "keep":
                deaths.append(dead_message_of(line, context))
            else:
                left_out += 1
        except DelayqError as error:
            place = f"{reader.name}:{entry.place}{f' (id {id!r:.140})' if id else ''}"
            refusals.append(Refusal(index, id, type(error)(f"{place}: {error}")))
    return _ReadLines(messages, refusals, left_out, reader.done, deaths)
