"""Time zone data that a test makes up."""

from __future__ import annotations

import struct
from pathlib import Path


def write_zone(path: Path, hours: int) -> None:
    """Write a zone with a fixed offset from UTC, in the format of RFC 8536."""
    header = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    block = struct.pack(">lbb", hours * 3600, 0, 0) + b"XXX\0"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + block + header + block + f"\n<XXX>{-hours}\n".encode())


def write_release(folder: Path, release: str) -> None:
    """Name the release of the data in a folder."""
    (folder / "tzdata.zi").write_text(f"# version {release}\n")
