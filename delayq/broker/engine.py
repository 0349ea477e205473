"""Engines: the kinds of queue, and what each offers.

It is declared here as data. `EngineCapabilities.require` refuses anything else before it is sent. `delayq docs engines`
has the same table, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from delayq.errors import ConfigurationError, short_repr
from delayq.values.states import State


class Feature(StrEnum):
    """What an engine may offer, in the words of errors and of the handbook."""

    DELAYS = "delays"
    SCHEDULES = "schedules"
    CANCEL = "cancelling and rescheduling"
    KILL = "killing"
    EDIT = "editing"
    FORGET = "forgetting"
    REPLACE = "replacing"
    SUCCESSORS = "successors"
    EXPIRY = "expiry"
    HOURS = "hours"
    PRIORITIES = "priorities"
    DEBOUNCE = "debouncing"
    COLLECT = "collecting"
    RESERVED = "ids reserved for a time"
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
    WHY = "reasons for waiting"
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
    COLD = "cold tier"
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
