"""`queue.select(...)`: many waiting messages at once, to count, cancel, kill or reschedule them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from delayq._parity import awaited
from delayq.broker.batches import batched
from delayq.broker.context import QueueContext
from delayq.broker.keys import check_id
from delayq.broker.message.attributes import check_message_name
from delayq.broker.scripts import MAX_MOVED
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.inspecting.inspector import MAX_ROWS, Inspector, check_period
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.queue.sending.due_times import due_text
from delayq.queue.sweeps.cancellation import (
    CancelOutcome,
    KillOutcome,
    RescheduleOutcome,
    cancel_each,
    kill_each,
    reschedule_each,
)
from delayq.values.checks import check_bool
from delayq.values.states import State
from delayq.values.times import Duration, from_millis

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor

WAITING = (State.PENDING, State.READY, State.THROTTLED, State.BACKOFF, State.RETRY)
"""The states of a selection without one, in the order in which messages go through them."""
_DUE = (State.PENDING, State.READY, State.THROTTLED, State.RETRY)
"""States in which a message starts as soon as it is due and a consumer has time."""
MAX_PASSES = 5
"""How often the queue is gone through, because messages change places meanwhile."""
Outcome = TypeVar("Outcome", bound=StrEnum)


class MessageFilter(NamedTuple):
    """Which messages are selected; what is None selects all."""

    state: State | None
    name: str | None
    id_prefix: str | None
    due_from: datetime | None
    due_to: datetime | None

    def matches(self, message: MessageInfo) -> bool:
        """Tell whether a message of the right state matches."""
        if self.name is not None and message.name != self.name:
            return False
        if self.id_prefix is not None and not message.id.startswith(self.id_prefix):
            return False
        late_enough = self.due_from is None or (message.due is not None and message.due >= self.due_from)
        return late_enough and (self.due_to is None or (message.due is not None and message.due < self.due_to))


def check_filter(
    state: State | str | None,
    name: str | None,
    id_prefix: str | None,
    due_from: datetime | None,
    due_to: datetime | None,
) -> MessageFilter:
    """Return a filter; raises `ConfigurationError` for one that names no field, and for wrong values."""
    if all(one is None for one in (state, name, id_prefix, due_from, due_to)):
        raise ConfigurationError("say which messages: give a state, name, id_prefix, due_from or due_to")
    if state is not None and state not in (*WAITING, State.ACTIVE):
        names = ", ".join((*WAITING, State.ACTIVE))
        raise ConfigurationError(f"the state of a selection must be one of {names}, not {short_repr(state)}")
    if name is not None:
        check_message_name(name)
    if id_prefix is not None:
        check_id(id_prefix, "id_prefix")
    check_period(due_from, due_to)
    return MessageFilter(None if state is None else State(state), name, id_prefix, due_from, due_to)


class _SelectionOperations:
    """The operations on selected messages; blocking and asyncio queues share them."""

    def __init__(self, context: QueueContext, executor: Any, wanted: MessageFilter) -> None:
        self._context = context
        self._inspector = Inspector(context)
        self._executor = executor
        self._wanted = wanted

    def _count(self) -> Operation[int]:
        found: set[str] = set()
        for state in self._states:
            cursor: str | None = ""
            while cursor is not None:
                ids, cursor = yield from self._page(state, cursor)
                found.update(message.id for message in ids)
        return len(found)

    def _cancel(self, *, running: bool) -> Operation[Mapping[CancelOutcome, int]]:
        def act(found: Sequence[MessageInfo]) -> Operation[list[CancelOutcome]]:
            return cancel_each(self._context, [message.id for message in found], running=running)

        return (yield from self._each(act, lambda _: False))

    def _kill(self) -> Operation[Mapping[KillOutcome, int]]:
        return (yield from self._each(lambda found: kill_each(self._context, found), lambda _: False))

    def _reschedule(self, delay: Duration | None, at: datetime | None) -> Operation[Mapping[RescheduleOutcome, int]]:
        due = due_text(delay, at)
        (counted,) = yield [self._context.calls.counts()]
        target = int(due[1:]) if isinstance(due, str) else counted.now + due
        now, then = from_millis(counted.now), from_millis(target)

        def stays(message: MessageInfo) -> bool:
            is_due = message.state in _DUE and message.due is not None and message.due <= now
            return (message.state is State.PENDING and message.due == then) or (is_due and then <= now)

        def act(found: Sequence[MessageInfo]) -> Operation[list[RescheduleOutcome]]:
            return reschedule_each(self._context, [message.id for message in found], f"@{target}")

        return (yield from self._each(act, stays))

    @property
    def _states(self) -> Sequence[State]:
        return WAITING if self._wanted.state is None else (self._wanted.state,)

    def _page(self, state: State, cursor: str) -> Operation[tuple[list[MessageInfo], str | None]]:
        """Read a page of the messages in a state; returns those that match, and the cursor of the next page."""
        period = {"due_from": self._wanted.due_from, "due_to": self._wanted.due_to} if state is State.PENDING else {}
        page = yield from self._inspector.page(state, limit=MAX_ROWS, cursor=cursor or None, preview=0, **period)
        return [message for message in page.messages if self._wanted.matches(message)], page.cursor

    def _each(
        self, act: Callable[[Sequence[MessageInfo]], Operation[list[Outcome]]], stays: Callable[[MessageInfo], bool]
    ) -> Operation[Mapping[Outcome, int]]:
        """Do something with all that match, but for those that may stay as they are, until a pass changes nothing."""
        done: Counter[Outcome] = Counter()
        left: dict[str, Outcome] = {}
        for _ in range(MAX_PASSES):
            changed = 0
            for state in self._states:
                cursor: str | None = ""
                while cursor is not None:
                    found, cursor = yield from self._page(state, cursor)
                    wanted = [message for message in found if message.id not in left and not stays(message)]
                    for batch in batched(wanted, MAX_MOVED):
                        outcomes = yield from act(batch)
                        for message, outcome in zip(batch, outcomes, strict=True):
                            if outcome in _CHANGED:
                                done[outcome] += 1
                                changed += 1
                            else:
                                left[message.id] = outcome
            if not changed:
                break
        return done + Counter(left.values())


_CHANGED = (CancelOutcome.CANCELLED, KillOutcome.KILLED, RescheduleOutcome.RESCHEDULED)


class Selection(_SelectionOperations):
    """Some messages of a `DelayQueue`, from `select`: each call reads anew which match.

    The queue is read in pages and changed in slices of 250 messages. A call that was cut off can be made again: it does
    the rest.
    """

    _executor: Executor

    def count(self) -> int:
        """Count the messages; changes nothing."""
        return self._executor.perform(self._count())

    def cancel(self, *, running: bool = False) -> Mapping[CancelOutcome, int]:
        """Cancel the messages, as `DelayQueue.cancel` does with one; returns how many ended with each outcome."""
        return self._executor.perform(self._cancel(running=check_bool(running, "running")), writes=True)

    def kill(self) -> Mapping[KillOutcome, int]:
        """Move the messages to the dead letter, as `DelayQueue.kill` does with one; returns how many of each outcome.

        The dead letter keeps `dead_max` entries: those beyond it are deleted, the oldest first.
        """
        return self._executor.perform(self._kill(), writes=True)

    def reschedule(
        self, delay: Duration | None = None, *, at: datetime | None = None
    ) -> Mapping[RescheduleOutcome, int]:
        """Give all messages one new due time; returns how many ended with each outcome.

        A `delay` counts from when this begins. Those that are due at that time already stay, and are not counted.
        """
        return self._executor.perform(self._reschedule(delay, at), writes=True)

    def run_now(self) -> Mapping[RescheduleOutcome, int]:
        """Make the messages due now; those that are due already stay, and are not counted."""
        return self._executor.perform(self._reschedule(0, None), writes=True)


class AsyncSelection(_SelectionOperations):
    """Some messages of an `AsyncDelayQueue`; see `Selection`."""

    _executor: AsyncExecutor

    count = awaited(Selection.count)
    cancel = awaited(Selection.cancel)
    kill = awaited(Selection.kill)
    reschedule = awaited(Selection.reschedule)
    run_now = awaited(Selection.run_now)
