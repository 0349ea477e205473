"""The options of a queue: their names, types, defaults and validation."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

from delayq.errors import ConfigurationError
from delayq.privacy.redaction import check_redact
from delayq.values.backoff import Backoff, FailurePolicy, IsFailure
from delayq.values.breaker import Breaker, check_breaker
from delayq.values.checks import (
    check_bool,
    check_choice,
    check_concurrency,
    check_int,
    check_optional_int,
    check_options,
    check_owner,
    check_retries,
)
from delayq.values.codec import Codec
from delayq.values.lateness import check_slo
from delayq.values.rates import Pace, check_limits
from delayq.values.times import HORIZON, Duration, to_millis

DEFAULT_BACKOFF = Backoff.exponential(5, factor=5, max=600, jitter=0.2)
"""Three retries last about two minutes: longer than the restart of a service or a failover."""
MAX_PREFETCH = 500
"""Messages to prefetch beyond the running ones: some tens of milliseconds of empty callbacks."""
DEDUPE_MAX = 1_000_000
MAX_REPLICAS = 1000
MAX_STEP = 86_400_000


LifespanFunction = Callable[
    [],
    AbstractContextManager[Any] | AbstractAsyncContextManager[Any] | Iterator[Any] | AsyncIterator[Any],
]
"""Yields once, as for `contextlib.contextmanager`, or returns a context manager."""


class QueueOptions(TypedDict, total=False):
    """The options of a queue. Durations are seconds, a `timedelta` or a text such as `"1h30m"`.

    `delayq docs options` has them with their ranges. Each with its meaning and its default:
    """

    url: Annotated[
        str,
        "`redis://`, `unix://`, `redis+sentinel://`, `redis+cluster://` or `memory://NAME`; else "
        "`DELAYQ_URL`, else the local Redis. With TLS: `rediss` for `redis`.",
    ]
    redis: Annotated[Any, "A redis-py client to use instead of a URL; its `decode_responses` must be off."]
    prefix: Annotated[str, 'The first part of every key; `"delayq"`.']
    partitions: Annotated[
        int | Literal["stored"],
        "Over how many hash slots the queue is spread, 1 to 1,000, or `stored` for as many as it has; a plain queue is "
        "in one.",
    ]
    codec: Annotated[
        str | Codec,
        'How payloads are stored: `"json"` unless you say `"text"`, `"bytes"`, or an object with `encode` and'
        " `decode`.",
    ]
    strict: Annotated[bool, "Raise an error for a server that may lose messages, instead of logging a warning; off."]
    ahead: Annotated[
        Duration,
        "How long before it is due a consumer may claim a message, which starts at its time; 25 ms, and 0 for never.",
    ]
    settle_within: Annotated[
        Duration,
        "How long an acknowledgement waits for the next claim at most, while something is due within that; 10 ms.",
    ]
    tick: Annotated[Duration, "How often a consumer polls the queue if nothing wakes it earlier; 1 s."]
    lease: Annotated[
        Duration,
        "How long a message stays with a consumer that stopped responding before it is redelivered; 30 s.",
    ]
    max_consume_duration: Annotated[
        Duration,
        "How long a callback may run, unless its message or task has a `timeout`: then its attempt has failed; 10 min.",
    ]
    concurrency: Annotated[int, "Callbacks that run at the same time in one process; 1."]
    prefetch: Annotated[
        int | None,
        "Messages to claim beyond the running ones; by default those that start within 100 ms, at most 500, "
        "over a network 2,000.",
    ]
    fetch_limit: Annotated[
        int | None,
        "Messages a process has in flight at most, running and prefetched together; no limit.",
    ]
    default_retries: Annotated[int, "Redeliveries of a message sent without `retries`; 3."]
    nack_delay: Annotated[
        Duration | Backoff,
        "How long a failed message waits, at least 50 ms, or a `Backoff`; 5 s, 25 s, about 2 min, then 10 "
        "min, each up to a fifth shorter at random.",
    ]
    is_failure: Annotated[
        IsFailure | None,
        "Whether an exception of a callback is a failure. One that is not takes no retry: the message is "
        "snoozed by `nack_delay`; every exception is a failure by default.",
    ]
    breaker: Annotated[
        Breaker | None,
        "When to start nothing for a time because most callbacks have failed; never by default.",
    ]
    rate_limit: Annotated[
        str | None,
        'How many messages may start in a time, such as `"200/s"`, for all processes; None leaves it, no '
        "limit at first.",
    ]
    burst: Annotated[
        int | None,
        "How many may start at once under `rate_limit`; by default what it allows in 100 ms, and one more.",
    ]
    running: Annotated[
        int | None,
        "How many messages may run at a time, for all processes; None leaves it, any number at first.",
    ]
    max_snoozes: Annotated[
        int,
        "How often a message may be snoozed before one more counts as a failure; 1,000, and 0 for no limit.",
    ]
    unknown_for: Annotated[
        Duration,
        "How late a message is, that no function of this process handles, before it goes to the dead letter; 1 h.",
    ]
    owner: Annotated[
        str | None,
        "The service that declares schedules here, kept with each; `schedules.apply(prune=True)` removes only its own.",
    ]
    lifespan: Annotated[
        LifespanFunction | None,
        "What a consumer enters before its first claim and leaves at its end: a function that yields once; what it "
        "yields is at `message.resources`.",
    ]
    grace: Annotated[Duration, "How long a stop waits for running callbacks; 30 s."]
    max_payload: Annotated[int, "The largest encoded payload in bytes; 1 MiB."]
    max_length: Annotated[int | None, "How many messages the queue may hold, checked when sending; no limit."]
    dead_max: Annotated[
        int,
        "Entries the dead letter keeps, for all processes; left out, it stays as it is, 10,000 at first.",
    ]
    dead_ttl: Annotated[
        Duration,
        "How long the dead letter keeps an entry, for all processes; left out, it stays as it is, 30 days at first.",
    ]
    priority_step: Annotated[
        Duration | None,
        "The head start of a message for each 1 of its `priority`, for all processes; None leaves it, 1 min at first.",
    ]
    lateness_slo: Annotated[
        str | None,
        'How many are to start how late at most, for all processes: `"99% within 1s"`; None leaves it, off at first.',
    ]
    redact: Annotated[
        Sequence[str] | None,
        'Fields hidden from inspectors, for all processes: `["card.number", "*.email"]`; None leaves it, `[]`'
        " at first.",
    ]
    events: Annotated[
        bool | None,
        "Switch the queue's event log on or off, for all processes; None leaves it as it is, which is off at first.",
    ]
    events_max_len: Annotated[int, "Entries the event log keeps if `events` switches it on; 100,000."]
    events_max_bytes: Annotated[int, "Bytes of the event log beyond which consumers cut it; 256 MiB."]
    dedupe_window: Annotated[
        Duration | None,
        "How long the ids of settled messages are refused, for all processes; 0 switches it off, as it is at first.",
    ]
    dedupe_max: Annotated[int, "Ids the dedupe window holds if `dedupe_window` sets it; 1,000,000."]
    keep_errors: Annotated[
        Literal["text", "class"],
        'What is stored of exceptions: `"text"`, or the name of their `"class"` alone; `"text"`.',
    ]
    retention: Annotated[Duration, "How long the results of messages sent here are kept; 0, which keeps none."]
    max_result: Annotated[int, "The largest encoded result in bytes; 64 KiB."]
    durability: Annotated[
        Literal["stored", "replicated"],
        'When a send returns: once it is `"stored"` in Redis, or `"replicated"` as well; `"stored"`.',
    ]
    replicas: Annotated[int, 'Replicas that must have a send before it returns, with `durability="replicated"`; 1.']
    replication_timeout: Annotated[
        Duration,
        'How long a send waits for replicas, with `durability="replicated"`; 1 s, at most half the `socket_timeout`.',
    ]
    deadline: Annotated[Duration, "How long a call is retried while Redis does not reply; 30 s."]
    socket_timeout: Annotated[Duration, "How long to wait for one reply of Redis; 5 s."]


QueueOptions.__doc__ = f"{QueueOptions.__doc__}\n" + "".join(
    f"    {name}\n        {kind.__metadata__[0]}\n" for name, kind in QueueOptions.__annotations__.items()
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The validated options; durations in milliseconds, as the scripts take them."""

    ahead: int
    settle_within: int
    tick: int
    lease: int
    max_consume_duration: int
    concurrency: int
    prefetch: int | None
    fetch_limit: int | None
    default_retries: int
    policy: FailurePolicy
    breaker: Breaker | None
    rate_limit: Pace | None
    """The rate and its burst; None to leave it as it is."""
    running: int | None
    unknown_for: int
    owner: str
    grace: int
    max_payload: int
    max_length: int | None
    dead_max: int
    dead_ttl: int
    priority_step: int | None
    lateness_slo: str | None
    redact: tuple[str, ...] | None
    events: int | None
    """Entries the event log keeps; 0 for off, None to leave it as it is."""
    events_max_bytes: int
    dedupe_window: int | None
    """Milliseconds; 0 for off, None to leave it as it is."""
    dedupe_max: int
    retention: int
    max_result: int
    replicas: int
    """Replicas that must have a send before it returns; 0 to not wait."""
    replication_timeout: int
    deadline: int
    socket_timeout: int
    strict: bool


def read_settings(options: QueueOptions) -> Settings:
    """Return the validated options of a queue; `ConfigurationError` says which is wrong and what is allowed."""
    check_options(options, QueueOptions.__annotations__)
    if options.get("url") and options.get("redis") is not None:
        raise ConfigurationError("give url or redis, but not both: a client has its own server")
    max_len = check_int(options.get("events_max_len", 100_000), "events_max_len", 1000, 1 << 40)
    events, window, step = options.get("events"), options.get("dedupe_window"), options.get("priority_step")
    replicas = check_int(options.get("replicas", 1), "replicas", 1, MAX_REPLICAS)
    socket_timeout = to_millis(options.get("socket_timeout", 5), "socket_timeout", min=10)
    wait: Duration = options.get("replication_timeout", min(1, socket_timeout / 2000))
    replication_timeout = to_millis(wait, "replication_timeout", min=1)
    if 2 * replication_timeout > socket_timeout:
        raise ConfigurationError("replication_timeout must be at most half of socket_timeout")
    pace, running = check_limits(options.get("rate_limit"), options.get("burst"), options.get("running"))
    durability = check_choice(options.get("durability", "stored"), "durability", "stored", "replicated")
    keeps_text = check_choice(options.get("keep_errors", "text"), "keep_errors", "text", "class") == "text"
    return Settings(
        ahead=to_millis(options.get("ahead", 0.025), "ahead", max=1000),
        settle_within=to_millis(options.get("settle_within", 0.01), "settle_within", max=1000),
        tick=to_millis(options.get("tick", 1), "tick", min=10, max=3_600_000),
        lease=to_millis(options.get("lease", 30), "lease", min=100),
        max_consume_duration=to_millis(options.get("max_consume_duration", 600), "max_consume_duration", min=10),
        concurrency=check_concurrency(options.get("concurrency", 1)),
        prefetch=check_optional_int(options.get("prefetch"), "prefetch", 0, MAX_PREFETCH),
        fetch_limit=check_optional_int(options.get("fetch_limit"), "fetch_limit", 1, 1_000_000),
        default_retries=check_retries(options.get("default_retries", 3), "default_retries"),
        policy=FailurePolicy.of(
            options.get("nack_delay", DEFAULT_BACKOFF),
            options.get("is_failure"),
            check_int(options.get("max_snoozes", 1000), "max_snoozes", 0, 1 << 31),
            keeps_text=keeps_text,
        ),
        breaker=check_breaker(options.get("breaker")),
        rate_limit=pace,
        running=running,
        unknown_for=to_millis(options.get("unknown_for", "1h"), "unknown_for"),
        owner=check_owner(options.get("owner")),
        grace=to_millis(options.get("grace", 30), "grace"),
        max_payload=check_int(options.get("max_payload", 1 << 20), "max_payload", 1, 512 << 20),
        max_length=check_optional_int(options.get("max_length"), "max_length", 1, 1 << 40),
        dead_max=check_int(options.get("dead_max", 10_000), "dead_max", 0, 1 << 40),
        dead_ttl=to_millis(options.get("dead_ttl", "30d"), "dead_ttl", max=HORIZON),
        priority_step=None if step is None else to_millis(step, "priority_step", min=1, max=MAX_STEP),
        lateness_slo=check_slo(options.get("lateness_slo")),
        redact=check_redact(options.get("redact")),
        events_max_bytes=check_int(options.get("events_max_bytes", 256 << 20), "events_max_bytes", 1 << 20, 1 << 40),
        events=None if events is None else max_len * check_bool(events, "events"),
        dedupe_window=None if window is None else to_millis(window, "dedupe_window", max=HORIZON),
        dedupe_max=check_int(options.get("dedupe_max", DEDUPE_MAX), "dedupe_max", 1, 1 << 40),
        retention=to_millis(options.get("retention", 0), "retention", max=HORIZON),
        max_result=check_int(options.get("max_result", 1 << 16), "max_result", 1, 1 << 20),
        deadline=to_millis(options.get("deadline", 30), "deadline", min=1),
        replicas=replicas if durability == "replicated" else 0,
        replication_timeout=replication_timeout,
        socket_timeout=socket_timeout,
        strict=check_bool(options.get("strict", False), "strict"),
    )
