"""Why a message waits, by its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from delayq.errors import ConfigurationError
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.queue.inspecting.why.looked import Looked, Reason
from delayq.values.states import State
from delayq.values.text import clean, format_duration, pluralize, truncate
from delayq.values.times import from_millis, timestamp

PUT_OFF = 60_000
"""Milliseconds from the opening of its hours to the next start of a message that was put off until then, at most."""
MAX_ERROR = 120
"""Characters of an error in a sentence."""


def reasons_of_message(looked: Looked, message: MessageInfo) -> Iterator[Reason]:
    """Yield why a message waits, or what has become of it."""
    yield from _OF_STATE[message.state](looked, message)
    if looked.followed:
        yield Reason("followed", "another message with its id waits to follow it, once this one has ended")


def _pending(looked: Looked, message: MessageInfo) -> Iterator[Reason]:
    due = message.due
    if due is None:
        yield Reason("due", "its due time cannot be read: see delayq doctor")
        return
    if looked.gathering is not None:
        count, most = looked.gathering
        yield Reason("gathering", f"gathering, {count:,} of {most:,}: it is due at {looked.time(due)}", due)
    elif looked.debounced is not None:
        text = f"debounced since {looked.time(looked.debounced)}: it waits for quiet until {looked.time(due)}"
        yield Reason("debounced", f"{text}, and each send with its id moves that", due)
    else:
        joins = f", and then joins the group {message.group}" if message.group else ""
        yield Reason("due", f"it is due at {looked.time(due)}{joins}", due)
    yield from _outside_hours(looked, message)
    yield from _back(message)
    yield from looked.pauses(None, due)
    yield from looked.pauses(message.name, due) if message.name else ()
    yield from looked.nobody()


def _waiting(looked: Looked, message: MessageInfo) -> Iterator[Reason]:
    """Yield what keeps a message that is due from starting."""
    if message.expires is not None and message.expires <= looked.at:
        yield Reason("expired", f"it expired at {looked.time(message.expires)}: the next claim ends it")
    yield from _outside_hours(looked, message)
    found = [*looked.pauses(None), *looked.nobody()]
    if message.name:
        found += [*looked.pauses(message.name), *looked.limiting(f"name:{message.name}")]
    found += [*looked.ordering(message), *looked.limiting("queue")]
    yield from found
    if looked.overtaking:
        yield Reason("rank", f"it waits behind {pluralize(looked.overtaking, 'message')} of higher rank, by priority")
    if found:
        return
    if message.state is State.THROTTLED:
        yield Reason("throttled", "a limit has held it back and lets it start now: the next claim takes it")
    else:
        yield from looked.busy()


def _retry(looked: Looked, message: MessageInfo) -> Iterator[Reason]:
    what = f"after the error {_error(message)}" if message.error else "after a lease that has expired, or a snooze"
    yield Reason("retry", f"it waits to be delivered again, {what}")
    yield from _waiting(looked, message)


def _backoff(looked: Looked, message: MessageInfo) -> Iterator[Reason]:
    until = message.deadline
    wait = "for a time that cannot be read" if until is None else f"until {looked.time(until)}"
    if message.unhandled:
        yield from _back(message, f"; the next time is {wait}")
    elif message.error:
        text = f"it waits for a retry {wait}, {_attempts(message)}, after the error {_error(message)}"
        yield Reason("retry", text, until)
    else:
        yield Reason("snoozed", f"it was sent back to wait {wait}, {_attempts(message)}", until)
    if until is not None and until <= looked.at:
        yield from _waiting(looked, message)
    else:
        yield from looked.ordering(message)
        yield from _outside_hours(looked, message)
        yield from looked.pauses(None, until)
        yield from looked.pauses(message.name, until) if message.name else ()
        yield from looked.nobody()


def _active(looked: Looked, message: MessageInfo) -> Iterator[Reason]:
    worker = next((one for one in looked.workers if one.id == message.consumer), None)
    runs = next((one for one in worker.running if one.id == message.id), None) if worker else None
    who = clean(message.consumer or "a consumer")
    if worker is not None:
        who += f" ({clean(worker.host)}, process {worker.pid}"
        who += f", silent for {format_duration(worker.age.total_seconds())})" if worker.state == "silent" else ")"
    since = f" and has run since {looked.time(runs.since)}" if runs else ""
    until = message.deadline
    lease = ""
    if until is not None:
        lease = f", leased until {looked.time(until)}" if until > looked.at else ""
    yield Reason("held", f"it is held by {who}{since}, attempt {message.attempts:,}{lease}", until)
    if until is not None and until <= looked.at:
        text = f"its lease expired at {looked.time(until)}, and no consumer has looked since"
        yield Reason("lease expired", text)
        yield from looked.nobody()
    if message.cancel_requested:
        yield Reason("cancel", "it was asked to stop, and has not ended yet")


def _garbage(looked: Looked, message: MessageInfo) -> Iterator[Reason]:
    last = f" after the error {_error(message)}" if message.error else ""
    yield Reason("spent", f"its retries are spent{last}: a consumer will move it to the dead letter")
    yield from looked.nobody()


def _dead(looked: Looked, message: MessageInfo) -> Iterator[Reason]:
    since = f" since {looked.time(message.died)}" if message.died else ""
    error = f", with the error {_error(message)}" if message.error else ""
    yield Reason("dead", f"it is dead{since}: {clean(message.reason) or 'no reason is stored'}{error}")


def _done(looked: Looked, message: MessageInfo) -> Iterator[Reason]:
    since = f" since {looked.time(message.completed)}" if message.completed else ""
    kept = f"; its result is kept until {looked.time(message.kept_until)}" if message.kept_until else ""
    note = f", {clean(message.reason)}" if message.reason else ""
    yield Reason("done", f"it is done{since}{note}{kept}", message.kept_until)


def _back(message: MessageInfo, then: str = "") -> Iterator[Reason]:
    """Yield that a message comes back since no worker takes it."""
    if message.unhandled:
        of = f" {clean(message.name)}" if message.name else " its kind"
        text = f"it came back {pluralize(message.unhandled, 'time')}, since no function of the workers takes{of}{then}"
        yield Reason("unhandled", text)


def _outside_hours(looked: Looked, message: MessageInfo) -> Iterator[Reason]:
    """Yield that a message waits until its hours open, if that is why it waits now, or once it is due."""
    if not message.hours:
        return
    from delayq.schedules.hours import read_hours  # few messages have hours

    now = timestamp(looked.at)
    try:
        hours = read_hours(message.hours, message.tz)
        starts = max([now, *(timestamp(at) for at in (message.due, message.deadline) if at is not None)])
        opens = hours.opening(starts)
        if opens == starts:  # has it been put off until they open?
            following = hours.opening(now)
            opens = following if starts - following < PUT_OFF else now
    except ConfigurationError as error:
        yield Reason("hours", f"its hours cannot be read here: {error}")
        return
    if opens > now:
        until = from_millis(opens)
        text = f"it is outside its hours {clean(message.hours)} {clean(message.tz)} until {looked.time(until)}"
        yield Reason("hours", text, until)


def _attempts(message: MessageInfo) -> str:
    return f"after {pluralize(message.attempts, 'attempt')}, with {message.retries_left:,} left"


def _error(message: MessageInfo) -> str:
    return truncate(clean(message.error), MAX_ERROR)


_OF_STATE: dict[State, Callable[[Looked, MessageInfo], Iterator[Reason]]] = {
    State.PENDING: _pending,
    State.READY: _waiting,
    State.THROTTLED: _waiting,
    State.RETRY: _retry,
    State.BACKOFF: _backoff,
    State.ACTIVE: _active,
    State.GARBAGE: _garbage,
    State.DEAD: _dead,
    State.COMPLETED: _done,
}
