"""Erases what a queue keeps of messages that have ended: results, dead letters, reserved ids, and their events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.context import QueueContext
from delayq.broker.event_log import EventEntry, id_of, read_events, read_last_event
from delayq.broker.foreign import shown_id, stored_id
from delayq.broker.keys import check_id, check_stored_id
from delayq.broker.message.attributes import check_message_name
from delayq.broker.replies import statuses
from delayq.broker.requests import ScriptCall
from delayq.broker.scripts import MAX_MOVED
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError
from delayq.queue.inspecting.event_log import PAGE
from delayq.queue.inspecting.inspector import MAX_ROWS, Inspector
from delayq.values.states import State

MAX_NAMED = 100
"""Living messages whose ids are returned."""
_ENDED = (State.COMPLETED, State.DEAD)
_STATES = (*_ENDED, *(state for state in State if state not in _ENDED))
_ALIVE, _MORE = "2", "3"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a `forget` has erased, or would erase with `dry_run`."""

    results: int
    """Kept results, with their progress."""
    deaths: int
    """Entries of the dead letter, with their payloads and errors."""
    reserved: int
    """Ids that were held after their end, see `dedupe_window` and `unique_for`: they can be sent again."""
    remains: int
    """What cancelled or replaced groups and other programs had left behind, such as payloads of groups."""
    events: int
    """Events of the log."""
    log_entries: int
    """Entries of the log that had these events."""
    other_events: int
    """Events of other messages in these entries, which went with them."""
    alive: int
    """Messages that stay because they are alive: cancel them first."""
    alive_ids: tuple[str, ...]
    """The first 100 of these."""
    dry_run: bool


class Wanted(NamedTuple):
    """What to forget: ids, or what begins with a prefix, or has a name."""

    ids: frozenset[str]
    id_prefix: str | None
    name: str | None


def check_forgotten(ids: Sequence[str], id_prefix: str | None, name: str | None) -> Wanted:
    """Return what to forget; raise `ConfigurationError` unless it is said in exactly one way."""
    if (bool(ids), id_prefix is not None, name is not None).count(True) != 1:
        raise ConfigurationError("say what to forget: give ids, or id_prefix, or name; one of them")
    if id_prefix is not None:
        check_id(id_prefix, "id_prefix")
    if name is not None:
        check_message_name(name)
    return Wanted(frozenset(stored_id(check_stored_id(id)) for id in ids), id_prefix, name)


def forget(context: QueueContext, wanted: Wanted, *, dry_run: bool) -> Operation[Forgotten]:
    """Find the ids, page by page, and erase what is kept of each; then the entries of the log that name them."""
    eraser = _Eraser(context, wanted, dry_run=dry_run)
    yield from eraser.erase(sorted(wanted.ids))
    if not wanted.ids:
        yield from eraser.find_in_states()
    if wanted.id_prefix is not None:
        yield from eraser.find_in("done")
    yield from eraser.find_in("gathered")
    yield from eraser.erase_events()
    return eraser.report()


class _Eraser:
    """Erases ids, each once, and adds up what there was."""

    def __init__(self, context: QueueContext, wanted: Wanted, *, dry_run: bool) -> None:
        self._context = context
        self._wanted = wanted
        self._dry_run = dry_run
        self._known: dict[str, bool] = {}
        """Each id, or field of a group, that was looked at, and whether its message is alive."""
        self._kept = (0, 0, 0, 0)
        """Results, deaths, reserved ids and remains."""
        self._events = self._entries = self._others = 0

    def report(self) -> Forgotten:
        """Return what was erased."""
        alive = sorted(shown_id(id) for id, alive in self._known.items() if alive and "\n" not in id)
        return Forgotten(
            *self._kept,
            events=self._events,
            log_entries=self._entries,
            other_events=self._others,
            alive=len(alive),
            alive_ids=tuple(alive[:MAX_NAMED]),
            dry_run=self._dry_run,
        )

    def erase(self, ids: Iterable[str]) -> Operation[None]:
        """Erase what is kept of ids, or the fields of groups, unless they are alive."""
        left = [id for id in dict.fromkeys(ids) if id not in self._known]
        while left:
            call = forget_call(self._context.calls, left[:MAX_MOVED], fix=not self._dry_run)
            reply, *_ = yield [call, *self._context.confirming]
            results, deaths, reserved, remains = self._kept
            self._kept = (
                results + reply.results,
                deaths + reply.deaths,
                reserved + reply.reserved,
                remains + reply.remains,
            )
            read = list(zip(left, reply.statuses, strict=False))
            self._known |= {id: status == _ALIVE for id, status in read}
            left = [id for id, status in read if status == _MORE] + left[len(read) :]

    def find_in_states(self) -> Operation[None]:
        """Erase the ids of what is listed, by their beginning or their name."""
        inspector, name, prefix = Inspector(self._context), self._wanted.name, self._wanted.id_prefix
        for state in _STATES:
            cursor: str | None = None
            while True:
                page = yield from inspector.page(state, limit=MAX_ROWS, cursor=cursor, preview=0)
                found = (one.id for one in page.messages if name is None or one.name == name)
                yield from self.erase(stored_id(id) for id in found if prefix is None or id.startswith(prefix))
                cursor = page.cursor
                if cursor is None:
                    break

    def find_in(self, part: str) -> Operation[None]:
        """Erase what is reserved, or the payloads of groups that were left behind."""
        cursor = "0"
        while True:
            ((cursor, *found),) = yield [kept_ids_call(self._context.calls, part, cursor)]
            yield from self.erase(one for one in found if self._matches(one.partition("\n")[0]))
            if cursor == "0":
                break

    def erase_events(self) -> Operation[None]:
        """Delete the entries of the log that name what was erased; what is logged meanwhile is not read."""
        calls, first = self._context.calls, 1
        (end,) = yield [read_last_event(calls)]
        while end and first <= end[0].offset:
            (entries,) = yield [read_events(calls, first, end[0].offset, limit=PAGE)]
            if not entries:
                break
            first = entries[-1].offset + 1
            named = [_ids_in(entry) for entry in entries]
            yield from self.erase(id for ids in named for id in ids if self._matches(id))
            found = [
                (entry.offset, own, len(ids) - own)
                for entry, ids in zip(entries, named, strict=True)
                if (own := sum(self._known.get(id) is False and self._matches(id) for id in ids))
            ]
            gone = "1" * len(found)
            if found and not self._dry_run:
                call = forget_events_call(calls, [offset for offset, _, _ in found])
                gone, *_ = yield [call, *self._context.confirming]
            for (_, own, others), status in zip(found, gone, strict=True):
                if status == "1":
                    self._entries, self._events, self._others = (
                        self._entries + 1,
                        self._events + own,
                        self._others + others,
                    )

    def _matches(self, id: str) -> bool:
        if self._wanted.id_prefix is not None:
            return id.startswith(self._wanted.id_prefix)
        return id in self._wanted.ids if self._wanted.ids else id in self._known


def _ids_in(entry: EventEntry) -> list[str]:
    return entry.columns.get("ids", b"").decode("utf-8", "surrogateescape").split()


class ForgetReply(NamedTuple):
    """What became of ids."""

    statuses: str
    """For each of the first ids 1 forgotten, 2 alive, 3 call again, 0 unknown."""
    results: int
    deaths: int
    reserved: int
    remains: int


def forget_call(calls: Calls, ids: Sequence[str], *, fix: bool) -> ScriptCall[ForgetReply]:
    """Erase, or only count, what is kept of ids and fields of `gathered`: of the first, if they have many deaths."""
    return calls.script("forget", [calls.now, int(fix), *ids], _read_forgotten)


def _read_forgotten(reply: bytes) -> ForgetReply:
    found, *counts = reply.decode().split(" ")
    return ForgetReply(found, *map(int, counts))


def forget_events_call(calls: Calls, offsets: Sequence[int]) -> ScriptCall[str]:
    """Delete entries of the event log; a status each: 1 deleted, 0 gone."""
    return calls.script("forget_events", [calls.now, *map(id_of, offsets)], statuses)


def kept_ids_call(calls: Calls, part: str, cursor: str) -> ScriptCall[list[str]]:
    """Read the cursor of the next page, then ids that are reserved, or fields of `gathered`."""
    return calls.script("kept_ids", [part, cursor, MAX_ROWS], _read_ids)


def _read_ids(reply: list[bytes]) -> list[str]:
    return [id.decode("utf-8", "surrogateescape") for id in reply]
