"""Examining a queue, and mending what somebody or something has put out of order: the work of `delayq doctor`.

The scripts leave nothing to mend. What does is a key deleted by hand, a restored backup, a server that lost writes. A
light look goes over what has been promoted, a deep one over everything; both in calls of bounded size, each of which
judges and mends its messages at one moment, so that consumers and producers can go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from delayq.doctor import newer, survey
from delayq.errors import ConfigurationError, shown
from delayq.face import AsyncFace, BlockingFace
from delayq.findings import DEAD_ILL, ILL, LISTS, SHOWN, Checkup, FindingKind, Notes
from delayq.message import Tools
from delayq.operation import Operation
from delayq.script import MOST_IDS, MOST_MOVED
from delayq.twins import twin
from delayq.values import Call, Command

T = TypeVar("T")

LIGHT = ("deliveries", "ready", "retry", "unack", "garbage")
"""What a light look goes over. Lists come after the records, so that what these name is there to be found."""
DEEP = (*LIGHT, "messages", "pending", "retries", "headers", "errors")
DEAD = ("dead_messages", "dead", "dead_ids")
HEAVY = {"messages": 100, "dead_messages": 100, "headers": 100}
"""Ids read at a time from what is large: the script that reads them sees the rest as well."""
SEARCHED = 1_000_000
"""Entries of lists that one call may look through."""
SETTINGS = b"schema token stale_ready stale_retry backoffs slot_cursor events dedupe"
TOTALS = b"sent delivered acked discarded nacked released expired dead trimmed purged redriven cancelled rescheduled"
FIELDS = {*SETTINGS.split(), *TOTALS.split(), b"repaired"}
"""What `meta` may hold."""


class _Look:
    """One look over a queue."""

    def __init__(self, tools: Tools, *, deep: bool, mend: bool) -> None:
        self._tools = tools
        self._deep = deep
        self._mend = mend
        self._notes = Notes(mend=mend)
        self._waiting: dict[str, set[bytes]] = {"ready": set(), "retry": set()}
        self._searched = MOST_MOVED

    def run(self, queue: str) -> Operation[Checkup]:
        """Look over everything that is to be looked at."""
        keys = self._tools.calls.keys
        dangers, meta = yield from survey(keys)
        for danger in dangers:
            self._notes.tell(FindingKind.SERVER, danger)
        if unknown := newer(queue, meta.get(b"schema")):
            self._notes.tell(FindingKind.SCHEMA, unknown)
            return Checkup(queue, self._notes.findings())
        if strange := sorted(name.decode("utf-8", "backslashreplace") for name in meta.keys() - FIELDS):
            self._notes.tell(FindingKind.FIELD, ", ".join(strange[:SHOWN]), count=len(strange))
        lengths = yield [Command(("LLEN", key), int) for key in (keys.ready, keys.retry)]
        self._searched = max(1, min(MOST_MOVED, SEARCHED // max(sum(lengths), 1)))
        for part in DEEP if self._deep else LIGHT:
            yield from self._messages(part)
        for missed in self._waiting.values():
            for ids in _slices(missed, self._searched):
                digits = yield from self._judge(ids, look=True)
                self._notes.take(ILL, ids, digits)
        for part in DEAD if self._deep else ():
            yield from self._dead(part)
        yield from self._counters()
        return Checkup(queue, self._notes.findings())

    def _messages(self, part: str) -> Operation[None]:
        cursor, met = "0", dict[bytes, None]()
        while True:
            (page,) = yield [self._walk(part, cursor)]
            cursor, found = page
            met.update(dict.fromkeys(found))
            if len(met) >= MOST_MOVED or cursor == "0":
                for ids in _slices(met, MOST_MOVED):
                    yield from self._examine(part, ids)
                met.clear()
            if cursor == "0":
                return

    def _examine(self, part: str, ids: list[bytes]) -> Operation[None]:
        digits = yield from self._judge(ids, look=False)
        for id, digit in zip(ids, digits, strict=True):
            if part == "deliveries" and digit in LISTS:
                self._waiting[LISTS[digit]].add(id)
            elif LISTS.get(digit) == part:
                self._waiting[part].discard(id)
        ill = self._notes.take(ILL, ids, digits)
        for some in _slices(ill, self._searched) if self._mend else ():
            yield [self._repair(some, mend=True, look=False)]

    def _judge(self, ids: list[bytes], *, look: bool) -> Operation[str]:
        (digits,) = yield [self._repair(ids, mend=self._mend and look, look=look)]
        return str(digits)

    def _dead(self, part: str) -> Operation[None]:
        cursor = "0"
        while True:
            (page,) = yield [self._walk(part, cursor)]
            cursor, found = page
            for entries in _slices(dict.fromkeys(found), MOST_MOVED):
                (digits,) = yield [self._tools.calls.repair_dead(entries, mend=self._mend)]
                self._notes.take(DEAD_ILL, entries, digits)
            if cursor == "0":
                return

    def _counters(self) -> Operation[None]:
        (off,) = yield [self._tools.calls.recount(mend=self._mend)]
        *counters, wake = off
        for name, by in zip(("stale_ready", "stale_retry", "backoffs"), counters, strict=True):
            if by:
                self._notes.tell(FindingKind.COUNTER, f"{name} by {by:+d}", mended=self._mend)
        if wake:
            self._notes.tell(FindingKind.WAKE, "", count=wake, mended=self._mend)
        if self._mend or not self._notes.anything:
            (counted,) = yield [self._tools.calls.counts()]
            in_lists = counted.ready + counted.retry
            placed = in_lists + counted.pending + counted.active + counted.backoff + counted.garbage
            if placed != counted.messages:
                why = "a list is too long to be counted" if self._deep else "look deeply"
                self._notes.tell(FindingKind.BALANCE, f"{counted.messages} messages, {placed} places: {why}")

    def _walk(self, part: str, cursor: str) -> Call[tuple[str, list[bytes]]]:
        return self._tools.calls.walk(part, cursor=cursor, limit=HEAVY.get(part, MOST_IDS))

    def _repair(self, ids: list[bytes], *, mend: bool, look: bool) -> Call[str]:
        return self._tools.calls.repair(ids, mend=mend, look=look, retries=self._tools.settings.default_retries)


def _slices(ids: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    every = list(ids)
    for first in range(0, len(every), size):
        yield every[first : first + size]


def look(tools: Tools, queue: str, *, deep: bool, mend: bool) -> Operation[Checkup]:
    """Look over a queue, and mend what is wrong if asked."""
    if not isinstance(deep, bool):
        raise ConfigurationError(f"deep must be True or False, not {shown(deep)}")
    return _Look(tools, deep=deep, mend=mend).run(queue)


class Patient(BlockingFace[T]):
    """A face that can be examined and repaired."""

    def examine(self, *, deep: bool = False) -> Checkup:
        """Look for what is wrong with this queue and its server; changes nothing.

        Looks over all that has been promoted; with `deep` over every message and the dead letter too, which takes some
        twenty seconds of the server's time a million, in short calls, beside which consumers and producers go on.
        """
        return self._perform(look(self._tools, self.name, deep=deep, mend=False))

    def repair(self, *, deep: bool = False) -> Checkup:
        """Look as `examine` does, and mend what can be mended; says what it was.

        Loses no message that has its payload: one without a place is delivered now (and twice, if somebody holds it),
        unless its record knows a later due time. What has a place and no payload is taken out. Safe beside consumers
        and producers, and to be repeated: each message is judged and mended at one moment.
        """
        return self._perform(look(self._tools, self.name, deep=deep, mend=True))


class AsyncPatient(AsyncFace[T]):
    """A face that can be examined and repaired."""

    @twin(Patient.examine)
    async def examine(self, *, deep: bool = False) -> Checkup:
        return await self._perform(look(self._tools, self.name, deep=deep, mend=False))

    @twin(Patient.repair)
    async def repair(self, *, deep: bool = False) -> Checkup:
        return await self._perform(look(self._tools, self.name, deep=deep, mend=True))
