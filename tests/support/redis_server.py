"""Throwaway Redis servers that a test may kill, freeze and start again."""

from __future__ import annotations

import random
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from tests.support.waiting import wait_until

START_TIMEOUT = 20.0
STOP_TIMEOUT = 10.0


def find_program() -> str | None:
    """Return the path of the `redis-server` the tests will start, None where there is none."""
    return shutil.which("redis-server")


class RedisServer:
    """A `redis-server` of its own in a folder of its own, on a unix socket, or on 127.0.0.1 with `tcp=True`.

    `config` is handed to redis-server after the defaults (no persistence), as on its command line:
    `RedisServer("--appendonly", "yes", "--appendfsync", "always")`. `start` or `with` starts it, `close`
    or the end of `with` removes it. The address stays the same over restarts.
    """

    def __init__(self, *config: str, tcp: bool = False) -> None:
        # A unix socket's path may have about a hundred characters; pytest's own folders can be longer.
        self.folder = Path(tempfile.mkdtemp(prefix="dq-", dir="/tmp"))
        self.port = _free_port() if tcp else 0
        self._config = config
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

    def client(self) -> redis.Redis:
        """Return a new client that answers in bytes; its owner closes it."""
        return redis.Redis.from_url(self.url)

    def start(self) -> None:
        """Start the process and return when it answers, its data loaded."""
        program = find_program()
        if program is None:
            raise FileNotFoundError("there is no redis-server on PATH")
        if self.is_running:
            raise RuntimeError("already running")
        listen = ["--port", str(self.port)]
        listen += ["--bind", "127.0.0.1"] if self.port else ["--unixsocket", str(self._socket)]
        defaults = ["--dir", str(self.folder), "--save", "", "--appendonly", "no", "--daemonize", "no"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [program, *listen, *defaults, *self._config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for pytest, which then stops the server
            )
        with self.client() as client:
            wait_until(lambda: self._answers(client), START_TIMEOUT, f"an answer of {self.url}")

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

    def _answers(self, client: redis.Redis) -> bool:
        if not self.is_running:
            last_words = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"redis-server ended at its start:\n{last_words}")
        try:
            return bool(client.ping())
        except redis.ConnectionError:  # not listening yet, or (BusyLoadingError) still reading its files
            return False


def _free_port() -> int:
    # Below the ports that the system gives to outgoing connections: one of those could take the port while
    # the server is down, even a client's own attempt to reconnect. Not from `random` itself, which
    # pytest-randomly seeds alike in all processes.
    choice = random.SystemRandom()
    while True:
        port = choice.randrange(20_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
