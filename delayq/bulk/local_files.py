"""Checks of local paths, which answer False, and raise nothing, for a name that no file can have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def is_file(path: Path) -> bool:
    """Return whether there is a file."""
    return _is(path.is_file)


def can_be_read(path: Path) -> bool:
    """Return whether there is a file, or a pipe or the like, such as /dev/stdin."""
    return _is(path.exists) and not is_folder(path)


def is_folder(path: Path) -> bool:
    """Return whether there is a folder."""
    return _is(path.is_dir)


def _is(asked: Callable[[], bool]) -> bool:
    try:
        return asked()
    except OSError:
        return False
