"""Delivery to a program: started for each message, told of it on its stdin, asked by its exit code.

`EX_TEMPFAIL` is that of sysexits.h, and 100 means a permanent failure since qmail's delivery commands.
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

from delayq.clock import Duration, milliseconds
from delayq.deliver.adapter import Adapter
from delayq.deliver.envelope import as_json, due_text
from delayq.errors import ConfigurationError, shown
from delayq.message import Message
from delayq.outcomes import Reject, Retry

EX_TEMPFAIL = 75
EX_PERMANENT = 100


class Command(Adapter):
    """Runs a program for each message, with the payload on its stdin: JSON, or the bytes if they are none.

    Its environment is that of the worker with DELAYQ_ID, DELAYQ_ATTEMPT and DELAYQ_DUE. Exit code 0 acknowledges, 75
    has the message delivered again after `retry_after`, 100 moves it to the dead letter, and any other has it delivered
    again. What it prints goes where the worker's output goes. It is never run by a shell.
    """

    def __init__(self, argv: Sequence[str], *, timeout: Duration = 60, retry_after: Duration | None = None) -> None:
        """Run `argv`; after `timeout` the program is killed with all that it has started in its process group."""
        if isinstance(argv, str) or not argv or not all(isinstance(word, str) and "\0" not in word for word in argv):
            raise ConfigurationError("argv must be a list of words, the first of them a program")
        if shutil.which(argv[0]) is None:
            raise ConfigurationError(f"there is no program {shown(argv[0])}")
        self._argv = list(argv)
        self._name = Path(argv[0]).name
        self._timeout = milliseconds(timeout, "timeout", least=1) / 1000
        self._retry_after = None if retry_after is None else milliseconds(retry_after, "retry_after") / 1000
        self._running: set[subprocess.Popen[bytes]] = set()
        self._starting = threading.Lock()
        self._closed = False

    def hand_on(self, message: Message[Any]) -> None:
        """Run the program to its end, and judge its exit code."""
        payload = as_json(message.payload)
        code = self._run(
            message.payload if payload is None else payload,
            {"DELAYQ_ID": message.id, "DELAYQ_ATTEMPT": str(message.attempt), "DELAYQ_DUE": due_text(message)},
        )
        if code == 0:
            return
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if code == EX_PERMANENT:
            raise Reject(f"{self._name} {how}")
        raise Retry(f"{self._name} {how}", delay=self._retry_after if code == EX_TEMPFAIL else None)

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
        # Under a lock, so that `close` misses none that has just been started.
        with self._starting:
            if self._closed:
                raise Retry(f"{self._name} is not started any more")
            try:
                process = subprocess.Popen(  # noqa: S603 - the program that whoever runs the worker has named
                    self._argv, env=os.environ | environment, stdin=subprocess.PIPE, start_new_session=True
                )
            except OSError as error:
                raise Retry(f"{self._name} cannot be started: {error.strerror}") from error
            self._running.add(process)
            return process

    def close(self) -> None:
        """Kill the programs that still run, each with its process group, and start no other."""
        with self._starting:
            self._closed = True
            for process in self._running.copy():
                if process.poll() is None:
                    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the group of a process that has not been waited for, so that its number is still its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
