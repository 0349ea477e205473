"""What each role uses: scripts and plain commands. The rights in Redis are derived from it.

Rights for a script are the commands in its text and the keys in its header.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from delayq.broker.scripts import keys_and_commands, names


class Role(StrEnum):
    """What a user of Redis is there for."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    INSPECTOR = "inspector"
    ADMIN = "admin"
    RELAY = "relay"
    """Moves messages of a delay queue into a stream; no use for either alone."""
    NOTIFIER = "notifier"
    """Tells people what goes wrong in a delay queue."""


ROLES = (Role.PRODUCER, Role.CONSUMER, Role.INSPECTOR, Role.ADMIN)
"""The roles of every engine."""
CONNECTING = ("ping", "select", "client|setname", "command", "cluster|slots", "asking", "evalsha")
"""Commands that every role needs."""
OPENING = ("info", "time")
"""Commands that every role of an engine with a start-up check needs."""


class Grant(NamedTuple):
    """What a role uses."""

    scripts: Iterable[str]
    commands: Iterable[str] = ()
    """Commands sent outside of scripts."""
    parts: Iterable[str] = ()
    """Keys used outside of scripts."""
    registry: Iterable[str] = ()
    """Commands on the registry of queues, which all queues of a prefix share."""

    def all_commands(self) -> list[str]:
        """Return every command that the role needs."""
        return sorted(self._used(1).union(self.commands, CONNECTING))

    def all_parts(self) -> list[str]:
        """Return every part of the queue's keys that the role needs; `*` stands for all of them."""
        used = self._used(0).union(self.parts)
        return ["*"] if "*" in used else sorted(used)

    def _used(self, index: int) -> set[str]:
        return {word for name in self.scripts for word in keys_and_commands(name)[index]}


def _of(engine: str, scripts: str) -> list[str]:
    return [f"{engine}/{name}" for name in scripts.split()]


_SCHEDULES = ["schedule_put", "schedule_remove", "schedules_page", "schedules_find"]
_FORECAST = ["forecast", "sample_names"]
_READ_STREAM = _of("streams", "counts find get page")
_READ_ITEMS = ("get", "llen", "lrange")

GRANTS: Mapping[str, Mapping[Role, Grant]] = {
    "delay": {
        # Without the lists and the dead letter a producer neither claims nor purges. It cannot reuse an id without
        # retries left until a consumer has moved that message to the dead letter. It waits for results.
        Role.PRODUCER: Grant(
            [
                *("send", "send_one", "debounce", "cancel", "reschedule", "withdraw"),
                *("begin_run", "end_run", "keep_plan", "outcomes", "await_ends"),
                *_SCHEDULES,
            ],
            (*OPENING, "hsetnx", "wait", "xread"),
            ("ends",),
            ("sadd",),
        ),
        # Without the run ledger a consumer does not send, and without HEXISTS it neither cancels nor redrives. A
        # callback that sends or waits for results also needs the rights of a producer. With SSCAN it sees the names of
        # all queues.
        Role.CONSUMER: Grant(
            [
                *("pending_to_ready", "ready_to_unack", "pending_to_unack", "unack_to_retry"),
                *("collect_garbage", "wake"),
                *("ack", "complete", "nack", "extend", "release", "reject", "withdraw", "report"),
                *("hold", "declare"),
                *("counts", "get", "page", "limits_page", "beat", "workers_page", "history", *_FORECAST),
                *("fire", "schedules_due", *_SCHEDULES),
            ],
            (*OPENING, "hsetnx", "exists", "blpop"),
            registry=("sadd", "sscan"),
        ),
        # Reads payloads and headers, too. None of its commands can write.
        Role.INSPECTOR: Grant(
            [
                *("counts", "get", "page", "limits_page", "workers_page", "history", "snapshot", "outcomes"),
                *_FORECAST,
                *("schedules_page", "schedules_find"),
            ],
            (*OPENING, "exists", "xinfo|stream", "xrange", "xrevrange", "xread"),
            ("events", "runs", "refusals", "archives", "plans"),
            ("sscan",),
        ),
        # Whoever may load scripts may run any script within these keys and commands.
        Role.ADMIN: Grant(
            names(),
            (
                *(*OPENING, "hsetnx", "wait", "blpop", "exists", "script|load"),
                *("xinfo|stream", "xrange", "xrevrange", "xread", "xtrim"),
            ),
            ("*",),
            ("sadd", "sscan", "srem"),
        ),
        # Also does for the queue what a consumer would: fills the dead letter and fires schedules. Does not read the
        # stream. Without LPUSH, which it does not need itself, its user could release a message by half.
        Role.RELAY: Grant(
            ["streams/relay", "unack_to_retry", "collect_garbage", "fire", "schedules_due", "wake", "beat"],
            (*OPENING, "hsetnx", "blpop", "lpush"),
            registry=("sadd",),
        ),
        # Counts, and reads the event log, which has no payloads; writes what it has told.
        Role.NOTIFIER: Grant(
            ["counts"],
            (*OPENING, "exists", "hget", "hset", "xrange", "xrevrange"),
            ("events", "notifiers"),
        ),
    },
    "streams": {
        # Without the dead letter and the errors a producer neither claims nor settles nor inspects.
        Role.PRODUCER: Grant(["streams/send"], (*OPENING, "hsetnx", "hget", "xlen", "hincrby", "wait")),
        # Without SISMEMBER a consumer neither sends nor redrives nor purges.
        Role.CONSUMER: Grant(
            [*_READ_STREAM, *_of("streams", "claim ack nack reject release extend look prune")],
            (*OPENING, "hsetnx", "hget", "xlen", "xreadgroup", "exists", "xinfo|groups", "xrange"),
        ),
        Role.INSPECTOR: Grant(_READ_STREAM, (*OPENING, "exists", "xinfo|groups", "xrange")),
        Role.ADMIN: Grant(
            [name for name in names("streams") if name != "streams/relay"],
            (
                *(*OPENING, "hsetnx", "hget", "xlen", "hincrby", "wait", "xreadgroup", "exists", "xinfo|groups"),
                *("xrange", "xrevrange", "script|load"),
            ),
        ),
    },
    "workqueue": {
        # Without the other keys a producer neither leases nor completes.
        Role.PRODUCER: Grant(["workqueue/add"]),
        # A consumer also cleans: SCAN shows the names of all keys of the database. Putting items back lets it add some.
        Role.CONSUMER: Grant(
            _of("workqueue", "claim complete hold restore counts view"), ("blmove", "mget", "scan", *_READ_ITEMS)
        ),
        Role.INSPECTOR: Grant(_of("workqueue", "counts view"), _READ_ITEMS),
        # Adding in pipelines needs EVAL: whoever may use it may run any script within these keys and commands.
        Role.ADMIN: Grant(names("workqueue"), ("blmove", "mget", "scan", "eval", "script|load", *_READ_ITEMS)),
    },
}
