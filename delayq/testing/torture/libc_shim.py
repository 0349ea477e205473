"""The shim between a `redis-server` and the system: sets its clock, spoils its disk, and cuts its power.

shim = build(folder)                        # with the C compiler of the machine; Linux only
with RedisServer("--appendonly", "yes", env=shim.env) as server:
    shim.shift(-3_600_000)                  # the server's clock is an hour slow
    shim.slow(0.5)                          # each fsync takes half a second longer
    server.kill()
    shim.cut_power(server.folder)           # what had not reached the disk is gone
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
"""Files whose durable length is known, as in shim.c."""
_SETTING, _FILE = struct.Struct("=q"), struct.Struct("=qqq")
_SHIFT, _SYNC_DELAY, _SYNC_ERROR, _WRITE_ERROR, _SYNC_BEGAN, _SYNC_ENDED, _BOOK = (
    place * _SETTING.size for place in range(7)
)
_EVERY = 980_000
"""Microseconds from the beginning of a sync to when the next one is handed to a thread, at least."""
_FLUSHED = 150_000
"""Microseconds after which Redis has surely written what it held back during a sync."""


class NoShimError(RuntimeError):
    """The shim cannot be had on this machine."""


class Shim:
    """A built shim, and the file through which the server that has it loaded is ruled."""

    def __init__(self, library: Path, control: Path) -> None:
        """Make the file; all is as if there were no shim."""
        self.env = {"LD_PRELOAD": str(library), "DELAYQ_SHIM": str(control)}
        """What the server is to be started with."""
        control.write_bytes(bytes(_BOOK + FILES * _FILE.size))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 0)

    def shift(self, milliseconds: int) -> None:
        """Set the server's time of day so far off the machine's; 0 sets it right. Monotonic clocks stay as they are."""
        self._set(_SHIFT, milliseconds * 1000)

    def slow(self, seconds: float) -> None:
        """Let each fsync take so much longer."""
        self._set(_SYNC_DELAY, round(seconds * 1_000_000))

    def fail_syncs(self, error: int) -> None:
        """Let each fsync fail with an errno; 0 lets it work again."""
        self._set(_SYNC_ERROR, error)

    def fail_writes(self, error: int) -> None:
        """Let each write to a file fail half-way with an errno, such as ENOSPC; 0 lets it work again."""
        self._set(_WRITE_ERROR, error)

    def cut_power(self, folder: Path) -> tuple[int, int]:
        """Cut every append-only file of a killed server at the last byte that had reached the disk.

        Returns how many bytes that took, and since when (monotonic, µs) what was written may be gone.
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
        """Return since when a server that was killed just then (monotonic, µs) may have held writes back; 0 if not.

        While a sync is under way, Redis does not write under `everysec`, but answers. It is under way as soon as it is
        handed to a thread, which may take a while to begin: when a second of the server's clock begins, or, from Redis
        7.2 on, a second after the last one.
        """
        began, ended, shift = map(self._get, (_SYNC_BEGAN, _SYNC_ENDED, _SHIFT))
        if ended < began or at - ended < _FLUSHED:
            return began
        second = at - (time.time_ns() // 1000 + shift) % 1_000_000
        handed = (second, began + _EVERY) if began else (second,)
        return min((due for due in handed if began < due <= at), default=0)

    def close(self) -> None:
        """Let go of the file."""
        self._control.close()

    def _get(self, place: int) -> int:
        return int(_SETTING.unpack_from(self._control, place)[0])

    def _set(self, place: int, value: int) -> None:
        _SETTING.pack_into(self._control, place, value)

    def _book(self) -> Iterator[tuple[int, int, int]]:
        return _FILE.iter_unpack(self._control[_BOOK:])


def build(folder: Path) -> Shim:
    """Build the shim in a folder; `NoShimError` says in a sentence why there is none."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux"):
        raise NoShimError("the shim under the server needs Linux")
    if compiler is None:
        raise NoShimError("the shim under the server needs a C compiler, and there is none on PATH")
    library = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl", "-lpthread"]
    made = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - the compiler on PATH
    if made.returncode:
        raise NoShimError(f"the shim under the server does not build: {made.stderr.strip()[:200]}")
    return Shim(library, folder / "shim.control")
