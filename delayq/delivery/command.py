"""Delivery to a program: it is run for each message, reads it from stdin, and decides by its exit code.

`EX_TEMPFAIL` comes from sysexits.h; 100 for a permanent failure comes from qmail's delivery commands.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from delayq.delivery.adapter import Adapter, TroubleHereError
from delayq.delivery.envelope import as_json, due_text
from delayq.delivery.trouble import is_shortage
from delayq.errors import ConfigurationError, short_repr
from delayq.safe_log import SafeLog
from delayq.values.outcomes import Reject, Retry, StopWorker
from delayq.values.times import Duration, monotonic, to_millis
from delayq.worker.delivery.message import Message

MAX_OUTPUT_BYTES = 1 << 16
"""Bytes of each stream to copy to the worker's output; the rest is read and dropped, so that the program goes on."""

_CHUNK = 1 << 15
_POLL = 0.05
"""Seconds between looks whether the program has ended, while something else keeps its output open."""
_OUTPUTS = {"stdout": 1, "stderr": 2}


class ProgramPipes:
    """The pipes of a running program. A process that inherits them cannot keep `wait` beyond the program's end."""

    def __init__(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        """Give the program `data` on its stdin; nothing is written before `wait`."""
        self._process = process
        self._data = memoryview(data)
        self._room = dict.fromkeys(_OUTPUTS.values(), MAX_OUTPUT_BYTES)
        self._selector = selectors.PollSelector()  # it opens no file: the program runs, so nothing may fail any more
        self.dropped = False
        """Whether the program printed more than was copied."""
        assert process.stdin and process.stdout and process.stderr  # noqa: PT018, S101 - all three are pipes
        self._register(process.stdin, selectors.EVENT_WRITE, None)
        self._register(process.stdout, selectors.EVENT_READ, _OUTPUTS["stdout"])
        self._register(process.stderr, selectors.EVENT_READ, _OUTPUTS["stderr"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the pipes, even if another process has them open."""
        for key in list(self._selector.get_map().values()):
            self._close(key.fileobj)  # type: ignore[arg-type]
        self._selector.close()

    def wait(self, until: float) -> int | None:
        """Return the program's exit code, or None if it still runs at this time of the monotonic clock."""
        while self._process.poll() is None:
            left = until - monotonic()
            if left <= 0:
                return None
            if self._selector.get_map():
                self._turn(min(left, _POLL))
            else:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(left)
        while self._turn(0):  # what it printed last
            if monotonic() > until:
                break
        return self._process.returncode

    def _turn(self, timeout: float) -> bool:
        """Write and read what is possible now; returns whether anything was read."""
        read = False
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._write(key.fileobj)  # type: ignore[arg-type]
            else:
                read = self._copy(key.fileobj, key.data) or read  # type: ignore[arg-type]
        return read

    def _write(self, stdin: IO[bytes]) -> None:
        try:
            self._data = self._data[os.write(stdin.fileno(), self._data[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # it does not read its input, which is its own affair
            self._data = self._data[:0]
        if not self._data:
            self._close(stdin)

    def _copy(self, stream: IO[bytes], to: int) -> bool:
        try:
            data = os.read(stream.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close(stream)
            return False
        room = self._room[to]
        self._room[to] -= min(room, len(data))
        self.dropped = self.dropped or len(data) > room
        with suppress(OSError):  # the worker's output is closed
            rest = memoryview(data)[:room]
            while rest:
                rest = rest[os.write(to, rest) :]
        return True

    def _register(self, stream: IO[bytes], events: int, data: int | None) -> None:
        os.set_blocking(stream.fileno(), False)
        self._selector.register(stream, events, data)

    def _close(self, stream: IO[bytes]) -> None:
        self._selector.unregister(stream)
        with suppress(OSError):
            stream.close()


EX_TEMPFAIL = 75
EX_PERMANENT = 100
REPLACED_WITHIN = 30.0
"""Seconds for which a program may be missing or not executable: while it is replaced by a newer version."""

log = SafeLog("delayq.deliver")

_REDIS_URL = re.compile(r"rediss?://", re.IGNORECASE)


class Command(Adapter):
    """Runs a program for each message, with the payload on its stdin: JSON, or the raw bytes if they are not JSON.

    Its environment is the worker's without secrets (see `pass_env`), plus DELAYQ_ID, DELAYQ_ATTEMPT and DELAYQ_DUE.
    Exit code 0 acknowledges the message, 75 retries it after `retry_after`, 100 moves it to the dead letter, and any
    other code retries it. If the program cannot be started, nothing is charged: callbacks wait until it can, and if it
    is missing or not executable for 30 s, the consumer stops by `StopWorker`. What the program prints goes to the
    worker's output, at most 64 KiB of each stream. It never runs in a shell. When it has ended, what it left running in
    its process group is killed.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        timeout: Duration = 60,
        retry_after: Duration | None = None,
        pass_env: Iterable[str] = (),
    ) -> None:
        """Run `argv`; after `timeout` the whole process group of the program is killed.

        Variables of the worker whose names begin with DELAYQ_ or whose values are Redis URLs are kept from the program,
        unless they are named in `pass_env`.
        """
        if isinstance(argv, str) or not argv or not all(isinstance(word, str) and "\0" not in word for word in argv):
            raise ConfigurationError(f"argv must be a list of strings, the first a program, not {short_repr(argv)}")
        if shutil.which(argv[0]) is None:
            raise ConfigurationError(f"program {short_repr(argv[0])} not found: check its name and PATH")
        if isinstance(pass_env, str):
            raise ConfigurationError(f"pass_env must be a list of names, not {short_repr(pass_env)}")
        self._argv = list(argv)
        self._name = Path(argv[0]).name
        self._pass_env = frozenset(pass_env)
        self._timeout = to_millis(timeout, "timeout", min=1) / 1000
        self._retry_after = None if retry_after is None else to_millis(retry_after, "retry_after") / 1000
        self._running: set[subprocess.Popen[bytes]] = set()
        self._starting = threading.Lock()
        self._closed = False

    def hand_on(self, message: Message[Any]) -> None:
        """Run the program and act on its exit code."""
        payload = as_json(message.payload)
        code = self._run(
            message.payload if payload is None else payload,
            {"DELAYQ_ID": message.id, "DELAYQ_ATTEMPT": str(message.attempt), "DELAYQ_DUE": due_text(message)},
        )
        if code == 0:
            return
        result = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if code == EX_PERMANENT:
            raise Reject(f"{self._name} {result}")
        raise Retry(f"{self._name} {result}", delay=self._retry_after if code == EX_TEMPFAIL else None)

    def _run(self, data: bytes, fields: dict[str, str]) -> int:
        until = monotonic() + self._timeout
        process = self._start(self._environment() | fields)
        try:
            with process, ProgramPipes(process, data) as pipes:
                try:
                    code = pipes.wait(until)
                finally:
                    _kill(process)
                if pipes.dropped:
                    id = fields["DELAYQ_ID"]
                    log.warning(
                        "message %s: %s printed too much, the rest was dropped", id, self._name, extra={"id": id}
                    )
        finally:
            self._running.discard(process)
        if code is None:
            raise Retry(f"{self._name} was killed after {self._timeout:g} s")
        return code

    def _environment(self) -> dict[str, str]:
        """Return the variables of the worker that the program may see."""
        return {
            name: value
            for name, value in os.environ.items()
            if name in self._pass_env or not (name.startswith("DELAYQ_") or _REDIS_URL.search(value))
        }

    def _start(self, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        # Under a lock, so that `close` sees every process that was started.
        with self._starting:
            if self._closed:
                raise StopWorker(f"{self._name} was not started: the worker is stopping")
            try:
                process = subprocess.Popen(  # noqa: S603 - the program chosen by the operator of the worker
                    self._argv,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                )
            except OSError as error:
                patience = None if is_shortage(error) else REPLACED_WITHIN
                raise TroubleHereError(
                    f"{self._name} cannot be started: {error.strerror}", patience=patience
                ) from error
            self._works_here()
            self._running.add(process)
            return process

    def close(self) -> None:
        """Kill all running programs with their process groups, and start no more."""
        with self._starting:
            self._closed = True
            for process in self._running.copy():
                if process.poll() is None:
                    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a program; its id is not used again while a process of the group lives."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
