"""The calls of a queue, recorded: each is written into the history before it is sent and when its reply is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from delayq.broker.calls import Calls, SendStatuses
from delayq.broker.keys import Keys
from delayq.broker.message.attributes import Attributes
from delayq.broker.replies import ClaimReply
from delayq.broker.requests import Failure, Messages, OutgoingTable, Receipt, Rejection, Release, Replace, ScriptCall
from delayq.broker.results import Completed
from delayq.errors import OutcomeUnknown
from delayq.testing.torture.history import CallRecord, Outcome, Recorder, ReplyRecord, digest, now

T = TypeVar("T")
S = TypeVar("S", bound=str)


class RecordedCalls(Calls):
    """The calls of a delay queue, recorded.

    A reply is recorded when it is read. If a call raises, the caller reports it with `failed`; otherwise its outcome
    stays unknown, which the checker allows for.
    """

    recorder: Recorder
    unanswered: set[int]
    """Numbers of the calls without a reply."""

    def __init__(self, keys: Keys, recorder: Recorder) -> None:
        super().__init__(keys)
        object.__setattr__(self, "recorder", recorder)  # calls are frozen dataclasses
        object.__setattr__(self, "unanswered", set())

    def end(self, number: int, **columns: Any) -> None:
        """Record the reply of a call, or that it raised."""
        self.recorder.write(ReplyRecord(at=now(), call=number, **columns))
        self.unanswered.discard(number)

    def failed(self, error: Exception) -> None:
        """Record that the call without a reply raised; for one operation at a time.

        Of several calls at once the error is that of one, so the outcome of all of them is unknown.
        """
        in_doubt = isinstance(error, OutcomeUnknown) or len(self.unanswered) > 1
        outcome: Outcome = "unknown" if in_doubt else "fail"
        for number in list(self.unanswered):
            self.end(number, outcome=outcome, error=str(error)[:200])

    def recorded(
        self, call: ScriptCall[T], reply_columns: Callable[[T], dict[str, Any]], op: Any, **columns: Any
    ) -> ScriptCall[T]:
        """Record a call now, and its reply when it is read."""
        number = self.recorder.next_call()
        self.unanswered.add(number)
        self.recorder.write(CallRecord(at=now(), call=number, op=op, **columns))

        def parse(reply: Any) -> T:
            value = call.parse(reply)
            self.end(number, **reply_columns(value))
            return value

        return replace(call, parse=parse)

    def with_statuses(self, call: ScriptCall[S], op: Any, **columns: Any) -> ScriptCall[S]:
        """Record a call whose reply is a status for each id."""
        return self.recorded(call, lambda statuses: {"statuses": str(statuses)}, op, **columns)

    def ack(self, receipts: Iterable[Receipt], **options: Any) -> ScriptCall[str]:
        return self._settlement("ack", receipts, **options)

    def nack(self, failures: Iterable[Failure]) -> ScriptCall[str]:
        return self._settlement("nack", failures)

    def release(self, releases: Iterable[Release]) -> ScriptCall[str]:
        return self._settlement("release", releases)

    def extend(self, receipts: Iterable[Receipt], *, lease: int, **options: Any) -> ScriptCall[str]:
        if options.get("started"):  # it is recorded as `start_report`
            return self._unrecorded("extend", receipts, lease=lease, **options)
        return self._settlement("extend", receipts, lease=lease, **options)

    def start(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        receipts = list(receipts)
        columns = _receipt_columns(receipts)
        return self.with_statuses(self._unrecorded("start", receipts), "start_report", **columns)

    def reject(self, rejections: Iterable[Rejection]) -> ScriptCall[str]:
        return self._settlement("reject", rejections)

    def _settlement(self, op: str, deliveries: Iterable[Any], **options: Any) -> ScriptCall[str]:
        deliveries = list(deliveries)
        call = self._unrecorded(op, deliveries, **options)
        return self.with_statuses(call, op, lease=options.get("lease", 0), **_receipt_columns(deliveries))

    def _unrecorded(self, op: str, deliveries: Iterable[Any], **options: Any) -> ScriptCall[str]:
        call: ScriptCall[str] = getattr(super(), op)(deliveries, **options)
        return call

    def send(
        self, messages: Messages, *, max_length: int | None, replace: Replace = False, run: str = ""
    ) -> ScriptCall[SendStatuses]:
        table = _as_table(messages)
        return self.with_statuses(
            super().send(messages, replace=replace, max_length=max_length, run=run),
            "send",
            ids=list(table.ids),
            dues=list(map(_due_time, table.dues)),
            retries=list(table.retries),
            payloads=list(map(_digest, table.payloads, table.attributes)),
            replace=bool(replace),
        )

    def ready_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> ScriptCall[ClaimReply]:
        call = super().ready_to_unack(wanted, lease=lease, consumer_id=consumer_id)
        return self.recorded(call, _claim_columns, "claim", lease=lease) if wanted else call

    def pending_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> ScriptCall[ClaimReply]:
        call = super().pending_to_unack(wanted, lease=lease, consumer_id=consumer_id)
        return self.recorded(call, _claim_columns, "claim", lease=lease)

    def complete(self, deliveries: Iterable[Completed]) -> ScriptCall[str]:
        deliveries = list(deliveries)
        return self.with_statuses(super().complete(deliveries), "ack", **_receipt_columns(deliveries))

    def cancel(self, ids: Iterable[str], *, stop: bool = False) -> ScriptCall[str]:
        ids = list(ids)
        return self.with_statuses(super().cancel(ids, stop=stop), "cancel", ids=ids)

    def reschedule(self, times: Iterable[tuple[str, str | int]]) -> ScriptCall[str]:
        times = list(times)
        ids, dues = [id for id, _ in times], [_due_time(due) for _, due in times]
        return self.with_statuses(super().reschedule(times), "reschedule", ids=ids, dues=dues)

    def redrive(self, entries: Iterable[str], **options: Any) -> ScriptCall[str]:
        entries = list(entries)
        return self.with_statuses(super().redrive(entries, **options), "redrive", **_dead_letter_columns(entries))

    def dead_purge(self, entries: Iterable[str]) -> ScriptCall[str]:
        entries = list(entries)
        return self.with_statuses(super().dead_purge(entries), "dead_purge", **_dead_letter_columns(entries))

    def close(self, name: str | None, delay: int, *, pause: int | None = None) -> ScriptCall[str]:
        call = super().close(name, delay, pause=pause)
        if pause is not None:
            return self.with_statuses(call, "break", name=name or "", lasts=pause)
        return call if name is None else self.with_statuses(call, "hold", name=name, lasts=delay)

    def purge(self) -> ScriptCall[int]:
        return self.recorded(super().purge(), lambda _: {}, "purge")


def _as_table(messages: Messages) -> OutgoingTable:
    """Return the messages of a send as columns."""
    return messages if isinstance(messages, OutgoingTable) else OutgoingTable(*zip(*messages, strict=True))


def _claim_columns(reply: ClaimReply) -> dict[str, Any]:
    """Return the columns of a claim's reply."""
    messages = reply.messages
    names = [Attributes.of(one.attributes).name or "" for one in messages]
    return {
        "now": reply.now,
        "deadline": reply.deadline,
        "ids": [one.id for one in messages],
        "tokens": [one.token for one in messages],
        "dues": [one.due for one in messages],
        "attempts": [one.attempt for one in messages],
        "retries_left": [one.retries_left for one in messages],
        "payloads": [digest(one.payload, name) for one, name in zip(messages, names, strict=True)],
        "names": names if any(names) else [],
        "alone": reply.alone,
    }


def _receipt_columns(deliveries: Iterable[Any]) -> dict[str, Any]:
    """Return the ids and tokens of deliveries."""
    return {"ids": [one.id for one in deliveries], "tokens": [one.token for one in deliveries]}


def _digest(payload: bytes, attributes: bytes) -> str:
    return digest(payload, Attributes.of(attributes).name)


def _dead_letter_columns(entries: Sequence[str]) -> dict[str, list[Any]]:
    """Return the ids and tokens of entries of the dead letter, each `id:token` or only an id."""
    parts = [entry.rpartition(":") for entry in entries]
    pairs = [(id, int(token)) if token.isdecimal() and id else (id + colon + token, 0) for id, colon, token in parts]
    return {"ids": [id for id, _ in pairs], "tokens": [token for _, token in pairs]}


def _due_time(due: str | int) -> int:
    if isinstance(due, int):
        raise TypeError("a recorded message must be sent for a time, not with a delay")
    return int(due.removeprefix("@"))
