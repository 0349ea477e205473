"""The options of tasks and of their sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from delayq.broker.message.ids import check_unique
from delayq.broker.message.jitter import check_jitter
from delayq.queue.sending.due_times import due_text
from delayq.queue.sending.message_options import SharedOptions, check_attributes, replacing
from delayq.queue.sending.send_calls import check_replace
from delayq.values.backoff import Backoff, IsFailure
from delayq.values.breaker import Breaker
from delayq.values.checks import check_retries
from delayq.values.times import Duration


class TaskSendOptions(SharedOptions, total=False):
    """The options of one send of a task, by default those of the task; see `DelayQueue.send_delay_msg`."""

    delay: Duration
    """How long from now the task is due; at once by default."""
    at: datetime
    """When it is due, an aware datetime; instead of `delay`."""
    retries: int
    """How often it is delivered again after a failure; by default that of the task, or `default_retries`."""
    id: str
    """The id of the message; a send of the same id is answered `exists`."""
    headers: Mapping[str, str]
    """Texts that go with the arguments."""
    expires: Duration | datetime
    """When it expires, so long after its due time or at a time; by default that of the task, or never."""


class TaskOptions(SharedOptions, total=False):
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
    rate_limit: str
    """How many of its messages may start in a time, over all processes, such as `"200/s"`; no limit by default."""
    burst: int
    """How many may start at once under `rate_limit`; by default what it allows in 100 ms, and one more."""
    running: int
    """How many may run at a time, over all processes; any number by default."""
    breaker: Breaker
    """When to start none of its messages for a time because most have failed; never by default."""


def has_fields(key: Any) -> bool:
    """Return whether a key has fields for the arguments of a task: no valid key has braces."""
    return isinstance(key, str) and "{" in key


def send_options(options: TaskOptions) -> TaskSendOptions:
    """Return the options of a task for its sends; raise `ConfigurationError` for those that are invalid.

    A `key` with fields, as in `account:{account}`, is checked once they are filled.
    """
    given: Mapping[str, Any] = options
    own = {name: given[name] for name in ("retries", "delay") if name in given}
    others = SharedOptions.__annotations__.keys() - {"timeout"} | {"expires"}
    shared = {name: value for name, value in given.items() if name in others}
    if "retries" in own:
        check_retries(own["retries"])
    due_text(own.get("delay", 0), None)  # refuses one that is invalid
    replace = check_replace(replacing(shared, own.get("delay", 0)))
    unfilled = {"key": None} if has_fields(shared.get("key")) else {}
    check_attributes(shared | unfilled, 0, "any", replace=replace)
    if shared.get("unique") is not None:
        check_unique(shared["unique"])
    if shared.get("jitter") is not None:
        check_jitter(shared["jitter"])
    return cast("TaskSendOptions", own | shared)
