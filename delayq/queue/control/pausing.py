"""Pausing a whole queue or a name, and resuming it: claims give none of its messages, and everything else goes on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from delayq.broker.calls import Calls
from delayq.broker.message.attributes import check_message_name
from delayq.broker.replies import integers
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.control.limit_calls import limit_call
from delayq.values.times import Duration, from_millis, timestamp, to_millis

if TYPE_CHECKING:
    from delayq.broker.context import QueueContext

MAX_REASON = 200
"""Characters of a reason: it is shown in one line."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a queue: when it ends by itself, and why it was made."""

    until: datetime | None
    """The time of the server at which it ends; None if only `resume` ends it."""
    reason: str
    """The reason given; '' for none."""


def pause(context: QueueContext, until: Duration | datetime | None, reason: str, name: str | None) -> Operation[Pause]:
    """Pause a queue or a name, or change the pause."""
    if not isinstance(reason, str) or len(reason) > MAX_REASON or not reason.isprintable():
        raise ConfigurationError(
            f"reason must be one line of at most {MAX_REASON} characters, not {short_repr(reason)}"
        )
    end = -1
    if name is None:
        end, *_ = yield [pause_call(context.calls, _until_text(until), reason), *context.confirming]
    else:
        call = limit_call(context.calls, check_message_name(name), paused=_until_text(until), reason=reason)
        change, *_ = yield [call, *context.confirming]
        end = change.paused if change.changed >= 0 else -1
    if end < 0:
        raise ConfigurationError(f"until {short_repr(str(until))} has passed: give a time to come, or a duration")
    return Pause(from_millis(end) if end else None, reason)


def resume(context: QueueContext, name: str | None, spread: Duration | None) -> Operation[bool]:
    """End the pause of a queue or a name, that of its breaker, and a spread; let go what waits, perhaps over a time."""
    over = None if spread is None else to_millis(spread, "spread", min=1)
    scope = None if name is None else check_message_name(name)
    ending = context.calls.close(scope, 0, pause=0)  # after the spread is set: nothing may start before
    if scope is not None:
        call = limit_call(context.calls, scope, paused="-", spread=over)
        change, ended, *_ = yield [call, ending, *context.confirming]
        return bool(change.changed == 1 or ended == "1")
    waiting = None
    if over is not None:
        (counted,) = yield [context.calls.counts()]
        waiting = counted.overdue
    (change,) = yield [limit_call(context.calls, None, paused="-", spread=over, waiting=waiting)]
    resumed, ended, *_ = yield [resume_call(context.calls), ending, *context.confirming]
    return bool(resumed or change.changed == 1 or ended == "1")


def pause_in_force(setting: str, now: int) -> Pause | None:
    """Return the pause that a queue has at a time (ms) by its setting, "until reason"; None if it is not paused."""
    end, _, reason = setting.partition(" ")
    if not end.isdecimal() or 0 < int(end) <= now:
        return None
    return Pause(from_millis(int(end)) if int(end) else None, reason)


def _until_text(until: Duration | datetime | None) -> str:
    """Return the end in the form of the script: milliseconds since 1970, `+` and milliseconds from now, or 0."""
    if until is None:
        return "0"
    if isinstance(until, datetime):
        return f"{max(timestamp(until, 'until'), 1)}"
    return f"+{to_millis(until, 'until', min=1)}"


def pause_call(calls: Calls, until: str, reason: str) -> ScriptCall[int]:
    """Pause the queue until a time (ms, +ms from now, 0 for no end); returns its end, -1 if it has passed."""
    return calls.script("pause", [calls.now, until, reason], lambda reply: integers(reply)[0])


def resume_call(calls: Calls) -> ScriptCall[bool]:
    """End a pause, and wake a consumer; returns whether the queue was paused."""
    return calls.script("resume", [calls.now], lambda reply: integers(reply) == (1,))
