"""Carries out the faults: each is a generator that yields the seconds to wait, and records itself when it is over."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from delayq.broker.calls import Calls
from delayq.broker.context import observed
from delayq.broker.keys import Keys
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import Executor
from delayq.queue.control.limit_calls import limit_call
from delayq.queue.control.pausing import pause_call, resume_call
from delayq.testing.torture.disturbing.environment import Environment
from delayq.testing.torture.disturbing.processes import STOP_TIMEOUT, ManagedProcess, Processes
from delayq.testing.torture.history import FaultRecord, Recorder, now
from delayq.testing.torture.process_task import EXIT_SIGNAL
from delayq.testing.torture.recorded_calls import CallHistory
from delayq.testing.torture.round_plan import PlannedFault
from delayq.testing.torture.workload import PAUSED, payload_of, planted_id

POLL = 0.02
"""Seconds between two checks of what a fault waits for."""
CUT_TIMEOUT = 10.0
"""Seconds to wait for connections to cut."""
DISK_RETRY = 1.2
"""Seconds after which Redis has written what did not fit on a full disk: it tries every second."""
PAUSE_MARGIN = 5.0
"""Seconds after which a pause that is not resumed ends by itself."""
EVERYTHING = 1
"""The time since which writes are lost when all are (µs)."""
MAX_BACKLOG = 3_000_000
"""Microseconds that Redis may postpone writes for a slow disk under `everysec`: 2 s and a margin."""

PLANTED_TYPES = {
    **dict.fromkeys(("pending", "ranked", "throttled", "gates", "running", "key_lines", "unack", "dead"), "zset"),
    **dict.fromkeys(("completed", "waited", "done", "schedules", "schedule_labels", "beats"), "zset"),
    **dict.fromkeys(("ready", "retry", "wake"), "list"),
    "garbage": "set",
    **dict.fromkeys(("ends", "events"), "stream"),
}
"""The types of a queue's keys that are not hashes."""

FaultSteps = Generator[float, None, Any]
"""Returns how many faults it was; None for one."""


@dataclass(slots=True)
class FaultContext:
    """What faults act on."""

    processes: Processes
    recorder: Recorder
    direct: Executor
    environment: Environment
    announce: Callable[[PlannedFault, str], None]
    """Is called when a fault happens, with what it does."""
    keys: Sequence[Keys]
    """Those of the queue, or of each of its partitions."""
    server_fault: bool = False
    """Whether a fault is hitting the server."""

    def record(self, planned: PlannedFault, at: int, **facts: Any) -> None:
        """Record a fault that is over now."""
        self.recorder.write(FaultRecord(**{"at": at, "until": now(), "kind": planned.kind, **facts}))


def run_fault(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    """Carry out a planned fault."""
    return _FAULTS[planned.kind](context, planned)


def _kill(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    worker = yield from _worker(context, planned)
    at, worker.stopping = now(), True
    worker.kill()
    context.record(planned, at, process=worker.name)
    context.announce(planned, worker.name)
    context.processes.start_process("worker")


def _stop(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    worker = yield from _worker(context, planned)
    at = now()
    worker.signal(signal.SIGSTOP)
    context.announce(planned, f"{worker.name} for {planned.lasts:.1f} s")
    yield planned.lasts
    worker.signal(signal.SIGCONT)
    context.record(planned, at, process=worker.name)
    worker.under_fault = False


def _term(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    yield from _end(context, planned, signal.SIGTERM, breaks_leases=False)


def _exit(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    """End the program, which cuts its callbacks off."""
    yield from _end(context, planned, EXIT_SIGNAL, breaks_leases=True)


def _end(context: FaultContext, planned: PlannedFault, number: signal.Signals, *, breaks_leases: bool) -> FaultSteps:
    """Send a worker the signal at which it ends by itself, and replace it."""
    worker = yield from _worker(context, planned)
    at, worker.stopping = now(), True
    worker.signal(number)
    context.announce(planned, worker.name)
    context.processes.start_process("worker")
    while worker.running and now() - at < STOP_TIMEOUT * 1_000_000:
        yield POLL
    if worker.running:
        context.processes.problems.append(f"{worker.name} did not end after {number.name}")
        worker.signal(signal.SIGKILL)
    context.record(planned, at, process=worker.name, breaks_leases=breaks_leases)


def _worker(context: FaultContext, planned: PlannedFault) -> Generator[float, None, ManagedProcess]:
    """Wait for a worker that is ready, and return it."""
    while (worker := context.processes.pick_worker(planned.target)) is None:
        yield POLL
    worker.under_fault = True
    return worker


def _replies(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    """Let the proxy drop replies; it counts them as it drops them."""
    yield from ()
    at = now()
    context.environment.proxy.lose(planned.size)
    context.record(planned, at, breaks_leases=False)
    return 0


def _cut(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    while context.server_fault:
        yield POLL
    at, left = now(), planned.size
    while left and now() - at < CUT_TIMEOUT * 1_000_000:
        left -= context.environment.proxy.cut(left)
        yield POLL
    context.record(planned, at, breaks_leases=False)
    return planned.size - left


def _refuse(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    proxy, at = context.environment.proxy, now()
    proxy.refuse(planned.lasts)
    context.announce(planned, f"for {planned.lasts:.1f} s")
    yield planned.lasts
    context.record(planned, at)


def _server_kill(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    server, shim, at = context.environment.server, context.environment.shim, now()
    server.kill()
    lost = 0 if context.environment.aof == "always" else shim.held_back(now()) if shim else at - MAX_BACKLOG
    context.announce(planned, f"down for {planned.lasts:.1f} s")
    yield planned.lasts
    server.start()
    context.record(planned, at, lost=lost)


def _power(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    server, shim, at = context.environment.server, context.environment.shim, now()
    server.kill()
    held_back = shim.held_back(now())  # what Redis had not even written, though all that it had is on the disk
    size, since = shim.cut_power(server.folder)
    context.announce(planned, f"{size:,} bytes of the log were not on the disk")
    yield planned.lasts
    server.start()
    # If every write is synced before the reply, no call whose write was cut off had a reply.
    lost = min((one for one in (since, held_back) if one), default=0)
    context.record(planned, at, lost=0 if context.environment.aof == "always" else lost)


def _flush(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    yield from ()
    at = now()
    context.direct.call(RedisCommand(("SCRIPT", "FLUSH"), bool))
    context.announce(planned, "")
    context.record(planned, at, breaks_leases=False)


def _flushall(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    yield from ()
    at = now()
    context.direct.call(RedisCommand(("FLUSHALL",), bool))
    context.announce(planned, "")
    context.record(planned, at, lost=EVERYTHING)


def _foreign(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    """Write into every key of the queue what no process of ours would, as another program or a hand may do."""
    yield from ()
    at = now()
    context.direct.run([_planting(part, key) for keys in context.keys for part, key in asdict(keys).items()])
    context.announce(planned, "")
    context.record(planned, at, breaks_leases=False)


def _planting(part: str, key: str) -> RedisCommand[None]:
    """Return the command that plants an id, with a payload that a callback can process, or a number if that is read."""
    id = planted_id(part)
    value = "1" if part in ("meta", "dead_ids") else payload_of(id, 0)
    words: dict[str, tuple[Any, ...]] = {
        "zset": ("ZADD", key, 0, id),
        "list": ("RPUSH", key, id),
        "set": ("SADD", key, id),
        "stream": ("XADD", key, "*", "id", id, "payload", value),
        "hash": ("HSET", key, id, value),
    }
    return RedisCommand(words[PLANTED_TYPES.get(part, "hash")], lambda _: None)


def _pause(context: FaultContext, planned: PlannedFault, name: str = "") -> FaultSteps:
    """Pause the queue or a name; a resumption that a crash undoes must not be missed for ever."""
    _set_pause(context, planned.lasts + PAUSE_MARGIN, name)
    at = now()
    context.announce(planned, f"{name} for {planned.lasts:.1f} s".strip())
    yield planned.lasts
    until = now()
    _set_pause(context, 0, name)
    context.record(planned, at, until=until, name=name, breaks_leases=False)


def _set_pause(context: FaultContext, seconds: float, name: str) -> None:
    """Pause the queue, or a name if there is one, for so many seconds at most; resume it if there are none."""
    until = f"+{seconds * 1000:.0f}"
    for calls in map(Calls, context.keys):
        if name:
            context.direct.run([limit_call(calls, name, paused=until if seconds else "-", reason="torture")])
        else:
            context.direct.run([pause_call(calls, until, "torture") if seconds else resume_call(calls)])


def _pause_name(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    return _pause(context, planned, PAUSED[round(planned.target)])


def _trip(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    """Trip the breaker of the queue: a third of the time nothing starts, then one trial, then another one."""
    at = now()
    for keys in context.keys:
        calls = observed(Calls(keys), CallHistory(context.recorder))
        context.direct.run([calls.close(None, 0, pause=round(planned.lasts / 3 * 1000))])
    context.announce(planned, f"for {planned.lasts:.1f} s")
    yield planned.lasts
    context.record(planned, at, breaks_leases=False)


def _password(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    at = now()
    context.direct.call(RedisCommand(("CONFIG", "SET", "requirepass", "rotated"), bool))
    context.direct.call(RedisCommand(("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"), int))
    context.announce(planned, f"for {planned.lasts:.1f} s")
    yield planned.lasts
    context.direct.call(RedisCommand(("CONFIG", "SET", "requirepass", ""), bool))
    context.record(planned, at)


def _memory(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    at = now()
    context.direct.call(RedisCommand(("CONFIG", "SET", "maxmemory", "1"), bool))
    context.announce(planned, f"for {planned.lasts:.1f} s")
    yield planned.lasts
    context.direct.call(RedisCommand(("CONFIG", "SET", "maxmemory", "0"), bool))
    context.record(planned, at, breaks_leases=False)


def _disk(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    server, shim, at = context.environment.server, context.environment.shim, now()
    shim.fail_writes(errno.ENOSPC)
    context.announce(planned, f"for {planned.lasts:.1f} s")
    yield planned.lasts
    shim.fail_writes(0)
    if not server.is_running:  # under `always`, Redis exits if it cannot write
        server.start()
    yield DISK_RETRY
    context.record(planned, at)


def _clock(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    shim, at = context.environment.shim, now()
    shim.shift(planned.size)
    context.record(planned, at, shift=planned.size)
    context.announce(planned, f"{planned.size:+,} ms, for {planned.lasts:.1f} s")
    yield planned.lasts
    at = now()
    shim.shift(0)
    context.record(planned, at, shift=-planned.size)


def _slow_fsync(context: FaultContext, planned: PlannedFault) -> FaultSteps:
    shim, at = context.environment.shim, now()
    shim.slow(planned.lasts / 5)
    context.announce(planned, f"{planned.lasts / 5:.2f} s each, for {planned.lasts:.1f} s")
    yield planned.lasts
    shim.slow(0)
    context.record(planned, at)


_CLIENT_FAULTS = (_kill, _stop, _term, _exit, _replies, _cut, _refuse)
_SERVER_FAULTS = (_server_kill, _power, _flush, _flushall, _password, _memory, _disk, _clock, _slow_fsync)
_QUEUE_FAULTS = (_foreign, _pause, _pause_name, _trip)
_FAULTS = {
    fault.__name__.strip("_").replace("_", "-"): fault for fault in (*_CLIENT_FAULTS, *_SERVER_FAULTS, *_QUEUE_FAULTS)
}
