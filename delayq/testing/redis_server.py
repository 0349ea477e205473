"""A `redis-server` of one's own, to be killed, frozen and started again: for demo, torture and tests."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from delayq.config import read_settings
from delayq.errors import DelayqError, UnavailableError
from delayq.executor import open_executor
from delayq.values import Command

START_TIMEOUT = 20.0
STOP_TIMEOUT = 10.0


class ServerEndedError(RuntimeError):
    """A throwaway server did not start."""


def find_program() -> str | None:
    """Return the path of the `redis-server` that would be started, None where there is none."""
    return shutil.which("redis-server")


class RedisServer:
    """A `redis-server` in a folder that only this user may enter, on a unix socket, or on 127.0.0.1 with `tcp=True`.

    `config` is handed to redis-server after the defaults (no persistence), as on its command line:
    `RedisServer("--appendonly", "yes", "--appendfsync", "always")`. `env` is added to its environment. `start` or
    `with` starts it, `close` or the end of `with` removes it. The address stays the same over restarts.
    """

    def __init__(self, *config: str, tcp: bool = False, env: Mapping[str, str] | None = None) -> None:
        """Choose folder and address; nothing is started yet."""
        # A unix socket's path may have about a hundred characters; a user's own folder for such files can be longer.
        self.folder = Path(tempfile.mkdtemp(prefix="delayq-", dir="/tmp"))
        self.port = free_port() if tcp else 0
        self._config = config
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address, database 0, as redis-py reads it."""
        if self.port:
            return f"redis://127.0.0.1:{self.port}/0"
        return f"unix://{self._socket}?db=0"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether there is a process, be it paused."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, timeout: float = START_TIMEOUT) -> None:
        """Start the process and return when it answers, its data loaded; `ServerEndedError` if it ends instead."""
        program = find_program()
        if program is None:
            raise FileNotFoundError("there is no redis-server on PATH")
        if self.is_running:
            raise RuntimeError("already running")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the program found on PATH
                [program, *self._arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._env},
                start_new_session=True,  # Ctrl-C is for whoever started it, who then stops it
            )
        self._wait_for_answer(timeout)

    def stop(self) -> None:
        """Shut down in an orderly way (what is written, is kept); nothing happens if it is not running."""
        if not self.is_running:
            return
        process = self._running()
        self.resume()
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:  # an endless script does not let it go
            self.kill()

    def kill(self) -> None:
        """End the process at once, as a power cut would (SIGKILL)."""
        process = self._running()
        process.kill()
        process.wait()

    def restart(self) -> None:
        """Stop if running, and start again at the same address with the files that are there."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open, nothing is answered."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen process go on."""
        self._running().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop the process and remove its files."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _arguments(self) -> list[str]:
        listen = ["--port", str(self.port)]
        listen += ["--bind", "127.0.0.1"] if self.port else ["--unixsocket", str(self._socket)]
        defaults = ["--dir", str(self.folder), "--save", "", "--appendonly", "no", "--daemonize", "no"]
        return [*listen, *defaults, *self._config]

    @property
    def _socket(self) -> Path:
        return self.folder / "redis.sock"

    @property
    def _log(self) -> Path:
        return self.folder / "redis.log"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError("not running")
        return self._process

    def _wait_for_answer(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        executor = open_executor({"url": self.url}, read_settings({"deadline": 0.05, "socket_timeout": 5}))
        try:
            while True:
                try:
                    executor.call(Command(("PING",), bool))
                except UnavailableError as error:  # not listening yet, or still reading its files
                    if not self.is_running or time.monotonic() > end:
                        said = self._log.read_text(errors="replace").strip().splitlines()[-20:]
                        why = "\n".join(said) or str(error)
                        raise ServerEndedError(f"redis-server did not start: {why}") from error
                    time.sleep(0.005)
                except DelayqError:  # it answers, be it that it wants a password
                    return
                else:
                    return
        finally:
            executor.close()


# Ports are taken from below those that the system gives to outgoing connections: one of those could take the port
# while the server is down, even a client's own attempt to reconnect. Not chosen by `random` itself, which
# pytest-randomly seeds alike in all processes.
_CHOICE = random.SystemRandom()
_given: set[int] = set()  # a process's own locks do not keep itself out


@cache
def _claims() -> int:
    """Open the file in which each process has locked the bytes that its ports count."""
    path = Path(tempfile.gettempdir(), f"delayq-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def free_port(among: Sequence[int] = range(20_000, 32_000)) -> int:
    """Return a port of 127.0.0.1 on which nobody listens, and that no process of this user is given as well.

    It is this process's until it ends: between the choice of a port and the start of a server lies time in which
    another could be given the same.
    """
    while True:
        port = _CHOICE.choice(among)
        if port in _given:
            continue
        with suppress(OSError), socket.socket() as probe:
            fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port
