"""The history: what each process did and saw, written line by line while it happens, and read together afterwards.

Each process appends to a file of its own, one JSON object a line. It writes a `CallRecord` before it sends a call and a
`ReplyRecord` when the reply is read; the outcome of a call without a reply is unknown. A line is written in one piece
before the process continues, so a killed process has recorded everything it began. Times `at` are microseconds of the
monotonic clock, which the processes of one machine share; server times are milliseconds since 1970.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Literal, Self

import msgspec

from delayq.errors import DelayqError

SYNC_EVERY = 0.5
"""Seconds between two fsyncs: only a crash of the machine itself can take what was written since the last one."""

Settlement = Literal["ack", "nack", "extend", "start_report", "release", "reject"]
Change = Literal["send", "cancel", "reschedule", "redrive", "dead_purge", "purge", "close", "break"]
CallName = Literal[Change, "claim", Settlement]
Outcome = Literal["ok", "fail", "unknown"]
"""Executed; certainly not executed; unknown."""


class HistoryError(DelayqError, ValueError):
    """A file is not a history."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line; `at` is when it was written."""

    at: int


class HeaderRecord(Record, tag="header", frozen=True):
    """The first line: the process whose history it is."""

    process: str
    pid: int


class LimitRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limit of a name; 0 for none."""

    running: int = 0
    """Messages at a time."""
    interval: float = 0
    """Microseconds between two starts."""
    burst: int = 1
    """Starts at once."""


class SettingsRecord(Record, tag="settings", frozen=True):
    """The settings of the queue in this run (ms); written once, by the runner."""

    queue: str
    lease: int
    tick: int
    max_nack_delay: int
    """The longest delay after a nack."""
    limits: dict[str, LimitRecord] = {}
    """By name of the messages; they were set before."""
    partitions: int = 1
    """Over how many the queue is spread."""

    @property
    def closes_names(self) -> bool:
        """Whether what a callback closes is closed for all messages of its name: else only in their partition."""
        return self.partitions == 1


class CallRecord(Record, tag="call", frozen=True):
    """A call is about to be sent. Columns have one entry per id."""

    call: int
    """Its number within the process."""
    op: CallName
    ids: list[str] = []
    tokens: list[int] = []
    dues: list[int] = []
    """Of a send or reschedule: server time (ms). So these calls are made with times, not delays."""
    retries: list[int] = []
    payloads: list[str] = []
    """See `digest`."""
    replace: bool = False
    lease: int = 0
    """Of a claim or an extend (ms)."""
    ahead: int = 0
    """Of a claim: how long before they are due it may take messages (ms), which start when they are."""
    name: str = ""
    """Of `close` or `break`: the name of which nothing more is to start; of `break` '' for the whole queue."""
    lasts: int = 0
    """Of `close`, which closes a name: for how long (ms). Of `break`: the pause of its breaker, 0 if all may start."""


class ReplyRecord(Record, tag="reply", frozen=True):
    """The outcome of a call."""

    call: int
    outcome: Outcome = "ok"
    statuses: str = ""
    """A status for each id of the call, as the scripts return them."""
    error: str = ""
    now: int = 0
    """Of a claim, as are the columns below: the server's time (ms)."""
    deadline: int = 0
    ids: list[str] = []
    tokens: list[int] = []
    dues: list[int] = []
    attempts: list[int] = []
    retries_left: list[int] = []
    payloads: list[str] = []
    names: list[str] = []
    alone: bool = False
    """Whether the message was claimed alone, to start at once."""


class StartRecord(Record, tag="start", frozen=True):
    """A callback has started."""

    id: str
    token: int
    server: int = 0
    """The server's time (ms), read by the callback itself; 0 if it could not."""
    lost: bool = False
    """Whether the callback was told, after it had read that time, that its lease is lost."""
    runner: int = 0
    """The thread or task of the process that runs the callback."""


class ToldRecord(Record, tag="told", frozen=True):
    """What a sender was told of one of its messages."""

    id: str
    told: str
    """The id in the result."""
    status: str
    """As the scripts return it."""


class EndRecord(Record, tag="end", frozen=True):
    """A callback is about to end; its outcome is not settled yet."""

    id: str
    token: int
    outcome: Literal["acked", "failed", "rejected", "discarded"]


class FaultRecord(Record, tag="fault", frozen=True):
    """A fault, from `at` until `until`."""

    kind: str
    until: int
    process: str = ""
    """The process that it hit; '' for the server or the network."""
    breaks_leases: bool = True
    """Whether leases may have expired, so that messages in flight may be delivered again."""
    lost: int = 0
    """If the server lost its last writes: the time (µs, as `at`) since which executed calls may be undone."""
    shift: int = 0
    """Milliseconds by which the server's clock was changed."""
    name: str = ""
    """The name of the messages that were paused; '' for all."""


class ScanRecord(Record, tag="scan", frozen=True):
    """The final scan: everything that Redis holds of the queue at the end."""

    server: int
    """Its time (ms)."""
    living: list[tuple[str, str, int]] = []
    """Id, state, and due time (ms) of each message."""
    dead: list[tuple[str, int, int, int, str]] = []
    """Id, token, attempts, retries and reason of each entry of the dead letter."""
    counters: dict[str, int] = {}
    """The totals in `meta`."""
    leftovers: list[str] = []
    """Inconsistencies, a text each: ids in two structures or none, fields without a message, unknown keys."""


ProcessLine = HeaderRecord | CallRecord | ReplyRecord | StartRecord | EndRecord | ToldRecord
Line = ProcessLine | SettingsRecord | FaultRecord | ScanRecord
"""The runner writes all kinds, the other processes only the first."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


def now() -> int:
    """Return the time as `at` counts it."""
    return time.monotonic_ns() // 1000


def digest(payload: bytes, name: str = "") -> str:
    """Return a 64-bit hash, which stands for a payload and the name of its message in the history."""
    return blake2b(payload, digest_size=8, key=name.encode()[:64]).hexdigest()


class Recorder:
    """Appends to the history of this process; thread-safe."""

    def __init__(self, path: Path, process: str) -> None:
        self.process = process
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._synced = time.monotonic()
        self._lock = threading.Lock()
        self._calls = 0
        self.write(HeaderRecord(at=now(), process=process, pid=os.getpid()))

    def next_call(self) -> int:
        """Return a number for a call."""
        with self._lock:
            self._calls += 1
            return self._calls

    def write(self, record: Line) -> None:
        """Append a record; once this returns, killing the process loses nothing of it."""
        os.write(self._file, _encode(record) + b"\n")
        if time.monotonic() - self._synced > SYNC_EVERY:
            self._synced = time.monotonic()
            os.fsync(self._file)

    def close(self) -> None:
        """Sync the file and close it."""
        os.fsync(self._file)
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(paths: Iterable[Path]) -> Iterator[tuple[str, Line]]:
    """Yield the lines of several files, each with the name of its process; `HistoryError` names file and line.

    A last line that was cut short, by a full disk or a crash of the machine, is skipped.
    """
    for path in paths:
        process = ""
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    record = _decode(line)
                except msgspec.DecodeError as error:
                    raise HistoryError(f"{path}, line {number}: {error}") from error
                if isinstance(record, HeaderRecord):
                    process = record.process
                elif not process:
                    raise HistoryError(f"{path}, line {number}: the first line of a history must name its process")
                yield process, record
