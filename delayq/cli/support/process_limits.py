"""When a worker process has done or taken so much that another is to take its place."""

from __future__ import annotations

import random
import re
import resource
import sys
from pathlib import Path
from typing import NamedTuple

from delayq.errors import ConfigurationError, short_repr
from delayq.values.text import pluralize

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3}
_SIZE = re.compile(r"(\d{1,12})\s?([KMG]?)(?:iB|B)?", re.IGNORECASE)
_SPREAD = 0.1
"""By which part of its messages the end of a process may be late, so that not all of them end at the same time."""


HUNG_AFTER = 2.0
"""Seconds in which a callback may end after its timeout: one that looks at `message.lease_lost` does."""


class ProcessLimits(NamedTuple):
    """How much one process may do and take; 0 for no limit."""

    messages: int
    memory: int
    """Bytes of resident memory."""
    kill_hung: bool = False
    """Whether it ends for a callback that hangs."""

    def spread(self) -> ProcessLimits:
        """Return these limits with up to a tenth more messages, drawn anew for each process."""
        return self._replace(messages=self.messages + random.randint(0, int(self.messages * _SPREAD)))  # noqa: S311

    def reached(self, messages: int, hung_for: float) -> str | None:
        """Return which limit a process has reached that has claimed so many messages, in words; None for none.

        A callback has hung for so many seconds beyond its timeout, less than none if none has.
        """
        if self.kill_hung and hung_for >= HUNG_AFTER:
            return "a callback that hangs"
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
