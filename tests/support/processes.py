"""Processes that a test starts: they end with it, and so does all that they have started, however the test ends.

`Process` and `run` take what `subprocess.Popen` and `subprocess.run` take, and take their place in all tests. A process
and its children have a mark in their environment, by which `end` finds them after the test. If pytest itself is
killed, a guard does the same.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from io import RawIOBase, TextIOBase
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE = 60.0
"""Seconds that `with Process(…)` waits at its end for the process to end by itself."""
MARK = "STARTED_BY_TESTS"
GUARD = """
import sys
from tests.support.processes import MARK, kill_all
sys.stdin.read()
kill_all(f"{MARK}={sys.argv[1]}-")
"""


class Process(subprocess.Popen[Any]):
    """A process in a group of its own; one that is `lasting` outlives the test, and ends with pytest at the latest."""

    def __init__(
        self, command: Sequence[str | Path], *, env: dict[str, str] | None = None, lasting: bool = False, **options: Any
    ) -> None:
        """Start it, and see to its end."""
        marked = (os.environ if env is None else env) | guarded(lasting=lasting)
        super().__init__(command, env=marked, **{"start_new_session": True} | options)
        self._ahead: dict[str, Any] = {}
        _started.append(self)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:  # noqa: A002 - its name
        """Do as `Popen`, and return also what was read ahead: with a line, more may have been read from the pipe."""
        for name in ("stdout", "stderr"):
            stream = getattr(self, name)
            if stream is not None and not stream.closed:
                self._ahead[name] = self._ahead.get(name, stream.read(0)) + _read_ahead(stream)
        out, err = super().communicate(input, timeout)
        return self._with_ahead("stdout", out), self._with_ahead("stderr", err)

    def _with_ahead(self, name: str, rest: Any) -> Any:
        return rest if rest is None else self._ahead.pop(name, rest[:0]) + rest

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for its end, but not for ever; kill it after an error."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                with suppress(BrokenPipeError):
                    stream.close()
        try:
            if error is None:
                self.wait(PATIENCE)
        finally:
            self.end()

    def end(self) -> None:
        """Kill it, its group included."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.kill()
            self.wait()


def guarded(*, lasting: bool) -> dict[str, str]:
    """Return what to add to the environment of a process that is to end with the test, or with pytest if `lasting`."""
    start_guard(os.getpid())
    return {MARK: f"{os.getpid()}-{'lasting' if lasting else 'test'}"}


_started: list[Process] = []


def _read_ahead(stream: Any) -> Any:
    """Return what can be had from the output of a process without waiting for more, bytes or text."""
    is_text, nothing = isinstance(stream, TextIOBase), stream.read(0)
    if not is_text and isinstance(stream, RawIOBase):
        return nothing  # it has no buffer
    os.set_blocking(stream.fileno(), False)
    parts = []
    try:
        while part := stream.read(1) if is_text else stream.read1():
            parts.append(part)
    except (TypeError, BlockingIOError):
        pass  # nothing is there: Python 3.14 says so, the others stumble
    finally:
        os.set_blocking(stream.fileno(), True)
    return nothing.join(parts)


def run(
    command: Sequence[str | Path],
    *,
    input: str | bytes | None = None,  # noqa: A002 - as subprocess calls it
    timeout: float | None = None,
    check: bool = False,
    capture_output: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a process to its end, as `subprocess.run` does; with `check` an error shows what the process has said."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Process(command, **options) as process:
        out, err = process.communicate(input, timeout)
    if check and process.returncode:
        raise AssertionError(f"ended with {process.returncode}:\n{out or ''}\n{err or ''}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def end_all() -> None:
    """End what the test that is over has started, except what is to last."""
    if _started:
        kill_all(f"{MARK}={os.getpid()}-test")
        for process in _started:
            process.poll()
        _started.clear()


def kill_all(entry: str) -> None:
    """Kill every process whose environment has an entry that begins so, and what they start meanwhile."""
    for _ in range(100):
        seen = list(environments())
        found = [pid for pid, environment in seen if f"\0{entry}".encode() in b"\0" + environment]
        if not found and not any(_is_starting(pid) for pid, environment in seen if not environment):
            return
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _is_starting(pid: int) -> bool:
    """Return whether a process has its program, but not yet its environment, as is so for a moment in `exec`."""
    process = Path(f"/proc/{pid}")
    with suppress(OSError):
        return bool((process / "exe").readlink()) and not (process / "cmdline").read_bytes()
    return False


def environments() -> Iterator[tuple[int, bytes]]:
    """Yield the id and the environment of every process that we may look at; dead ones have none."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield int(process.name), (process / "environ").read_bytes()


def processes_of(folder: Path) -> list[bytes]:
    """Return the commands of the processes that were started under this TMPDIR, servers and workers included."""
    found = []
    for pid, environment in environments():
        if f"TMPDIR={folder}\0".encode() in environment:
            with suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    return found


@cache
def start_guard(pid: int) -> None:
    """Start what kills all that this process has started when it is dead, for only then does its pipe close."""
    command = [sys.executable, "-ES", "-c", GUARD, str(pid)]  # without site-packages: coverage would measure it
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=Path(__file__).parents[2], start_new_session=True)

    @atexit.register
    def end() -> None:
        if os.getpid() == pid:  # not in a fork, which has the pipe as well
            guard.communicate()
