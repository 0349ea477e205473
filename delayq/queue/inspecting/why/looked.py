"""What `queue.why` returns, and what it has read to say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from delayq.queue.control.limits import Limit
from delayq.queue.control.pausing import Pause
from delayq.queue.inspecting.counts import UNCONSUMED_AFTER, Stats, waiting_text
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.queue.inspecting.workers import WorkerInfo
from delayq.values.states import State
from delayq.values.text import clean, format_duration, iso, pluralize, relative_time


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why a message, or a queue, waits."""

    kind: str
    """Which reason it is, such as `due`, `paused`, `rate`, `running` or `nobody`: see `delayq docs monitoring`."""
    text: str
    """The reason as a sentence, without a full stop; its times are in UTC."""
    until: datetime | None = None
    """When it ends by itself; None if that is not known."""
    name: str | None = None
    """The name of messages that it is about; None for the queue or a single message."""
    ids: tuple[str, ...] = ()
    """Other messages that are in the way, the first few."""


@dataclass(frozen=True, slots=True)
class Why:
    """Why a message waits, or why a queue gives out nothing, or not everything."""

    id: str | None
    """The message; None for the queue."""
    state: State | None
    """Its state; None for an unknown id, and for the queue."""
    at: datetime
    """The server's time of this."""
    reasons: tuple[Reason, ...]
    """The reasons; what is nearest to the message comes first."""


@dataclass(frozen=True, slots=True)
class ScopeLimit:
    """A limit, with what only its stored text tells."""

    limit: Limit
    next_start: datetime | None
    """When its rate lets the next start; None if it has none, or lets it now."""
    number: int

    @property
    def is_full(self) -> bool:
        """Whether all of its places are taken; each key of a template has its own."""
        limit = self.limit
        return limit.running is not None and limit.active >= limit.running and limit.prefix is None


@dataclass(slots=True)
class Looked:
    """What was read of a queue, and of a message."""

    stats: Stats
    meta: Mapping[str, str]
    limits: Mapping[str, ScopeLimit]
    """By their scopes."""
    workers: Sequence[WorkerInfo]
    holders: Sequence[str] = ()
    """The first of those that take the places of the message's limit."""
    key_limit: Limit | None = None
    """The template that limits the key of the message."""
    key_holders: Sequence[str] = ()
    """The first of those that take the places of the key."""
    overtaking: int = 0
    """How many have a higher rank than the message."""
    debounced: datetime | None = None
    """When the burst of the message has begun; None if it is not debounced."""
    gathering: tuple[int, int] | None = None
    """How many payloads the message has gathered, and how many it may; None if it gathers nothing."""
    followed: bool = False
    """Whether another message with its id follows it."""
    live: Sequence[WorkerInfo] = field(init=False)
    """The consumers that are not silent."""

    def __post_init__(self) -> None:
        """Find who is there."""
        self.live = [worker for worker in self.workers if worker.state != "silent"]

    @property
    def at(self) -> datetime:
        """The server's time."""
        return self.stats.at

    @property
    def priority_step(self) -> int:
        """The head start of a priority (ms); 0 if the queue has none."""
        return _whole(self.meta.get("priority_step", ""))

    @property
    def dedupe_window(self) -> int:
        """How long ids are held (ms); 0 if they are not."""
        return _whole(self.meta.get("dedupe", "").partition(" ")[0])

    def time(self, at: datetime) -> str:
        """Return a time to the second, with how far away it is: `2027-01-31T09:00:00Z (in 3h)`."""
        return f"{(iso(at) or '')[:19]}Z ({relative_time(at, self.at)})"

    def pause_text(self, pause: Pause) -> str:
        """Return until when something is paused, and why."""
        end = "until it is resumed" if pause.until is None else f"until {self.time(pause.until)}"
        return f"paused {end}{f': {clean(pause.reason)}' if pause.reason else ''}"

    def pauses(self, name: str | None, after: datetime | None = None) -> Iterator[Reason]:
        """Yield the pause of the queue, or of a name, that lasts longer than until a time."""
        if name is None:
            pause, what, kind = self.stats.counts.paused, "the queue", "paused"
        else:
            one = self.limits.get(f"name:{name}")
            pause, what, kind = one.limit.paused if one else None, f"the name {clean(name)}", "name paused"
        if pause is not None and (after is None or pause.until is None or pause.until > after):
            yield Reason(kind, f"{what} is {self.pause_text(pause)}", pause.until, name)

    def limiting(self, scope: str) -> Iterator[Reason]:
        """Yield why the limit of a scope, `queue`, `name:NAME` or `key:TEMPLATE`, lets nothing start now."""
        one = self.limits.get(scope)
        if one is None:
            return
        limit = one.limit
        of = "the queue" if limit.name is None else clean(limit.name)
        if limit.closed_until is not None:
            text = f"a callback of {of} has raised RateLimited: none starts until {self.time(limit.closed_until)}"
            yield Reason("closed", text, limit.closed_until, limit.name)
        if limit.tripped_until is not None and limit.tripped_until > self.at:
            text = f"the breaker of {of} is tripped until {self.time(limit.tripped_until)}; then one starts as a trial"
            yield Reason("tripped", text, limit.tripped_until, limit.name)
        if one.next_start is not None and one.next_start > self.at:
            spread = limit.spread_until
            rate = f"a resume spreads what waits of {of}" if spread else f"the rate of {of} is {limit.rate_limit}"
            text = f"{rate}: the next starts at {self.time(one.next_start)}"
            waits = f", and {pluralize(limit.throttled, 'message')} of it wait" if limit.throttled > 1 else ""
            yield Reason("rate", text + waits, one.next_start, limit.name)
        if limit.throttled and limit.running and limit.prefix is not None:
            text = f"each key of {of} has {pluralize(limit.running, 'place')}, and {limit.active:,} are taken"
            yield Reason("key", text, name=limit.name)
        if one.is_full:
            ids = tuple(self.holders if limit.name is not None else [])
            by = f", by {', '.join(map(clean, ids[:3]))}{' and others' if limit.active > 3 else ''}" if ids else ""  # noqa: PLR2004
            text = f"{limit.active:,} of {limit.running:,} places of {of} are taken{by}"
            yield Reason("running", text, name=limit.name, ids=ids)

    def ordering(self, message: MessageInfo) -> Iterator[Reason]:
        """Yield who takes the places of the key of a message, or that the message keeps its place."""
        limit, key = self.key_limit, clean(message.key)
        if limit is None or limit.running is None:
            return
        others = tuple(id for id in self.key_holders if id != message.id)
        if len(others) < len(self.key_holders):
            if limit.in_order:
                text = f"it keeps the place of its key {key} until it ends, so that no other message of it overtakes it"
                yield Reason("key", text, name=limit.name)
        elif len(others) >= limit.running:
            by = f"{', '.join(map(clean, others[:3]))}{' and others' if len(others) > 3 else ''}"  # noqa: PLR2004
            ends = "ended" if limit.in_order else "run"
            text = f"it waits behind {by} of its key {key}, until that has {ends}: {clean(limit.name or '')} limits it"
            yield Reason("key", text, name=limit.name, ids=others)

    def nobody(self) -> Iterator[Reason]:
        """Yield that nobody consumes, if no consumer has reported, and none has claimed or holds a message."""
        stats = self.stats
        last = stats.last_claim
        idle = last is None or stats.at - last > UNCONSUMED_AFTER
        if stats.nobody_consumes or (idle and not stats.held and not stats.workers):
            since = "nothing was ever claimed" if last is None else f"the last claim was at {self.time(last)}"
            silent = len(self.workers) - len(self.live)
            lost = f", and {pluralize(silent, 'worker')} ended without a stop" if silent else ""
            yield Reason("nobody", f"nobody consumes this queue: {since}{lost}")

    def busy(self) -> Iterator[Reason]:
        """Yield that what is due waits for a free consumer."""
        if not self.stats.counts.overdue:
            return
        held, places = sum(one.held for one in self.live), sum(one.concurrency for one in self.live)
        told = f"{pluralize(len(self.live), 'consumer')} of {places:,} places in all, with {held:,} held"
        by = told if self.live else f"{pluralize(self.stats.held, 'lease')} held, no worker has reported"
        lag = self.stats.lag.total_seconds()
        waits = waiting_text(self.stats) if lag >= 1 else pluralize(self.stats.counts.overdue, "message")
        yield Reason("busy", f"due, and waiting for a free consumer: {waits}; {by}")

    def ago(self, at: datetime) -> str:
        """Return how long ago something was."""
        return f"{format_duration(max(0.0, (self.at - at).total_seconds()))} ago"


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 15 else 0  # noqa: PLR2004
