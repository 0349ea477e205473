"""What a notifier keeps in Redis: how far it has read, what it has told when, and what it has still to deliver.

All of it is one value, replaced in one step. A notice gets its id and its text when it is put into the outbox, together
with the position in the event log, and leaves it after its delivery. So a crash at any time loses nothing, and what is
delivered again is the same, with the same id. No payload is in it: errors are kept by their shape only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from delayq.errors import DelayqError
from delayq.values.text import iso, pluralize
from delayq.values.times import from_millis

MAX_TOPICS = 200
"""Topics that are told apart; what is beyond goes into one more for each kind."""
OTHERS = "others"
MAX_OUTBOX = 500
"""Notices that wait for sinks which fail; of more, the oldest that another sink has taken is given up."""


class NoticeKind(StrEnum):
    """What is told."""

    DEAD = "dead"
    """Messages have moved to the dead letter; a topic for each group of the same reason and error."""
    LATE = "late"
    """A due message has waited for too long, or messages should be back from the cold tier."""
    PAUSED = "paused"
    """The queue or a name is paused."""
    SILENT = "silent"
    """Messages are due, and nobody consumes."""
    TRIMMED = "trimmed"
    """Events were trimmed before they could be read; told whatever is asked for."""


class Topic(msgspec.Struct):
    """Something that is told once an hour at most."""

    told: int = 0
    """When it was last put into the outbox (ms), 0 for never."""
    count: int = 0
    """What has happened since then and is not told."""
    on: bool = False
    """Whether it goes on, for what is a state and no event."""
    text: str = ""
    first: int = 0
    """When the first of `count` happened (ms)."""
    last: int = 0
    sample: str = ""
    """An entry of the dead letter."""


class Pending(msgspec.Struct):
    """A notice that waits for its delivery."""

    id: str
    topic: str
    at: int
    count: int
    text: str
    first: int
    last: int
    sample: str = ""
    tries: dict[str, int] = msgspec.field(default_factory=dict)
    """How often it was given to each sink, by name."""
    taken: list[str] = msgspec.field(default_factory=list)
    """The names of the sinks that have taken it, or refused it for good."""


class LogPosition(msgspec.Struct):
    """How far a notifier has read a queue, or one of its partitions."""

    offset: int = 0
    """The last offset of the event log that was read."""
    at: int = 0
    """When that entry was written (ms)."""
    dead: int = 0
    """The total of dead messages at that time."""


class NotifierState(LogPosition):
    """All that a notifier keeps. Its own position is that of a queue without partitions."""

    topics: dict[str, Topic] = msgspec.field(default_factory=dict)
    """By kind and group, separated by a space."""
    outbox: list[Pending] = msgspec.field(default_factory=list)
    partitions: dict[str, LogPosition] = msgspec.field(default_factory=dict)
    """How far each partition was read, by name."""

    def positions(self, queue: str, names: Sequence[str]) -> list[LogPosition]:
        """Return how far these partitions were read, one that is new from its beginning; forget all others."""
        own = [name for name in names if name != queue]
        self.partitions = {name: self.partitions.get(name) or LogPosition() for name in own}
        return [self if name == queue else self.partitions[name] for name in names]

    def encode(self) -> bytes:
        """Return it as stored."""
        return msgspec.json.encode(self)

    def topic(self, kind: NoticeKind, group: str) -> Topic:
        """Return a topic, a new one if there is room."""
        name = f"{kind} {group}".strip()
        if name not in self.topics and len(self.topics) >= MAX_TOPICS:
            name = f"{kind} {OTHERS}"
        return self.topics.setdefault(name, Topic())

    def add(self, kind: NoticeKind, group: str, text: str, at: int, *, count: int = 1, sample: str = "") -> None:
        """Note that something has happened so often."""
        topic = self.topic(kind, group)
        topic.first = topic.first if topic.count else at
        topic.last, topic.text, topic.sample = at, text, sample
        topic.count += count

    def set(self, kind: NoticeKind, group: str, text: str, at: int) -> None:
        """Note whether a state holds, '' for no: it is told when it begins, and again while it goes on."""
        name = f"{kind} {group}".strip()
        if not text and name not in self.topics:
            return
        topic = self.topic(kind, group)
        if text and not topic.on:
            self.add(kind, group, text, at)
        topic.on, topic.text = bool(text), text or topic.text

    def fill_outbox(self, queue: str, now: int, collapse: int) -> None:
        """Put into the outbox what is to be told at a time (ms): of each topic one notice in `collapse` ms at most."""
        waiting = {one.topic for one in self.outbox if not one.taken}
        for name, topic in list(self.topics.items()):
            if name in waiting or now - topic.told < collapse:
                continue
            if not (topic.count or topic.on):
                del self.topics[name]
                continue
            text = _text_of(queue, NoticeKind(name.split()[0]), topic)
            id = f"{queue}.{name.replace(' ', '.')}.{now}"
            first, last = topic.first or topic.told, topic.last if topic.count else now
            self.outbox.append(Pending(id, name, now, topic.count, text, first, last, topic.sample))
            topic.told, topic.count, topic.first, topic.last = now, 0, 0, 0

    def forget(self, sinks: Collection[str]) -> list[Pending]:
        """Forget the notices that all these sinks have taken; returns those that it gives up: there are too many."""
        for one in self.outbox:
            one.taken = [name for name in one.taken if name in sinks]
            one.tries = {name: number for name, number in one.tries.items() if name in sinks}
        self.outbox = [one for one in self.outbox if len(one.taken) < len(sinks)]
        given_up = [one for one in self.outbox if one.taken][: max(0, len(self.outbox) - MAX_OUTBOX)]
        self.outbox = [one for one in self.outbox if one not in given_up]
        return given_up


def read_state(stored: bytes) -> NotifierState:
    """Parse what was stored; raises `DelayqError` for what another program has written."""
    try:
        return msgspec.json.decode(stored, type=NotifierState)
    except msgspec.MsgspecError as error:
        raise DelayqError(f"what the notifier has kept cannot be read, delete its field in Redis: {error}") from error


def _text_of(queue: str, kind: NoticeKind, topic: Topic) -> str:
    again = " again" if topic.told else ""
    match kind:
        case NoticeKind.DEAD:
            more = "more " if topic.told else ""
            noun = pluralize(topic.count, "message").replace(" ", f" {more}", 1)
            return f"{queue}: {noun} moved to the dead letter{topic.text and f': {topic.text}'}"
        case NoticeKind.TRIMMED:
            events = pluralize(topic.count, "event")
            return f"{queue}: {events} were trimmed before they could be read: raise events_max_len"
        case _:
            state = " still" if topic.on and topic.told and not topic.count else again
            over = "" if topic.on or kind is NoticeKind.PAUSED else ", and no longer"
            return f"{queue}{state}: {topic.text}{over}"


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice as sinks take it: with the attributes of a message that they read."""

    id: str
    attempt: int
    due: datetime
    payload: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, queue: str, pending: Pending, sink: str) -> Notice:
        """Make the notice of what is in the outbox, for the sink of a name."""
        kind, _, group = pending.topic.partition(" ")
        payload = {
            "queue": queue,
            "kind": kind,
            "group": group,
            "count": pending.count,
            "text": pending.text,
            "first": iso(from_millis(pending.first)) if pending.first else None,
            "last": iso(from_millis(pending.last)) if pending.last else None,
            "sample": pending.sample,
        }
        return cls(pending.id, pending.tries[sink], from_millis(pending.at), payload)
