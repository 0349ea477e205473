"""The options of tasks and of their sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, cast

from delayq.broker.message.expiry import Missed, check_expiry
from delayq.broker.message.ids import check_unique
from delayq.broker.message.jitter import check_jitter
from delayq.broker.message.priority import check_priority
from delayq.broker.replies.results import check_retention
from delayq.queue.sending.producer import due_text
from delayq.values.backoff import Backoff, IsFailure
from delayq.values.breaker import Breaker
from delayq.values.checks import check_retries
from delayq.values.times import Duration


class TaskSendOptions(TypedDict, total=False):
    """The options of one send of a task; see `DelayQueue.send_delay_msg`."""

    delay: Duration
    """How long from now the task is due; at once by default."""
    at: datetime
    """When it is due, an aware datetime; instead of `delay`."""
    retries: int
    """How often it is delivered again after a failure; by default that of the task, or `default_retries`."""
    id: str
    """The id of the message; a send of the same id is answered `exists`."""
    headers: Mapping[str, str]
    expires: Duration | datetime
    """When it expires, so long after its due time or at a time; by default that of the task, or never."""
    missed: Missed
    """What becomes of it then: `dead`, or `drop` to discard it."""
    priority: int
    """What comes first of what is due, from -100 to 100, larger first; by default that of the task, or 0."""
    unique: Literal["payload"]
    """Let the name and the arguments make the id: a second send of the same is answered `exists`."""
    unique_for: Duration
    """How long from the send its id is held: a second send of the id is not stored, also after the end."""
    unique_after: Duration
    """How long from its end its id is held."""
    debounce: Duration
    """How long after the last send of the id it is due, in place of `delay`: the last arguments win."""
    at_most: Duration
    """How long after the first of these sends it is due at the latest."""
    retention: Duration
    """How long its result is kept; by default that of the task, or of the queue."""
    timeout: Duration
    """How long it may run, then the attempt has failed; by default that of the task."""
    jitter: Duration
    """How much later it is due at most, which is drawn from its id; by default that of the task, or 0."""
    replace: bool | Literal["after"]
    """Whether a waiting message with this id gets the new arguments and due time; `after` follows a running one too."""


class TaskOptions(TypedDict, total=False):
    """The options of a task."""

    name: str
    """The name of its messages; by default that of the function."""
    aliases: Sequence[str]
    """Names that it had before: messages with them, already sent, still call it."""
    retries: int
    """How often its messages are delivered again after a failure; by default `default_retries`."""
    backoff: Backoff | Duration
    """How long it waits after a failure; by default `nack_delay`."""
    is_failure: IsFailure | None
    """Whether an exception is a failure; by default as the queue says."""
    delay: Duration
    """How long after a send it is due; at once by default."""
    expires: Duration
    """How long after its due time it expires; never by default."""
    missed: Missed
    """What becomes of it then: `dead`, by default, or `drop` to discard it."""
    priority: int
    """What comes first of what is due, from -100 to 100, larger first; 0 by default."""
    unique: Literal["payload"]
    """Let the name and the arguments make the id of each message."""
    unique_for: Duration
    """How long from its send an id is held; by default as long as its message lives."""
    unique_after: Duration
    """How long from the end of its message an id is held; not at all by default."""
    debounce: Duration
    """How long after the last of several sends of one id it is due; by default the first send wins."""
    at_most: Duration
    """How long after the first of them it is due at the latest; no limit by default."""
    retention: Duration
    """How long what the function returns is kept; by default as the queue says."""
    timeout: Duration
    """How long it may run, then the attempt has failed; by default as `max_consume_duration` says."""
    jitter: Duration
    """How much later its messages are due at most, drawn from the id of each; 0 by default."""
    replace: bool | Literal["after"]
    """Whether a waiting message with the id of a send gets its arguments and due time; False by default."""
    rate_limit: str
    """How many of its messages may start in a time, over all processes, such as `"200/s"`; no limit by default."""
    burst: int
    """How many may start at once under `rate_limit`; by default what it allows in 100 ms, and one more."""
    running: int
    """How many may run at a time, over all processes; any number by default."""
    breaker: Breaker
    """When to start none of its messages for a time because most have failed; never by default."""


def send_options(options: TaskOptions) -> TaskSendOptions:
    """Return the options of a task for its sends; raise `ConfigurationError` for those that are invalid."""
    defaults: TaskSendOptions = {}
    if "retries" in options:
        defaults["retries"] = check_retries(options["retries"])
    if "delay" in options:
        due_text(options["delay"], None)  # refuses one that is invalid
        defaults["delay"] = options["delay"]
    check_expiry(options.get("expires"), options.get("missed", "dead"), 0)
    if "expires" in options:
        defaults["expires"] = options["expires"]
        defaults["missed"] = options.get("missed", "dead")
    if "priority" in options:
        defaults["priority"] = check_priority(options["priority"])
    if "unique" in options:
        check_unique(options["unique"])
        defaults["unique"] = options["unique"]
    if "retention" in options:
        check_retention(options["retention"], 0)
        defaults["retention"] = options["retention"]
    if "jitter" in options:
        check_jitter(options["jitter"])
        defaults["jitter"] = options["jitter"]
    return cast("TaskSendOptions", {**defaults, **_same_id_options(options)})


def _same_id_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for sends of the same id; raise `ConfigurationError` for those that are invalid."""
    from delayq.broker.message.same_id import check_holds
    from delayq.queue.sending.debouncing import replacing
    from delayq.queue.sending.send_again import check_replace

    names = ("unique_for", "unique_after", "debounce", "at_most", "replace")
    given = {name: options[name] for name in names if name in options}
    if given:
        replace = given.get("replace", False)
        check_replace(replace)
        how = replacing(given, options.get("delay", 0))
        if "unique_for" in given or "unique_after" in given:
            check_holds(given.get("unique_for"), given.get("unique_after"), "any", replace=how)
    return given
