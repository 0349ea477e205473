"""A reliable delay queue for Python on Redis."""

import logging

from delayq.backoff import Backoff
from delayq.clock import Duration
from delayq.codec import Codec
from delayq.config import QueueOptions
from delayq.consumer import AsyncConsuming, Consuming
from delayq.dead_letter import AsyncDeadLetter, DeadLetter, Redriven
from delayq.errors import (
    ConfigurationError,
    DelayqError,
    EventsLostError,
    NoCallbackError,
    NotReplicatedError,
    OutcomeUnknown,
    PayloadError,
    PayloadTooLargeError,
    QueueFullError,
    ServerError,
    UnavailableError,
    UndecodableError,
    UnsafeServerError,
)
from delayq.events import EventKind, MessageEvent
from delayq.findings import Checkup, Finding, FindingKind
from delayq.inspector import Counts, MessageInfo, Page, Stats
from delayq.message import AsyncMessage, Message
from delayq.outcomes import Discard, Reject, Retry
from delayq.producer import NewMessage, SendStatus, Sent, SentMany
from delayq.puller import AsyncLease, Lease
from delayq.queue import AsyncDelayQueue, DelayQueue
from delayq.runs import RunInfo
from delayq.states import State
from delayq.steering import CancelOutcome, RescheduleOutcome

__version__ = "0.1.0"

__all__ = [
    # the queue
    "AsyncDelayQueue",
    "DelayQueue",
    "QueueOptions",
    "Backoff",
    "Codec",
    "Duration",
    # sending
    "CancelOutcome",
    "NewMessage",
    "RescheduleOutcome",
    "SendStatus",
    "Sent",
    "SentMany",
    # processing
    "AsyncConsuming",
    "AsyncLease",
    "AsyncMessage",
    "Consuming",
    "Discard",
    "Lease",
    "Message",
    "Reject",
    "Retry",
    # looking in
    "AsyncDeadLetter",
    "Checkup",
    "Counts",
    "DeadLetter",
    "EventKind",
    "Finding",
    "FindingKind",
    "MessageEvent",
    "MessageInfo",
    "Page",
    "Redriven",
    "RunInfo",
    "State",
    "Stats",
    # errors
    "ConfigurationError",
    "DelayqError",
    "EventsLostError",
    "NoCallbackError",
    "NotReplicatedError",
    "OutcomeUnknown",
    "PayloadError",
    "PayloadTooLargeError",
    "QueueFullError",
    "ServerError",
    "UnavailableError",
    "UndecodableError",
    "UnsafeServerError",
]

logging.getLogger("delayq").addHandler(logging.NullHandler())
