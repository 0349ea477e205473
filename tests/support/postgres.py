"""A throwaway PostgreSQL on a unix socket, in a folder of its own, as a user without rights."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL

from tests.support.processes import Process, run
from tests.support.waiting import wait_until

OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",  # a killed server loses nothing by it, only a killed machine
    "shared_buffers": "32MB",
    "max_connections": "60",
    "log_min_messages": "panic",
}


def find_program(name: str) -> str | None:
    """Return where a program of PostgreSQL is; None without one."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return shutil.which(name) or next(map(str, debian), None)


class Postgres:
    """A server with one database, `postgres`; `kill` and `start` are a crash and what follows."""

    def __init__(self) -> None:
        """Make the cluster and start it."""
        self.folder = Path(tempfile.mkdtemp(prefix="delayq-pg-", dir="/tmp"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = next(one for one in ("postgres", "nobody") if _has_user(one))
            entry = pwd.getpwnam(user)
            self._as = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
        self._run("initdb", "-A", "trust", "-U", "tester", "-E", "UTF8", "--no-locale", "-N", "-D", self.data)
        self.start()

    @property
    def data(self) -> str:
        """The folder of its data."""
        return str(self.folder / "data")

    def url(self, driver: str = "psycopg") -> URL:
        """Return its URL for SQLAlchemy."""
        return URL.create(f"postgresql+{driver}", "tester", database="postgres", query={"host": str(self.folder)})

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [word for name, value in OPTIONS.items() for word in ("-c", f"{name}={value}")]
        command = [find_program("postgres"), "-D", self.data, "-k", str(self.folder), *options]
        self.process = Process(command, lasting=True, cwd=self.folder, **self._as)  # type: ignore[list-item]
        wait_until(self._answers, timeout=60, message="PostgreSQL does not start")

    def kill(self) -> None:
        """Kill it as a crash would, and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it for good."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        asked = [find_program("psql"), "-h", self.folder, "-U", "tester", "-c", "select 1", "postgres"]
        return run(asked, capture_output=True).returncode == 0

    def _run(self, name: str, *args: str) -> None:
        command: Sequence[Any] = [find_program(name), *args]
        run(command, capture_output=True, check=True, cwd=self.folder, **self._as)


def _has_user(name: str) -> bool:
    with suppress(KeyError):
        return pwd.getpwnam(name).pw_uid > 0
    return False
