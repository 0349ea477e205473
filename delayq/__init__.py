"""A reliable delay queue for Python on Redis."""

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:
    from delayq.backoff import Backoff as Backoff
    from delayq.breaker import Breaker as Breaker
    from delayq.broker.send_replies import Holder as Holder
    from delayq.codec import Codec as Codec
    from delayq.errors import CalendarChangedError as CalendarChangedError
    from delayq.errors import CannotConnectError as CannotConnectError
    from delayq.errors import ConfigurationError as ConfigurationError
    from delayq.errors import DelayqError as DelayqError
    from delayq.errors import EventsLostError as EventsLostError
    from delayq.errors import MessageFailedError as MessageFailedError
    from delayq.errors import NoCallbackError as NoCallbackError
    from delayq.errors import NoReplyError as NoReplyError
    from delayq.errors import NoResultError as NoResultError
    from delayq.errors import NotReplicatedError as NotReplicatedError
    from delayq.errors import OutcomeUnknown as OutcomeUnknown
    from delayq.errors import PayloadError as PayloadError
    from delayq.errors import PayloadTooLargeError as PayloadTooLargeError
    from delayq.errors import QueueFullError as QueueFullError
    from delayq.errors import ResultTimeoutError as ResultTimeoutError
    from delayq.errors import ServerError as ServerError
    from delayq.errors import SignatureError as SignatureError
    from delayq.errors import StoppedByCallbackError as StoppedByCallbackError
    from delayq.errors import UnavailableError as UnavailableError
    from delayq.errors import UndecodableError as UndecodableError
    from delayq.errors import UnknownOccurrenceError as UnknownOccurrenceError
    from delayq.errors import UnknownScheduleError as UnknownScheduleError
    from delayq.errors import UnsafeServerError as UnsafeServerError
    from delayq.options import QueueOptions as QueueOptions
    from delayq.outcomes import Discard as Discard
    from delayq.outcomes import RateLimited as RateLimited
    from delayq.outcomes import Reject as Reject
    from delayq.outcomes import Retry as Retry
    from delayq.outcomes import Snooze as Snooze
    from delayq.outcomes import StopWorker as StopWorker
    from delayq.queue.async_delay_queue import AsyncDelayQueue as AsyncDelayQueue
    from delayq.queue.bulk_runs import RunInfo as RunInfo
    from delayq.queue.cancellation import CancelOutcome as CancelOutcome
    from delayq.queue.cancellation import RescheduleOutcome as RescheduleOutcome
    from delayq.queue.consumer import AsyncConsuming as AsyncConsuming
    from delayq.queue.consumer import ConsumeOptions as ConsumeOptions
    from delayq.queue.consumer import Consuming as Consuming
    from delayq.queue.counts import Counts as Counts
    from delayq.queue.counts import Stats as Stats
    from delayq.queue.dead_groups import DeadGroup as DeadGroup
    from delayq.queue.dead_letter import AsyncDeadLetter as AsyncDeadLetter
    from delayq.queue.dead_letter import DeadLetter as DeadLetter
    from delayq.queue.dead_letter import Redriven as Redriven
    from delayq.queue.delay_queue import DelayQueue as DelayQueue
    from delayq.queue.event_log import EventKind as EventKind
    from delayq.queue.event_log import MessageEvent as MessageEvent
    from delayq.queue.forecast import Forecast as Forecast
    from delayq.queue.forecast import ForecastBucket as ForecastBucket
    from delayq.queue.handler_check import HandlerCheck as HandlerCheck
    from delayq.queue.handler_check import HandlerProblem as HandlerProblem
    from delayq.queue.history import HistoryBucket as HistoryBucket
    from delayq.queue.history import QueueHistory as QueueHistory
    from delayq.queue.lateness_report import LatenessCounts as LatenessCounts
    from delayq.queue.lateness_report import SloReport as SloReport
    from delayq.queue.lease import AsyncLease as AsyncLease
    from delayq.queue.lease import Lease as Lease
    from delayq.queue.limits import AsyncLimits as AsyncLimits
    from delayq.queue.limits import DeclaredLimit as DeclaredLimit
    from delayq.queue.limits import Limit as Limit
    from delayq.queue.limits import Limits as Limits
    from delayq.queue.message_info import MessageInfo as MessageInfo
    from delayq.queue.message_info import Page as Page
    from delayq.queue.pausing import Pause as Pause
    from delayq.queue.producer import NewMessage as NewMessage
    from delayq.queue.repair_report import Checkup as Checkup
    from delayq.queue.repair_report import Finding as Finding
    from delayq.queue.repair_report import FindingKind as FindingKind
    from delayq.queue.schedule_history import OccurrenceHistory as OccurrenceHistory
    from delayq.queue.schedule_history import OccurrenceResult as OccurrenceResult
    from delayq.queue.schedule_history import ScheduleHistory as ScheduleHistory
    from delayq.queue.schedules import AsyncSchedules as AsyncSchedules
    from delayq.queue.schedules import Schedules as Schedules
    from delayq.queue.search import Match as Match
    from delayq.queue.search import SearchPage as SearchPage
    from delayq.queue.selection import AsyncSelection as AsyncSelection
    from delayq.queue.selection import Selection as Selection
    from delayq.queue.sent import SendStatus as SendStatus
    from delayq.queue.sent import Sent as Sent
    from delayq.queue.sent import SentMany as SentMany
    from delayq.queue.task_options import TaskOptions as TaskOptions
    from delayq.queue.task_options import TaskSendOptions as TaskSendOptions
    from delayq.queue.tasks import AsyncTask as AsyncTask
    from delayq.queue.tasks import Task as Task
    from delayq.queue.tasks import current_message as current_message
    from delayq.queue.worker import AsyncWorker as AsyncWorker
    from delayq.queue.worker import Worker as Worker
    from delayq.queue.workers import RunningMessage as RunningMessage
    from delayq.queue.workers import WorkerInfo as WorkerInfo
    from delayq.schedules.definition import Schedule as Schedule
    from delayq.schedules.definition import ScheduleOptions as ScheduleOptions
    from delayq.schedules.info import Applied as Applied
    from delayq.schedules.info import ScheduleInfo as ScheduleInfo
    from delayq.schedules.info import SchedulesPage as SchedulesPage
    from delayq.schedules.info import ScheduleState as ScheduleState
    from delayq.schedules.occurrences import Backfill as Backfill
    from delayq.schedules.occurrences import OccurrenceChange as OccurrenceChange
    from delayq.schedules.occurrences import OccurrenceOutcome as OccurrenceOutcome
    from delayq.schedules.store import ScheduleOutcome as ScheduleOutcome
    from delayq.states import State as State
    from delayq.times import Duration as Duration
    from delayq.worker.message import AsyncMessage as AsyncMessage
    from delayq.worker.message import Message as Message

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = attach(__name__)
