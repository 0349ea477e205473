"""Runs the rounds one after another, keeps the histories of those that failed, and adds up the results.

In a round, processes work on one queue while faults hit them, then drain it; a final scan and the check follow.
"""

from __future__ import annotations

import heapq
import secrets
import shutil
import threading
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

import msgspec

from delayq.broker.keys import Keys
from delayq.broker.transport.executor import open_executor
from delayq.errors import DelayqError
from delayq.options import QueueOptions, read_settings
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.inspecting.counts import Stats
from delayq.queue.server_check import removal
from delayq.testing.torture.disturbing.environment import Capabilities, Environment, open_environment
from delayq.testing.torture.disturbing.faults import POLL, FaultContext, FaultSteps, run_fault
from delayq.testing.torture.disturbing.processes import Processes
from delayq.testing.torture.final_scan import scan_all
from delayq.testing.torture.history import FaultRecord, Recorder, SettingsRecord, now
from delayq.testing.torture.process_task import TICK, ProcessTask, record_stalls, stall_threshold
from delayq.testing.torture.round_plan import EXCLUSIVE, PlannedFault, RoundPlan, RunSettings, draw_round
from delayq.testing.torture.rules.checker import check, find_files
from delayq.testing.torture.run_tally import RoundTally, RunTally, stalls_and_recovery, tally_rounds
from delayq.testing.torture.torture_screen import RoundProgress, TortureScreen
from delayq.testing.torture.workload import LIMIT_RECORDS, LIMITS, MAX_BACKOFF, TEMPLATE

RUNNER = "runner"
"""The name of this process in the history."""
POLL_QUEUE = 0.25
"""Seconds between two polls of the queue."""
START_TIMEOUT = 60.0
"""Seconds the processes may take to start."""
STUCK_AFTER = 30.0
"""Seconds without progress after which the round gives up."""


class Round:
    """One round, from its first process to its check."""

    def __init__(
        self, settings: RunSettings, plan: RoundPlan, capabilities: Capabilities, folder: Path, screen: TortureScreen
    ) -> None:
        self._settings, self._plan, self._capabilities = settings, plan, capabilities
        self._folder, self._screen = folder, screen
        self._name = f"torture-{secrets.token_hex(4)}-{plan.round}"
        self._done: Counter[str] = Counter()
        self._stats: Stats | None = None
        self._polled_at = 0.0
        self._last_change = (0.0, 0)
        self._phase = "starting"
        self._numbers = count()
        self._todo: list[tuple[float, int, PlannedFault, FaultSteps | None]] = [
            (fault.at, next(self._numbers), fault, None) for fault in plan.faults
        ]

    def run(self, interrupted: threading.Event) -> RoundTally:
        """Run the round; once `interrupted`, stop in an orderly way and check nothing."""
        began = time.monotonic()
        kinds = {fault.kind for fault in self._plan.faults}
        with ExitStack() as stack:
            environment = stack.enter_context(open_environment(self._capabilities, kinds, self._plan.aof))
            self._set_up(stack, environment)
            self._start(interrupted)
            self._cause_faults(interrupted)
            self._processes.stop("producer")
            self._processes.stop("inspector")
            if self._done["foreign"]:
                self._queue.repair(deep=True)
            self._drain(interrupted)
            self._processes.stop("worker")
            if not interrupted.is_set():
                self._recorder.write(self._scan())
        files = find_files([self._folder])
        stalls, recovery = stalls_and_recovery(files)
        return RoundTally(
            round=self._plan.round,
            faults=self._fault_counts,
            stalls=stalls,
            recovery=recovery,
            problems=self._processes.problems,
            verdict=None if interrupted.is_set() else check(files),
            seconds=round(time.monotonic() - began, 1),
        )

    def _set_up(self, stack: ExitStack, environment: Environment) -> None:
        """Open the history and the connections of this process, and prepare the others."""
        settings = self._settings
        options: QueueOptions = {"url": environment.direct, "deadline": 5}
        direct = open_executor(options, read_settings(options))
        stack.callback(direct.close)
        task = ProcessTask(
            process=RUNNER,
            history=self._folder,
            url=environment.url,
            direct=environment.direct,
            queue=self._name,
            lease=settings.lease,
            seed=f"{settings.seed}/{self._plan.round}",
            producers=settings.producers,
            messages=self._plan.messages,
            seconds=self._plan.seconds,
            batch=self._plan.batch,
            plain=settings.plain,
            partitions=settings.partitions,
        )
        self._queue = stack.enter_context(DelayQueue(task.queue, **task.poll_options()))
        if environment.server is None:
            for name in {task.queue, *task.keys}:
                stack.callback(direct.run, removal(Keys.of(task.prefix, name), task.prefix, name))
        for name, limit in () if settings.plain else LIMITS.items():
            self._queue.limits.set(name, **limit)
        if not settings.plain:
            self._queue.limits.set(TEMPLATE, in_order=True)
        self._scan = partial(scan_all, direct, task.keys, own=environment.server is not None)
        self._recorder = stack.enter_context(Recorder(self._folder / f"{RUNNER}.jsonl", RUNNER))
        stack.enter_context(record_stalls(self._recorder, settings.lease, "" if environment.proxy else RUNNER))
        self._recorder.write(
            SettingsRecord(
                at=now(),
                queue=self._name,
                lease=round(settings.lease * 1000),
                tick=round(TICK * 1000),
                max_nack_delay=round(MAX_BACKOFF * 1000),
                limits={} if settings.plain else LIMIT_RECORDS,
                partitions=settings.partitions,
            )
        )
        self._processes = Processes(task)
        stack.callback(self._processes.close)
        self._faults = FaultContext(
            self._processes, self._recorder, direct, environment, self._announce, [*task.keys.values()]
        )

    def _announce(self, planned: PlannedFault, text: str) -> None:
        self._screen.fault(self._elapsed, planned, text)

    def _start(self, interrupted: threading.Event) -> None:
        """Start the workers and, when they are ready, the others; the time of the round starts then."""
        for _ in range(self._settings.workers):
            self._processes.start_process("worker")
        end = time.monotonic() + START_TIMEOUT
        while not all(worker.ready for worker in self._processes.running("worker")):
            if time.monotonic() > end or self._processes.problems:
                self._processes.problems.append("the workers did not start")
                break
            if interrupted.wait(POLL):
                break
            self._processes.reap()
        for _ in range(self._settings.producers):
            self._processes.start_process("producer")
        self._processes.start_process("inspector")
        self._began = time.monotonic()

    def _cause_faults(self, interrupted: threading.Event) -> None:
        """Cause the faults while the producers send, until both are done."""
        self._phase = "faults"
        while not interrupted.is_set() and not self._stuck:
            self._advance()
            self._poll()
            if not any(self._processes.running("producer")) and (not self._todo or self._drained):
                break
            ahead = self._todo[0][0] - self._elapsed if self._todo else POLL
            interrupted.wait(min(max(ahead, 0.001), POLL))
        else:
            if not interrupted.is_set():
                left = ", ".join(sorted({planned.kind for _, _, planned, _ in self._todo})) or "none"
                self._processes.problems.append(f"no progress for {STUCK_AFTER:g} s; faults left: {left}")
        self._todo = [one for one in self._todo if one[3]]
        # Faults that have begun must end: a frozen worker is resumed. Ctrl-C in a terminal has ended all workers.
        while self._todo and any(self._processes.running("worker")):
            self._advance()
            time.sleep(POLL)

    def _advance(self) -> None:
        """Run the next step of every fault whose time has come."""
        while self._todo and self._todo[0][0] <= self._elapsed:
            _, _, planned, steps = heapq.heappop(self._todo)
            exclusive = planned.kind in EXCLUSIVE
            if steps is None and exclusive and self._faults.server_fault:
                self._schedule(POLL, planned, None)
                continue
            self._faults.server_fault = self._faults.server_fault or exclusive
            steps = steps or run_fault(self._faults, planned)
            try:
                wait = next(steps)
            except StopIteration as end:
                self._done[planned.kind] += 1 if end.value is None else end.value
                if exclusive:
                    self._faults.server_fault = False
            else:
                self._schedule(wait, planned, steps)

    def _schedule(self, wait: float, planned: PlannedFault, steps: FaultSteps | None) -> None:
        heapq.heappush(self._todo, (self._elapsed + wait, next(self._numbers), planned, steps))

    def _drain(self, interrupted: threading.Event) -> None:
        """Wait until every message is settled, or nothing changes any more."""
        self._phase = "draining"
        while not interrupted.wait(POLL) and not self._stuck:
            self._poll()
            if self._drained:
                return

    def _poll(self) -> None:
        """Poll processes and queue now and then."""
        if time.monotonic() - self._polled_at < POLL_QUEUE:
            return
        self._polled_at = time.monotonic()
        self._processes.reap()
        at, server_fault = now(), self._faults.server_fault
        try:
            self._stats = self._queue.stats()
        except DelayqError:
            self._stats = None
        if not server_fault and now() - at > stall_threshold(self._settings.lease):
            self._recorder.write(FaultRecord(at=at, until=now(), kind="stall"))
        if self._stats and (reached := sum(self._stats.totals.values())) != self._last_change[1]:
            self._last_change = time.monotonic(), reached
        workers = sum(1 for _ in self._processes.running("worker"))
        progress = RoundProgress(self._plan, self._elapsed, self._stats, workers, self._fault_counts, self._phase)
        self._screen.refresh(progress)

    @property
    def _stuck(self) -> bool:
        """Whether nothing has changed for so long that no more progress is expected."""
        return time.monotonic() - max(self._last_change[0], self._began) > STUCK_AFTER

    @property
    def _fault_counts(self) -> dict[str, int]:
        proxy = self._faults.environment.proxy
        return {**self._done, "replies": proxy.dropped} if proxy and "replies" in self._done else dict(self._done)

    @property
    def _drained(self) -> bool:
        """Whether every message was settled at the last poll."""
        return self._stats is not None and self._stats.counts.living == 0

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began


def tidy(folder: Path) -> None:
    """Remove the folder of a run, except for histories that were kept."""
    for file in folder.glob("shim.*"):
        file.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def command_of(settings: RunSettings, number: int | None = None) -> str:
    """Return the command that repeats a run or one of its rounds."""
    faults = ",".join(f"{kind}={count}" for kind, count in settings.faults.items()) or "none"
    words = [
        f"delayq torture --seed {settings.seed} --messages {settings.messages}",
        f"--per-round {settings.per_round} --faults {faults} --aof {','.join(settings.aof)} --lease {settings.lease:g}",
        f"--workers {settings.workers} --producers {settings.producers}",
    ]
    words += [f"--seconds {settings.seconds:g}"] if settings.seconds else []
    words += ["--plain"] if settings.plain else []
    words += [f"--partitions {settings.partitions}"] if settings.partitions > 1 else []
    words += [f"--round {number}"] if number else []
    return " ".join(words)


def run(
    settings: RunSettings,
    capabilities: Capabilities,
    screen: TortureScreen,
    interrupted: threading.Event,
    *,
    rounds: list[int],
    folder: Path,
    keep: bool,
) -> RunTally:
    """Run the rounds, each with its histories in a subfolder of `folder`; delete those of a round that was right.

    With `keep`, all histories are kept.
    """
    began = time.monotonic()
    done: list[RoundTally] = []
    for number in rounds:
        if interrupted.is_set():
            break
        plan = draw_round(settings, number)
        histories = folder / f"round-{number}"
        histories.mkdir(parents=True)
        screen.begin(plan, settings.rounds)
        try:
            tally = Round(settings, plan, capabilities, histories, screen).run(interrupted)
        except BaseException:
            shutil.rmtree(histories, ignore_errors=True)
            raise
        if keep or not tally.right:
            (histories / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
            tally = msgspec.structs.replace(tally, kept=str(histories))
        else:
            shutil.rmtree(histories)
        done.append(tally)
        screen.end(tally)
    only = rounds[0] if len(rounds) == 1 < settings.rounds else None
    return tally_rounds(command_of(settings, only), done, time.monotonic() - began, interrupted=interrupted.is_set())
