"""The faults, carried out: each is a course that yields the seconds it waits, and puts itself down when it is over."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from delayq.executor import Executor
from delayq.throwaway import RedisServer
from delayq.torture.crew import END, Crew
from delayq.torture.history import Fault, Recorder, now
from delayq.torture.plan import Aof, Planned
from delayq.torture.proxy import Proxy
from delayq.torture.shim import Shim
from delayq.values import Command

LOOK = 0.02
"""Seconds between two looks at what a fault waits for."""
PATIENCE = 10.0
"""Seconds that connections are waited for which can be cut."""
FLUSHED = 1.2
"""Seconds after which Redis has written what it could not write to a full disk: it tries every second."""
BACKLOG = 3_000_000
"""Microseconds that Redis may hold writes back for a slow disk under `everysec` (2 s), and some."""

Course = Generator[float, None, Any]
"""Returns how many faults it was, None for one."""


@dataclass(slots=True)
class Field:
    """What faults can reach."""

    crew: Crew
    recorder: Recorder
    direct: Executor
    aof: Aof
    tell: Callable[[Planned, str], None]
    """Is told of a fault when it happens, with what befell whom."""
    server: RedisServer | None = None
    proxy: Proxy | None = None
    shim: Shim | None = None
    broken: bool = False
    """Whether a fault is at the server."""

    def note(self, planned: Planned, at: int, **facts: Any) -> None:
        """Put a fault down that is over now."""
        self.recorder.write(Fault(**{"at": at, "until": now(), "kind": planned.kind, **facts}))


def carry_out(field: Field, planned: Planned) -> Course:
    """Let a planned fault happen."""
    return _COURSES[planned.kind](field, planned)


def _kill(field: Field, planned: Planned) -> Course:
    worker = yield from _chosen(field, planned)
    at, worker.ending = now(), True
    worker.signal(signal.SIGKILL)
    worker.wait()
    field.note(planned, at, process=worker.name)
    field.tell(planned, worker.name)
    field.crew.hire("worker")


def _stop(field: Field, planned: Planned) -> Course:
    worker = yield from _chosen(field, planned)
    at = now()
    worker.signal(signal.SIGSTOP)
    field.tell(planned, f"{worker.name} for {planned.lasts:.1f} s")
    yield planned.lasts
    worker.signal(signal.SIGCONT)
    field.note(planned, at, process=worker.name)
    worker.busy = False


def _term(field: Field, planned: Planned) -> Course:
    worker = yield from _chosen(field, planned)
    at, worker.ending = now(), True
    worker.signal(signal.SIGTERM)
    field.tell(planned, worker.name)
    field.crew.hire("worker")
    while worker.running and now() - at < END * 1_000_000:
        yield LOOK
    if worker.running:
        field.crew.problems.append(f"{worker.name} did not end when it was asked to")
        worker.signal(signal.SIGKILL)
    field.note(planned, at, process=worker.name, breaks_leases=False)


def _chosen(field: Field, planned: Planned) -> Any:
    """Wait for a worker that is at work, and return it."""
    while (worker := field.crew.choose(planned.target)) is None:
        yield LOOK
    worker.busy = True
    return worker


def _replies(field: Field, planned: Planned) -> Course:
    """Have the proxy lose some; it counts them as they are lost."""
    yield from ()
    at = now()
    _there(field.proxy).lose(planned.size)
    field.note(planned, at, breaks_leases=False)
    return 0


def _cut(field: Field, planned: Planned) -> Course:
    while field.broken:
        yield LOOK
    at, left = now(), planned.size
    while left and now() - at < PATIENCE * 1_000_000:
        left -= _there(field.proxy).cut(left)
        yield LOOK
    field.note(planned, at, breaks_leases=False)
    return planned.size - left


def _server_kill(field: Field, planned: Planned) -> Course:
    server, shim, at = _there(field.server), field.shim, now()
    server.kill()
    held = 0 if field.aof == "always" else shim.held_back(now()) if shim else at - BACKLOG
    field.tell(planned, f"down for {planned.lasts:.1f} s")
    yield planned.lasts
    server.start()
    field.note(planned, at, lost=held)


def _power(field: Field, planned: Planned) -> Course:
    server, at = _there(field.server), now()
    server.kill()
    lost, since = _there(field.shim).cut_power(server.folder)
    field.tell(planned, f"{lost:,} bytes of the log were not on the disk")
    yield planned.lasts
    server.start()
    # Where every write is synced before it is answered, what was cut off had not been answered.
    field.note(planned, at, lost=0 if field.aof == "always" else since)


def _flush(field: Field, planned: Planned) -> Course:
    yield from ()
    at = now()
    field.direct.call(Command(("SCRIPT", "FLUSH"), bool))
    field.tell(planned, "")
    field.note(planned, at, breaks_leases=False)


def _memory(field: Field, planned: Planned) -> Course:
    at = now()
    field.direct.call(Command(("CONFIG", "SET", "maxmemory", "1"), bool))
    field.tell(planned, f"for {planned.lasts:.1f} s")
    yield planned.lasts
    field.direct.call(Command(("CONFIG", "SET", "maxmemory", "0"), bool))
    field.note(planned, at, breaks_leases=False)


def _disk(field: Field, planned: Planned) -> Course:
    server, shim, at = _there(field.server), _there(field.shim), now()
    shim.fail_writes(errno.ENOSPC)
    field.tell(planned, f"for {planned.lasts:.1f} s")
    yield planned.lasts
    shim.fail_writes(0)
    if not server.is_running:  # where every write is to be synced, Redis ends rather than go on without
        server.start()
    yield FLUSHED
    field.note(planned, at)


def _clock(field: Field, planned: Planned) -> Course:
    shim, at = _there(field.shim), now()
    shim.shift(planned.size)
    field.note(planned, at, shift=planned.size)
    field.tell(planned, f"{planned.size:+,} ms, for {planned.lasts:.1f} s")
    yield planned.lasts
    at = now()
    shim.shift(0)
    field.note(planned, at, shift=-planned.size)


def _slow_fsync(field: Field, planned: Planned) -> Course:
    shim, at = _there(field.shim), now()
    shim.slow(planned.lasts / 5)
    field.tell(planned, f"{planned.lasts / 5:.2f} s each, for {planned.lasts:.1f} s")
    yield planned.lasts
    shim.slow(0)
    field.note(planned, at)


def _there(thing: Any) -> Any:
    """Return what a fault needs, which a plan makes sure of."""
    if thing is None:
        raise RuntimeError("this fault cannot be done here")
    return thing


_COURSES: dict[str, Callable[[Field, Planned], Course]] = {
    "kill": _kill,
    "stop": _stop,
    "term": _term,
    "replies": _replies,
    "cut": _cut,
    "server-kill": _server_kill,
    "power": _power,
    "flush": _flush,
    "memory": _memory,
    "disk": _disk,
    "clock": _clock,
    "slow-fsync": _slow_fsync,
}
