"""Sharing out the limit of the whole queue: it is stored once, with the queue, and partitions have shares of it.

Consumers take turns without a leader: who is the first to note a turn of the server's clock shares out in it. A process
that is late, or dies, has its turn pass, and another takes the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from delayq.broker.calls import QUEUE
from delayq.broker.replies import CountsReply
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.operation import Every, Operation, Wait
from delayq.errors import DelayqError
from delayq.queue.control.limit_calls import LimitsPage, StoredLimit, declare_call, limits_page_call
from delayq.queue.sharing.closings import Closings
from delayq.queue.sharing.shares import NO_LIMIT, Seen, Share, differs, share_of, share_out
from delayq.safe_log import SafeLog
from delayq.values.rates import Pace
from delayq.values.times import monotonic
from delayq.worker.pool.pool import PoolQueue
from delayq.worker.pool.pool_chores import ChoreSteps, attempt

log = SafeLog("delayq.partitions")

TURN = 500
"""Milliseconds between two sharings, by all processes together, while something waits or runs."""
BEGIN_WITHIN, LATEST = 250, 400
"""Milliseconds of a turn after which it is not begun, and after which nothing is stored: the next may have begun."""
LOOK_EVERY = 0.1
"""Seconds between two looks at what this process knows of its partitions, which cost no command."""
ASK_EVERY = 2.0
"""Seconds between two commands while the queue has no limit, and other limits or priorities."""
PAUSES = (0.0, 0.0, 0.03, 0.1)
"""Seconds before each look in a turn: more than one only while places are to move that others have or give up."""
SKIP_FOR = 10.0
"""Seconds for which a partition that did not answer is not asked."""
_TURNS_KEPT = 20
_PAGE = 10


class Turn(NamedTuple):
    """What a turn has found."""

    whole: Share
    is_own: bool = False
    """Whether this process has shared out, or nothing was to do."""
    rests: bool = False
    """Whether nothing waits, runs, or has started lately."""
    opened: bool = False
    """Whether a partition with messages that wait has got another share."""
    next_in: float = TURN / 1000
    """Seconds until the next turn begins."""


class Sharing:
    """Shares out the limit of one queue, and remembers what its partitions have started."""

    def __init__(self, queue: Any) -> None:
        """Know nothing yet of its partitions."""
        self._queue = queue
        self._started: dict[str, tuple[int, int, float]] = {}
        """How many each has started since it exists, when that was read (ms), and how many that are in a turn."""
        self._skipped: dict[str, tuple[float, int]] = {}
        """Partitions that did not answer: until when they are not asked, and how many places they may have."""
        self._shares: dict[str, Seen] = {}

    @property
    def closings(self) -> Closings:
        """What is to be closed in all partitions."""
        return self._queue.closings  # type: ignore[no-any-return]  # of a queue over partitions

    def pass_on(self, served: list[PoolQueue]) -> Operation[None]:
        """Close in all partitions what one has closed of the whole queue."""
        return self.closings.pass_on(self._queue.partitions, served)

    @property
    def _partitions(self) -> list[Any]:
        # While a queue grows from one partition, that has its name: the limit itself counts there.
        return [one for one in self._queue.partitions if one.name != self._queue.name]

    def turn(self) -> Operation[Turn]:
        """Share out once, unless another process does in this turn."""
        calls, began = self._queue.context.calls, monotonic()
        page: LimitsPage
        (page,) = yield [limits_page_call(calls, "0", limit=_PAGE)]
        whole = share_of(whole_of(page.limits))
        at = page.now if calls.clock is None else int(began * 1000)  # where a test has stopped the clock, turns go on
        number, passed = divmod(at, TURN)
        next_in = (TURN - passed) / 1000
        if passed > BEGIN_WITHIN:
            return Turn(whole, next_in=next_in)
        is_first, _ = yield [
            RedisCommand(("ZADD", calls.keys.gates, "NX", number, f"turn {number}"), int),
            RedisCommand(("ZREMRANGEBYSCORE", calls.keys.gates, "-inf", number - _TURNS_KEPT), int),
        ]
        if not is_first:
            return Turn(whole, next_in=next_in)
        opened = has_stored = False
        for pause in PAUSES:
            if pause:
                yield Wait(pause)
            names, seen, now = yield from self._look()
            kept = sum(places for _, places in self._skipped.values())
            made = share_out(whole, seen, now, seconds=TURN / 1000, kept=kept) if whole.limits else None
            shares = made.shares if made else [NO_LIMIT] * len(seen)
            changes = self._changes(names, seen, shares)
            if passed + (monotonic() - began) * 1000 > LATEST:
                return Turn(whole, next_in=next_in)
            if changes:
                opened = opened or any(_opens(one, share) for one, share in zip(seen, shares, strict=True))
                yield Every(changes)
            has_stored = has_stored or bool(changes)
            if made is None or not (made.is_short and has_stored):
                break
        rests = not any(one.waiting or one.active or one.started for one in seen)
        return Turn(whole, is_own=True, rests=rests, opened=opened, next_in=next_in)

    def _look(self) -> Operation[tuple[list[str], list[Seen], int]]:
        """Read what waits, runs and was started in each partition that answers, and its share."""
        now, at = monotonic(), 0
        self._skipped = {name: (until, places) for name, (until, places) in self._skipped.items() if until > now}
        asked = [one for one in self._partitions if one.name not in self._skipped]
        requests: list[Any] = []
        for one in asked:
            calls = one.context.calls
            requests += [calls.counts(), RedisCommand(("HGET", calls.keys.limits, QUEUE), _read_share)]
        replies = yield Every(requests)
        names: list[str] = []
        seen: list[Seen] = []
        for one, counted, share in zip(asked, replies[::2], replies[1::2], strict=True):
            if isinstance(counted, DelayqError) or isinstance(share, DelayqError):
                known = self._shares.get(one.name)
                places = max(known.active, known.share.places) if known else 0
                self._skipped[one.name] = (now + SKIP_FOR, places)
                log.warning("partition %s has no part in sharing out the limit for %g s", one.name, SKIP_FOR)
                continue
            names.append(one.name)
            seen.append(self._seen(one.name, counted, share))
            self._shares[one.name] = seen[-1]
            at = max(at, counted.now)
        return names, seen, at

    def _seen(self, name: str, counted: CountsReply, share: Share) -> Seen:
        delivered = counted.meta.get("delivered", "0")
        total = int(delivered) if delivered.isdecimal() else 0
        before, since, started = self._started.get(name, (total, counted.now, 0.0))
        passed = counted.now - since
        if passed >= TURN // 2:
            started = max(0, total - before) * TURN / passed
        if passed >= TURN // 2 or name not in self._started:
            self._started[name] = total, counted.now, started
        waiting = counted.overdue + (1 if counted.throttled else 0)
        oldest = min((at for at in (counted.oldest_due, counted.next_deadline) if at >= 0), default=math.inf)
        return Seen(share, waiting, counted.active, started, oldest)

    def _changes(self, names: Sequence[str], seen: Sequence[Seen], shares: Sequence[Share]) -> list[Any]:
        """Return the calls that store shares, those that shrink first; none if hardly any has changed."""
        if not differs(seen, shares):
            return []
        by_name = {one.name: one for one in self._partitions}
        rows = sorted(zip(names, seen, shares, strict=True), key=lambda row: row[2].places - row[1].share.places)
        return [_store(by_name[name], one.share, share) for name, one, share in rows if one.share[:3] != share[:3]]


def _store(partition: Any, before: Share, share: Share) -> Any:
    is_new = share.interval > 0 and not share.is_closed and (before.is_closed or not before.interval)
    pace = Pace(share.interval, share.burst)
    next_start = share.next_start if is_new else None
    return declare_call(partition.context.calls, None, pace=pace, places=share.places, next_start=next_start)


def _opens(one: Seen, share: Share) -> bool:
    return bool(one.waiting) and not share.is_closed and one.share[:3] != share[:3]


def _read_share(reply: Any) -> Share:
    text = (reply or b"").decode("utf-8", "replace")
    return share_of(StoredLimit(QUEUE, text, "", 0, 0))


def whole_of(stored: Iterable[StoredLimit]) -> StoredLimit | None:
    """Return the limit of the queue among some; None if it has none."""
    return next((one for one in stored if one.scope == QUEUE), None)


def share_now(queue: Any) -> Operation[None]:
    """Share out a limit that has just been set, declared or removed; or wait until another process has, within 2 s."""
    sharing = Sharing(queue)
    for _ in range(4):
        found = yield from sharing.turn()
        if found.is_own:
            return
        yield Wait(found.next_in)


def put_whole(queue: Any, pace: Pace | None, places: int | None) -> Operation[None]:
    """Store the limit that a program declares for the whole queue, and share it out."""
    yield [declare_call(queue.context.calls, None, pace=pace, places=places)]
    yield from share_now(queue)


def share_while_busy(sharing: Sharing, served: Callable[[], list[PoolQueue]]) -> ChoreSteps[None]:
    """Share out in turns while something waits or runs that this process knows of; an idle queue costs no command.

    What a partition has closed of the whole queue is passed on to the others.
    """
    rests, next_at, said = True, 0.0, ""
    while True:
        yield Wait(LOOK_EVERY)
        if sharing.closings:
            yield from attempt(sharing.pass_on(served()))
        now = monotonic()
        if now < next_at or (rests and not any(map(_is_busy, served()))):
            continue
        found = yield from attempt(sharing.turn())
        if isinstance(found, DelayqError):
            if said != (said := str(found)):
                log.error("the limit of the queue cannot be shared out: %s", found)
            next_at = now + ASK_EVERY
            continue
        said = ""
        rests = found.rests or not found.whole.limits
        next_at = monotonic() + (found.next_in if found.whole.limits else ASK_EVERY)


def _is_busy(queue: PoolQueue) -> bool:
    """Return whether a queue with limits has something that runs, waits, or is held back, as this process knows."""
    if not queue.started or not queue.loop.outlook.ranks:
        return False
    return bool(queue.loop.outlook.ready or queue.loop.outlook.is_held_back or queue.in_flight.deliveries)
