"""Moves messages to the cold tier and brings them back: one pass, to be repeated."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from delayq.broker.requests import RedisCommand
from delayq.bulk.cold.bringing_back import bring_back, settle_changes
from delayq.bulk.cold.cold_calls import BACK, EXISTS, SETTLED, WITHDRAWN, set_calls
from delayq.bulk.cold.cold_folder import ColdFolder
from delayq.bulk.cold.merging import merge_small
from delayq.bulk.cold.spilling import Moving, recover, spill
from delayq.bulk.connection import TargetQueue, calls_of, check_queue, connect, target_of
from delayq.errors import ColdTierError, ConfigurationError, QueueFullError
from delayq.queue.inspecting.cold_tier import DAY, read_cold
from delayq.queue.server_check import PARTITIONED, newer
from delayq.values.text import pluralize
from delayq.values.times import Duration, to_millis

MIN_KEEP = 2
"""How many intervals between two passes messages are brought back ahead of their time, at least: one pass may fail."""


@dataclass(frozen=True, slots=True)
class ColdMoved:
    """What one pass has done, and what is cold then."""

    queue: str
    spilled: int
    """Messages that were moved to files."""
    restored: int
    """Messages that were brought back."""
    exists: int
    """Cold messages whose ids live in the queue: they were sent again meanwhile, so the cold ones are left out."""
    settled: int
    """Cold messages whose ids are held, see `dedupe_window`: left out."""
    withdrawn: int
    """Cold messages that were cancelled: left out."""
    cold: int
    """Messages that are cold now."""
    unknown: tuple[str, ...]
    """Files that do not count: the queue was purged, or its Redis has lost what it knew of them."""

    def facts(self) -> dict[str, Any]:
        """Return all fields by name, ready for JSON."""
        return asdict(self)

    def told(self) -> str:
        """Return the result as a sentence."""
        left = {"exist": self.exists, "settled": self.settled, "withdrawn": self.withdrawn}
        parts = [f"spilled {self.spilled:,}", f"brought back {self.restored:,}"]
        parts += [f"left out {count:,} {why}" for why, count in left.items() if count]
        text = f"{', '.join(parts)}; {self.cold:,} cold"
        if self.unknown:
            text += f"; {pluralize(len(self.unknown), 'file')} that the queue does not know, such as {self.unknown[0]}"
        return text


def move_cold(
    queue: str,
    folder: str | Path,
    *,
    keep: Duration = "7d",
    every: Duration = "1d",
    url: str | None = None,
    prefix: str = "delayq",
    deadline: Duration | None = None,
) -> ColdMoved:
    """Move what is due later than `keep` and a day to Parquet files by day, and bring back what is due before `keep`.

    Repeat it at least as often as `every` says, such as by cron. It may be killed at any time: at every instant exactly
    one place owns a message, Redis or a file, and the next pass completes what was begun. A message keeps its id, due
    time, retries, payload, headers and options; its `attempts` are none, since only what was never delivered moves.

    While a message is cold, `cancel` answers `withdrawn`, and it does not come back; `reschedule` answers `noted`, and
    it comes back with its new time, by the next pass if that is soon. Sends do not look at the tier: a message sent
    with the id of a cold one counts in its place if it lives, or its id is held, when the cold one is to come back;
    else both are delivered. `get` does not find cold messages.

    Stays in Redis: what has been delivered, groups and bursts, and ids that are held (`unique_for`, `unique_after`).

    Raises `ColdTierError` if the folder cannot be used or is full, or if files whose messages are to come back are gone
    or cannot be read; `QueueFullError` if Redis is full also after messages have left it: both when all else is done.
    Raises `ConfigurationError` for a `keep` of less than two times `every`, a queue with partitions, and another
    engine.
    """
    ahead, interval = to_millis(keep, "keep"), to_millis(every, "every", min=1)
    if ahead < MIN_KEEP * interval:
        text = f"keep must be at least {MIN_KEEP} times every, or messages come back too late: {keep!r} and {every!r}"
        raise ConfigurationError(text)
    target = cold_target(queue, url, prefix, deadline)
    calls, executor = calls_of(target), connect(target)
    tier = executor.call(read_cold(calls))
    place = Path(folder).absolute()
    moving = Moving(calls, executor, ColdFolder.open(place, queue, prefix, tier.folder))
    now = executor.call(calls.time())
    counts = Counter[str]()
    failed = _return(moving, now + ahead, counts)
    spilled = spill(moving, now + ahead + DAY)  # also after a failure, since it frees memory
    if isinstance(failed, QueueFullError):
        failed = _return(moving, now + ahead, counts)
    if failed is not None:
        raise failed
    if executor.call(read_cold(calls)).folder:
        with suppress(QueueFullError):  # it is full still, and nothing had to come back
            executor.call(set_calls(calls, keep=ahead, passed=now, where=str(place)))
    merge_small(moving)
    tier = executor.call(read_cold(calls))
    known = {file.name for file in tier.files} | set(tier.back)
    return ColdMoved(
        queue,
        spilled,
        counts[BACK],
        counts[EXISTS],
        counts[SETTLED],
        counts[WITHDRAWN],
        sum(tier.days.values()),
        tuple(sorted(moving.folder.files() - known)),
    )


def _return(moving: Moving, until: int, counts: Counter[str]) -> ColdTierError | QueueFullError | None:
    """Complete what was begun, and bring back what is due before a time (ms); returns what a part of it failed with."""
    tier, failed = moving.executor.call(read_cold(moving.calls)), None
    steps = (
        partial(recover, moving, tier),
        *(partial(do, moving, until, counts) for do in (bring_back, settle_changes)),
    )
    for step in steps:
        try:
            step()
        except (ColdTierError, QueueFullError) as error:
            failed = failed or error
    return failed


def cold_target(queue: str, url: str | None, prefix: str, deadline: Duration | None) -> TargetQueue:
    """Return a queue that can have a cold tier; raise `ConfigurationError` for any other."""
    target = target_of(queue, url, prefix, deadline)
    if target.url.startswith("memory:"):
        raise ConfigurationError(f"{target.url}: a queue that is embedded in its program has no cold tier")
    check_queue(target)
    schema = connect(target).call(RedisCommand(("HGET", calls_of(target).keys.meta, "schema"), lambda reply: reply))
    if schema == PARTITIONED.encode():
        raise ConfigurationError(f"queue {queue} has partitions: it cannot have a cold tier")
    if unknown := newer(queue, schema):
        raise ConfigurationError(unknown)
    return target
