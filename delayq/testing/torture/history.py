"""The history: what each process did and saw, written line by line while it happens, and read together afterwards.

Every process appends to a file of its own, a JSON object a line. A call is an `Invoke` before it is sent and an
`Answer` after it; one without an answer is in doubt. A line is written in one piece before the process goes on, so that
a killed process has told all that it had begun. Times `at` are microseconds of the monotonic clock, which the processes
of one machine share; times of the server are milliseconds since 1970.
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
"""Seconds after which what was written is brought to the disk: sooner than that only the machine's own end takes it."""

Operation = Literal[
    "send",
    "claim",
    "ack",
    "nack",
    "extend",
    "release",
    "reject",
    "cancel",
    "reschedule",
    "redrive",
    "dead_purge",
    "purge",
]
Outcome = Literal["ok", "fail", "unknown"]
"""Carried out and answered; certainly not carried out; either."""


class HistoryError(DelayqError, ValueError):
    """A file is no history."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line; `at` is when it was written."""

    at: int


class Opened(Record, tag="opened", frozen=True):
    """The first line: whose history it is."""

    process: str
    pid: int


class Rules(Record, tag="rules", frozen=True):
    """What the queue promises in this run; written once, by the process that starts the others. Milliseconds."""

    queue: str
    lease: int
    tick: int
    longest_delay: int
    """The longest wait after a nack."""
    engine: str = "delay"
    """What kind of queue it is."""


class Invoke(Record, tag="invoke", frozen=True):
    """A call is about to be sent. Columns have an entry for each id."""

    call: int
    """Its number in this process."""
    op: Operation
    ids: list[str] = []
    tokens: list[int] = []
    dues: list[int] = []
    """Of a send or reschedule: server time (ms), so such calls are made with times, not delays."""
    retries: list[int] = []
    payloads: list[str] = []
    """Digests, see `digest`."""
    replace: bool = False
    lease: int = 0
    """Of a claim or an extend (ms)."""


class Answer(Record, tag="answer", frozen=True):
    """What became of a call."""

    call: int
    outcome: Outcome = "ok"
    digits: str = ""
    """A digit for each id of the call, as the scripts answer."""
    error: str = ""
    now: int = 0
    """Of a claim, as the columns below: the server's time (ms)."""
    deadline: int = 0
    ids: list[str] = []
    tokens: list[int] = []
    dues: list[int] = []
    attempts: list[int] = []
    payloads: list[str] = []


class Start(Record, tag="start", frozen=True):
    """A callback has begun."""

    id: str
    token: int
    server: int = 0
    """The server's time (ms), asked by the callback itself; 0 where it could not be had."""


class End(Record, tag="end", frozen=True):
    """A callback is about to end; what it says is not yet settled."""

    id: str
    token: int
    outcome: Literal["acked", "failed", "rejected", "discarded"]


class Fault(Record, tag="fault", frozen=True):
    """Something was broken, from `at` until `until`."""

    kind: str
    until: int
    process: str = ""
    """Whose fault it was, for what befell one process; '' for what befell the server or the network."""
    breaks_leases: bool = True
    """Whether leases may have run out, so that messages in flight may be delivered again."""
    lost: int = 0
    """Of a server that came back without its last writes: since when (µs, as `at`) what was answered may be gone."""
    shift: int = 0
    """Milliseconds by which the server's clock was set."""


class Calm(Record, tag="calm", frozen=True):
    """The last fault is over; from here on everything is to finish in time."""


class Final(Record, tag="final", frozen=True):
    """All that Redis holds of the queue at the end."""

    server: int
    """Its time (ms)."""
    living: list[tuple[str, str, int]] = []
    """Id, state, and due time (ms) of each message."""
    dead: list[tuple[str, int, int, int, str]] = []
    """Id, token, attempts, retries and reason of each entry of the dead letter."""
    counters: dict[str, int] = {}
    """The totals of `meta`."""
    leftovers: list[str] = []
    """What is in no order: ids in two places or none, fields of no message, keys that nobody knows; a text each."""


Line = Opened | Rules | Invoke | Answer | Start | End | Fault | Calm | Final

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


def now() -> int:
    """Return the time as `at` counts it."""
    return time.monotonic_ns() // 1000


def digest(payload: bytes) -> str:
    """Return what stands for a payload in a history: 64 bits, so that two are equal only by a wonder."""
    return blake2b(payload, digest_size=8).hexdigest()


class Recorder:
    """Appends to the history of this process; used by several threads."""

    def __init__(self, path: Path, process: str) -> None:
        """Begin the file."""
        self.process = process
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._synced = time.monotonic()
        self._lock = threading.Lock()
        self._calls = 0
        self.write(Opened(at=now(), process=process, pid=os.getpid()))

    def next_call(self) -> int:
        """Return a number for a call."""
        with self._lock:
            self._calls += 1
            return self._calls

    def write(self, record: Line) -> None:
        """Append a record; when it returns, killing the process takes nothing of it."""
        os.write(self._file, _encode(record) + b"\n")
        if time.monotonic() - self._synced > SYNC_EVERY:
            self._synced = time.monotonic()
            os.fsync(self._file)

    def close(self) -> None:
        """Bring all of it to the disk and close the file."""
        os.fsync(self._file)
        os.close(self._file)

    def __enter__(self) -> Self:
        """Return the recorder."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


def read(paths: Iterable[Path]) -> Iterator[tuple[str, Line]]:
    """Yield the lines of several files, each with the name of its process; `HistoryError` names file and line.

    The last line of a file may be cut short, by a full disk or the end of the machine: it is then left out.
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
                if isinstance(record, Opened):
                    process = record.process
                elif not process:
                    raise HistoryError(f"{path}, line {number}: a history begins with the name of its process")
                yield process, record
