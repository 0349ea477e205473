"""Reads in Redis what has happened in a queue since a notifier last looked."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.event_log import MIN_TIME_OFFSET, EventEntry, read_events, read_last_event
from delayq.broker.replies import CountsReply
from delayq.broker.transport.operation import Operation
from delayq.notify.notices import NoticeKind, NotifierState
from delayq.queue.dead_groups import group_name, shape_of
from delayq.queue.inspecting.counts import Stats, stats_of, waiting_text
from delayq.queue.inspecting.event_log import EventColumns, EventKind
from delayq.values.text import clean, format_duration

PAGE = 100
"""Entries of the event log read at a time; each may contain a thousand messages."""


class Watched(NamedTuple):
    """What a notifier looks for."""

    prefix: str
    queue: str
    kinds: Collection[NoticeKind]
    max_lag: int
    """Milliseconds that a due message may wait."""
    collapse: int
    """Milliseconds in which a topic is told once."""


def begin(calls: Calls) -> Operation[NotifierState]:
    """Return the state of a new notifier: what has happened before is not told."""
    last: list[EventEntry]
    counted: CountsReply
    last, counted = yield [read_last_event(calls), calls.counts()]
    at = last[-1] if last else None
    return NotifierState(at.offset if at else 0, at.at if at else 0, _dead(counted))


def look(calls: Calls, state: NotifierState, watched: Watched) -> Operation[tuple[int, bool]]:
    """Note in a state what has happened; returns the server's time (ms), and whether there are more events to read."""
    last: list[EventEntry]
    entries: list[EventEntry]
    counted: CountsReply
    last, counted, entries = yield [
        read_last_event(calls),
        calls.counts(),  # before the events: of each death it counts, the event is read
        read_events(calls, state.offset + 1, limit=PAGE),
    ]
    if last and last[-1].offset < state.offset:  # a failover or a deletion has undone its end
        lost_end = last[-1].at <= state.at
        state.offset, state.at = (last[-1].offset, last[-1].at) if lost_end else (0, 0)
        return counted.now, not lost_end
    told = _note_events(state, entries, watched.kinds)
    more = len(entries) == PAGE
    if not more:
        _note_untold(state, _dead(counted), told, watched.kinds, counted.now)
    _note_states(state, stats_of(counted), counted.now, watched)
    return counted.now, more


def _note_untold(state: NotifierState, dead: int, told: int, kinds: Collection[NoticeKind], now: int) -> None:
    """Note what has died without an event that could be read: the log was off, or is trimmed."""
    untold = dead - state.dead
    if untold > 0 and NoticeKind.DEAD in kinds:
        state.add(NoticeKind.DEAD, "", "", now, count=untold)
    # A failover lowers the total; what was told now may have died after it was read.
    if untold > 0 or untold < -told:
        state.dead = dead


def _dead(counted: CountsReply) -> int:
    return int(counted.meta.get("dead", "0"))


def _note_events(state: NotifierState, entries: Sequence[EventEntry], kinds: Collection[NoticeKind]) -> int:
    """Note what has happened by the log; returns how many messages have died."""
    if not entries:
        return 0
    before = state.dead
    missing = entries[0].offset - state.offset - 1
    if state.offset and missing > 0 and entries[0].offset < MIN_TIME_OFFSET:
        state.add(NoticeKind.TRIMMED, "", "", entries[0].at, count=missing)
    for entry in entries:
        if entry.kind == EventKind.DEAD:
            _note_dead(state, entry, tells=NoticeKind.DEAD in kinds)
        elif entry.kind == EventKind.PAUSED and NoticeKind.PAUSED in kinds:
            _note_paused_name(state, entry)
    state.offset, state.at = entries[-1].offset, entries[-1].at
    return state.dead - before


def _note_dead(state: NotifierState, entry: EventEntry, *, tells: bool) -> None:
    columns = EventColumns.of(entry)
    state.dead += len(columns.ids)
    if not tells:
        return
    for index, id in enumerate(columns.ids):
        reason, error = (
            shape_of(column[index]) if index < len(column) else "" for column in (columns.reasons, columns.errors)
        )
        token = columns.tokens[index] if index < len(columns.tokens) else None
        text = _line("; ".join(filter(None, (reason, error if error != reason else ""))))
        sample = id if token is None else f"{id}:{token}"
        state.add(NoticeKind.DEAD, group_name(reason, error), text, entry.at, sample=sample)


def _note_paused_name(state: NotifierState, entry: EventEntry) -> None:
    columns = EventColumns.of(entry)
    if columns.name is None:  # the queue itself, whose counts tell it
        return
    group = hashlib.blake2b(columns.name.encode(), digest_size=4).hexdigest()
    reason = columns.reasons[0] if columns.reasons else ""
    text = f"{columns.name} is paused{reason and f': {reason}'}"
    state.add(NoticeKind.PAUSED, group, _line(text), entry.at)


def _line(text: str) -> str:
    """Return a text that any sink takes on one line: one that is refused would hold up all others."""
    return "".join(one if one.isprintable() else " " for one in clean(text))


def _note_states(state: NotifierState, stats: Stats, now: int, watched: Watched) -> None:
    found = dict.fromkeys((NoticeKind.LATE, NoticeKind.PAUSED, NoticeKind.SILENT), "")
    pause = stats.counts.paused
    if stats.nobody_consumes:
        found[NoticeKind.SILENT] = f"nobody consumes: {waiting_text(stats)}"
    if stats.lag.total_seconds() * 1000 > watched.max_lag and not pause:
        most = format_duration(watched.max_lag / 1000)
        found[NoticeKind.LATE] = f"late: {waiting_text(stats)}, should be at most {most}"
    if pause:
        until = f" until {pause.until.isoformat(timespec='seconds')}" if pause.until else ""
        found[NoticeKind.PAUSED] = _line(f"paused{until}{pause.reason and f': {pause.reason}'}")
    for kind, text in found.items():
        state.set(kind, "", text if kind in watched.kinds else "", now)
