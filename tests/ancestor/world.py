"""Processes of either queue in one world, whose clock, faults and history the test controls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import redis

from delayq.testing.torture.history import (
    EndRecord,
    FaultRecord,
    Recorder,
    ScanRecord,
    SettingsRecord,
    StartRecord,
    now,
)
from delayq.testing.torture.rules.checker import CheckResult, check

START = 1_800_000_000_000
"""When it begins (ms), on the full second."""
LEASE = 2000
TICK = 1000


class Killed(BaseException):
    """The process was killed."""


class Wire:
    """Faults of the connections of a process."""

    def __init__(self) -> None:
        self.kill_at = self.lose_at = 0
        """Before which reply the process is killed, and which reply is lost, counted from now; 0 for none."""

    def hear(self) -> None:
        self.kill_at, self.lose_at = self.kill_at - 1, self.lose_at - 1
        if self.kill_at == 0:
            raise Killed
        if self.lose_at == 0:
            raise redis.ConnectionError("the reply was lost")

    def attach(self, client: redis.Redis) -> None:
        """Route all replies to a client through here from now on."""
        pool, wire = client.connection_pool, self

        class Faulty(pool.connection_class):  # type: ignore[misc, name-defined]
            def on_connect_check_health(self, *args: Any, **options: Any) -> None:
                self.greeting = True
                super().on_connect_check_health(*args, **options)
                self.greeting = False

            def read_response(self, *args: Any, **options: Any) -> Any:
                answer = super().read_response(*args, **options)
                if not self.greeting:
                    try:
                        wire.hear()
                    except redis.ConnectionError:
                        self.disconnect()
                        raise
                return answer

        pool.disconnect()
        pool.reset()
        pool.connection_class = Faulty


class Process(ABC):
    """A producer and consumer of a queue; what it does is recorded."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.wire = world, name, Wire()
        self.recorder = world.opened.enter_context(Recorder(world.folder / f"{name}.jsonl", name))
        self.is_frozen = False

    @abstractmethod
    def send(self, *ids: str, delay: int = 0, retries: int = 3) -> None:
        """Send messages, to be due after `delay` ms."""

    @abstractmethod
    def promote(self) -> None:
        """Move what is due to where it is fetched from."""

    @abstractmethod
    def look_after(self) -> None:
        """Move what is past its time, and collect garbage."""

    @abstractmethod
    def fetch(self, number: int = 1) -> list[str]:
        """Take messages into the local buffer."""

    @abstractmethod
    def run(self, id: str) -> bool:
        """Run the callback of a message in the buffer; return whether it succeeded."""

    @abstractmethod
    def ack(self, *ids: str) -> None:
        """Settle messages as done."""

    @abstractmethod
    def nack(self, id: str) -> None:
        """Settle a message as failed."""

    @abstractmethod
    def tick(self) -> None:
        """Do what a consumer does once a second."""

    @abstractmethod
    def scan(self) -> ScanRecord:
        """Return all that is left in Redis."""

    @abstractmethod
    def beat(self) -> None:
        """Renew the leases of what is in the buffer, if the queue does that."""

    @abstractmethod
    def age(self, ms: int) -> None:
        """Shorten the time to live of keys that expire, if the queue has any."""

    @contextmanager
    def killed_at(self, reply: int) -> Iterator[None]:
        """Kill the process when the server has executed its command of this number, if it sends that many."""
        self.wire.kill_at, since = reply, now()
        try:
            yield
        except Killed:
            self.world.processes.remove(self)
            self.world.fault("kill", self, since)
        self.wire.kill_at = 0

    def callback(self, id: str, token: int) -> bool:
        """Do what the user's callback does: take time, and fail if it should."""
        world = self.world
        self.recorder.write(StartRecord(at=now(), id=id, token=token, server=world.now))
        world.pass_time(world.takes)
        succeeds = id not in world.failing
        self.recorder.write(EndRecord(at=now(), id=id, token=token, outcome="acked" if succeeds else "failed"))
        return succeeds


class World:
    """A queue, its processes `one` and `two`, and what happens to them."""

    def __init__(self, kind: type[Process], url: str, folder: Path) -> None:
        self.url, self.folder, self.now = url, folder, START
        self.takes = 0
        """Milliseconds that a callback takes."""
        self.failing: set[str] = set()
        """Messages whose callbacks fail."""
        self.dues: dict[str, int] = {}
        self.deliveries = 0
        self.counters: Counter[str] = Counter()
        """What the ancestor does not store: due times, deliveries and totals."""
        self.opened = ExitStack()
        self._local = 0
        for where in ("tests.ancestor.world", "tests.ancestor.sides", "delayq.testing.torture.recorded_calls"):
            self.opened.enter_context(patch(f"{where}.now", self.local))
        self._recorder = self.opened.enter_context(Recorder(folder / "conductor.jsonl", "conductor"))
        self._recorder.write(SettingsRecord(at=now(), queue="q", lease=LEASE, tick=TICK, max_nack_delay=0))
        self.one, self.two = kind(self, "one"), kind(self, "two")
        self.processes = [self.one, self.two]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.opened.close()

    def local(self) -> int:
        """Return the time of the processes (µs), which goes with that of the server, and rises with each look."""
        self._local = max(self._local + 1, (self.now - START) * 1000)
        return self._local

    def pass_time(self, ms: int) -> None:
        """Let time pass; processes that are not frozen renew their leases meanwhile."""
        end = self.now + ms
        while self.now < end:
            step = min(LEASE // 3, end - self.now)
            self.now += step
            for process in self.processes:
                if not process.is_frozen:
                    process.beat()
        self.two.age(ms)

    @contextmanager
    def freezing(self, process: Process) -> Iterator[None]:
        """Stop a process (SIGSTOP) for a while."""
        since, process.is_frozen = now(), True
        yield
        process.is_frozen = False
        self.fault("stop", process, since)

    def fault(self, kind: str, process: Process, since: int) -> None:
        """Record a fault since then."""
        self._recorder.write(FaultRecord(at=since, until=now(), kind=kind, process=process.name))

    def finish(self) -> CheckResult:
        """Let everything finish, and check the history."""
        self.takes = 0
        for _ in range(15):
            self.pass_time(TICK)
            for process in self.processes:
                with suppress(LookupError, redis.ResponseError):  # it says so, and tries again at the next tick
                    process.tick()
        self._recorder.write(self.two.scan())
        return check([self.folder])
