"""Options of the data source: names, types, defaults and validation, before Spark moves a row."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

from delayq.broker.keys import check_name, check_queue_name
from delayq.broker.scripts import MAX_IDS
from delayq.broker.transport.server_url import find_url
from delayq.bulk.connection import TargetQueue
from delayq.bulk.load_options import CONFLICTS, MAX_PAYLOAD, ON_ERRORS, LoadOptions
from delayq.bulk.reading.snapshot import STATES, SnapshotOptions
from delayq.errors import ConfigurationError, did_you_mean, short_repr
from delayq.options import QueueOptions
from delayq.queue.sweeps.bulk_runs import check_run
from delayq.values.checks import MAX_RETRIES
from delayq.values.states import State
from delayq.values.times import HORIZON, timestamp, to_millis

T = TypeVar("T")

Start = int | Literal["earliest", "latest"]
_EARLIEST: Start = "earliest"
Table = Literal["snapshot", "events", "messages"]
_LEASE = 3_600_000
"""Milliseconds of a lease of a stream that consumes messages, by default: an hour."""

_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")

_COMMON = ("queue", "url", "urlEnv", "prefix")
_FROM_SPARK = ("path", "paths", "checkpointLocation", "queryName")
"""Options that Spark adds by itself."""
_WRITE = (
    "batchSize",
    "maxRowsPerSecond",
    "runId",
    "onConflict",
    "onError",
    "defaultRetries",
    "maxPayload",
    "dedupeWindow",
)
_SNAPSHOT = ("read", "states", "dueFrom", "dueTo", "partitions", "includePayload", "pushdown")
_EVENTS = (
    "read",
    "startingOffset",
    "endingOffset",
    "maxEntriesPerBatch",
    "maxEventsPerBatch",
    "failOnDataLoss",
    "failOnRollback",
    "partitions",
)

_MESSAGES = ("read", "maxMessagesPerBatch", "lease", "failOnDataLoss", "partitions")

MAX_PARTITIONS = 10_000


@dataclass(frozen=True, slots=True)
class WriteOptions(LoadOptions):
    """How to write messages."""

    target: TargetQueue
    run: str | None
    """The name in the run ledger; None for a generated one."""
    dedupe_window: int | None
    """Milliseconds; 0 switches it off, None sets the default unless the queue has a window."""
    checkpoint: str | None
    """The checkpoint location of a stream, if known."""

    @staticmethod
    def spelling(name: str) -> str:
        """Return the name of an option as in Spark: `maxPayload`."""
        first, *rest = name.split("_")
        return first + "".join(map(str.capitalize, rest))


@dataclass(frozen=True, slots=True)
class EventOptions:
    """Which part of the event log to read, and in which batches."""

    target: TargetQueue
    start: Start
    """The first offset to read."""
    end: int | None
    """The last offset to read; None for the current end. Always None for a stream."""
    max_entries: int
    """Log entries per micro-batch."""
    max_events: int | None
    """Events per micro-batch, but for an entry that has more; None for no limit."""
    fail_on_data_loss: bool
    fail_on_rollback: bool
    """Whether a log that was deleted or rolled back ends a stream."""
    partitions: int


@dataclass(frozen=True, slots=True)
class MessageStreamOptions:
    """How to consume the messages of a queue, and in which batches."""

    target: TargetQueue
    max_messages: int
    """Messages per micro-batch."""
    lease: int
    """Milliseconds that a micro-batch may take, from its claims to the commit."""
    fail_on_data_loss: bool
    partitions: int


def write_options(raw: Mapping[str, str]) -> WriteOptions:
    """Validate the options of a write; raises `ConfigurationError`."""
    options = OptionReader(raw, _WRITE)
    return WriteOptions(
        target=_target(options, check_name),
        batch_size=options.integer("batchSize", 200, min=1, max=MAX_IDS),
        max_rows_per_second=options.parse("maxRowsPerSecond", None, _rate),
        run=options.parse("runId", None, lambda text, _: check_run(text)),
        on_conflict=options.choice("onConflict", "skip", CONFLICTS),
        on_error=options.choice("onError", "fail", ON_ERRORS),
        default_retries=options.integer("defaultRetries", 3, min=0, max=MAX_RETRIES),
        max_payload=options.integer("maxPayload", 1 << 20, min=1, max=MAX_PAYLOAD),
        dedupe_window=options.parse("dedupeWindow", None, _window),
        checkpoint=options.text("checkpointLocation") or None,
    )


def snapshot_options(raw: Mapping[str, str]) -> SnapshotOptions:
    """Validate the options of a snapshot read; raises `ConfigurationError`."""
    options = OptionReader(raw, _SNAPSHOT)
    due_from, due_to = options.parse("dueFrom", None, _instant), options.parse("dueTo", None, _instant)
    if due_from is not None and due_to is not None and due_from >= due_to:
        raise ConfigurationError(f"dueFrom {options.text('dueFrom')} must be before dueTo {options.text('dueTo')}")
    return SnapshotOptions(
        target=_target(options),
        states=options.parse("states", STATES, _states),
        due_from=due_from,
        due_to=due_to,
        partitions=options.integer("partitions", 4, min=1, max=MAX_PARTITIONS),
        include_payload=options.boolean("includePayload", default=False),
        pushdown=options.boolean("pushdown", default=False),
    )


def event_options(raw: Mapping[str, str], *, streaming: bool) -> EventOptions:
    """Validate the options of a read of the event log; raises `ConfigurationError`."""
    options = OptionReader(raw, _EVENTS)
    start = options.parse("startingOffset", _EARLIEST, _start)
    end = None if "endingOffset" not in options else options.integer("endingOffset", 0, min=0, max=1 << 53)
    if end is not None and streaming:
        raise ConfigurationError("endingOffset is for batch reads only, because a stream has no end: remove it")
    if end is not None and isinstance(start, int) and end < start - 1:
        raise ConfigurationError(f"endingOffset {end} must not be before startingOffset {start}")
    fails = options.boolean("failOnDataLoss", default=True)
    return EventOptions(
        target=_target(options),
        start=start,
        end=end,
        max_entries=options.integer("maxEntriesPerBatch", 10_000, min=1, max=1 << 31),
        max_events=(
            options.integer("maxEventsPerBatch", 0, min=1, max=1 << 53) if "maxEventsPerBatch" in options else None
        ),
        fail_on_data_loss=fails,
        fail_on_rollback=options.boolean("failOnRollback", default=fails),
        partitions=options.integer("partitions", 2, min=1, max=MAX_PARTITIONS),
    )


def message_options(raw: Mapping[str, str]) -> MessageStreamOptions:
    """Validate the options of a stream that consumes messages; raises `ConfigurationError`."""
    options = OptionReader(raw, _MESSAGES)
    return MessageStreamOptions(
        target=_target(options),
        max_messages=options.integer("maxMessagesPerBatch", 10_000, min=1, max=1 << 31),
        lease=options.parse("lease", _LEASE, lambda text, name: to_millis(text, name, min=1000)),
        fail_on_data_loss=options.boolean("failOnDataLoss", default=True),
        partitions=options.integer("partitions", 2, min=1, max=MAX_PARTITIONS),
    )


def table_to_read(raw: Mapping[str, str]) -> Table:
    """Return the table that the option `read` names."""
    kind: Table = OptionReader(raw, None).choice("read", "snapshot", ("snapshot", "events", "messages"))
    return kind


def _target(options: OptionReader, check: Callable[[str, str], str] = check_queue_name) -> TargetQueue:
    queue, path = options.text("queue"), options.text("path")
    if "paths" in options or (queue and path and queue != path):
        raise ConfigurationError("more than one queue is named: set either the option queue or the path")
    if not (queue or path):
        raise ConfigurationError("no queue is named: set the option queue, or pass its name to load() or save()")
    prefix = options.text("prefix") or "delayq"
    return TargetQueue(check(queue or path, "queue"), _url(options), check_name(prefix, "prefix"))


def _url(options: OptionReader) -> str:
    url, variable = options.text("url"), options.text("urlEnv")
    if url and variable:
        raise ConfigurationError("url and urlEnv are both set: keep one")
    if variable:
        url = os.environ.get(variable, "")
        if not url:
            raise ConfigurationError(
                f"urlEnv names the environment variable {short_repr(variable)}, which is not set on the driver"
            )
    url = find_url(QueueOptions(url=url))
    if url.startswith("memory://"):
        raise ConfigurationError("memory:// works in one process only, and Spark uses several: set url to a Redis")
    return url


def _states(text: str, name: str) -> tuple[State, ...]:
    known = tuple(state.value for state in STATES)
    for one in text.split(","):
        if one.strip().lower() not in known:
            hint = did_you_mean(one.strip(), known)
            raise ConfigurationError(f"{name} must be among {', '.join(known)}, not {short_repr(one.strip())}{hint}")
    wanted = {State(one.strip().lower()) for one in text.split(",")}
    return tuple(state for state in STATES if state in wanted)


def _start(text: str, name: str) -> Start:
    if text.lower() in ("earliest", "latest"):
        return "earliest" if text.lower() == "earliest" else "latest"
    number = _integer(text)
    if number is None:
        raise ConfigurationError(f"{name} must be earliest, latest or the first offset to read, not {short_repr(text)}")
    return number


def as_options(**values: object) -> dict[str, str]:
    """Return values as the texts that Spark takes as options; None is left out."""
    texts = {}
    for name, value in values.items():
        if value is not None:
            text = value.isoformat() if isinstance(value, datetime) else str(value)
            texts[name] = text.lower() if isinstance(value, bool) else text
    return texts


class OptionReader:
    """Options by name; names are case-insensitive, as in Spark."""

    def __init__(self, raw: Mapping[str, str], known: tuple[str, ...] | None) -> None:
        """Raise `ConfigurationError` for unknown names; `known=None` accepts any name."""
        self._texts = {name.lower(): text for name, text in raw.items()}
        if known is None:
            return
        allowed = (*_COMMON, *known)
        accepted = {name.lower() for name in (*allowed, *_FROM_SPARK)}
        for name in raw:
            if name.lower() not in accepted:
                hint = did_you_mean(name, allowed) or f"; known options: {', '.join(allowed)}"
                raise ConfigurationError(f"unknown option {short_repr(name)}{hint}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def text(self, name: str) -> str:
        """Return an option's text, '' if it is not set."""
        return self._texts.get(name.lower(), "")

    def parse(self, name: str, default: T, parser: Callable[[str, str], T]) -> T:
        """Return `parser(text, name)`, or the default if the option is not set."""
        text = self._texts.get(name.lower())
        return default if text is None else parser(text, name)

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> Any:
        """Return one of the allowed words, in lower case."""
        text = self._texts.get(name.lower(), default)
        if text.lower() not in allowed:
            either = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
            raise ConfigurationError(f"{name} must be {either}, not {short_repr(text)}")
        return text.lower()

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return whether an option is true."""
        return bool(self.choice(name, str(default).lower(), ("true", "false")) == "true")

    def integer(self, name: str, default: int, *, min: int, max: int) -> int:
        """Return a whole number within bounds."""
        text = self._texts.get(name.lower(), str(default))
        number = _integer(text)
        if number is None or not min <= number <= max:
            raise ConfigurationError(f"{name} must be a whole number from {min} to {max}, not {short_repr(text)}")
        return number


def _integer(text: str) -> int | None:
    """Return a text of digits as a number, None for any other text."""
    # int() would also accept spaces, signs, underscores and digits of other scripts.
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None  # noqa: PLR2004 - 64 bits


def _rate(text: str, name: str) -> float | None:
    """Parse a number of rows per second."""
    number = float(text) if _NUMBER.fullmatch(text) else 0.0
    if number <= 0:
        raise ConfigurationError(f"{name} must be a number of rows above 0, such as 5000, not {short_repr(text)}")
    return number


def _window(text: str, name: str) -> int | None:
    """Parse a duration, "0" for none, as milliseconds."""
    return 0 if text == "0" else to_millis(text, name, max=HORIZON)


def _instant(text: str, name: str) -> int | None:
    """Parse a time in ISO 8601 with an offset, as milliseconds since 1970, rounded up."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{name} must look like 2026-01-31T09:00:00+00:00, not {short_repr(text)}") from None
    return timestamp(at, name)
