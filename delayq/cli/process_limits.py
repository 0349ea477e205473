"""When a worker process has done or taken so much that another is to take its place."""

from __future__ import annotations

import random
import re
import resource
import sys
from pathlib import Path
from typing import NamedTuple

from delayq.errors import ConfigurationError, short_repr
from delayq.text import pluralize

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3}
_SIZE = re.compile(r"(\d{1,12})\s?([KMG]?)(?:iB|B)?", re.IGNORECASE)
_SPREAD = 0.1
"""By which part of its messages the end of a process may be late, so that not all of them end at the same time."""


class ProcessLimits(NamedTuple):
    """How much one process may do and take; 0 for no limit."""

    messages: int
    memory: int
    """Bytes of resident memory."""

    def spread(self) -> ProcessLimits:
        """Return these limits with up to a tenth more messages, drawn anew for each process."""
        return self._replace(messages=self.messages + random.randint(0, int(self.messages * _SPREAD)))  # noqa: S311

    def reached(self, messages: int) -> str | None:
        """Return which limit a process has reached that has claimed so many messages, in words; None for neither."""
        if 0 < self.messages <= messages:
            return pluralize(messages, "message")
        if self.memory and (taken := resident_bytes()) > self.memory:
            return f"{size_text(taken)} of memory"
        return None

    def check_start(self) -> None:
        """Raise `ConfigurationError` if this process has more memory than it may, before its first message."""
        if self.memory and (taken := resident_bytes()) > self.memory:
            needed = f"the program takes {size_text(taken)} before its first message"
            raise ConfigurationError(f"--max-memory {size_text(self.memory)} is too little: {needed}")


def resident_bytes() -> int:
    """Return the resident memory of this process: what it has now on Linux, the most it has had elsewhere."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def read_size(value: object, name: str) -> int:
    """Return the bytes of a text such as `500M` or `2GiB`; a plain number is bytes."""
    found = _SIZE.fullmatch(str(value).strip())
    if found is None or int(found[1]) == 0:
        raise ConfigurationError(f"{name} must be a size above 0, such as 500M or 2G, not {short_repr(value)}")
    return int(found[1]) << 10 * _UNITS[found[2].upper()]


def size_text(size: int) -> str:
    """Return a size in MiB, rounded up."""
    return f"{-(-size >> 20)} MiB"
