"""Reads in Redis what has happened in a queue since a notifier last looked."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.event_log import MIN_TIME_OFFSET, EventEntry, read_events, read_last_event
from delayq.broker.replies import CountsReply
from delayq.broker.transport.operation import Operation
from delayq.notify.notices import LogPosition, NoticeKind, NotifierState
from delayq.queue.dead_groups import group_name, shape_of
from delayq.queue.inspecting.cold_tier import read_cold
from delayq.queue.inspecting.counts import Stats, stats_of, waiting_text
from delayq.queue.inspecting.event_log import EventColumns, EventKind
from delayq.queue.placing import merged_stats
from delayq.queue.placing.fan_out import results_of, side_by_side
from delayq.values.text import clean, format_duration

COLD = "cold"
"""The group of what is told of the cold tier."""
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


def begin(watched: Watched, parts: Mapping[str, Calls]) -> Operation[NotifierState]:
    """Return the state of a new notifier: what has happened before is not told. `parts` are as in `look`."""
    state = NotifierState()
    found = yield from side_by_side(map(_end, parts.values()))
    positions = state.positions(watched.queue, [*parts])
    for position, (last, counted) in zip(positions, results_of(found, [*parts]), strict=True):
        if last:
            position.offset, position.at = last[-1].offset, last[-1].at
        position.dead = _dead(counted)
    return state


def _end(calls: Calls) -> Operation[tuple[list[EventEntry], CountsReply]]:
    last, counted = yield [read_last_event(calls), calls.counts()]
    return last, counted


def look(state: NotifierState, watched: Watched, parts: Mapping[str, Calls]) -> Operation[tuple[int, bool]]:
    """Note in a state what has happened; returns the server's time (ms), and whether there are more events to read.

    `parts` are the calls of the partitions of the queue by their names, or of the queue itself if it has none.
    """
    positions = zip(parts.values(), state.positions(watched.queue, [*parts]), strict=True)
    found = yield from side_by_side([_look(calls, state, position, watched.kinds) for calls, position in positions])
    looked: list[tuple[CountsReply, bool]] = results_of(found, [*parts])
    now = max(counted.now for counted, _ in looked)
    stats = merged_stats.stats([stats_of(counted) for counted, _ in looked])
    _note_states(state, stats, now, watched)
    if stats.counts.cold or f"{NoticeKind.LATE} {COLD}" in state.topics:
        (tier,) = yield [read_cold(parts[watched.queue])]
        state.set(NoticeKind.LATE, COLD, _line(tier.told(now)) if NoticeKind.LATE in watched.kinds else "", now)
    return now, any(more for _, more in looked)


def _look(
    calls: Calls, state: NotifierState, position: LogPosition, kinds: Collection[NoticeKind]
) -> Operation[tuple[CountsReply, bool]]:
    last: list[EventEntry]
    entries: list[EventEntry]
    counted: CountsReply
    last, counted, entries = yield [
        read_last_event(calls),
        calls.counts(),  # before the events: of each death it counts, the event is read
        read_events(calls, position.offset + 1, limit=PAGE),
    ]
    if last and last[-1].offset < position.offset:  # a failover or a deletion has undone its end
        lost_end = last[-1].at <= position.at
        position.offset, position.at = (last[-1].offset, last[-1].at) if lost_end else (0, 0)
        return counted, not lost_end
    told = _note_events(state, position, entries, kinds)
    more = len(entries) == PAGE
    if not more:
        untold = _dead(counted) - position.dead
        if untold > 0 and NoticeKind.DEAD in kinds:  # the log was off, or is trimmed
            state.add(NoticeKind.DEAD, "", "", counted.now, count=untold)
        # A failover lowers the total; what was told now may have died after it was read.
        if untold > 0 or untold < -told:
            position.dead = _dead(counted)
    return counted, more


def _dead(counted: CountsReply) -> int:
    return int(counted.meta.get("dead", "0"))


def _note_events(
    state: NotifierState, position: LogPosition, entries: Sequence[EventEntry], kinds: Collection[NoticeKind]
) -> int:
    """Note what has happened by the log; returns how many messages have died."""
    if not entries:
        return 0
    before = position.dead
    missing = entries[0].offset - position.offset - 1
    if position.offset and missing > 0 and entries[0].offset < MIN_TIME_OFFSET:
        state.add(NoticeKind.TRIMMED, "", "", entries[0].at, count=missing)
    for entry in entries:
        if entry.kind == EventKind.DEAD:
            position.dead += _note_dead(state, entry, tells=NoticeKind.DEAD in kinds)
        elif entry.kind == EventKind.PAUSED and NoticeKind.PAUSED in kinds:
            _note_paused_name(state, entry)
    position.offset, position.at = entries[-1].offset, entries[-1].at
    return position.dead - before


def _note_dead(state: NotifierState, entry: EventEntry, *, tells: bool) -> int:
    """Note the deaths of an entry, if they are told; returns how many they are."""
    columns = EventColumns.of(entry)
    for index, id in enumerate(columns.ids if tells else ()):
        reason, error = (
            shape_of(column[index]) if index < len(column) else "" for column in (columns.reasons, columns.errors)
        )
        token = columns.tokens[index] if index < len(columns.tokens) else None
        text = _line("; ".join(filter(None, (reason, error if error != reason else ""))))
        sample = id if token is None else f"{id}:{token}"
        state.add(NoticeKind.DEAD, group_name(reason, error), text, entry.at, sample=sample)
    return len(columns.ids)


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
