"""Repeats the passes of a cold tier, and spills between them once many messages wait that are due far ahead."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

from delayq.broker.requests import RedisCommand
from delayq.bulk.cold.cold_pass import ColdMoved, move_cold
from delayq.bulk.connection import calls_of, connect, target_of
from delayq.errors import DelayqError
from delayq.queue.inspecting.cold_tier import DAY
from delayq.safe_log import SafeLog
from delayq.values.text import format_duration
from delayq.values.times import Duration, to_millis

LOOK_EVERY = 1.0
"""Seconds between two looks at how many messages could be spilled."""
SPILL_AT = 200_000
"""As many messages are spilled before the next pass is due: a bulk load fills files, not Redis."""
RETRY_EVERY = 10.0
"""Seconds after a pass that has failed, at most."""
log = SafeLog("delayq.cold")


def follow_cold(
    queue: str,
    folder: str | Path,
    *,
    keep: Duration = "7d",
    every: Duration = "1h",
    url: str | None = None,
    prefix: str = "delayq",
    deadline: Duration | None = None,
    stop: Event | None = None,
    on_pass: Callable[[ColdMoved], None] | None = None,
) -> None:
    """Run `move_cold` so often until `stop` is set, which is heeded between two passes.

    It also runs when 200,000 messages more than after the last pass wait that are due later than `keep` and a day, such
    as beside a bulk load. Calls `on_pass` with what each pass has done. A pass that fails, as Redis
    is away or files are gone, is told in the log and repeated; only the first raises, see `move_cold`.
    """
    stop, tell = stop or Event(), on_pass or (lambda _: None)
    interval = to_millis(every, "every", min=1) / 1000
    target = target_of(queue, url, prefix, deadline)
    calls, executor = calls_of(target), connect(target)

    def waiting(horizon: int) -> int:
        return executor.call(RedisCommand(("ZCOUNT", calls.keys.pending, horizon, "+inf"), int))

    ahead, is_first = to_millis(keep, "keep") + DAY, True
    while not stop.is_set():
        try:
            moved = move_cold(queue, folder, keep=keep, every=every, url=url, prefix=prefix, deadline=deadline)
            is_first = False
            passed, horizon = time.monotonic(), executor.call(calls.time()) + ahead
            most = waiting(horizon) + SPILL_AT  # what a pass leaves there cannot be spilled
            tell(moved)
            while time.monotonic() - passed < interval and waiting(horizon) < most:
                if stop.wait(min(LOOK_EVERY, interval)):
                    return
        except (DelayqError, OSError) as error:
            if is_first:
                raise
            wait = min(RETRY_EVERY, interval)
            log.warning("the cold tier of %s failed, again in %s: %s", queue, format_duration(wait), error)
            stop.wait(wait)
