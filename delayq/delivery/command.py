"""Delivery to a program: it is run for each message, reads it from stdin, and decides by its exit code.

`EX_TEMPFAIL` comes from sysexits.h; 100 for a permanent failure comes from qmail's delivery commands.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from delayq.delivery.adapter import Adapter
from delayq.delivery.envelope import as_json, due_text
from delayq.errors import ConfigurationError, short_repr
from delayq.outcomes import Reject, Retry
from delayq.times import Duration, to_millis
from delayq.worker.message import Message

EX_TEMPFAIL = 75
EX_PERMANENT = 100


class Command(Adapter):
    """Runs a program for each message, with the payload on its stdin: JSON, or the raw bytes if they are not JSON.

    Its environment is the worker's, plus DELAYQ_ID, DELAYQ_ATTEMPT and DELAYQ_DUE. Exit code 0 acknowledges the
    message, 75 retries it after `retry_after`, 100 moves it to the dead letter, and any other code retries it. The
    program writes to the worker's output. It never runs in a shell.
    """

    def __init__(self, argv: Sequence[str], *, timeout: Duration = 60, retry_after: Duration | None = None) -> None:
        """Run `argv`; after `timeout` the whole process group of the program is killed."""
        if isinstance(argv, str) or not argv or not all(isinstance(word, str) and "\0" not in word for word in argv):
            raise ConfigurationError(f"argv must be a list of strings, the first a program, not {short_repr(argv)}")
        if shutil.which(argv[0]) is None:
            raise ConfigurationError(f"program {short_repr(argv[0])} not found: check its name and PATH")
        self._argv = list(argv)
        self._name = Path(argv[0]).name
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

    def _run(self, data: bytes, environment: dict[str, str]) -> int:
        process = self._start(environment)
        try:
            with process:
                try:
                    process.communicate(data, self._timeout)
                except BaseException:
                    _kill(process)
                    raise
        except subprocess.TimeoutExpired:
            raise Retry(f"{self._name} was killed after {self._timeout:g} s") from None
        finally:
            self._running.discard(process)
        return process.returncode

    def _start(self, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        # Under a lock, so that `close` sees every process that was started.
        with self._starting:
            if self._closed:
                raise Retry(f"{self._name} was not started: the worker is stopping")
            try:
                process = subprocess.Popen(  # noqa: S603 - the program chosen by the operator of the worker
                    self._argv, env=os.environ | environment, stdin=subprocess.PIPE, start_new_session=True
                )
            except OSError as error:
                raise Retry(f"{self._name} cannot be started: {error.strerror}") from error
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
    """Kill the group of a process that was not waited for yet, so its id cannot have been reused."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
