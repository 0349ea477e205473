"""The processes of a round: producers, workers and inspectors, as the runner starts, signals and stops them."""

from __future__ import annotations

import select
import signal
from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from delayq.testing.child_process import ChildProcess
from delayq.testing.torture.process_task import READY, ProcessTask, write_task

STOP_TIMEOUT = 20.0
"""Seconds a process may take to stop before it is killed."""


class ManagedProcess(ChildProcess):
    """A worker, producer or inspector; closing its standard input stops it."""

    def __init__(self, role: str, task: ProcessTask) -> None:
        super().__init__("delayq.testing.torture.process_roles", role, env=write_task(task))
        self.name = task.process
        self.role = role
        self.under_fault = False
        """Whether a fault is hitting it, so that no other may."""
        self.stopping = False
        """Whether it was told to stop, gracefully or not."""
        self._ready = False

    @property
    def ready(self) -> bool:
        """Whether it is working and no fault is hitting it."""
        if not self._ready and select.select([self.stdout], [], [], 0)[0]:
            self._ready = self.stdout.readline() == READY
        return self._ready and not self.under_fault and not self.stopping and self.running

    def stop(self) -> None:
        """Ask it to finish what is in flight and end; returns at once."""
        self.stopping = True
        self.close_stdin()

    def end(self) -> str:
        """Kill it if it still runs, and release it; return how it failed, '' if it did not."""
        if self.running:
            self.stopping = True
            self.kill()
        code = self.exit_code
        failed = code != 0 and not (self.stopping and code == -signal.SIGKILL)
        error = f"{self.name} ended with {self.describe_exit()}" if failed else ""
        self.close()
        return error


class Processes:
    """All processes of a round; `task` is what their tasks have in common."""

    def __init__(self, task: ProcessTask) -> None:
        self.all: list[ManagedProcess] = []
        self.problems: list[str] = []
        """How processes failed."""
        self._task = task
        self._numbers: Counter[str] = Counter()

    def start_process(self, role: str) -> None:
        """Start a worker, a producer or an inspector."""
        self._numbers[role] += 1
        number = self._numbers[role]
        name = f"{role}-{number}"
        task = replace(self._task, process=name, number=number, history=self._task.history / f"{name}.jsonl")
        self.all.append(ManagedProcess(role, task))

    def running(self, role: str) -> Iterator[ManagedProcess]:
        """Yield the running processes of a role."""
        return (process for process in self.all if process.role == role and process.running)

    def pick_worker(self, target: float) -> ManagedProcess | None:
        """Return the ready worker at this position (0 to 1); None if no worker is ready."""
        ready = [worker for worker in self.running("worker") if worker.ready]
        return ready[min(int(target * len(ready)), len(ready) - 1)] if ready else None

    def reap(self) -> None:
        """Release the processes that have ended, and note how they failed."""
        for process in [process for process in self.all if not process.running]:
            self._release(process)

    def stop(self, role: str) -> None:
        """Stop all processes of a role, and wait for them."""
        stopped = [process for process in self.all if process.role == role]
        for process in stopped:
            process.stop()
        for process in stopped:
            process.wait(STOP_TIMEOUT)
            self._release(process)

    def close(self) -> None:
        """Kill all of them."""
        for process in list(self.all):
            self._release(process)

    def _release(self, process: ManagedProcess) -> None:
        self.all.remove(process)
        if error := process.end():
            self.problems.append(error)
