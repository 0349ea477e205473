"""Processes of either queue in one world: its clock, its faults and its history are the test's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import redis

from delayq.torture.checker import Verdict, check
from delayq.torture.history import Calm, End, Fault, Final, Recorder, Rules, Start, now

START = 1_800_000_000_000
"""When it begins (ms), on the full second."""
LEASE = 2000
TICK = 1000


class Killed(BaseException):
    """The process is no more."""


class Wire:
    """What befalls the connections of a process."""

    def __init__(self) -> None:
        self.kill_at = self.lose_at = 0
        """Which reply from now on the process does not live to see, and which one is lost; 0 for none."""

    def hear(self) -> None:
        self.kill_at, self.lose_at = self.kill_at - 1, self.lose_at - 1
        if self.kill_at == 0:
            raise Killed
        if self.lose_at == 0:
            raise redis.ConnectionError("the reply was lost")

    def attach(self, client: redis.Redis) -> None:
        """Have all replies to a client go through here from now on."""
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
        """Run the callback of a message in the buffer; tells whether it succeeded."""

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
    def scan(self) -> Final:
        """Return all that is left in Redis."""

    @abstractmethod
    def beat(self) -> None:
        """Renew the leases of what is in the buffer, if the queue does that."""

    @abstractmethod
    def age(self, ms: int) -> None:
        """Have keys that live for a time live so much shorter, if the queue has any."""

    @contextmanager
    def killed_at(self, reply: int) -> Iterator[None]:
        """Have the process die when the server has carried out its command of this number; not, if it makes fewer."""
        self.wire.kill_at, since = reply, now()
        try:
            yield
        except Killed:
            self.world.processes.remove(self)
            self.world.fault("kill", self, since)
        self.wire.kill_at = 0

    def callback(self, id: str, token: int) -> bool:
        """Do what the user's callback does: it takes its time, and fails if it is to fail."""
        world = self.world
        self.recorder.write(Start(at=now(), id=id, token=token, server=world.now))
        world.pass_time(world.takes)
        succeeds = id not in world.failing
        self.recorder.write(End(at=now(), id=id, token=token, outcome="acked" if succeeds else "failed"))
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
        """What the ancestor does not keep itself: when messages are due, how many were delivered, its totals."""
        self.opened = ExitStack()
        self._recorder = self.opened.enter_context(Recorder(folder / "conductor.jsonl", "conductor"))
        self._recorder.write(Rules(at=now(), queue="q", lease=LEASE, tick=TICK, longest_delay=0))
        self.one, self.two = kind(self, "one"), kind(self, "two")
        self.processes = [self.one, self.two]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.opened.close()

    def pass_time(self, ms: int) -> None:
        """Let time go by; whoever is not frozen renews its leases meanwhile."""
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
        """Tell that something was broken since then."""
        self._recorder.write(Fault(at=since, until=now(), kind=kind, process=process.name))

    def finish(self) -> Verdict:
        """Let everything come to its end, and judge."""
        self._recorder.write(Calm(at=now()))
        self.takes = 0
        for _ in range(15):
            self.pass_time(TICK)
            for process in self.processes:
                with suppress(LookupError, redis.ResponseError):  # it says so, and tries again at the next tick
                    process.tick()
        self._recorder.write(self.two.scan())
        return check([self.folder])
