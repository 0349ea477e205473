"""The dead letter: messages that could not be processed, with payload and reason, until redriven, purged or trimmed."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from delayq._parity import awaited
from delayq.broker.batches import BATCH_BYTES, batched, byte_slices
from delayq.broker.context import QueueContext
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, PayloadError, short_repr
from delayq.queue.dead_groups import DeadGroup, check_group, group_of, grouped
from delayq.queue.inspecting.deaths import BATCH, check_entry
from delayq.queue.inspecting.inspector import MAX_ROWS, Inspector
from delayq.queue.inspecting.message_info import MessageInfo, Page
from delayq.queue.sweeps.whole_calls import every_status
from delayq.values.checks import check_bool, check_retries
from delayq.values.codec import encode_payload
from delayq.values.other_names import DEAD_METHODS, Hinting
from delayq.values.rates import parse_rate
from delayq.values.states import State
from delayq.values.times import from_millis

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor


@dataclass(frozen=True, slots=True)
class Redriven:
    """What a redrive did, in entries."""

    redriven: int
    exists: int
    """Entries that stay, because the queue has a message with their id."""
    gone: tuple[str, ...] = ()
    """Which of the given `payloads` are of no dead message."""


class DeadFilter(NamedTuple):
    """Texts that the reason and the last error of a dead message must contain, and the group that it must be in."""

    reason: str | None
    error: str | None
    group: str | None = None

    def matches(self, message: Any) -> bool:
        """Tell whether a message matches."""
        contained = (self.reason or "") in message.reason and (self.error or "") in message.error
        return contained and (self.group is None or self.group == group_of(message))


def selected(
    id: str | None, reason: str | None, error: str | None, group: str | None, *, all: bool
) -> str | DeadFilter:
    """Return which entries are selected: one by its id or entry, or those that match a filter."""
    check_bool(all, "all")
    if sum((id is not None, (reason, error, group) != (None, None, None), all)) != 1:
        kinds = "an id or entry, a reason, error or group to match, or all=True"
        raise ConfigurationError(f"select entries: give {kinds}; one of them")
    for text in (reason, error):
        if text is not None and (not isinstance(text, str) or not text):
            raise ConfigurationError(f"reason and error must be text to search for, not {short_repr(text)}")
    if group is not None:
        check_group(group)
    if id is None:
        return DeadFilter(reason, error, group)
    return check_entry(id)


def read_groups(inspector: Any) -> Operation[list[DeadGroup]]:
    """Read a whole dead letter without its payloads, a page at a time, by the inspector of its engine."""
    messages: list[MessageInfo] = []
    cursor: str | None = None
    while True:
        page: Page = yield from inspector.page(State.DEAD, limit=MAX_ROWS, cursor=cursor, preview=0)
        messages += page.messages
        cursor = page.cursor
        if cursor is None:
            return grouped(messages)


class _DeadLetterOperations(Hinting):
    """The operations of a dead letter."""

    _other_names = DEAD_METHODS

    def __init__(self, context: QueueContext, executor: Any, encode: Callable[[Any], bytes]) -> None:
        self._context = context
        self._encode = encode
        self._inspector = Inspector(context)
        self._executor = executor

    def _redrive(self, selection: str | DeadFilter, retries: int | None, rate: str | None) -> Operation[Redriven]:
        interval = _interval(retries, rate)

        def redrive(entries: list[str], before: str) -> ScriptCall[str]:
            first = before.count("1") * interval
            return self._context.calls.redrive(entries, retries=retries, first=first, interval=interval)

        statuses = yield from self._each(selection, redrive)
        return Redriven(statuses.count("1"), statuses.count("2"))

    def _edit(self, payloads: Mapping[str, Any], retries: int | None, rate: str | None) -> Operation[Redriven]:
        encoded = _encode_edited(payloads, self._encode, self._context.settings.max_payload)
        found = yield from _redrive_edited(self._context, encoded, retries, _interval(retries, rate))
        statuses = "".join(found.values())
        gone = tuple(which for which, status in found.items() if status == "0")
        return Redriven(statuses.count("1"), statuses.count("2"), gone)

    def _purge(self, selection: str | DeadFilter) -> Operation[int]:
        statuses = yield from self._each(selection, lambda entries, _: self._context.calls.dead_purge(entries))
        return statuses.count("1")

    def _each(self, selection: str | DeadFilter, call: Callable[[list[str], str], ScriptCall[str]]) -> Operation[str]:
        """Run a call on the selected entries, batch by batch; returns a status for each.

        It is given a batch, and the statuses of those before.
        """
        if isinstance(selection, str):
            return (yield from self._one(selection, call))

        def with_before(before: str, entries: list[str], done: str) -> ScriptCall[str]:
            return call(entries, before + done)

        statuses = ""
        (counted,) = yield [self._context.calls.counts()]
        now = from_millis(counted.now)
        cursor: str | None = None
        while True:
            page = yield from self._inspector.page(State.DEAD, limit=MAX_ROWS, cursor=cursor, preview=0)
            # Messages that die from now on are not selected: one that is redriven and fails again would never end.
            dead = [message for message in page.messages if message.died and message.died <= now]
            entries = [message.entry for message in dead if message.entry and selection.matches(message)]
            for batch in batched(entries, BATCH):
                statuses += yield from every_status(self._context, partial(with_before, statuses), batch)
            cursor = page.cursor
            if cursor is None:
                return statuses

    def _one(self, id: str, call: Callable[[list[str], str], ScriptCall[str]]) -> Operation[str]:
        statuses, *_ = yield [call([id], ""), *self._context.confirming]
        if statuses != "0":
            return str(statuses)
        # Not an entry, so it is an id: its last death is selected.
        (found,) = yield [self._context.calls.get(id)]
        if found is None or not found.entry:
            return ""
        statuses, *_ = yield [call([found.entry], ""), *self._context.confirming]
        return str(statuses)


def _interval(retries: int | None, rate: str | None) -> float:
    """Check how messages are redriven; returns the milliseconds between two of them."""
    if retries is not None:
        check_retries(retries)
    count, period = (1, 0) if rate is None else parse_rate(rate, "rate")
    return period / count


class DeadLetter(_DeadLetterOperations):
    """The dead letter of a `DelayQueue`, as `queue.dead`."""

    _executor: Executor

    def list(self, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Read a page of entries, oldest first; pass its cursor for the next page. Changes nothing."""
        return self._executor.perform(self._inspector.page(State.DEAD, limit=limit, cursor=cursor))

    def groups(self) -> builtins.list[DeadGroup]:
        """Group the entries by the class and the shape of their reasons and errors, the largest group first.

        Numbers, ids, addresses and quoted texts do not count. Reads the whole dead letter, without payloads, a page at
        a time. Changes nothing.
        """
        return self._executor.perform(read_groups(self._inspector))

    def redrive(
        self,
        id: str | None = None,
        *,
        reason: str | None = None,
        error: str | None = None,
        group: str | None = None,
        all: bool = False,
        payloads: Mapping[str, Any] | None = None,
        retries: int | None = None,
        rate: str | None = None,
    ) -> Redriven:
        """Send dead messages again, due at once, with the retries they were sent with, or `retries`.

        Select one message by its id (the last death) or entry, those whose reason and error contain a text, those of a
        group (see `groups`), or `all=True`. With a `rate` such as `"50/s"`, so many become due in a time, the first at
        once. Works in batches, each of which is atomic. An entry stays if the queue has a message with its id.

        With `payloads`, ids or entries with what each is to have instead, these are sent again, as in
        `redrive(payloads={"m7": {"to": "b@example.com"}})`. All payloads are checked before the first is sent, and each
        takes the place of the old one in the step that redrives the message. The result names what is `gone`.
        """
        if payloads is not None:
            if (id, reason, error, group) != (None,) * 4 or check_bool(all, "all"):
                raise ConfigurationError("payloads select their messages: give no id, reason, error, group or all")
            return self._executor.perform(self._edit(payloads, retries, rate))
        return self._executor.perform(self._redrive(selected(id, reason, error, group, all=all), retries, rate))

    def purge(
        self,
        id: str | None = None,
        *,
        reason: str | None = None,
        error: str | None = None,
        group: str | None = None,
        all: bool = False,
    ) -> int:
        """Delete dead messages, selected as in `redrive`; returns how many."""
        return self._executor.perform(self._purge(selected(id, reason, error, group, all=all)))


class AsyncDeadLetter(_DeadLetterOperations):
    """The dead letter of an `AsyncDelayQueue`; see `DeadLetter`."""

    _executor: AsyncExecutor

    list = awaited(DeadLetter.list)
    groups = awaited(DeadLetter.groups)
    redrive = awaited(DeadLetter.redrive)
    purge = awaited(DeadLetter.purge)


def _encode_edited(payloads: Mapping[str, Any], encode: Callable[[Any], bytes], max_bytes: int) -> dict[str, bytes]:
    """Return the encoded payloads; `ConfigurationError` or `PayloadError` if one, or what names it, is wrong."""
    if not isinstance(payloads, Mapping) or not payloads:
        raise ConfigurationError("payloads must map ids or entries of dead messages to their new payloads")
    encoded: dict[str, bytes] = {}
    for which, payload in payloads.items():
        check_entry(which)
        try:
            encoded[which] = encode_payload(payload, encode, max_bytes)
        except PayloadError as error:
            raise type(error)(f"of {which}: {error}") from None
    return encoded


def _redrive_edited(
    context: QueueContext, payloads: Mapping[str, bytes], retries: int | None, interval: float
) -> Operation[dict[str, str]]:
    """Redrive dead messages, by entry or id (its last death); a status of each as of the script, 0 for gone."""

    def call(before: str, rows: Sequence[tuple[str, bytes]], done: str) -> ScriptCall[str]:
        entries, texts = zip(*rows, strict=True)
        first = (before + done).count("1") * interval
        return context.calls.redrive(entries, retries=retries, payloads=texts, first=first, interval=interval)

    def redrive(rows: Sequence[tuple[str, bytes]], before: str) -> Operation[str]:
        statuses = ""
        for part in byte_slices([len(payload) for _, payload in rows], BATCH_BYTES, BATCH):
            statuses += yield from every_status(context, partial(call, before + statuses), rows[part])
        return statuses

    first_statuses = yield from redrive(list(payloads.items()), "")
    statuses = dict(zip(payloads, first_statuses, strict=True))
    last: dict[str, str] = {}
    for which in [which for which, status in statuses.items() if status == "0"]:
        (found,) = yield [context.calls.get(which)]
        if found is not None and found.entry:  # it was an id
            last[found.entry] = which
    again = yield from redrive([(entry, payloads[which]) for entry, which in last.items()], first_statuses)
    return statuses | dict(zip(last.values(), again, strict=True))
