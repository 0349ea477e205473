"""Engines: the kinds of queue, what each offers, and the calls that consumers and leases need from any of them.

What an engine offers is declared here as data. `EngineCapabilities.require` refuses a feature that it lacks before
anything is sent. `delayq docs engines` has the same table, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from delayq.errors import ConfigurationError, short_repr
from delayq.values.states import State

if TYPE_CHECKING:
    from delayq.broker.replies.replies import ClaimReply, CollectReply, ExpireReply, PromoteReply
    from delayq.broker.replies.results import Completed
    from delayq.broker.replies.send_replies import SendStatuses
    from delayq.broker.requests import Failure, Messages, Receipt, RedisCommand, Rejection, Release, ScriptCall
    from delayq.options import Settings


class Feature(StrEnum):
    """What an engine may offer, in the words of errors and of the handbook."""

    DELAYS = "delays"
    SCHEDULES = "schedules"
    CANCEL = "cancelling and rescheduling"
    KILL = "killing"
    REPLACE = "replacing"
    SUCCESSORS = "successors"
    EXPIRY = "expiry"
    PRIORITIES = "priorities"
    DEBOUNCE = "debouncing"
    HOLDS = "holding ids for a time"
    RESULTS = "results"
    TIMEOUTS = "timeouts of messages"
    UNIQUE_IDS = "unique ids"
    HEADERS = "headers"
    NAMES = "names of messages"
    BLOCKING_LEASES = "waiting for a message"
    LEASE_MANY = "leasing several at a time"
    SHORT_LEASES = "leases under a second"
    EXTEND = "extending a lease"
    RECOVERY = "recovery by every worker"
    RETRIES = "retries"
    START_REPORTS = "charging started messages only"
    DEAD_LETTER = "dead letter"
    GROUPS = "consumer groups"
    CALLBACKS = "callback consumer"
    DRAIN = "graceful stop"
    BATCHES = "batch callbacks"
    COUNTS = "counts"
    WORKERS = "list of workers"
    HISTORY = "history"
    GET = "reading a message by id"
    LIST = "listing messages"
    SEARCH = "searching messages"
    PURGE = "purging"
    REMOVE = "removing queues"
    PAUSE = "pausing"
    LIMITS = "limits"
    EVENTS = "event log"
    RUNS = "run ledger"
    DEDUPE = "dedupe window"
    OPTIONS = "queue options"
    REGISTRY = "registry of queues"
    REPAIR = "repair"
    REMINDERS = "reminders"
    SPARK = "bulk load"
    EXPORT = "export and import"
    REDACTION = "hidden fields"
    EMBEDDED = "embedded server"
    CLUSTER = "Redis Cluster"


_FEATURE_OF_OPTION = {
    "prefix": Feature.REGISTRY,
    "events": Feature.EVENTS,
    "events_max_len": Feature.EVENTS,
    "dedupe_window": Feature.DEDUPE,
    "dedupe_max": Feature.DEDUPE,
    "priority_step": Feature.PRIORITIES,
    "lateness_slo": Feature.HISTORY,
    "redact": Feature.REDACTION,
    "breaker": Feature.LIMITS,
    "rate_limit": Feature.LIMITS,
    "burst": Feature.LIMITS,
    "running": Feature.LIMITS,
    "retention": Feature.RESULTS,
    "max_result": Feature.RESULTS,
}
"""The options of a queue that not every engine takes."""


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    """What one engine offers."""

    engine: str
    states: tuple[str, ...]
    """The states whose messages can be listed, in the order of a message's life."""
    offers: frozenset[Feature]
    hints: Mapping[Feature, str] = field(default_factory=dict)
    """What to do instead, for a feature that is lacking."""

    def has(self, feature: Feature) -> bool:
        """Tell whether the engine offers a feature."""
        return feature in self.offers

    def require(self, feature: Feature) -> None:
        """Raise `ConfigurationError` if the engine lacks a feature."""
        if feature not in self.offers:
            raise self.refusal(feature)

    def refusal(self, feature: Feature) -> ConfigurationError:
        """Return the error for a feature that the engine lacks, with what to do instead."""
        hint = self.hints.get(feature)
        return ConfigurationError(f"the {self.engine} engine has no {feature}{f': {hint}' if hint else ''}")

    def check_options(self, options: Iterable[str]) -> None:
        """Raise `ConfigurationError` for an option of a feature that the engine lacks."""
        for option in options:
            feature = _FEATURE_OF_OPTION.get(option)
            if feature is not None and feature not in self.offers:
                raise ConfigurationError(f"the {self.engine} engine has no option {option!r}")

    def check_state(self, state: str) -> str:
        """Return a state that messages of the engine can be in; raise `ConfigurationError` for any other."""
        if state not in self.states:
            states = ", ".join(self.states)
            raise ConfigurationError(f"the {self.engine} engine has no state {short_repr(state)}: use one of {states}")
        return state


DELAY = EngineCapabilities(
    "delay",
    (
        *(State.PENDING, State.READY, State.ACTIVE, State.BACKOFF, State.RETRY, State.THROTTLED, State.GARBAGE),
        *(State.DEAD, State.COMPLETED),
    ),
    offers=frozenset(Feature) - {Feature.GROUPS},
)
WORKQUEUE = EngineCapabilities(
    "workqueue",
    ("queued", "processing"),
    offers=frozenset(
        {
            Feature.UNIQUE_IDS,
            Feature.BLOCKING_LEASES,
            Feature.SHORT_LEASES,
            Feature.COUNTS,
            Feature.GET,
            Feature.LIST,
            Feature.EMBEDDED,
            Feature.CLUSTER,
        }
    ),
    hints={
        Feature.CALLBACKS: "call lease and complete in a loop",
        Feature.RECOVERY: "call light_clean about once per lease time",
    },
)
STREAMS = EngineCapabilities(
    "streams",
    (State.READY, State.ACTIVE, State.BACKOFF, State.DEAD),
    offers=WORKQUEUE.offers
    | {
        Feature.HEADERS,
        Feature.LEASE_MANY,
        Feature.EXTEND,
        Feature.RECOVERY,
        Feature.RETRIES,
        Feature.START_REPORTS,
        Feature.DEAD_LETTER,
        Feature.GROUPS,
        Feature.CALLBACKS,
        Feature.DRAIN,
        Feature.BATCHES,
        Feature.OPTIONS,
    },
    hints={
        Feature.DELAYS: "send to a delay queue and relay it to the stream",
        Feature.SCHEDULES: "declare them on a delay queue and relay it to the stream",
    },
)


class EngineCalls(Protocol):
    """The calls that consumers, leases and messages make to the engine of their queue.

    Each returns a call as a value. A string of statuses has one digit for each message of the call.
    """

    capabilities: ClassVar[EngineCapabilities]
    waiting_takes: ClassVar[bool]
    """Whether a wait for a wake-up may take a message, which is then to be claimed or given back."""

    def send(self, messages: Messages, *, max_length: int | None) -> ScriptCall[SendStatuses]:
        """Store messages. Status: 1 new, 0 exists; an engine may have more."""

    def pending_to_ready(self) -> ScriptCall[PromoteReply]:
        """Promote what is due, and read when more will be."""

    def is_empty(self) -> RedisCommand[bool] | None:
        """Read whether a promotion would find nothing at all; None if this costs as much as a promotion."""

    def ready_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> ScriptCall[ClaimReply]:
        """Claim up to `wanted` messages under a lease (ms)."""

    def pending_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> ScriptCall[ClaimReply] | None:
        """Claim up to `wanted` due messages that were not promoted; None if the engine has no promotion."""

    def unack_to_retry(self) -> ScriptCall[ExpireReply] | RedisCommand[ExpireReply]:
        """Take back messages whose lease or backoff has expired."""

    def ack(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Settle messages as done. Status: 1 settled by this call, 0 not."""

    def complete(self, completions: Iterable[Completed]) -> ScriptCall[str]:
        """Settle messages that have retention, for engines with `RESULTS`. Status as of `ack`."""

    def report(self, receipt: Receipt, progress: str) -> ScriptCall[str]:
        """Store the progress (base64) of a message, for engines with `RESULTS`. Status: 1 stored, 0 not in flight."""

    def hold(self, name: str | None, delay: int, *, pause: int | None = None) -> ScriptCall[str]:
        """Close a name or the queue for so long (ms), or change its breaker, for engines with `LIMITS`; 0 not done."""

    def discard(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Settle messages as discarded. Status as of `ack`."""

    def drop(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Discard messages that are missed, for engines with `EXPIRY`. Status as of `ack`."""

    def nack(self, failures: Iterable[Failure]) -> ScriptCall[str]:
        """Retry messages after a delay. Status: 1 will be retried, 2 to be collected, 0 not in flight."""

    def release(self, releases: Iterable[Release]) -> ScriptCall[str]:
        """Give messages back, at once or after a delay, without charging an attempt. Status: 0 not given back."""

    def extend(self, receipts: Iterable[Receipt], *, lease: int) -> ScriptCall[str]:
        """Renew leases (ms from now). Status: 1 renewed, 2 renewed and asked to stop, 0 not in flight."""

    def start(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Note that callbacks have started, for engines with `START_REPORTS`. Status: 0 not in flight."""

    def withdraw(self, ids: Iterable[str]) -> ScriptCall[str]:
        """Ask consumers to return what they have not started, for engines with `START_REPORTS`.

        Status: 1 asked, 2 not in flight, 0 started.
        """

    def is_withdrawn(self, ids: Iterable[str]) -> RedisCommand[bool]:
        """Read whether a consumer was asked to return any of its messages, for engines with `START_REPORTS`."""

    def is_stopping(self, ids: Iterable[str]) -> RedisCommand[list[int]]:
        """Read the tokens of messages that are asked to stop, 0 for others, for engines with `CANCEL`."""

    def reject(self, rejections: Iterable[Rejection]) -> ScriptCall[str]:
        """Move messages to the dead letter."""

    def collect(self, settings: Settings, *, ids: Iterable[str] = ()) -> ScriptCall[CollectReply]:
        """Move spent messages (`ids`, or any) to the dead letter, trim it, and forget unused call slots."""

    def await_wake(self, timeout: float) -> RedisCommand[bool]:
        """Wait up to `timeout` seconds until there may be a message."""

    def wake(self) -> ScriptCall[Any]:
        """Pass on a wake-up that this consumer cannot follow."""

    def confirm(self, replicas: int, *, timeout: int) -> list[RedisCommand[Any]]:
        """Wait up to `timeout` ms until so many replicas have what stands before it in the same round trip."""
