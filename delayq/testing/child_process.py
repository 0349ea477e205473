"""Child processes of the torture and of the demos: start a Python module, signal it, wait for it, clean up."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, cast


class ChildProcess:
    """`python -m` with the given arguments, in a session of its own: Ctrl-C reaches only the parent, which stops it.

    Its standard input is a pipe that closes when the parent ends, however suddenly.
    """

    def __init__(self, *args: str, env: Mapping[str, str]) -> None:
        """Start the process; `env` is added to the environment: arguments would show a password to other users."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        self._process = subprocess.Popen(  # noqa: S603 - this Python
            [sys.executable, "-m", *args],
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self.stdin = cast("IO[bytes]", self._process.stdin)
        self.stdout = cast("IO[bytes]", self._process.stdout)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self._process.poll()

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self.exit_code is None

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process at once (SIGKILL) and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def close_stdin(self) -> None:
        """Close the standard input, which asks these processes to finish; returns at once."""
        with suppress(BrokenPipeError):
            self.stdin.close()

    def wait(self, timeout: float) -> None:
        """Wait until the process has ended; kill it after `timeout` seconds."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def terminate(self, timeout: float) -> None:
        """Ask the process to end (SIGTERM), wait for it, kill it after `timeout` seconds, and release its pipes."""
        self._process.terminate()  # does nothing if it has ended
        self.wait(timeout)
        self.close()

    def describe_exit(self) -> str:
        """Return the exit code and the last line of standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return f"exit code {self.exit_code}" + (f": {lines[-1]}" if lines else "")

    def close(self) -> None:
        """Kill the process if it still runs, and release its pipes."""
        if self.running:
            self.kill()
        self.close_stdin()
        self.stdout.close()
        self._errors.close()
