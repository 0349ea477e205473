"""Slows logins down: whoever guesses tokens waits longer and longer, by its address, and nobody else does."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address, ip_network
from typing import NamedTuple

from delayq.values.times import monotonic
from delayq.web.access.access_rules import address_of

FREE = 5
"""Wrong tokens in a row that cost no time: somebody has pasted the wrong one."""
MAX_WAIT = 60.0
"""Seconds until the next try, at most: who shares the address of somebody who guesses is not kept out for long."""
FORGET_AFTER = 900.0
"""Seconds after which the wrong tokens of an address count no more."""
MAX_ADDRESSES = 10_000
"""Addresses that are remembered, in a few MB; of more, those that have failed last."""


class _Failures(NamedTuple):
    number: int
    at: float


class FailedLogins:
    """How often each address has failed to log in; for one event loop."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Start with none."""
        self._clock = clock
        self._failures: dict[str, _Failures] = {}
        """Sorted by the time of the last one."""

    def wait(self, client: str) -> float:
        """Return for how many seconds an address may not try again; 0 if it may now."""
        found = self._failures.get(_block_of(client))
        if found is None or found.number < FREE:
            return 0.0
        pause = min(MAX_WAIT, 2.0 ** min(found.number - FREE, 10))
        return max(0.0, found.at + pause - self._clock())

    def add(self, client: str) -> None:
        """Note that an address has given a wrong token."""
        now, block = self._clock(), _block_of(client)
        before = self._failures.pop(block, None)
        is_recent = before is not None and before.at > now - FORGET_AFTER
        self._failures[block] = _Failures(before.number + 1 if before and is_recent else 1, now)
        if len(self._failures) > MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]

    def forget(self, client: str) -> None:
        """Note that somebody has logged in from an address."""
        self._failures.pop(_block_of(client), None)


def _block_of(client: str) -> str:
    """Return an address; of IPv6 the block of /64, all of which one machine may use."""
    address = address_of(client)
    if not isinstance(address, IPv6Address):
        return client
    return str(address.ipv4_mapped or ip_network((address.packed[:8] + bytes(8), 64)))
