"""Runs `delayq` in this process where possible, in a separate process where signals and exits matter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner

from delayq import DelayQueue
from delayq.cli import main
from tests.support.processes import Process
from tests.support.waiting import wait_until

PATIENCE = 40.0
"""Seconds to wait for a process: starting Python takes long on a busy machine."""


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def line(self) -> str:
        """The single line that a failed command prints on stderr."""
        (line,) = self.err.splitlines()
        assert line.startswith("delayq: "), line
        return line.removeprefix("delayq: ")


Cli = Callable[..., Ended]
OWN_ZONE = {"DELAYQ_TZ": None}
"""The environment without a chosen zone: times of a schedule are printed in its own."""


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """Run in an empty folder; a test may write a pyproject.toml there."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli(redis_url) -> Cli:
    """`cli("stats", "reminders", stdin=b"…", env={…})` runs a command in this process."""

    def run(*arguments: str, stdin: bytes | None = None, env: dict[str, str | None] | None = None) -> Ended:
        result = CliRunner().invoke(
            main,
            arguments,
            input=stdin,
            env={"DELAYQ_URL": redis_url, "DELAYQ_TZ": "UTC", "COLUMNS": None, **(env or {})},
            prog_name="delayq",
        )
        assert isinstance(result.exception, SystemExit | None), result.exc_info
        return Ended(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def queue(redis_url) -> Iterator[DelayQueue[Any]]:
    """The queue `reminders` on that Redis."""
    with DelayQueue("reminders", url=redis_url) as made:
        yield made


class Program:
    """`delayq` in a separate process, with its output in files."""

    def __init__(self, process: Process, out: Path, err: Path) -> None:
        self.process = process
        self._out, self._err = out, err

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for an effect of the program; a failure shows the end of its stderr."""

        def reached() -> bool:
            ended = self.process.poll() is not None
            if condition():
                return True
            assert not ended, f"ended without: {what}"
            return False

        try:
            wait_until(reached, PATIENCE, what, every=0.01)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.err[-4000:]}") from None

    def says(self, text: str, times: int = 1) -> None:
        self.until(lambda: self.err.count(text) >= times, f"{text!r} on stderr")

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        """Wait for the end, and return the exit code."""
        self.until(lambda: self.process.poll() is not None, "the end of the program")
        return self.process.returncode

    def ended(self) -> Ended:
        return Ended(self.ends(), self.out, self.err)


Start = Callable[..., Program]


@pytest.fixture
def start(redis_url, tmp_path) -> Iterator[Start]:
    """`start("worker", "app:queue")` starts a command as a separate process, in the test's folder."""
    with ExitStack() as stack:
        number = 0

        def begin(
            *arguments: str,
            url: str = redis_url,
            env: dict[str, str] | None = None,
            stdin: IO[bytes] | int = subprocess.DEVNULL,
        ) -> Program:
            nonlocal number
            number += 1
            out, err = tmp_path / f"out-{number}", tmp_path / f"err-{number}"
            command: Sequence[str] = [sys.executable, "-m", "delayq", *arguments]
            environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
            environment |= {"DELAYQ_URL": url, **(env or {})}
            with out.open("wb") as to_out, err.open("wb") as to_err:
                process = Process(command, env=environment, cwd=tmp_path, stdin=stdin, stdout=to_out, stderr=to_err)
            stack.callback(_end, process)
            return Program(process, out, err)

        yield begin


def _end(process: Process) -> None:
    # A parent passes the signals on; twice, so that it does not wait for what a callback may be waiting for.
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                continue


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """A terminal: the reader of the second descriptor receives what is written to the first."""
    ends = os.openpty()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@pytest.fixture
def importing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The test's folder; modules imported from it are unloaded after the test, and no log is configured."""
    monkeypatch.setattr("delayq.cli.worker.worker.configure_logging", lambda *_, **__: None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name, module in sys.modules.copy().items():
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
