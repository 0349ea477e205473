"""A library preloaded into `redis-server` that sets its clock, breaks its disk and simulates power cuts.

shim = build(folder)                        # needs Linux and a C compiler
with RedisServer("--appendonly", "yes", env=shim.env) as server:
    shim.shift(-3_600_000)                  # the server's clock is an hour slow
    shim.slow(0.5)                          # each fsync takes half a second longer
    server.kill()
    shim.cut_power(server.folder)           # what had not reached the disk is lost
    server.start()
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

FILES = 256
"""How many files are tracked; as in shim.c."""
_SETTING, _FILE = struct.Struct("=q"), struct.Struct("=qqq")
_SHIFT, _SYNC_DELAY, _SYNC_ERROR, _WRITE_ERROR, _SYNC_BEGAN, _SYNC_ENDED, _BOOK = (
    place * _SETTING.size for place in range(7)
)
_EVERY = 980_000
"""Microseconds from the beginning of a sync to when the next one is handed to a thread, at least."""
_FLUSHED = 150_000
"""Microseconds after which Redis has certainly written what it postponed during a sync."""


class NoShimError(RuntimeError):
    """The shim cannot be built on this machine."""


class Shim:
    """A built shim, and the memory-mapped file that controls the server that loaded it."""

    def __init__(self, library: Path, control: Path) -> None:
        self.env = {"LD_PRELOAD": str(library), "DELAYQ_SHIM": str(control)}
        """The environment to start the server with."""
        control.write_bytes(bytes(_BOOK + FILES * _FILE.size))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 0)

    def shift(self, milliseconds: int) -> None:
        """Shift the server's time of day against the machine's; 0 sets it right. Monotonic clocks are not changed."""
        self._set(_SHIFT, milliseconds * 1000)

    def slow(self, seconds: float) -> None:
        """Make each fsync take this much longer."""
        self._set(_SYNC_DELAY, round(seconds * 1_000_000))

    def fail_syncs(self, error: int) -> None:
        """Make each fsync fail with an errno; 0 makes it work again."""
        self._set(_SYNC_ERROR, error)

    def fail_writes(self, error: int) -> None:
        """Make each write to a file fail half-way with an errno, such as ENOSPC; 0 makes it work again."""
        self._set(_WRITE_ERROR, error)

    def cut_power(self, folder: Path) -> tuple[int, int]:
        """Truncate every append-only file of a killed server at the last byte that had reached the disk.

        Return how many bytes were lost, and since when (monotonic, µs) writes may be lost.
        """
        durable = {inode: (size, began) for inode, size, began in self._book()}
        lost, since = 0, []
        for path in folder.rglob("*.aof"):
            about = path.stat()
            size, began = durable.get(about.st_ino, (0, 1))
            if size < about.st_size:
                os.truncate(path, size)
                lost += about.st_size - size
                since.append(began)
        return lost, min(since, default=0)

    def held_back(self, at: int) -> int:
        """Return since when a server killed `at` that time may have postponed writes (monotonic, µs); 0 if not.

        Under `everysec`, Redis replies during a sync but does not write. A sync counts from when it is handed to a
        thread, which may start it later: when a second of the server's clock begins or, from Redis 7.2 on, a second
        after the last sync.
        """
        began, ended, shift = map(self._get, (_SYNC_BEGAN, _SYNC_ENDED, _SHIFT))
        if ended < began or at - ended < _FLUSHED:
            return began
        second = at - (time.time_ns() // 1000 + shift) % 1_000_000
        handed = (second, began + _EVERY) if began else (second,)
        return min((due for due in handed if began < due <= at), default=0)

    def close(self) -> None:
        """Close the file."""
        self._control.close()

    def _get(self, place: int) -> int:
        return int(_SETTING.unpack_from(self._control, place)[0])

    def _set(self, place: int, value: int) -> None:
        _SETTING.pack_into(self._control, place, value)

    def _book(self) -> Iterator[tuple[int, int, int]]:
        return _FILE.iter_unpack(self._control[_BOOK:])


def build(folder: Path) -> Shim:
    """Build the shim in a folder; raise `NoShimError` if that is not possible."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux"):
        raise NoShimError("the shim for Redis needs Linux")
    if compiler is None:
        raise NoShimError("the shim for Redis needs a C compiler, and none is on PATH")
    library = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl", "-lpthread"]
    made = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - the compiler on PATH
    if made.returncode:
        raise NoShimError(f"the shim for Redis does not compile: {made.stderr.strip()[:200]}")
    return Shim(library, folder / "shim.control")
