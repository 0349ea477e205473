"""The release of the time zone data of this machine, such as 2026a."""

from __future__ import annotations

import re
import zoneinfo
from datetime import datetime
from functools import cache
from pathlib import Path

_RELEASE = re.compile(r"(?:19|20)\d\d[a-z]+")


def releases() -> list[str]:
    """Return what is known of the data in each place where it is looked up, the first one first.

    That is the system's, then the package that replaces it: its release, or when it was installed.
    """
    found = [_release(folder) for folder in map(Path, zoneinfo.TZPATH) if folder.is_dir()]
    try:
        from tzdata import IANA_VERSION
    except ImportError:
        return found
    return [*found, IANA_VERSION]


@cache
def zone_release() -> str:
    """Return the release of the data that this process uses, '' if it is not known. Releases sort as texts."""
    first = releases()[:1]
    return first[0] if first and _RELEASE.fullmatch(first[0]) else ""


def _release(folder: Path) -> str:
    for name in ("tzdata.zi", "+VERSION"):
        try:
            with (folder / name).open(encoding="utf-8", errors="replace") as file:
                line = file.readline(80).strip()
        except OSError:
            continue
        found = _RELEASE.search(line)
        return found[0] if found else line
    return f"{datetime.fromtimestamp(folder.stat().st_mtime):%Y%m%d%H%M%S}"  # noqa: DTZ006 - only compared
