"""Imports the messages of an exported file: sends them with their ids, so that it can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, NoReturn

import msgspec

from delayq.broker.batches import BATCH, BATCH_BYTES, batched, byte_slices
from delayq.broker.calls import Calls
from delayq.broker.context import QueueContext
from delayq.broker.replies import statuses
from delayq.broker.requests import Outgoing, OutgoingTable, ScriptCall, flat
from delayq.broker.scripts import COLLECT_LIMIT
from delayq.broker.transport.operation import together
from delayq.bulk.connection import context_of, target_of
from delayq.bulk.files.local_files import check_suffix, is_file
from delayq.bulk.files.message_files import FORMATS, FileBatch, MessageFile
from delayq.bulk.files.message_lines import ENDED, MessageLine, outgoing_of
from delayq.bulk.load_options import check_load
from delayq.bulk.load_run import Loaded, begin_load, digest_of, file_uri, window_of
from delayq.bulk.table_sender import CALLS_PER_ROUND_TRIP, Refusal, TableSender
from delayq.errors import ConfigurationError, DelayqError, ServerError, short_repr
from delayq.queue.placing.layout import by_partition
from delayq.queue.sweeps.bulk_runs import check_run
from delayq.values.checks import check_bool, check_int
from delayq.values.states import State
from delayq.values.times import Duration, timestamp
from delayq.worker.delivery.in_flight_delivery import truncate

SPENT = "retries spent"
"""The reason of a message that was about to die when it was exported."""
MAX_ATTEMPTS = 1 << 31
NEEDS_ADMIN = "dead messages need the role admin: leave them out with dead='skip' (--dead skip)"


def dead_messages_of(lines: Sequence[MessageLine], context: QueueContext, max_payload: int) -> list[ImportedDeath]:
    """Return the dead messages of lines; raise `ConfigurationError` for values that they cannot have.

    Nothing begins anew: they keep their expiry, their snoozes and all else, which a redrive leaves out later.
    """
    anew = [msgspec.structs.replace(line, state=State.PENDING) for line in lines]
    messages = outgoing_of(anew, context, max_payload)
    return [
        ImportedDeath(
            id=message.id,
            died="" if line.died is None else timestamp(line.died, "died"),
            due="" if line.due is None else timestamp(line.due, "due"),
            retries=message.retries,
            attempts=check_int(line.attempts, "attempts", 0, MAX_ATTEMPTS),
            reason=truncate(line.reason or (SPENT if line.state == State.GARBAGE else ""), "reason"),
            error=truncate(line.error),
            headers=message.headers,
            attributes=message.attributes,
            payload=message.payload,
        )
        for line, message in zip(lines, map(Outgoing._make, zip(*messages, strict=True)), strict=True)
    ]


class ImportSender(TableSender):
    """Sends the messages of an import, and puts the dead ones into the dead letter."""

    dead = 0
    """Messages that were put into the dead letter."""

    def bury(self, messages: Sequence[ImportedDeath]) -> None:
        """Put messages into the dead letter, many in one round trip; then trim it to the limits of the queue."""
        sizes = [len(one.payload) + len(one.headers) + len(one.reason) + len(one.error) for one in messages]
        slices = byte_slices(sizes, BATCH_BYTES, self._batch_size)
        for parts in batched((messages[part] for part in slices), 1 if self._limiter else CALLS_PER_ROUND_TRIP):
            if self._limiter:
                self._limiter.wait(len(parts[0]))
            placed = [
                (self._contexts[number], [part[at] for at in rows])
                for part in parts
                for number, rows in by_partition([one.id for one in part], len(self._contexts)).items()
            ]
            for reply in self._executor.run(
                dead_import_call(context.calls, some, run=self._run) for context, some in placed
            ):
                if isinstance(reply, ServerError) and "permission" in str(reply):
                    raise ServerError(f"{reply}; {NEEDS_ADMIN}")
                if isinstance(reply, DelayqError):
                    raise reply
                self.dead += reply.count("1")
                self.rows += len(reply)
        trimmed = COLLECT_LIMIT if messages else 0
        while trimmed == COLLECT_LIMIT:  # one call trims so many
            collects = [one.calls.collect(one.settings) for one in self._contexts]
            trimmed = max(reply.trimmed for reply in self._executor.perform(together(collects)))


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
    max_payload: int = 1 << 20,
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

    An invalid line, or one whose payload has more than `max_payload` bytes, is refused, and the rest sent: `refused`
    says how many, and `queue.refusals(run)` which, with their places. With `strict`, the whole file is checked first,
    and the error of the first invalid line raised: then nothing is sent. The note of a `KeyboardInterrupt` says what
    the run has stored.
    """
    check_bool(strict, "strict")
    options = check_load(
        batch_size=batch_size,
        max_rows_per_second=max_rows_per_second,
        on_conflict="skip",
        on_error="collect",
        default_retries=3,
        max_payload=max_payload,
    )
    if dead not in ("keep", "send", "skip"):
        raise ConfigurationError(f"dead must be 'keep', 'send' or 'skip', not {short_repr(dead)}")
    target = target_of(queue, url, prefix, deadline)
    if run is not None:
        check_run(run)
    path = Path(file) if isinstance(file, str) else file
    if isinstance(path, Path):
        check_suffix(path, FORMATS, "; `delayq load` reads CSV" if path.suffix.lower() == ".csv" else "")
    reader = MessageFile(path, options.max_payload)
    is_rereadable = isinstance(path, Path) and is_file(path)
    if strict:
        if not is_rereadable:
            raise ConfigurationError("strict needs a file: a stream can be read only once")
        _check(reader, context_of(target), dead)
        reader = MessageFile(path, options.max_payload)
    source = digest_of([file_uri(file)] if isinstance(file, str | Path) else [])
    window = window_of(dedupe_window)
    begun = begin_load(target, None, None, run=run, source=source, has_due=True, dedupe_window=window)
    begun = replace(begun, verb="import")
    sender = ImportSender(target, options, begun.name)
    lines = _LineReader(reader.name, context_of(target), dead, lambda refusals: sender.refuse(refusals, str))
    with begun.telling_what_is_stored():
        for batch in reader.batches():
            sender.send_tables(lines.messages(batch, batch_size))
            sender.bury(lines.take_deaths())
            if report is not None:
                report(reader.done, reader.total)
        begun.commit(sender.refusals, sender.refused)
    result = asdict(begun.result(past=0, later=0, cancelled={}))
    first = sender.refusals[0][1] if sender.refusals else ""
    return Imported(**result, dead=sender.dead, left_out=lines.left_out, first_refusal=first)


def _check(reader: MessageFile, context: QueueContext, dead: Dead) -> None:
    """Raise the error of the first invalid line of a file."""
    lines = _LineReader(reader.name, context, dead, _raise_first)
    for batch in reader.batches():
        for _ in lines.messages(batch, BATCH):
            lines.take_deaths()


def _raise_first(refusals: list[Refusal]) -> NoReturn:
    error = refusals[0].error
    raise type(error)(f"{error}; nothing was sent")


class _LineReader:
    """Makes messages of the lines of a file."""

    def __init__(self, file: str, context: QueueContext, dead: Dead, refuse: Callable[[list[Refusal]], None]) -> None:
        """Errors call the file `file`; `refuse` gets the invalid lines."""
        self._file = file
        self._context = context
        self._ended: Collection[State] = () if dead == "send" else ENDED
        self._keeps = dead == "keep"
        self._refuse = refuse
        self._deaths: list[ImportedDeath] = []
        self.left_out = 0
        """How many dead messages are left out."""

    def messages(self, batch: FileBatch, size: int) -> Iterator[OutgoingTable]:
        """Yield the messages of a batch, those of at most `size` lines at a time."""
        for part in batch.split(size):
            try:
                messages, deaths, left_out = self._read(part)
            except DelayqError:  # of at least one of the lines
                messages, deaths, left_out = self._read(self._without_invalid(part))
            self._deaths += deaths
            self.left_out += left_out
            yield messages

    def take_deaths(self) -> list[ImportedDeath]:
        """Return what comes into the dead letter, of the lines whose messages have been taken since the last call."""
        deaths, self._deaths = self._deaths, []
        return deaths

    def _read(self, part: FileBatch) -> tuple[OutgoingTable, list[ImportedDeath], int]:
        """Return what to send, what comes into the dead letter, and how many are left out.

        Raises the error of an invalid line.
        """
        lines = part.decode()
        living = [line for line in lines if line.state not in self._ended]
        dead = [line for line in lines if line.state in self._ended] if len(living) < len(lines) else []
        deaths = dead_messages_of(dead, self._context, part.max_payload) if self._keeps and dead else []
        return outgoing_of(living, self._context, part.max_payload), deaths, len(dead) - len(deaths)

    def _without_invalid(self, part: FileBatch) -> FileBatch:
        """Return the valid lines, and refuse the others."""
        valid: list[Any] = []
        refusals = []
        for line in part.split(1):
            try:
                self._read(line)
                valid += line.contents
            except DelayqError as error:
                refusals.append(self._refusal(line, error))
        self._refuse(refusals)
        return part._replace(contents=valid)

    def _refusal(self, line: FileBatch, error: DelayqError) -> Refusal:
        id = ""
        with suppress(DelayqError):  # it is no message at all
            id = line.decode()[0].id
        place = f"{self._file}:{line.first}{f' (id {id!r:.140})' if id else ''}"
        return Refusal(line.first, id, type(error)(f"{place}: {error}"))


class ImportedDeath(NamedTuple):
    """A message that died in another queue; times in milliseconds since 1970."""

    id: str
    died: int | str
    """'' for now."""
    due: int | str
    """'' for when it died."""
    retries: int
    """With how many it was sent."""
    attempts: int
    reason: str
    error: str
    headers: bytes
    attributes: bytes
    payload: bytes


def dead_import_call(calls: Calls, messages: Iterable[ImportedDeath], *, run: str = "") -> ScriptCall[str]:
    """Put messages that died elsewhere into the dead letter; a status each: 1 new, 0 exists, 5 settled since.

    The statuses are added up in the run ledger under the name of a `run`.
    """
    return calls.script("dead_import", [calls.now, run, *flat(messages)], statuses)
