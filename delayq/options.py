"""The options of a queue: named, typed and validated in one place, once."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from delayq.backoff import LEAST_DELAY, Backoff
from delayq.clock import HORIZON, Duration, milliseconds
from delayq.codec import Codec
from delayq.errors import ConfigurationError, shown

DEFAULT_URL = "redis://localhost:6379/0"
MOST_RETRIES = 1_000_000
MOST_PREFETCH = 500
"""Messages a process may hold beyond those running: some tens of milliseconds of empty callbacks."""
MOST_CONCURRENCY = 10_000
MOST_REPLICAS = 1000


class QueueOptions(TypedDict, total=False):
    """What a queue can be told, beside its name. Durations: seconds, a `timedelta` or a text such as `"1h30m"`."""

    url: str
    """`redis://`, `unix://`, `redis+sentinel://`, `redis+cluster://` or `memory://NAME`; else `DELAYQ_URL`, else the
    local Redis. With TLS: `rediss` for `redis`."""
    redis: Any
    """A client to use instead of a URL, as it is configured; its `decode_responses` must be off."""
    prefix: str
    """The first part of every key; `"delayq"`."""
    codec: str | Codec
    """How payloads are stored: `"json"`, `"text"`, `"bytes"`, or an object with `encode` and `decode`."""
    strict: bool
    """Refuse a server that may lose messages, instead of warning."""
    tick: Duration
    """How often a consumer looks at the queue when nothing wakes it earlier; 1 s."""
    lease: Duration
    """How long Redis waits for a silent consumer before a message is delivered again; 30 s."""
    max_consume_duration: Duration
    """The longest a callback may take before its lease is extended no more; 10 min."""
    concurrency: int
    """Callbacks that run at a time in one process; 1."""
    prefetch: int | None
    """Messages held beyond those running; by default what starts within 100 ms, 1 to 500."""
    fetch_limit: int | None
    """The most messages a process holds, running and prefetched together; no limit."""
    default_retries: int
    """Redeliveries of a message that was sent without a number; 3."""
    nack_delay: Duration | Backoff
    """How long a failed message waits, or a `Backoff`; 0, but never less than 50 ms."""
    grace: Duration
    """How long a stop waits for running callbacks; 30 s."""
    max_payload: int
    """The largest encoded payload in bytes; 1 MiB."""
    max_length: int | None
    """The most messages the queue may hold, checked when sending; no limit."""
    dead_max: int
    """Entries the dead letter keeps; 10,000."""
    dead_ttl: Duration
    """How long the dead letter keeps an entry; 30 days."""
    events: bool | None
    """Switch the queue's event log on or off, for all processes; left as it is by default, which is off at first."""
    events_max_len: int
    """Entries the event log keeps, when it is switched on; 100,000."""
    dedupe_window: Duration | None
    """How long the ids of settled messages are refused, for all processes; 0 for not at all, as it is at first."""
    dedupe_max: int
    """Ids the dedupe window holds, when it is set; 1,000,000."""
    durability: Literal["stored", "replicated"]
    """When a send returns: `"stored"` in Redis, or `"replicated"` as well; `"stored"`."""
    replicas: int
    """Replicas that must have a send before it returns, with `durability="replicated"`; 1."""
    replication_timeout: Duration
    """How long a send waits for replicas, with `durability="replicated"`; 1 s, at most half the `socket_timeout`."""
    deadline: Duration
    """How long a call is tried while Redis does not answer; 30 s."""
    socket_timeout: Duration
    """How long one answer of Redis is waited for; 5 s."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The validated options; durations in milliseconds, as the scripts take them."""

    tick: int
    lease: int
    max_consume_duration: int
    concurrency: int
    prefetch: int | None
    fetch_limit: int | None
    default_retries: int
    backoff: Backoff
    grace: int
    max_payload: int
    max_length: int | None
    dead_max: int
    dead_ttl: int
    events: int | None
    """Entries the event log keeps; 0 for off, None to leave it."""
    dedupe_window: int | None
    """Milliseconds; 0 for off, None to leave it."""
    dedupe_max: int
    replicas: int
    """Replicas that must have a send before it returns; 0 for not waiting."""
    replication_timeout: int
    deadline: int
    socket_timeout: int
    strict: bool


def check_options(given: Iterable[str], known: Collection[str]) -> None:
    """Refuse an option that is not known by a `ConfigurationError` that names the one that may be meant."""
    for name in given:
        if name not in known:
            longer = [option for option in known if len(name) >= len("lease") and name in option]
            close = longer or difflib.get_close_matches(name, known, n=1)
            hint = f", did you mean {close[0]!r}?" if close else ""
            raise ConfigurationError(f"unknown option {shown(name)}{hint}")


def read_settings(options: QueueOptions) -> Settings:
    """Validate a queue's options; `ConfigurationError` names what is wrong and what would be right."""
    check_options(options, QueueOptions.__annotations__)
    nack_delay = options.get("nack_delay", 0)
    max_len = whole(options.get("events_max_len", 100_000), "events_max_len", 1000, 1 << 40)
    events, window = options.get("events"), options.get("dedupe_window")
    replicas = whole(options.get("replicas", 1), "replicas", 1, MOST_REPLICAS)
    socket_timeout = milliseconds(options.get("socket_timeout", 5), "socket_timeout", least=10)
    wait: Duration = options.get("replication_timeout", min(1, socket_timeout / 2000))
    replication_timeout = milliseconds(wait, "replication_timeout", least=1)
    if 2 * replication_timeout > socket_timeout:
        raise ConfigurationError("replication_timeout must be at most half of socket_timeout")
    return Settings(
        tick=milliseconds(options.get("tick", 1), "tick", least=10, most=3_600_000),
        lease=milliseconds(options.get("lease", 30), "lease", least=100),
        max_consume_duration=milliseconds(options.get("max_consume_duration", 600), "max_consume_duration", least=10),
        concurrency=whole(options.get("concurrency", 1), "concurrency", 1, MOST_CONCURRENCY),
        prefetch=_optional(options.get("prefetch"), "prefetch", 0, MOST_PREFETCH),
        fetch_limit=_optional(options.get("fetch_limit"), "fetch_limit", 1, 1_000_000),
        default_retries=check_retries(options.get("default_retries", 3), "default_retries"),
        backoff=nack_delay if isinstance(nack_delay, Backoff) else Backoff.constant(nack_delay),
        grace=milliseconds(options.get("grace", 30), "grace"),
        max_payload=whole(options.get("max_payload", 1 << 20), "max_payload", 1, 512 << 20),
        max_length=_optional(options.get("max_length"), "max_length", 1, 1 << 40),
        dead_max=whole(options.get("dead_max", 10_000), "dead_max", 0, 1 << 40),
        dead_ttl=milliseconds(options.get("dead_ttl", "30d"), "dead_ttl", most=HORIZON),
        events=None if events is None else max_len * _switch(events, "events"),
        dedupe_window=None if window is None else milliseconds(window, "dedupe_window", most=HORIZON),
        dedupe_max=whole(options.get("dedupe_max", 1_000_000), "dedupe_max", 1, 1 << 40),
        deadline=milliseconds(options.get("deadline", 30), "deadline", least=1),
        replicas=replicas * _choice(options.get("durability", "stored"), "durability", ("stored", "replicated")),
        replication_timeout=replication_timeout,
        socket_timeout=socket_timeout,
        strict=_switch(options.get("strict", False), "strict"),
    )


def find_url(options: QueueOptions) -> str:
    """Return the URL to connect to: the option, else `DELAYQ_URL`, else the local Redis."""
    url = options.get("url") or os.environ.get("DELAYQ_URL") or DEFAULT_URL
    if not isinstance(url, str):
        raise ConfigurationError(f"url must be text, not a {type(url).__name__}")
    return url


def whole(value: Any, name: str, least: int, most: int) -> int:
    """Return a whole number within bounds; `ConfigurationError` for anything else, a bool included."""
    if type(value) is not int or not least <= value <= most:
        raise ConfigurationError(f"{name} must be a whole number from {least} to {most}, not {shown(value)}")
    return value


def check_retries(value: Any, name: str = "retries") -> int:
    """Return a valid number of redeliveries."""
    return whole(value, name, 0, MOST_RETRIES)


def nack_wait(delay: Duration, name: str = "delay") -> int:
    """Return the milliseconds a failed message waits: as asked, but never so short that it could spin a worker."""
    return max(milliseconds(delay, name), LEAST_DELAY)


def _switch(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {shown(value)}")
    return value


def _choice(value: Any, name: str, choices: tuple[str, ...]) -> int:
    """Return the place of a word among those allowed."""
    if value not in choices:
        raise ConfigurationError(f"{name} must be {' or '.join(map(repr, choices))}, not {shown(value)}")
    return choices.index(value)


def _optional(value: Any, name: str, least: int, most: int) -> int | None:
    return None if value is None else whole(value, name, least, most)
