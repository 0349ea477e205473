"""The calls of a delay queue about its schedules, and about the plans of calendars."""

from __future__ import annotations

from collections.abc import Iterable

from delayq.broker.capabilities.script_calls import ScriptCalls
from delayq.broker.replies import schedule_replies
from delayq.broker.replies.replies import integers, pairs, statuses
from delayq.broker.replies.schedule_replies import DueSchedules
from delayq.broker.requests import RedisCommand, ScheduleFire, SchedulePut, ScriptCall, flat


class ScheduleCalls(ScriptCalls):
    """One function per script, as `Calls`."""

    __slots__ = ()

    def schedule_put(self, puts: Iterable[SchedulePut]) -> ScriptCall[str]:
        """Store schedules; a status each: 1 stored, 0 read it again: it has changed, or they are large."""
        return self._call("schedule_put", [self._now, *flat(puts)], statuses)

    def schedule_remove(self, schedules: Iterable[str]) -> ScriptCall[str]:
        """Remove schedules; a status each: 1 removed, 0 no such schedule. Fewer if they are large."""
        return self._call("schedule_remove", [self._now, *schedules], statuses)

    def fire(self, fires: Iterable[ScheduleFire]) -> ScriptCall[str]:
        """Store the messages of occurrences and advance their schedules; returns a status each, see the script."""
        return self._call("fire", [self._now, *flat(fires)], statuses)

    def schedules_due(self, *, ahead: int, offset: int, limit: int, byte_limit: int) -> ScriptCall[DueSchedules]:
        """Read schedules due within `ahead` ms from `offset` on, up to `limit` schedules and `byte_limit` bytes."""
        args = [self._now, ahead, offset, limit, byte_limit]
        return self._call("schedules_due", args, lambda reply: schedule_replies.read_due(reply, limit))

    def schedules_page(
        self, schedules: Iterable[str] = (), *, cursor: str = "0", limit: int
    ) -> ScriptCall[schedule_replies.SchedulePage]:
        """Read a page of the schedules, or those named that exist."""
        return self._call("schedules_page", [self._now, cursor, limit, *schedules], schedule_replies.read_schedules)

    def schedules_find(
        self, *, label: str = "", prefix: str = "", cursor: str = "", limit: int
    ) -> ScriptCall[tuple[str, list[str]]]:
        """Find names of schedules with a label, or that begin with a text; the cursor of the next page ('' at the end).

        There may be some more than `limit` if there are more than 1,000 schedules, and no label.
        """
        return self._call("schedules_find", [label, prefix, cursor, limit], schedule_replies.read_names)

    def note_schedules(self, at: int, *, zones: str) -> RedisCommand[None]:
        """Note that all schedules were planned anew at a time (ms), and by which release of the time zone data."""
        fields = ("schedules_at", at, "schedules_zones", zones) if zones else ("schedules_at", at)
        return RedisCommand(("HSET", self.keys.meta, *fields), lambda _: None)

    def keep_plan(self, calendar: str, revision: int, plan: bytes) -> ScriptCall[bool]:
        """Store the plan of a calendar (b'' deletes it) if it still has `revision`; returns whether it did."""
        return self._call("keep_plan", [self._now, calendar, revision, plan], lambda reply: integers(reply)[0] == 1)

    def plan(self, calendar: str) -> RedisCommand[bytes | None]:
        """Read the stored plan of a calendar."""
        return RedisCommand(("HGET", self.keys.plans, calendar), lambda reply: reply)

    def plans(self) -> RedisCommand[dict[bytes, bytes]]:
        """Read the stored plans of all calendars."""
        return RedisCommand(("HGETALL", self.keys.plans), pairs)
