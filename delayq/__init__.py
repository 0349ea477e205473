"""A reliable delay queue for Python on Redis."""

import logging
from typing import TYPE_CHECKING

from delayq.lazy import attach

if TYPE_CHECKING:
    from delayq.backoff import Backoff as Backoff
    from delayq.clock import Duration as Duration
    from delayq.codec import Codec as Codec
    from delayq.config import QueueOptions as QueueOptions
    from delayq.consumer import AsyncConsuming as AsyncConsuming
    from delayq.consumer import Consuming as Consuming
    from delayq.dead_letter import AsyncDeadLetter as AsyncDeadLetter
    from delayq.dead_letter import DeadLetter as DeadLetter
    from delayq.dead_letter import Redriven as Redriven
    from delayq.errors import CalendarChangedError as CalendarChangedError
    from delayq.errors import ConfigurationError as ConfigurationError
    from delayq.errors import DelayqError as DelayqError
    from delayq.errors import EventsLostError as EventsLostError
    from delayq.errors import NoCallbackError as NoCallbackError
    from delayq.errors import NotReplicatedError as NotReplicatedError
    from delayq.errors import OutcomeUnknown as OutcomeUnknown
    from delayq.errors import PayloadError as PayloadError
    from delayq.errors import PayloadTooLargeError as PayloadTooLargeError
    from delayq.errors import QueueFullError as QueueFullError
    from delayq.errors import ServerError as ServerError
    from delayq.errors import SignatureError as SignatureError
    from delayq.errors import UnavailableError as UnavailableError
    from delayq.errors import UndecodableError as UndecodableError
    from delayq.errors import UnknownScheduleError as UnknownScheduleError
    from delayq.errors import UnsafeServerError as UnsafeServerError
    from delayq.events import EventKind as EventKind
    from delayq.events import MessageEvent as MessageEvent
    from delayq.findings import Checkup as Checkup
    from delayq.findings import Finding as Finding
    from delayq.findings import FindingKind as FindingKind
    from delayq.inspector import Counts as Counts
    from delayq.inspector import MessageInfo as MessageInfo
    from delayq.inspector import Page as Page
    from delayq.inspector import Stats as Stats
    from delayq.message import AsyncMessage as AsyncMessage
    from delayq.message import Message as Message
    from delayq.outcomes import Discard as Discard
    from delayq.outcomes import Reject as Reject
    from delayq.outcomes import Retry as Retry
    from delayq.producer import NewMessage as NewMessage
    from delayq.producer import SendStatus as SendStatus
    from delayq.producer import Sent as Sent
    from delayq.producer import SentMany as SentMany
    from delayq.puller import AsyncLease as AsyncLease
    from delayq.puller import Lease as Lease
    from delayq.queue import AsyncDelayQueue as AsyncDelayQueue
    from delayq.queue import DelayQueue as DelayQueue
    from delayq.runs import RunInfo as RunInfo
    from delayq.schedules.definition import Schedule as Schedule
    from delayq.schedules.definition import ScheduleOptions as ScheduleOptions
    from delayq.schedules.face import AsyncSchedules as AsyncSchedules
    from delayq.schedules.face import Schedules as Schedules
    from delayq.schedules.info import Applied as Applied
    from delayq.schedules.info import ScheduleInfo as ScheduleInfo
    from delayq.schedules.info import ScheduleState as ScheduleState
    from delayq.schedules.placing import ScheduleOutcome as ScheduleOutcome
    from delayq.states import State as State
    from delayq.steering import CancelOutcome as CancelOutcome
    from delayq.steering import RescheduleOutcome as RescheduleOutcome

__version__ = "0.1.0"

_HOMES = {
    # the queue
    "AsyncDelayQueue": "delayq.queue",
    "DelayQueue": "delayq.queue",
    "QueueOptions": "delayq.config",
    "Backoff": "delayq.backoff",
    "Codec": "delayq.codec",
    "Duration": "delayq.clock",
    # sending
    "CancelOutcome": "delayq.steering",
    "NewMessage": "delayq.producer",
    "RescheduleOutcome": "delayq.steering",
    "SendStatus": "delayq.producer",
    "Sent": "delayq.producer",
    "SentMany": "delayq.producer",
    # processing
    "AsyncConsuming": "delayq.consumer",
    "AsyncLease": "delayq.puller",
    "AsyncMessage": "delayq.message",
    "Consuming": "delayq.consumer",
    "Discard": "delayq.outcomes",
    "Lease": "delayq.puller",
    "Message": "delayq.message",
    "Reject": "delayq.outcomes",
    "Retry": "delayq.outcomes",
    # looking in
    "AsyncDeadLetter": "delayq.dead_letter",
    "Checkup": "delayq.findings",
    "Counts": "delayq.inspector",
    "DeadLetter": "delayq.dead_letter",
    "EventKind": "delayq.events",
    "Finding": "delayq.findings",
    "FindingKind": "delayq.findings",
    "MessageEvent": "delayq.events",
    "MessageInfo": "delayq.inspector",
    "Page": "delayq.inspector",
    "Redriven": "delayq.dead_letter",
    "RunInfo": "delayq.runs",
    "State": "delayq.states",
    "Stats": "delayq.inspector",
    # schedules
    "Applied": "delayq.schedules.info",
    "AsyncSchedules": "delayq.schedules.face",
    "Schedule": "delayq.schedules.definition",
    "ScheduleInfo": "delayq.schedules.info",
    "ScheduleOptions": "delayq.schedules.definition",
    "ScheduleOutcome": "delayq.schedules.placing",
    "Schedules": "delayq.schedules.face",
    "ScheduleState": "delayq.schedules.info",
    # errors
    "CalendarChangedError": "delayq.errors",
    "ConfigurationError": "delayq.errors",
    "DelayqError": "delayq.errors",
    "EventsLostError": "delayq.errors",
    "NoCallbackError": "delayq.errors",
    "NotReplicatedError": "delayq.errors",
    "OutcomeUnknown": "delayq.errors",
    "PayloadError": "delayq.errors",
    "PayloadTooLargeError": "delayq.errors",
    "QueueFullError": "delayq.errors",
    "ServerError": "delayq.errors",
    "SignatureError": "delayq.errors",
    "UnavailableError": "delayq.errors",
    "UndecodableError": "delayq.errors",
    "UnknownScheduleError": "delayq.errors",
    "UnsafeServerError": "delayq.errors",
}
"""Where each name comes from, once it is asked for: a program loads what it uses."""

__all__ = list(_HOMES)
__getattr__, __dir__ = attach(__name__, _HOMES)

logging.getLogger("delayq").addHandler(logging.NullHandler())
