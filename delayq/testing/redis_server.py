"""A temporary `redis-server` that can be killed, paused and restarted: for the demos, torture and tests."""

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
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Self

from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import open_executor
from delayq.errors import DelayqError, UnavailableError
from delayq.options import read_settings

START_TIMEOUT = 20.0
STOP_TIMEOUT = 10.0


class ServerEndedError(DelayqError, RuntimeError):
    """The temporary server did not start."""


def find_program() -> str | None:
    """Return the path of the `redis-server` to start, None if there is none on PATH."""
    return shutil.which("redis-server")


class RedisServer:
    """A `redis-server` in a private folder, on a unix socket, or on 127.0.0.1 with `tcp=True`.

    `config` is passed to redis-server after the defaults (no persistence), as on its command line:
    `RedisServer("--appendonly", "yes", "--appendfsync", "always")`. `env` is added to its environment. `start` or
    `with` starts it; `close` or the end of `with` removes it. Restarts do not change its URL.
    """

    def __init__(self, *config: str, tcp: bool = False, env: Mapping[str, str] | None = None) -> None:
        # The path of a unix socket is limited to about 100 characters, which a user's own folder may exceed.
        self.folder = Path(tempfile.mkdtemp(prefix="delayq-", dir="/tmp"))
        self._socket, self._log = self.folder / "redis.sock", self.folder / "redis.log"
        self.port = free_port() if tcp else 0
        self._config = config
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of database 0, for redis-py."""
        if self.port:
            return f"redis://127.0.0.1:{self.port}/0"
        return f"unix://{self._socket}?db=0"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the process is running or paused."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, timeout: float = START_TIMEOUT) -> None:
        """Start the process and wait until it has loaded its data and replies; raises `ServerEndedError` if it ends."""
        program = find_program()
        if program is None:
            raise FileNotFoundError("no redis-server on PATH: install Redis first")
        if self.is_running:
            raise RuntimeError("the redis-server is already running")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the program found on PATH
                [program, *self._arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._env},
                start_new_session=True,  # so that Ctrl-C reaches only the parent, which then stops it
            )
        self._wait_until_ready(timeout)

    def stop(self) -> None:
        """Shut down cleanly, keeping written data; does nothing if it is not running."""
        if not self.is_running:
            return
        process = self._running()
        self.resume()
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:  # a script that never ends prevents the shutdown
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
        """Resume a paused process."""
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def _arguments(self) -> list[str]:
        listen = ["--port", str(self.port)]
        listen += ["--bind", "127.0.0.1"] if self.port else ["--unixsocket", str(self._socket)]
        defaults = ["--dir", str(self.folder), "--save", "", "--appendonly", "no", "--daemonize", "no"]
        return [*listen, *defaults, *self._config]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError("the redis-server is not running")
        return self._process

    def _wait_until_ready(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        settings = read_settings({"deadline": 0.05, "socket_timeout": 5})
        with closing(open_executor({"url": self.url}, settings)) as executor:
            while True:
                try:
                    executor.call(RedisCommand(("PING",), bool))
                except UnavailableError as error:  # not listening yet, or still reading its files
                    if not self.is_running or time.monotonic() > end:
                        lines = self._log.read_text(errors="replace").strip().splitlines()[-20:]
                        reason = "\n".join(lines) or str(error)
                        raise ServerEndedError(f"redis-server did not start: {reason}") from error
                    time.sleep(0.005)
                except DelayqError:  # it replies, even if only to ask for a password
                    return
                else:
                    return


# Ports are below the range for outgoing connections: otherwise such a connection, even a client's own attempt to
# reconnect, could take the port while the server is down. `random` itself is not used, since pytest-randomly seeds it
# alike in all processes.
_RANDOM = random.SystemRandom()
_taken: set[int] = set()  # a process's own locks do not exclude itself


@cache
def _lock_file() -> int:
    """Open the file in which each process locks one byte for each of its ports."""
    path = Path(tempfile.gettempdir(), f"delayq-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def free_port(among: Sequence[int] = range(20_000, 32_000)) -> int:
    """Return a port of 127.0.0.1 that is free and that no other process of this user has been given.

    The port is reserved for this process until it ends. Otherwise another process could be given the same port before
    the server starts.
    """
    while True:
        port = _RANDOM.choice(among)
        if port in _taken:
            continue
        with suppress(OSError), socket.socket() as probe:
            fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            _taken.add(port)
            return port
