"""Sending: turns payloads and times into stored messages, in batches of limited size, and says what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from delayq.broker.batches import BATCH, BATCH_BYTES, byte_slices
from delayq.broker.calls import SPENT, Debounced, Owner, Placing, SendStatuses
from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.keys import check_id
from delayq.broker.message.collected import entry_of
from delayq.broker.message.ids import digest_id, new_id, new_ids
from delayq.broker.message.joining import joins
from delayq.broker.message.same_id import Debounce, missing_id
from delayq.broker.requests import OWN_ID, NewTable, Outgoing, OutgoingTable, Replace, ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, NotReplicatedError, OutcomeUnknown, QueueFullError
from delayq.queue.sending.collecting import send_collected, send_debounced
from delayq.queue.sending.due_times import due_text, placed
from delayq.queue.sending.message_options import (
    BESIDE,
    NO_OPTIONS,
    STORED,
    NewMessage,
    attributes_of,
    keeping,
    options_of,
)
from delayq.queue.sending.send_calls import (
    AFTER,
    NOT_REPLACED,
    check_replace,
    replace_unstarted,
    send_call,
    send_spent,
)
from delayq.values.checks import check_retries
from delayq.values.codec import (
    Codec,
    JsonCodec,
    canonical_encode,
    encode_headers,
    encode_payload,
    encoder_of_many,
    stable_encode,
)
from delayq.values.times import Duration, from_millis, to_millis

if TYPE_CHECKING:
    from delayq.broker.transport.executor import Executor

ROUND = 40 * BATCH
"""Messages sent in one round trip."""
_STORED = frozenset([*STORED, *BESIDE])


class SendStatus(StrEnum):
    """What a send did with a message."""

    NEW = "new"
    EXISTS = "exists"
    """The queue has a message with this id, which was not changed."""
    REPLACED = "replaced"
    """A waiting message with this id got the new payload and due time; its attempts start anew."""
    RUNNING = "running"
    """A message with this id is being processed, so it was not replaced."""
    ADDED = "added"
    """The message with this id carries this payload too, see `collect`."""
    AFTER = "after"
    """A message with this id is being processed; this one waits and takes its place when it ends."""
    SETTLED = "settled"
    """A message with this id has ended within the `dedupe_window`, or the id is reserved: it was not sent again."""


STATUS_OF = {
    "1": SendStatus.NEW,
    "0": SendStatus.EXISTS,
    "2": SendStatus.REPLACED,
    "3": SendStatus.RUNNING,
    "6": SendStatus.AFTER,
    "7": SendStatus.ADDED,
    "5": SendStatus.SETTLED,
}
"""The statuses as the scripts return them."""
NEWLY_STORED = ("1", "2", "6", "7")
"""The statuses of messages that a send has stored."""


class Sent(NamedTuple):
    """The result of one send: the message's id, and whether this call stored it."""

    id: str
    status: SendStatus
    due: datetime | None = None
    """When the message is due, in UTC, by the server's clock; None if this call did not store it."""
    owner: Owner | None = None
    """Who has the id, if the status is `exists`, `running` or `settled`."""

    @classmethod
    def of(cls, id: str, status: str, due: str | int, at: Placing) -> Sent:
        """Return the result of a send with this due time (see `due_text`).

        `at` is the server's time (microseconds) from which delays count, or who has the id.
        """
        if isinstance(at, str):
            return cls(id, STATUS_OF[status], None, Owner.of(at))
        if not at or status not in NEWLY_STORED:
            return cls(id, STATUS_OF[status])
        if due in (0, OWN_ID):  # at once
            return cls(id, STATUS_OF[status], from_millis(at // 1000))
        return cls(id, STATUS_OF[status], from_millis(-(-at // 1000) + due if isinstance(due, int) else int(due[1:])))

    @property
    def new(self) -> bool:
        """Whether this call stored the message under a new id."""
        return self.status is SendStatus.NEW


class SentMany(Sequence[Sent]):
    """The results of `send_many`, one for each message, in order."""

    __slots__ = ("_dues", "_statuses", "_times", "ids")

    def __init__(self, ids: list[str], statuses: str, dues: list[str | int], times: list[Placing]) -> None:
        self.ids = ids
        self._statuses = statuses
        self._dues = dues
        self._times = times
        """For each message, the server's time (microseconds) from which its delay counts, or who has its id."""

    @property
    def new(self) -> list[str]:
        """The ids of the messages that this call stored under new ids."""
        return [id for id, status in zip(self.ids, self._statuses, strict=True) if status == "1"]

    @property
    def columns(self) -> tuple[str, list[str | int], list[Placing]]:
        """The statuses, due times and placings of the messages, see `Sent.of`."""
        return self._statuses, self._dues, self._times

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> Sent: ...
    @overload
    def __getitem__(self, at: slice) -> SentMany: ...
    def __getitem__(self, at: int | slice) -> Sent | SentMany:
        """Return the result of one message, or of a slice."""
        if isinstance(at, slice):
            return SentMany(self.ids[at], self._statuses[at], self._dues[at], self._times[at])
        return Sent.of(self.ids[at], self._statuses[at], self._dues[at], self._times[at])

    def __repr__(self) -> str:
        """Show how many were sent and how many were new."""
        return f"<SentMany {len(self)} messages, {self._statuses.count('1')} new>"


InOneForm = Callable[[str | None, Any], Any]


def _as_it_is(_: str | None, payload: Any) -> Any:
    return payload


class Producer:
    """Makes the operations that send messages; blocking and asyncio queues share it."""

    def __init__(self, context: EngineContext, codec: Codec, in_one_form: InOneForm = _as_it_is) -> None:
        self._context = context
        self.in_one_form = in_one_form
        """Returns the payload of a message with a name in one form for all calls of a task that are equal."""
        self.is_limited = context.settings.max_length is not None
        """Whether a full queue may refuse a send."""
        self._is_json = isinstance(codec, JsonCodec)
        self._has_delays = context.calls.capabilities.has(Feature.DELAYS)
        self.encode, self.encode_many = codec.encode, encoder_of_many(codec)
        self.encode_stable, self.encode_canonical = stable_encode(codec), canonical_encode(codec)
        """As `encode`, but equal payloads become equal bytes; the latter also if their fields are in another order."""
        self._attributes = attributes_of(context, 0, NO_OPTIONS)
        """Those of a message without options of its own."""

    def outgoing(
        self,
        payload: Any,
        due: str | int,
        retries: int | None,
        id: str | None,
        headers: Mapping[str, str] | None,
        *,
        options: Mapping[str, Any] = NO_OPTIONS,
        replace: Replace = False,
    ) -> Outgoing:
        """Return an encoded message with a due time from `due_text`; raises `ConfigurationError` or `PayloadError`."""
        encoded = encode_payload(payload, self.encode, self._context.settings.max_payload)
        if options:
            id = self._id_by(options, id, payload, replace)
        if replace is not False and check_replace(replace) and id is None:
            raise missing_id(replace)
        own_id = id is not None
        id = new_id() if id is None else check_id(id)
        extras = self._attributes
        if options:
            due = placed(self._context, due, id, options, replace)
            if not _STORED.isdisjoint(options):
                extras = self._attributes_of(options, due, id, is_own=own_id, replace=replace)
        if isinstance(replace, Debounce):
            encoded = entry_of(encoded, is_json=self._is_json) if replace.collect else encoded
        elif replace:
            extras = keeping(extras, {**options, "retries": retries, "headers": headers})
        if not self._has_delays:
            if due != 0:
                self._context.calls.capabilities.require(Feature.DELAYS)
            due = OWN_ID if own_id else 0
        return Outgoing(
            id,
            due,
            self._context.settings.default_retries if retries is None else check_retries(retries),
            encoded,
            b"" if headers is None else encode_headers(headers),
            extras,
        )

    def _id_by(self, options: Mapping[str, Any], id: str | None, payload: Any, replace: Replace) -> str | None:
        """Return the id of a message: the one that is given, or what its options make of it."""
        if (unique := options.get("unique")) is not None:
            name = options.get("name")
            return digest_id(unique, id, name, self.encode_canonical(self.in_one_form(name, payload)))
        group: str | None = options.get("group")
        return id if group is None or replace is False else group

    def _attributes_of(
        self, options: Mapping[str, Any], due: str | int, id: str, *, is_own: bool, replace: Replace
    ) -> bytes:
        found = attributes_of(self._context, due, options, id if is_own else None, replace=replace)
        if replace is False and options.get("group") is not None:
            return joins(options, check_id(options["group"], "group"), id, found, is_json=self._is_json)
        return found

    def send_by(self, executor: Executor, messages: list[Outgoing]) -> list[Sent]:
        """Send messages in one call; a single one needs no operation, which costs a tenth of its send."""
        if len(messages) > 1 or self._context.confirming:
            return executor.perform(self.send(messages))
        (message,) = messages
        try:
            status = executor.call(send_call(self._context, messages, replace=False))
        except (OutcomeUnknown, QueueFullError) as error:
            error.ids = (message.id,)
            raise
        if status == SPENT:  # so this call has stored nothing
            return executor.perform(self.send(messages))
        return [Sent.of(message.id, status, message.due, status.at if status == "1" else status.placings[0])]

    def send(self, messages: list[Outgoing], *, replace: Replace = False) -> Operation[list[Sent]]:
        """Send messages in one call."""
        try:
            if isinstance(replace, Debounce):
                sent = yield from send_debounced(self._context, messages[0], replace)
                return [Sent.of(messages[0].id, sent.status, sent.due, sent.placing)]
            statuses, *_ = yield [send_call(self._context, messages, replace=replace), *self._context.confirming]
            if statuses == "1" and len(messages) == 1:  # as nearly always
                return [Sent.of(messages[0].id, statuses, messages[0].due, statuses.at)]
            times = statuses.placings
            if NOT_REPLACED in statuses or AFTER in statuses:
                statuses, times = yield from replace_unstarted(self._context, messages, statuses, times)
            if SPENT in statuses:
                statuses, times = yield from send_spent(self._context, messages, statuses, times, replace=replace)
        except (OutcomeUnknown, QueueFullError, NotReplicatedError) as error:
            error.ids = tuple(message.id for message in messages)
            raise
        return [
            Sent.of(message.id, status, message.due, at)
            for message, status, at in zip(messages, statuses, times, strict=True)
        ]

    def send_many(
        self, messages: Iterable[Any], *, delay: Duration, retries: int | None, replace: Replace, run: str | None
    ) -> Operation[SentMany]:
        """Send payloads and `NewMessage` objects; all are checked and encoded before the first is sent."""
        due = to_millis(delay, "delay")
        run_name = "" if run is None else check_id(run, "run")
        default = self._context.settings.default_retries if retries is None else check_retries(retries)
        if isinstance(messages, str | bytes | bytearray | Mapping) or not isinstance(messages, Iterable):
            kind = type(messages).__name__
            raise ConfigurationError(f"messages must be an iterable of payloads, such as a list, not one {kind}")
        ready = self._ready(messages if isinstance(messages, list) else list(messages), due, retries, replace=replace)
        return (yield from self.send_ready(ready, due, default, replace=replace, run=run_name))

    def send_ready(
        self,
        ready: list[Outgoing] | list[bytes],
        due: int,
        retries: int,
        *,
        replace: Replace,
        run: str,
        own_ids: Sequence[str] | None = None,
    ) -> Operation[SentMany]:
        """Send encoded messages, or encoded payloads, whose ids are made now unless there are `own_ids` of them."""
        if isinstance(replace, Debounce):
            return (yield from self._collect_many(ready, replace))
        ids, statuses, times, confirming = list[str](), "", list[Placing](), self._context.confirming
        try:
            for first in range(0, len(ready), ROUND):
                part = ready[first : first + ROUND]
                made = None if own_ids is None else own_ids[first : first + ROUND]
                calls = self._calls(part, ids, due, retries, replace=replace, run=run, own_ids=made)
                replies = yield chain(calls, confirming)
                for reply in replies[: len(replies) - len(confirming)]:
                    statuses += reply
                    times += reply.placings
            if (NOT_REPLACED in statuses or AFTER in statuses) and not run:  # the ledger of a run has counted them
                statuses, times = yield from replace_unstarted(self._context, ready, statuses, times)
            if SPENT in statuses:
                again = send_spent(self._context, ready, statuses, times, replace=replace, run=run)
                statuses, times = yield from again
        except (OutcomeUnknown, QueueFullError, NotReplicatedError) as error:
            error.ids = tuple(id for at, id in enumerate(ids) if statuses[at : at + 1] in ("", SPENT))
            raise
        dues = [due if isinstance(message, bytes) else message.due for message in ready]
        return SentMany(ids, statuses, dues, times)

    def _collect_many(self, ready: Any, how: Debounce) -> Operation[SentMany]:
        found: list[Debounced] = []
        try:
            for first in range(0, len(ready), ROUND):
                found += yield from send_collected(self._context, ready[first : first + ROUND], how)
        except (OutcomeUnknown, QueueFullError, NotReplicatedError) as error:
            error.ids = tuple(message.id for message in ready[len(found) :])
            raise
        ids, statuses = [message.id for message in ready], "".join(one.status for one in found)
        return SentMany(ids, statuses, [one.due for one in found], [one.placing for one in found])

    def _ready(
        self, messages: list[Any], due: int, retries: int | None, *, replace: Replace
    ) -> list[Outgoing] | list[bytes]:
        """Check and encode messages; plain payloads take a fast path."""
        if not replace and not any(issubclass(kind, NewMessage) for kind in set(map(type, messages))):
            encoded: list[bytes] = self.encode_many(messages)
            are_bytes = set(map(type, encoded)) <= {bytes}
            if are_bytes and max(map(len, encoded), default=0) <= self._context.settings.max_payload:
                return encoded
        news = [one if isinstance(one, NewMessage) else NewMessage(one) for one in messages]
        more = {"collect": replace.collect} if isinstance(replace, Debounce) else {}
        if more and any(one.delay is not None or one.at is not None for one in news):
            raise ConfigurationError("give delay or debounce, but not both: debounce says when it is due")
        return [
            self.outgoing(
                one.payload,
                due if one.delay is None and one.at is None else due_text(one.delay, one.at),
                retries if one.retries is None else one.retries,
                one.id,
                one.headers,
                options={**options, **more} if more else options,
                replace=replace,
            )
            for one, options in zip(news, options_of(news), strict=True)
        ]

    def _calls(
        self,
        ready: list[Outgoing] | list[bytes],
        ids: list[str],
        due: int,
        retries: int,
        *,
        replace: Replace,
        run: str,
        own_ids: Sequence[str] | None,
    ) -> Iterator[ScriptCall[SendStatuses]]:
        """Yield the calls of one round trip, each while the ones before are being sent; adds their ids to `ids`."""
        payloads = ready if isinstance(ready[0], bytes) else [message.payload for message in ready]
        for batch in byte_slices(list(map(len, payloads)), BATCH_BYTES, BATCH):
            part = ready[batch]
            n = len(part)
            table: OutgoingTable
            if isinstance(part[0], bytes):
                none, attributes = [b""] * n, [self._attributes] * n
                made = new_ids(n) if own_ids is None else own_ids[batch]
                table = NewTable(made, [due] * n, [retries] * n, part, none, attributes)
            else:
                table = OutgoingTable(*zip(*part, strict=True))
            ids += table.ids
            yield send_call(self._context, table, replace=replace, run=run)
