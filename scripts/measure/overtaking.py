"""Overtaking: how late messages are behind 10,000 of a name that is limited to 10/s, compared with none of them.

Runs with and without the limited ones take turns, and the least of each counts: a p99 of milliseconds is noisy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from delayq import DelayQueue, NewMessage
from measure.bench_server import QUEUE, TEXT, BenchServer
from measure.figure import MILLISECONDS, NEVER, NUMBER, Figure, Goal, Measurement, Reading
from measure.lateness import TIMEOUT, LatenessRecorder, all_of, spread

LIMITED = 10_000
RATE = 10
"""Starts per second of the limited name."""
PER_SECOND = 1000
SECONDS = 5
AFTER = 4.0
"""Seconds from the first send until the others are due: time to send them all."""
BEFORE = 1.0
"""Seconds by which the limited ones are due before the others."""
TRIES = 5
MAX_RATIO = 1.2
LIMITED_NAME, ORDINARY_NAME, OTHERS = "limited", "ordinary", "others"


def _others(server: BenchServer, seconds: float, ahead: int, name: str, before: float) -> list[float]:
    """Return how late each of the others is, with so many messages of a name that are due before their first."""
    server.empty()
    with DelayQueue(QUEUE, url=server.url, concurrency=10) as queue:
        first = datetime.now(UTC) + timedelta(seconds=AFTER)
        others = spread(PER_SECOND, seconds, first, name=OTHERS)
        watch, started = LatenessRecorder(len(others)), LatenessRecorder(ahead)
        queue.on(OTHERS)(watch)
        for one in (LIMITED_NAME, ORDINARY_NAME):
            queue.on(one)(started)
        queue.limits.set(LIMITED_NAME, rate_limit=f"{RATE}/s")
        queue.start_consume()
        queue.send_many([NewMessage(TEXT, at=first - timedelta(seconds=before), name=name)] * ahead)
        queue.send_many(others)
        if datetime.now(UTC) > first - timedelta(seconds=before):
            raise AssertionError(f"the messages were not sent within {AFTER - before:g} s")
        end = time.monotonic() + AFTER + seconds + TIMEOUT
        while not watch.done and time.monotonic() < end:
            time.sleep(0.05)
        held = queue.counts().throttled
        late = all_of(watch, len(others))
    if name == LIMITED_NAME and held < ahead // 2:
        raise AssertionError(f"only {held} of {ahead} messages were held back, {len(started.late)} started")
    return late


def behind_limited(server: BenchServer) -> Iterator[Reading]:
    """Lateness behind a limited name that is due a second before; and at the moment at which it becomes due."""
    whole = server.scale >= 1
    ahead, seconds, tries = (LIMITED, SECONDS, TRIES) if whole else (server.many(LIMITED), SECONDS / 2, 3)
    behind, alone = [], []
    for _ in range(tries):
        behind.append(_others(server, seconds, ahead, LIMITED_NAME, BEFORE))
        alone.append(_others(server, seconds, 0, LIMITED_NAME, BEFORE))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        ours, others = ([late[int(len(late) * share)] for late in runs] for runs in (behind, alone))
        note = f"of {tries} runs: up to {max(ours):.1f}, without {max(others):.1f}"
        yield Reading(f"behind_limited_{name}", min(ours), min(others), note)
    yield Reading("behind_limited_early", sum(value < 0 for late in behind for value in late))
    held, ordinary = (
        min(_others(server, seconds, ahead, name, 0)[-1] for _ in range(tries // 2))
        for name in (LIMITED_NAME, ORDINARY_NAME)
    )
    yield Reading("beside_limited_max", held, ordinary)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    goal = Goal(f"≤ {MAX_RATIO} times without", lambda figure: figure.ratio is not None and figure.ratio <= MAX_RATIO)
    late = f"at {PER_SECOND:,} due/s, behind {LIMITED:,} of a name with {RATE}/s"
    beside = f"lateness max at {PER_SECOND:,} due/s, while {LIMITED:,} of a name with {RATE}/s become due"
    figures = [
        Figure("behind_limited_p50", f"lateness p50 {late}", None, MILLISECONDS, "without", cost=True),
        Figure("behind_limited_p99", f"lateness p99 {late}", goal, MILLISECONDS, "without", cost=True),
        Figure("behind_limited_early", f"delivered early {late}", NEVER, NUMBER),
        Figure("beside_limited_max", beside, None, MILLISECONDS, "no limit", cost=True),
    ]
    return [Measurement("behind_limited", behind_limited, figures, once=True)]
