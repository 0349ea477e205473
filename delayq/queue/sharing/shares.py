"""What each partition may start of a limit of the whole queue: computed from numbers alone, so in every process alike.

A share is a limit of the partition. Rates are shared out by what waits, and what no partition needs evenly. Places are
given to a partition only once no other has them, so that all together never run more than the whole allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from delayq.queue.control.limit_calls import StoredLimit

CLOSED = 1e16
"""Microseconds between two starts of a partition without a share: it starts nothing."""
NOTICEABLE = 0.05
"""The part by which the rate of some share must differ from what is stored; then all are stored."""
_US = 1_000_000


class Share(NamedTuple):
    """A limit: that of the whole queue, or the share of a partition."""

    interval: float = 0.0
    """Microseconds between two starts; 0 for any rate."""
    burst: int = 1
    places: int = 0
    """How many may run; 0 for any number."""
    next_start: float = 0.0
    """When the next start falls if all keep their distance (µs)."""

    @property
    def limits(self) -> bool:
        """Whether it limits anything."""
        return self.interval > 0 or self.places > 0

    @property
    def is_closed(self) -> bool:
        """Whether it lets nothing start."""
        return self.burst == 0

    @property
    def opens(self) -> float:
        """When its rate lets the next start (µs)."""
        return self.next_start - (self.burst - 1) * self.interval


NO_LIMIT = Share()
NO_SHARE = Share(CLOSED, 0)


def share_of(stored: StoredLimit | None) -> Share:
    """Return a limit as it is stored; see `broker/lua/limit/lib/limit.lua`."""
    if stored is None or not stored.text:
        return NO_LIMIT
    _, interval, burst, places, _, _, ahead, *_ = stored.text.split(" ")
    return Share(float(interval), int(burst), int(places), float(ahead.partition("/")[0]))


class Seen(NamedTuple):
    """What was read of a partition."""

    share: Share
    waiting: int = 0
    """Messages that are due and may start."""
    active: int = 0
    started: float = 0.0
    """How many it has started lately, in the time until the next sharing."""
    oldest: float = math.inf
    """When the first of those that wait was due (ms)."""


class Shared(NamedTuple):
    """The shares of partitions, as they are to be stored."""

    shares: list[Share]
    is_short: bool
    """Whether a partition is to have more places once others have given them up."""


def share_out(whole: Share, seen: Sequence[Seen], now: int, *, seconds: float, kept: int = 0) -> Shared:
    """Share out a limit for some seconds from a time (ms) on; `kept` places are those of partitions not seen."""
    places, is_short = _places(whole.places, seen, kept) if whole.places else ([0] * len(seen), False)
    served = [not whole.places or number > 0 for number in places]
    if not whole.interval:
        made = [
            Share(0.0, 1, number) if is_served else NO_SHARE for number, is_served in zip(places, served, strict=True)
        ]
        return Shared(made, is_short)
    parts = _parts(seen, served, seconds * _US / whole.interval)
    shares = [
        Share(round(whole.interval / part, 3), _burst(whole, part), number, one.share.next_start) if part else NO_SHARE
        for part, number, one in zip(parts, places, seen, strict=True)
    ]
    return Shared(_in_turns(whole, seen, shares, now * 1000.0), is_short)


def _burst(whole: Share, part: float) -> int:
    """Return how many a part of a rate may start at once, rounded up: a worker may be late, as with the whole."""
    return 1 + math.ceil((whole.burst - 1) * part - 1e-9)


def differs(seen: Sequence[Seen], shares: Sequence[Share]) -> bool:
    """Return whether some share is to be stored: it differs noticeably from what is."""
    return any(_differs(one.share, share) for one, share in zip(seen, shares, strict=True))


def _differs(stored: Share, share: Share) -> bool:
    if (stored.places, stored.is_closed) != (share.places, share.is_closed) or not stored.interval:
        return stored[:3] != share[:3]
    return abs(stored.interval - share.interval) > NOTICEABLE * stored.interval


def _parts(seen: Sequence[Seen], served: Sequence[bool], most: float) -> list[float]:
    """Return the part of a rate that each partition gets; in the time it lets start `most`."""
    waiting = [one.waiting * is_served for one, is_served in zip(seen, served, strict=True)]
    if sum(waiting) >= most:
        demand = [float(number) for number in waiting]
    else:  # all that waits will have started: what remains is for what comes, as it has come lately
        demand = [
            (number + one.started) * is_served for number, one, is_served in zip(waiting, seen, served, strict=True)
        ]
        spare = max(0.0, most - sum(demand)) / max(1, sum(served))
        demand = [number + spare * is_served for number, is_served in zip(demand, served, strict=True)]
    total = sum(demand)
    return [number / total if total else 0.0 for number in demand]


def _in_turns(whole: Share, seen: Sequence[Seen], shares: list[Share], now: float) -> list[Share]:
    """Return shares with their next starts: those of partitions that had none come after the next of the others.

    So a rate that moves from one partition to another lets neither start more than the whole allows.
    """
    had = [one.share.interval > 0 and not one.share.is_closed for one in seen]
    has = [not share.is_closed for share in shares]
    first = max(
        now, min((one.share.opens for one, open_before in zip(seen, had, strict=True) if open_before), default=now)
    )
    stays = any(before and after for before, after in zip(had, has, strict=True))
    new = [at for at in range(len(seen)) if has[at] and not had[at]]
    new.sort(key=lambda at: (seen[at].oldest, at))
    for turn, at in enumerate(new, 1 if stays else 0):
        later = turn * whole.interval + (shares[at].burst - 1) * shares[at].interval
        shares[at] = shares[at]._replace(next_start=first + later)
    return shares


def _places(number: int, seen: Sequence[Seen], kept: int) -> tuple[list[int], bool]:
    """Return the places of each partition, and whether one is to have more."""
    wanted = _wanted(number, seen)
    held = [max(one.active, one.share.places) for one in seen]
    free = max(0, number - kept - sum(held))
    given: list[int] = []
    for want, has in zip(wanted, held, strict=True):
        more = min(max(0, want - has), free)
        free -= more
        given.append(min(want, has + more))
    return given, given != wanted


def _wanted(number: int, seen: Sequence[Seen]) -> list[int]:
    """Return how many places each partition would have if none were taken: one for each that needs some, oldest first.

    The rest goes by what waits and runs; what nobody needs is spread evenly.
    """
    need = [float(one.waiting + one.active) for one in seen]
    order = sorted(range(len(seen)), key=lambda at: (seen[at].oldest, -need[at], at))
    spare = max(0.0, number - sum(need)) / len(seen)
    need = [one + spare for one in need]
    wanted = [0] * len(seen)
    for at in [at for at in order if need[at] > 0][:number]:
        wanted[at] = 1
    left, total = number - sum(wanted), sum(need)
    exact = [left * one / total if total else 0.0 for one in need]
    wanted = [one + int(part) for one, part in zip(wanted, exact, strict=True)]
    rest = sorted(order, key=lambda at: int(exact[at]) - exact[at])
    for at in rest[: number - sum(wanted)]:
        wanted[at] += 1
    return wanted
