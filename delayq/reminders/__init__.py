"""Reminders: turns the events of calendars, such as iCalendar files, into messages due before each event."""

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:
    from delayq.reminders.calendar import AsyncCalendar as AsyncCalendar
    from delayq.reminders.calendar import Calendar as Calendar
    from delayq.reminders.calendar import CalendarInfo as CalendarInfo
    from delayq.reminders.calendar import account_of as account_of
    from delayq.reminders.calendar import calendars as calendars
    from delayq.reminders.event import Event as Event
    from delayq.reminders.ics_reader import Reading as Reading
    from delayq.reminders.ics_reader import read_calendar as read_calendar
    from delayq.reminders.ics_splitter import Problem as Problem
    from delayq.reminders.known_events import KnownEvents as KnownEvents
    from delayq.reminders.offsets import Offset as Offset
    from delayq.reminders.offsets import QuietHours as QuietHours
    from delayq.reminders.plan_diff import Changes as Changes
    from delayq.reminders.planner import Plan as Plan
    from delayq.reminders.planner import Reminder as Reminder
    from delayq.reminders.planner import Rules as Rules
    from delayq.reminders.planner import plan as plan

__all__, __getattr__, __dir__ = attach(__name__)
