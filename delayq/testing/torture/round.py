"""A round: processes at work on one queue, the faults of its plan, the calm after them, the final scan, the verdict."""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from delayq.config import QueueOptions, read_settings
from delayq.executor import open_executor
from delayq.torture.account import RoundAccount, look_back
from delayq.torture.checker import check, find_files
from delayq.torture.crew import Crew
from delayq.torture.engine import Looked
from delayq.torture.engines import ENGINES
from delayq.torture.faults import LOOK, Course, Field, carry_out
from delayq.torture.history import Calm, Fault, Recorder, Rules, now
from delayq.torture.place import Ground, Place, open_place
from delayq.torture.plan import EXCLUSIVE, Plan, Planned, Settings
from delayq.torture.process import TICK, Task, held_up, watch
from delayq.torture.workload import LONGEST_BACKOFF

PREFIX = "delayq-torture"
CONDUCTOR = "conductor"
"""The name of this process in the history."""
EVERY = 0.25
"""Seconds between two looks at the queue."""
START = 60.0
"""Seconds that processes are given to begin."""
STUCK = 30.0
"""Seconds without a change after which nothing more is expected to happen."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a round stands."""

    plan: Plan
    elapsed: float
    looked: Looked | None
    """None while the server does not answer."""
    workers: int
    faults: dict[str, int]
    phase: str


class Audience(Protocol):
    """Who is told what happens."""

    def fault(self, at: float, planned: Planned, text: str) -> None:
        """A fault happened, so many seconds into the round."""

    def refresh(self, progress: Progress) -> None:
        """Time has passed."""


class Round:
    """One round, from its first process to its verdict."""

    def __init__(
        self, settings: Settings, plan: Plan, ground: Ground, *, folder: Path, queue: str, audience: Audience
    ) -> None:
        """Prepare a round whose histories go into `folder`."""
        self._settings = settings
        self._plan = plan
        self._ground = ground
        self._folder = folder
        self._name = queue
        self._audience = audience
        self._done: Counter[str] = Counter()
        self._seen: Looked | None = None
        self._looked = 0.0
        self._changed = (0.0, 0)
        self._phase = "starting"
        self._numbers = count()
        self._todo: list[tuple[float, int, Planned, Course | None]] = [
            (fault.at, next(self._numbers), fault, None) for fault in plan.faults
        ]

    def run(self, interrupted: threading.Event) -> RoundAccount:
        """Carry it out; once `interrupted`, end it in order and judge nothing."""
        began = time.monotonic()
        kinds = {fault.kind for fault in self._plan.faults}
        with ExitStack() as stack:
            place = stack.enter_context(open_place(self._ground, kinds, self._plan.aof))
            self._set_up(stack, place)
            self._start(interrupted)
            self._break(interrupted)
            self._crew.finish("producer")
            self._crew.finish("inspector")
            self._recorder.write(Calm(at=now()))
            self._drain(interrupted)
            self._crew.finish("worker")
            if not interrupted.is_set():
                self._recorder.write(self._view.scan(own=place.server is not None))
        files = find_files([self._folder])
        stalls, recovery = look_back(files)
        return RoundAccount(
            round=self._plan.round,
            faults=self._counted,
            stalls=stalls,
            recovery=recovery,
            problems=self._crew.problems,
            verdict=None if interrupted.is_set() else check(files),
            seconds=round(time.monotonic() - began, 1),
        )

    def _set_up(self, stack: ExitStack, place: Place) -> None:
        """Open what this process needs: its history, its connections, its crew."""
        settings = self._settings
        patient: QueueOptions = {"url": place.direct, "prefix": PREFIX, "deadline": 5}
        direct = open_executor(patient, read_settings(patient))
        stack.callback(direct.close)
        task = Task(
            process=CONDUCTOR,
            history=self._folder,
            url=place.url,
            direct=place.direct,
            prefix=PREFIX,
            queue=self._name,
            lease=settings.lease,
            engine=settings.engine,
            seed=f"{settings.seed}/{self._plan.round}",
            producers=settings.producers,
            messages=self._plan.messages,
            seconds=self._plan.seconds,
            batch=self._plan.batch,
        )
        self._view = stack.enter_context(ENGINES[settings.engine].view(task, direct))
        if place.server is None:
            stack.callback(self._view.remove)
        self._recorder = Recorder(self._folder / f"{CONDUCTOR}.jsonl", CONDUCTOR)
        stack.callback(self._recorder.close)
        stack.enter_context(watch(self._recorder, settings.lease, "" if place.proxy else CONDUCTOR))
        longest = round(LONGEST_BACKOFF * 1000)
        rules = Rules(
            at=now(),
            queue=self._name,
            lease=round(settings.lease * 1000),
            tick=round(TICK * 1000),
            longest_delay=longest,
            engine=settings.engine,
        )
        self._recorder.write(rules)
        self._crew = Crew(task)
        stack.callback(self._crew.close)
        self._field = Field(
            self._crew,
            self._recorder,
            direct,
            self._plan.aof,
            self._tell,
            place.server,
            place.proxy,
            self._ground.shim,
        )

    def _start(self, interrupted: threading.Event) -> None:
        """Start the workers, and when they are ready, the others: from then on time counts."""
        for _ in range(self._settings.workers):
            self._crew.hire("worker")
        end = time.monotonic() + START
        while not all(worker.ready for worker in self._crew.of("worker")):
            if time.monotonic() > end or self._crew.problems:
                self._crew.problems.append("the workers did not begin")
                break
            if interrupted.wait(LOOK):
                break
            self._crew.look()
        for _ in range(self._settings.producers):
            self._crew.hire("producer")
        self._crew.hire("inspector")
        self._began = time.monotonic()

    def _break(self, interrupted: threading.Event) -> None:
        """Let the faults happen while the producers send, until both have come to an end."""
        self._phase = "faults"
        while not interrupted.is_set() and not self._stuck():
            self._advance()
            self._look()
            if not any(self._crew.of("producer")) and (not self._todo or self._drained):
                break
            ahead = self._todo[0][0] - self._elapsed if self._todo else LOOK
            interrupted.wait(min(max(ahead, 0.001), LOOK))
        else:
            if not interrupted.is_set():
                undone = ", ".join(sorted({planned.kind for _, _, planned, _ in self._todo})) or "none"
                self._crew.problems.append(f"nothing changed for {STUCK:g} s while it went on; faults left: {undone}")
        self._todo = [one for one in self._todo if one[3]]
        # What has begun is to end: a frozen worker goes on. Ctrl-C in a terminal has ended them all.
        while self._todo and any(self._crew.of("worker")):
            self._advance()
            time.sleep(LOOK)

    def _advance(self) -> None:
        """Let every fault take its next step whose time has come."""
        while self._todo and self._todo[0][0] <= self._elapsed:
            _, _, planned, course = heapq.heappop(self._todo)
            exclusive = planned.kind in EXCLUSIVE
            if course is None and exclusive and self._field.broken:
                self._later(LOOK, planned, None)
                continue
            self._field.broken = self._field.broken or exclusive
            course = course or carry_out(self._field, planned)
            try:
                wait = next(course)
            except StopIteration as end:
                self._done[planned.kind] += 1 if end.value is None else end.value
                if exclusive:
                    self._field.broken = False
            else:
                self._later(wait, planned, course)

    def _later(self, wait: float, planned: Planned, course: Course | None) -> None:
        heapq.heappush(self._todo, (self._elapsed + wait, next(self._numbers), planned, course))

    def _drain(self, interrupted: threading.Event) -> None:
        """Wait until nothing lives any more, or nothing changes any more."""
        self._phase = "calm"
        while not interrupted.wait(LOOK) and not self._stuck():
            self._look()
            if self._drained:
                return

    def _look(self) -> None:
        """Look at processes and queue now and then."""
        if time.monotonic() - self._looked < EVERY:
            return
        self._looked = time.monotonic()
        self._crew.look()
        at, calm = now(), not self._field.broken
        self._seen = self._view.look()
        if calm and now() - at > held_up(self._settings.lease):
            self._recorder.write(Fault(at=at, until=now(), kind="stall"))
        if self._seen and self._seen.changes != self._changed[1]:
            self._changed = time.monotonic(), self._seen.changes
        workers = sum(1 for _ in self._crew.of("worker"))
        progress = Progress(self._plan, self._elapsed, self._seen, workers, self._counted, self._phase)
        self._audience.refresh(progress)

    def _stuck(self) -> bool:
        """Tell whether nothing has changed for so long that nothing more is expected; a problem, if something lives."""
        since = max(self._changed[0], self._began)
        return time.monotonic() - since > STUCK

    @property
    def _counted(self) -> dict[str, int]:
        """How many faults have happened, by kind."""
        proxy = self._field.proxy
        return {**self._done, "replies": proxy.dropped} if proxy and "replies" in self._done else dict(self._done)

    @property
    def _drained(self) -> bool:
        """Whether nothing lived when the queue was last looked at."""
        return self._seen is not None and self._seen.living == 0

    def _tell(self, planned: Planned, text: str) -> None:
        self._audience.fault(self._elapsed, planned, text)

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began
