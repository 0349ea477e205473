"""The processes of a run, as the one that started them handles them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress

from msgspec.structs import replace

from delayq.torture.process import READY, Task, write_task

END = 20.0
"""Seconds that a process is given to end before it is killed."""


class Member:
    """A process: a worker, a producer or an inspector. Its standard input is the way to end it, and ends with us."""

    def __init__(self, role: str, task: Task) -> None:
        """Start it."""
        self.name = task.process
        self.role = role
        self.busy = False
        """Whether a fault is at it, so that no other may be."""
        self.ending = False
        """Whether it has been told to end, in one way or another."""
        self._ready = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        self._process = subprocess.Popen(  # noqa: S603 - this Python
            [sys.executable, "-m", f"delayq.torture.{role}"],
            env=os.environ | write_task(task),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the run, which then ends its processes
        )

    @property
    def ready(self) -> bool:
        """Whether it has begun to work, and nothing has been done to it."""
        stdout = self._process.stdout
        if not self._ready and stdout and select.select([stdout], [], [], 0)[0]:
            self._ready = stdout.readline() == READY
        return self._ready and not self.busy and not self.ending and self.running

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def finish(self) -> None:
        """Ask it to finish what is under way and to end; returns at once."""
        self.ending = True
        with suppress(BrokenPipeError):
            if self._process.stdin:
                self._process.stdin.close()

    def trouble(self) -> str:
        """Return how it ended, if that was not well: its exit code and what it said last."""
        code = self._process.poll()
        if code in (None, 0) or (self.ending and code == -signal.SIGKILL):
            return ""
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return f"{self.name} ended with {code}" + (f": {said[-1]}" if said else "")

    def wait(self, timeout: float = END) -> None:
        """Wait until it has ended, and kill it if it does not."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> str:
        """End it at once, if it runs; returns what was wrong with it."""
        if self.running:
            self.ending = True
            self._process.kill()
            self._process.wait()
        trouble = self.trouble()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream:
                stream.close()
        return trouble


class Crew:
    """All processes of a round."""

    def __init__(self, task: Task) -> None:
        """Start nothing yet; `task` is what all have in common."""
        self.members: list[Member] = []
        self.problems: list[str] = []
        """What was wrong with those that have ended."""
        self._task = task
        self._numbers: dict[str, int] = {}

    def hire(self, role: str) -> Member:
        """Start a worker, a producer or an inspector."""
        number = self._numbers[role] = self._numbers.get(role, 0) + 1
        name = f"{role}-{number}"
        task = replace(self._task, process=name, number=number, history=self._task.history / f"{name}.jsonl")
        self.members.append(Member(role, task))
        return self.members[-1]

    def of(self, role: str) -> Iterator[Member]:
        """Yield those of a role that run."""
        return (member for member in self.members if member.role == role and member.running)

    def choose(self, target: float) -> Member | None:
        """Return one of the workers that are at work and untroubled, None if there is none just now."""
        found = [member for member in self.of("worker") if member.ready]
        return found[min(int(target * len(found)), len(found) - 1)] if found else None

    def look(self) -> None:
        """Let go of those that have ended, and put down what was wrong with them."""
        for member in [member for member in self.members if not member.running]:
            self._let_go(member)

    def finish(self, role: str) -> None:
        """Ask all of a role to finish, and wait for them."""
        found = [member for member in self.members if member.role == role]
        for member in found:
            member.finish()
        for member in found:
            member.wait()
            self._let_go(member)

    def close(self) -> None:
        """End all of them at once."""
        for member in list(self.members):
            self._let_go(member)

    def _let_go(self, member: Member) -> None:
        self.members.remove(member)
        if trouble := member.close():
            self.problems.append(trouble)
