"""The options of the data source: named, typed and validated in one place, before Spark moves a row."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from delayq.config import MOST_RETRIES, QueueOptions, find_url
from delayq.errors import ConfigurationError, shown
from delayq.keys import check_name
from delayq.runs import check_run
from delayq.script import MOST_IDS
from delayq.spark.given import Given, did_you_mean, instant, integer, rate, window
from delayq.states import State

Conflict = Literal["skip", "replace", "fail"]
OnError = Literal["fail", "collect"]
Start = int | Literal["earliest", "latest"]
_EARLIEST: Start = "earliest"

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
_EVENTS = ("read", "startingOffset", "endingOffset", "maxEntriesPerBatch", "failOnDataLoss", "partitions")

MOST_PARTITIONS = 10_000
MOST_PAYLOAD = 512 << 20
"""Bytes; the longest string Redis holds."""


@dataclass(frozen=True, slots=True)
class Target:
    """The queue that is read or written, and where its Redis is."""

    queue: str
    url: str = field(repr=False)
    """Resolved where the options were read, so that every executor uses the same; it may hold a password."""
    prefix: str = "delayq"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How messages are written."""

    target: Target
    batch_size: int
    """Messages sent in one call."""
    max_rows_per_second: float | None
    """The most rows that one task writes a second; None for no limit."""
    run: str | None
    """The name in the run ledger; None for one made on the driver."""
    on_conflict: Conflict
    on_error: OnError
    default_retries: int
    max_payload: int
    """Bytes."""
    dedupe_window: int | None
    """Milliseconds; 0 switches it off, None gives a queue that has none its first."""
    checkpoint: str | None
    """The checkpoint location of a stream, if it is known."""


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """Which messages of a queue are read."""

    target: Target
    states: tuple[State, ...]
    due_from: int | None
    """Milliseconds since 1970, included."""
    due_to: int | None
    """Milliseconds since 1970, excluded."""
    partitions: int
    include_payload: bool
    pushdown: bool


@dataclass(frozen=True, slots=True)
class EventOptions:
    """Which part of the event log is read, and in what portions."""

    target: Target
    start: Start
    """The first offset to read."""
    end: int | None
    """The last offset to read, None for the last there is; always None for a stream."""
    max_entries: int
    """Log entries of one micro-batch."""
    fail_on_data_loss: bool
    partitions: int


def write_options(raw: Mapping[str, str]) -> WriteOptions:
    """Validate what was given for a write; `ConfigurationError` names what is wrong and what would be right."""
    given = Given(raw, _WRITE)
    return WriteOptions(
        target=_target(given),
        batch_size=given.whole("batchSize", 200, least=1, most=MOST_IDS),
        max_rows_per_second=given.one("maxRowsPerSecond", None, rate),
        run=given.one("runId", None, lambda text, _: check_run(text)),
        on_conflict=given.choice("onConflict", "skip", ("skip", "replace", "fail")),
        on_error=given.choice("onError", "fail", ("fail", "collect")),
        default_retries=given.whole("defaultRetries", 3, least=0, most=MOST_RETRIES),
        max_payload=given.whole("maxPayload", 1 << 20, least=1, most=MOST_PAYLOAD),
        dedupe_window=given.one("dedupeWindow", None, window),
        checkpoint=given.text("checkpointLocation") or None,
    )


def snapshot_options(raw: Mapping[str, str]) -> SnapshotOptions:
    """Validate what was given for a read of the queue; `ConfigurationError` names what is wrong."""
    given = Given(raw, _SNAPSHOT)
    _check_read(given, "snapshot")
    due_from, due_to = given.one("dueFrom", None, instant), given.one("dueTo", None, instant)
    if due_from is not None and due_to is not None and due_from >= due_to:
        raise ConfigurationError(f"dueFrom {given.text('dueFrom')} must be before dueTo {given.text('dueTo')}")
    return SnapshotOptions(
        target=_target(given),
        states=given.one("states", tuple(State), _states),
        due_from=due_from,
        due_to=due_to,
        partitions=given.whole("partitions", 4, least=1, most=MOST_PARTITIONS),
        include_payload=given.switch("includePayload", default=False),
        pushdown=given.switch("pushdown", default=False),
    )


def event_options(raw: Mapping[str, str], *, streaming: bool) -> EventOptions:
    """Validate what was given for a read of the event log; `ConfigurationError` names what is wrong."""
    given = Given(raw, _EVENTS)
    _check_read(given, "events")
    start = given.one("startingOffset", _EARLIEST, _start)
    end = None if "endingOffset" not in given else given.whole("endingOffset", 0, least=0, most=1 << 53)
    if end is not None and streaming:
        raise ConfigurationError("endingOffset ends a batch read; a stream has no end: leave it out, or stop the query")
    if end is not None and isinstance(start, int) and end < start - 1:
        raise ConfigurationError(f"endingOffset {end} must not be before startingOffset {start}")
    return EventOptions(
        target=_target(given),
        start=start,
        end=end,
        max_entries=given.whole("maxEntriesPerBatch", 10_000, least=1, most=1 << 31),
        fail_on_data_loss=given.switch("failOnDataLoss", default=True),
        partitions=given.whole("partitions", 2, least=1, most=MOST_PARTITIONS),
    )


def what_to_read(raw: Mapping[str, str]) -> Literal["snapshot", "events"]:
    """Return which table a batch read is of, by its option `read`."""
    kind: Literal["snapshot", "events"] = Given(raw, None).choice("read", "snapshot", ("snapshot", "events"))
    return kind


def _target(given: Given) -> Target:
    queue, path = given.text("queue"), given.text("path")
    if "paths" in given or (queue and path and queue != path):
        raise ConfigurationError("give one queue: its name as the option queue, or as the path")
    if not (queue or path):
        raise ConfigurationError("which queue? give its name as the option queue, or as the path of load or save")
    prefix = given.text("prefix") or "delayq"
    return Target(check_name(queue or path, "queue"), _url(given), check_name(prefix, "prefix"))


def _url(given: Given) -> str:
    url, variable = given.text("url"), given.text("urlEnv")
    if url and variable:
        raise ConfigurationError("give url or urlEnv, not both")
    if variable:
        url = os.environ.get(variable, "")
        if not url:
            raise ConfigurationError(f"urlEnv names {shown(variable)}, an environment variable that is not set here")
    url = find_url(QueueOptions(url=url))
    if url.startswith("memory://"):
        raise ConfigurationError("memory:// lives in one process and Spark works in several: give a Redis's url")
    return url


def _check_read(given: Given, right: str) -> None:
    kind = given.choice("read", right, ("snapshot", "events"))
    if kind != right:
        raise ConfigurationError(f"read={kind} does not go with these options, which are of read={right}")


def _states(text: str, name: str) -> tuple[State, ...]:
    known = tuple(state.value for state in State)
    for one in text.split(","):
        if one.strip().lower() not in known:
            hint = did_you_mean(one.strip(), known)
            raise ConfigurationError(f"{name} must be of {', '.join(known)}, not {shown(one.strip())}{hint}")
    asked = {State(one.strip().lower()) for one in text.split(",")}
    return tuple(state for state in State if state in asked)


def _start(text: str, name: str) -> Start:
    if text.lower() in ("earliest", "latest"):
        return "earliest" if text.lower() == "earliest" else "latest"
    number = integer(text)
    if number is None:
        raise ConfigurationError(f"{name} must be earliest, latest or the first offset to read, not {shown(text)}")
    return number
