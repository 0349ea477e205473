"""Sending: turns payloads and times into stored messages, in batches of limited size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any

from delayq.broker.batches import BATCH, byte_slices
from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.keys import check_id
from delayq.broker.message.ids import digest_id, new_id, new_ids
from delayq.broker.message.jitter import check_jitter, later
from delayq.broker.message.same_id import Debounce, missing_id
from delayq.broker.replies.send_replies import Placing, SendStatuses
from delayq.broker.requests import OWN_ID, Outgoing, OutgoingTable, Replace, ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, NotReplicatedError, OutcomeUnknown, QueueFullError
from delayq.queue.sending.debouncing import send_debounced
from delayq.queue.sending.message_options import NO_OPTIONS, STORED, NewMessage, attributes_of, keeping, options_of
from delayq.queue.sending.send_again import (
    AFTER,
    NOT_REPLACED,
    SPENT,
    check_replace,
    replace_unstarted,
    send_call,
    send_spent,
)
from delayq.queue.sending.sent import Sent, SentMany
from delayq.values.checks import check_retries
from delayq.values.codec import Codec, canonical_encode, encode_headers, encode_payload, encoder_of_many, stable_encode
from delayq.values.times import Duration, timestamp, to_millis

BATCH_BYTES = 1 << 20
"""Payload bytes of a batch; a single payload may be larger."""
ROUND = 40 * BATCH
"""Messages sent in one round trip."""
_STORED = frozenset([*STORED, "missed"])


def due_text(delay: Duration | None, at: datetime | None) -> str | int:
    """Return a due time in the form of the scripts: milliseconds from now, or `@` and milliseconds since 1970."""
    if at is None and delay is not None:
        return to_millis(delay, "delay")
    if at is None or delay is not None:
        raise ConfigurationError("give delay or at, but not both")
    return f"@{timestamp(at)}"


InOneForm = Callable[[str | None, Any], Any]


def _as_it_is(_: str | None, payload: Any) -> Any:
    return payload


class Producer:
    """Makes the operations that send messages; blocking and asyncio queues share it."""

    def __init__(self, context: EngineContext, codec: Codec, in_one_form: InOneForm = _as_it_is) -> None:
        self._context = context
        self.in_one_form = in_one_form
        """Returns the payload of a message with a name in one form for all calls of a task that are equal."""
        self._has_delays = context.calls.capabilities.has(Feature.DELAYS)
        self.encode, self.encode_many = codec.encode, encoder_of_many(codec)
        self.encode_stable, self.encode_canonical = stable_encode(codec), canonical_encode(codec)
        """As `encode`, but equal payloads become equal bytes; the latter also if their fields are in another order."""
        self._attributes = attributes_of(context, 0, NO_OPTIONS)
        """Those of a message without options of its own."""

    @property
    def is_limited(self) -> bool:
        """Whether a full queue may refuse a send."""
        return self._context.settings.max_length is not None

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
        if (unique := options.get("unique")) is not None:
            name = options.get("name")
            id = digest_id(unique, id, name, self.encode_canonical(self.in_one_form(name, payload)))
        if check_replace(replace) and id is None:
            raise missing_id(replace)
        own_id = id is not None
        id = new_id() if id is None else check_id(id)
        extras = self._attributes
        if options:
            if (jitter := options.get("jitter")) is not None:
                due = self._spread(due, id, jitter, replace)
            if not _STORED.isdisjoint(options):
                extras = attributes_of(self._context, due, options, id if own_id else None, replace=replace)
        if replace and not isinstance(replace, Debounce):
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

    def _spread(self, due: str | int, id: str, jitter: Duration, replace: Replace) -> str | int:
        """Return the due time of an id with jitter; raise `ConfigurationError` where there can be none."""
        self._context.calls.capabilities.require(Feature.DELAYS)
        if isinstance(replace, Debounce):
            raise ConfigurationError("give debounce or jitter, but not both: debounce says when it is due")
        return later(due, id, check_jitter(jitter))

    def send(self, messages: list[Outgoing], *, replace: Replace = False) -> Operation[list[Sent]]:
        """Send messages in one call."""
        try:
            if isinstance(replace, Debounce):
                sent = yield from send_debounced(self._context, messages[0], replace)
                return [Sent.of(messages[0].id, sent.status, sent.due, sent.placing)]
            statuses, *_ = yield [send_call(self._context, messages, replace=replace), *self._context.confirming]
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
        ids, statuses, times, confirming = list[str](), "", list[Placing](), self._context.confirming
        try:
            for first in range(0, len(ready), ROUND):
                part = ready[first : first + ROUND]
                calls = self._calls(part, ids, due, default, replace=replace, run=run_name)
                replies = yield chain(calls, confirming)
                for reply in replies[: len(replies) - len(confirming)]:
                    statuses += reply
                    times += reply.placings
            if (NOT_REPLACED in statuses or AFTER in statuses) and not run_name:  # the ledger of a run has counted them
                statuses, times = yield from replace_unstarted(self._context, ready, statuses, times)
            if SPENT in statuses:
                again = send_spent(self._context, ready, statuses, times, replace=replace, run=run_name)
                statuses, times = yield from again
        except (OutcomeUnknown, QueueFullError, NotReplicatedError) as error:
            error.ids = tuple(id for at, id in enumerate(ids) if statuses[at : at + 1] in ("", SPENT))
            raise
        dues = [due if isinstance(message, bytes) else message.due for message in ready]
        return SentMany(ids, statuses, dues, times)

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
        return [
            self.outgoing(
                one.payload,
                due if one.delay is None and one.at is None else due_text(one.delay, one.at),
                retries if one.retries is None else one.retries,
                one.id,
                one.headers,
                options=options,
                replace=replace,
            )
            for one, options in zip(news, options_of(news), strict=True)
        ]

    def _calls(
        self, ready: list[Outgoing] | list[bytes], ids: list[str], due: int, retries: int, *, replace: Replace, run: str
    ) -> Iterator[ScriptCall[SendStatuses]]:
        """Yield the calls of one round trip, each while the ones before are being sent; adds their ids to `ids`."""
        payloads = ready if isinstance(ready[0], bytes) else [message.payload for message in ready]
        for batch in byte_slices(list(map(len, payloads)), BATCH_BYTES, BATCH):
            part = ready[batch]
            n = len(part)
            if isinstance(part[0], bytes):
                none, attributes = [b""] * n, [self._attributes] * n
                table = OutgoingTable(new_ids(n), [due] * n, [retries] * n, part, none, attributes)
            else:
                table = OutgoingTable(*zip(*part, strict=True))
            ids += table.ids
            yield send_call(self._context, table, replace=replace, run=run)
