"""Processes that a test has started."""

from pathlib import Path


def processes_of(folder):
    """The processes that were started under this TMPDIR, servers and workers included."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if f"TMPDIR={folder}\0".encode() in environment:
            found.append((process / "cmdline").read_bytes())
    return found
