"""How a calendar's reminders get into a queue: the operations, for the blocking and the asyncio face alike.

What is to be sent or cancelled is noted in the kept plan first and struck out when it is done, so that an import that
was cut off anywhere is finished by the next one. Each message has its id from the calendar, its event and its offset,
so that doing something twice is doing it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from delayq.clock import moment
from delayq.errors import CalendarChangedError
from delayq.operation import Operation
from delayq.producer import NewMessage, SendStatus
from delayq.reminders.difference import NOTHING, Changes, Unread, difference
from delayq.reminders.event import Event
from delayq.reminders.keeping import Kept, pack, unpack
from delayq.reminders.planning import Plan, Reminder, Rules, plan
from delayq.reminders.reading import Progress, Reading
from delayq.script import MOST_IDS

AT_ONCE = 5_000
"""Messages sent between two reports of how far it is."""
ATTEMPTS = 5
"""How often a plan is made anew when another import of the calendar came between."""

Events = Iterable[Event] | Reading
_WITHDRAWN = "1"
"""What a cancel answers for a message that waited; the others were delivered, or are being processed."""
_REFUSED = frozenset([SendStatus.RUNNING, SendStatus.SETTLED])


@dataclass(frozen=True, slots=True)
class CalendarInfo:
    """What is kept of a calendar."""

    name: str
    changed: datetime
    """When an import last changed something."""
    reminders: list[Reminder]
    """In the order of their due times, those that were delivered included."""
    before: list[str]
    quiet: str
    tz: str
    finished: bool
    """Whether the last import came to its end; if not, import again."""


class Operations:
    """The operations behind both faces."""

    def __init__(self, queue: Any, name: str, rules: Rules, grace: int, retries: int | None) -> None:
        self.name = name
        self._rules, self._grace, self._retries = rules, grace, retries
        # A queue shows its users no door to its calls, and what is done here takes several in their order.
        self._tools, self._producer = queue._tools, queue._producer  # noqa: SLF001
        self._perform = queue._perform  # noqa: SLF001

    def _read(self) -> Operation[tuple[Kept, int]]:
        """Read the kept plan and the time by which it is gone on."""
        calls = self._tools.calls
        held, now = yield [calls.plan(self.name), calls.time()]
        return unpack(self.name, held), now if calls.clock is None else calls.clock()

    def _now(self) -> Operation[datetime]:
        _, now = yield from self._read()
        return moment(now)

    def _preview(self, events: Events) -> Operation[Changes]:
        kept, now = yield from self._read()
        made = plan(_events(events), self._rules, now=moment(now))
        return difference(kept, made, now=now, grace=self._grace, unread=_unread(events))

    def _update(self, events: Events, *, again: bool, on_progress: Progress | None) -> Operation[Changes]:
        several = _events(events)
        unread = _unread(events)
        held = (yield from self._held()) if again else frozenset[str]()

        def make(kept: Kept, now: int) -> Changes:
            if again:
                kept = replace(kept, doubtful=kept.doubtful | kept.reminders.keys() | held)
            made = plan(several, self._rules, now=moment(now))
            return difference(kept, made, now=now, grace=self._grace, unread=unread)

        return (yield from self._carry_out(self._rules, make, on_progress))

    def _held(self) -> Operation[frozenset[str]]:
        """Return the ids of the calendar's reminders that the queue holds, whatever is kept of them."""
        mine, cursor, found = f"{self.name}/".encode(), "0", set[str]()
        while True:
            (page,) = yield [self._tools.calls.walk("messages", cursor=cursor, limit=MOST_IDS)]
            cursor, ids = page
            found.update(id.decode() for id in ids if id.startswith(mine))
            if cursor == "0":
                return frozenset(found)

    def _replan(self, on_progress: Progress | None) -> Operation[Changes]:
        rules = self._rules

        def make(kept: Kept, now: int) -> Changes:
            nonlocal rules
            rules = kept.rules or rules
            pinned = {reminder.id: reminder for reminder in kept.pinned}
            events = {id(one.event): one.event for one in kept.reminders.values() if one.id not in pinned}
            made = plan(events.values(), rules, now=moment(now))
            # What was not sent in its time is none of what there is to be planned again.
            known = {id: one for id, one in made.reminders.items() if id in kept.reminders}
            return difference(kept, Plan(rules, known | pinned), now=now)

        return (yield from self._carry_out(None, make, on_progress))

    def _forget(self) -> Operation[Changes]:
        def make(kept: Kept, _: int) -> Changes:
            return Changes(cancelled=sorted(kept.reminders.keys() | kept.doubtful))

        return (yield from self._carry_out(None, make, None, forget=True))

    def _carry_out(
        self,
        rules: Rules | None,
        make: Callable[[Kept, int], Changes],
        on_progress: Progress | None,
        *,
        forget: bool = False,
    ) -> Operation[Changes]:
        """Do what `make` finds to be done, under the given rules or those that are kept."""
        for _ in range(ATTEMPTS):
            kept, now = yield from self._read()
            by = rules or kept.rules or self._rules
            changes = make(kept, now)
            if not (changes or forget or kept.doubtful) and kept.rules and kept.rules.texts == by.texts:
                return changes
            revision = kept.revision
            if changes:
                doubtful = {reminder.id for reminder in changes.sent} | set(changes.cancelled)
                noted = pack(by, changes.kept.values(), at=now, doubtful=doubtful)
                if not (yield from self._keep(revision, noted)):
                    continue
                revision += 1
                changes = yield from self._do(changes, on_progress)
            if forget and not revision:
                return changes
            if (yield from self._keep(revision, b"" if forget else pack(by, changes.kept.values(), at=now))):
                return changes
        raise CalendarChangedError(f"calendar {self.name} is being imported by others at the same time; try again")

    def _keep(self, revision: int, packed: bytes) -> Operation[bool]:
        kept, *_ = yield [self._tools.calls.keep_plan(self.name, revision, packed), *self._tools.confirming]
        return bool(kept)

    def _do(self, changes: Changes, on_progress: Progress | None) -> Operation[Changes]:
        """Cancel and send; returns the changes as they were: without what was gone already, or was refused."""
        done, total = 0, len(changes)

        def tell(more: int) -> None:
            nonlocal done
            done += more
            if on_progress is not None:
                on_progress(done, total)

        tell(0)
        cancelled: list[str] = []
        for first in range(0, len(changes.cancelled), MOST_IDS):
            ids = changes.cancelled[first : first + MOST_IDS]
            digits, *_ = yield [self._tools.calls.cancel(ids), *self._tools.confirming]
            cancelled += [id for id, digit in zip(ids, digits, strict=True) if digit == _WITHDRAWN]
            tell(len(ids))
        sent, refused = changes.sent, []
        for first in range(0, len(sent), AT_ONCE):
            part = sent[first : first + AT_ONCE]
            messages = [NewMessage(one.payload, at=moment(one.due), id=one.id) for one in part]
            outcome = yield from self._producer.send_many(
                messages, delay=0, retries=self._retries, replace=True, run=None
            )
            refused += [one.id for one in outcome if one.status in _REFUSED]
            tell(len(part))
        done_so = replace(changes, cancelled=cancelled)
        return done_so.without(refused) if refused else done_so

    def _info(self) -> Operation[CalendarInfo | None]:
        kept, _ = yield from self._read()
        return told(self.name, kept)


def told(name: str, kept: Kept) -> CalendarInfo | None:
    """Return what is kept of a calendar, None if nothing is."""
    if kept.rules is None:
        return None
    reminders = list(Plan(kept.rules, kept.reminders))
    return CalendarInfo(name, moment(kept.at), reminders, *kept.rules.texts, finished=not kept.doubtful)


def _events(events: Events) -> list[Event]:
    return events.events if isinstance(events, Reading) else list(events)


def _unread(events: Events) -> Unread:
    if not isinstance(events, Reading) or not events.problems:
        return NOTHING
    uids = {problem.uid for problem in events.problems if problem.hides}
    return Unread(uids, "" in uids)
