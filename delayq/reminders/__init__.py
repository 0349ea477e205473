"""Reminders of events: from calendars, such as iCalendar files, to messages that are due before each event."""

from typing import TYPE_CHECKING

from delayq.lazy import attach

if TYPE_CHECKING:
    from delayq.reminders.calendar import AsyncCalendar as AsyncCalendar
    from delayq.reminders.calendar import Calendar as Calendar
    from delayq.reminders.calendar import calendars as calendars
    from delayq.reminders.carrying_out import CalendarInfo as CalendarInfo
    from delayq.reminders.difference import Changes as Changes
    from delayq.reminders.event import Event as Event
    from delayq.reminders.offsets import Offset as Offset
    from delayq.reminders.planning import Plan as Plan
    from delayq.reminders.planning import Reminder as Reminder
    from delayq.reminders.planning import Rules as Rules
    from delayq.reminders.planning import plan as plan
    from delayq.reminders.problem import Problem as Problem
    from delayq.reminders.quiet import QuietHours as QuietHours
    from delayq.reminders.reading import Reading as Reading
    from delayq.reminders.reading import read_calendar as read_calendar

_HOMES = {
    "AsyncCalendar": "delayq.reminders.calendar",
    "Calendar": "delayq.reminders.calendar",
    "CalendarInfo": "delayq.reminders.carrying_out",
    "Changes": "delayq.reminders.difference",
    "Event": "delayq.reminders.event",
    "Offset": "delayq.reminders.offsets",
    "Plan": "delayq.reminders.planning",
    "Problem": "delayq.reminders.problem",
    "QuietHours": "delayq.reminders.quiet",
    "Reading": "delayq.reminders.reading",
    "Reminder": "delayq.reminders.planning",
    "Rules": "delayq.reminders.planning",
    "calendars": "delayq.reminders.calendar",
    "plan": "delayq.reminders.planning",
    "read_calendar": "delayq.reminders.reading",
}

__all__ = list(_HOMES)
__getattr__, __dir__ = attach(__name__, _HOMES)
