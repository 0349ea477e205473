"""The Redis keys of a queue; no other module spells them.

All keys of one queue share a hash tag, `<prefix>:{<queue>}:<part>`. So every script runs on one node of a cluster, and
moving a queue to a cluster renames no key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from delayq.broker.foreign import is_foreign_id
from delayq.errors import InvalidValueError, short_repr

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_QUEUE = re.compile(r"([A-Za-z0-9._-]{1,128})(?:#[0-9]{1,3})?")
"""The name of a queue, or of a partition of one: `reminders#3`."""
_PATTERN = re.compile(r"(?:[A-Za-z0-9._*?-]|\[!?[A-Za-z0-9._-]+\])+")
ID = r"[A-Za-z0-9._:@/+=-]{1,128}"
"""The full pattern of a message id, in the syntax of `re` and of RE2."""
_ID = re.compile(ID)


def check_name(name: str, what: str = "queue name") -> str:
    """Return a valid queue name or prefix; raise `ConfigurationError` for any other."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidValueError(f"{what} must be 1 to 128 of A-Z a-z 0-9 . _ -, not {short_repr(name)}")
    return name


def check_queue_name(name: str, what: str = "queue name") -> str:
    """Return the name of a queue or of a partition; raise `ConfigurationError` for any other."""
    return name if isinstance(name, str) and is_name(name) else check_name(name, what)


def is_name(text: str) -> bool:
    """Return whether a text is a valid queue name, or that of a partition."""
    return _QUEUE.fullmatch(text) is not None


def whole_name(name: str) -> str:
    """Return the name of the queue that a partition is of; any other name as it is."""
    return name.partition("#")[0]


def check_id(id: str, what: str = "id") -> str:
    """Return a valid message id; raise `ConfigurationError` for any other."""
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise InvalidValueError(f"{what} must be 1 to 128 of A-Z a-z 0-9 . _ : @ / + = -, not {short_repr(id)}")
    return id


def check_stored_id(id: str) -> str:
    r"""Return the id of a message that may exist; raise `ConfigurationError` for any other.

    It is valid, or no UTF-8 and of another program: as lists show it, with `\xff`, or with surrogates.
    """
    return id if is_foreign_id(id) else check_id(id)


def check_pattern(pattern: str, what: str = "the pattern of queues") -> str:
    """Return a valid pattern of queue names, as Redis matches them; raise `ConfigurationError` for any other."""
    if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
        text = (
            f"{what} must be made of the characters of queue names and of *, ?, [abc] and [!abc], as in tenant-*, not"
        )
        raise InvalidValueError(f"{text} {short_repr(pattern)}")
    return pattern


def registry(prefix: str) -> str:
    """Return the key of the set that names the queues under a prefix: an index, which only says where to look.

    Every producer may add to it, so it may have names of no queue. Whether a queue is in use, its own keys say.
    """
    return f"{prefix}:queues"


META_SETTINGS = (
    "schema",
    "identity",
    "token",
    "stale_ready",
    "stale_retry",
    "backoffs",
    "slot_cursor",
    "events",
    "dedupe",
    "unique",
    "paused",
    "stopping",
    "limited",
    "dead_max",
    "dead_ttl",
    "priority_step",
    "lateness_slo",
    "redact",
    "schedules_at",
    "schedules_zones",
    "partitions",
    "partitions_from",
    "epoch",
    "cold",
)
"""The fields of `meta` that are settings and internal counters."""
META_TOTALS = (
    *("sent", "delivered", "throttled", "acked", "discarded", "missed", "nacked", "released", "expired", "dead"),
    *("trimmed", "redriven", "cancelled", "rescheduled", "purged", "dead_imported", "dead_purged", "repaired"),
    "events_lost",
)
"""The fields of `meta` that are totals, which `stats` shows."""
META_PARTITIONS = "partitions", "epoch", "partitions_from", "partitions_left"
"""The fields of `meta` that say over how many partitions a queue is spread. A partition has `epoch` alone."""
META_FIELDS = META_SETTINGS + META_TOTALS
"""All fields of `meta` but those of call slots, whose names have a dot."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Every key of one queue, named for its content."""

    pending: str
    """zset: id → due time (ms)."""
    ready: str
    """list: ids due now."""
    ranked: str
    """zset: id due now → its due time less the head start of its priority (ms); only of messages with a priority."""
    unack: str
    """zset: id → lease deadline, or the redelivery time after a nack (ms)."""
    retry: str
    """list: ids whose lease or nack delay has run out, with retries left."""
    garbage: str
    """set: ids without retries left, waiting to be moved to the dead letter."""
    retries: str
    """hash: id → retries left; 3, the default, for an id without an entry."""
    messages: str
    """hash: id → payload. An id is a message if and only if it is here."""
    deliveries: str
    """hash: id → delivery record, from the first promotion to settlement."""
    headers: str
    """hash: id → headers; only of messages sent with some."""
    attributes: str
    """hash: id → attributes (see `broker.attributes`); only of messages that have some."""
    errors: str
    """hash: id → last error; only of messages that have failed."""
    successors: str
    """hash: id → what was sent to follow its running message, packed; only of ids with some."""
    gathered: str
    """hash: id, series and number → a payload that its group gathers; only while one does."""
    limits: str
    """hash: scope → its limit and its state, packed; only of queues with limits."""
    declared: str
    """hash: scope → the rate, the burst and the places of its limit that a program has declared last."""
    gates: str
    """zset: number of a limit → when the first of what it holds back may start (ms)."""
    throttled: str
    """zset: id → number of the limit that holds it back, and its rank among what waits for it, packed."""
    running: str
    """zset: id → number of the limit in which it takes a place; only if a name may run so often at a time. With a space
    before the id, number of its key."""
    key_lines: str
    """zset: number of a key, rank and id of a message that waits for a place of the key → 0; only under templates."""
    replies: str
    """hash: left by a version before, which kept in it what call slots keep in `meta`."""
    dead: str
    """zset: id:token → time of death (ms)."""
    dead_messages: str
    """hash: id:token → the dead message with its reason, error and counts."""
    dead_ids: str
    """hash: id → tokens of its entries in the dead letter."""
    completed: str
    """zset: id → time until which its result is kept (ms); only of messages that had retention."""
    results: str
    """hash: id → how it ended, its attempts and times, and its result (see `broker.results`)."""
    waited: str
    """zset: id → time until which a process waits for its end (ms)."""
    ends: str
    """stream: ids that have ended while somebody waited for them; each for a minute."""
    events: str
    """stream: what happened to messages, one entry per call and kind; only if the event log is on."""
    done: str
    """zset: id → time it was settled (ms), for the dedupe window, or its own end; only if one of them is in use."""
    runs: str
    """hash: run → counts of the messages of a bulk send by status."""
    refusals: str
    """hash: run → rows that were refused before sending; only of runs with refusals."""
    archives: str
    """hash: archive of the event log → its last offset, and its location."""
    notifiers: str
    """hash: notifier → how far it has read the event log, what it has told and what it has still to deliver (JSON)."""
    readers: str
    """hash: reader of batches → first and last number that it has staged, when it was last heard of and its lease (ms);
    with " run" after it, its latest run; only of queues that Spark consumes."""
    staged: str
    """hash: reader and number → claimed messages that its batch is made of, packed; with " texts", their payloads,
    headers and attributes."""
    plans: str
    """hash: calendar → revision and plan of its reminders, packed; only of calendars that were imported."""
    schedules: str
    """zset: schedule → next occurrence (ms); only of schedules that are neither paused nor ended."""
    schedule_specs: str
    """hash: schedule → its definition (one line of JSON) and the payload of its messages."""
    schedule_states: str
    """hash: schedule → revision, messages fired, last occurrence (ms), and whether it is paused."""
    schedule_labels: str
    """zset: label and schedule, separated by a space → 0; only of schedules with labels."""
    workers: str
    """hash: consumer → its presence, one line of JSON (see `broker.stored_presence`)."""
    beats: str
    """zset: consumer → time until which that counts (ms); one that has not told more by then is silent."""
    history: str
    """hash: hour since 1970 → what consumers have counted in it (see `broker.stored_presence`); first → the first hour
    that may be there; total → what they have ever counted."""
    moving: str
    """hash: kind, target and number → a batch on its way to another partition, packed; order, kind and target → their
    numbers; last → the number drawn last; from, kind and source → the number of the batch that arrived last."""
    cold: str
    """hash: what a queue with a cold tier knows of it: its folder, its files and their messages (see `ColdTier`)."""
    cold_changes: str
    """hash: id → the due time (ms) with which a message that may be cold comes back, `-` if it does not; and when that
    was noted (ms)."""
    wake: str
    """list: at most one element, on which idle consumers block."""
    meta: str
    """hash: schema version, identity, last token, counters; call slot → sequence, time and reply of its last call."""

    @property
    def of_work(self) -> tuple[str, ...]:
        """The keys of which at least one exists while there is anything to promote, claim, expire, collect or fire."""
        waiting = self.pending, self.ready, self.ranked, self.throttled, self.retry
        return *waiting, self.unack, self.garbage, self.schedules

    @classmethod
    def of(cls, prefix: str, queue: str) -> Self:
        """Return the keys of a queue; validates prefix and queue."""
        check_name(prefix, "prefix")
        check_queue_name(queue)
        head = f"{prefix}:{{{queue}}}:"
        return cls(*[head + part for part in cls.__slots__])
