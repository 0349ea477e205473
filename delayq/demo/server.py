"""The Redis the demo runs on: the one it is told, else a throwaway `redis-server`, else one inside this process."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from delayq.calls import Command
from delayq.clock import Duration
from delayq.config import read_settings
from delayq.errors import UnavailableError
from delayq.executor import open_executor

START_TIMEOUT = 20.0
STOP_TIMEOUT = 5.0


class ServerEndedError(RuntimeError):
    """The throwaway server did not start."""


@dataclass(frozen=True, slots=True)
class Server:
    """A Redis to run on."""

    url: str
    label: str
    """What it is, for people; without a password."""
    embedded: bool = False


@contextmanager
def open_server(url: str | None, *, patience: Duration = 5) -> Iterator[Server]:
    """Yield the Redis at `url`; without one a throwaway server, or an embedded one where there is no redis-server.

    `patience` is how long an answer is waited for.
    """
    if url and not url.startswith("memory://"):
        parts = urlsplit(url)
        where = f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path
        yield Server(url, f"redis {_version(url, patience)} at {where}")
    elif not url and (program := shutil.which("redis-server")):
        with _throwaway(program) as address:
            yield Server(address, f"a throwaway redis-server {_version(address, patience)}")
    else:
        label = "memory://, embedded in this process" + ("" if url else ": no redis-server on PATH")
        yield Server(f"memory://delayq-demo-{secrets.token_hex(4)}", label, embedded=True)


@contextmanager
def _throwaway(program: str) -> Iterator[str]:
    """Run a `redis-server` on a unix socket in a folder of its own that only this user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="delayq-demo-"))
    options = ["--port", "0", "--unixsocket", str(folder / "redis.sock"), "--dir", str(folder)]
    options += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
    try:
        with (folder / "redis.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - the program found on PATH
                [program, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the demo, which needs the server for its account
            )
        try:
            url = f"unix://{folder / 'redis.sock'}?db=0"
            _wait_for(process, url, folder / "redis.log")
            yield url
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + START_TIMEOUT
    while True:
        try:
            _version(url, 0.1)
        except UnavailableError as error:
            if process.poll() is not None or time.monotonic() > end:
                said = log.read_text(errors="replace").strip().splitlines() or [str(error)]
                raise ServerEndedError(f"redis-server did not start: {said[-1]}") from error
        else:
            return


def _version(url: str, patience: Duration) -> str:
    def parse(answer: bytes) -> str:
        lines = answer.decode("utf-8", "replace").splitlines()
        return next((line.partition(":")[2] for line in lines if line.startswith("redis_version:")), "")

    executor = open_executor({"url": url}, read_settings({"deadline": patience}))
    try:
        return executor.call(Command(("INFO", "server"), parse))
    finally:
        executor.close()
