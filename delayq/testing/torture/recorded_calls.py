"""The calls of a queue, recorded: each is written into the history before it is sent and when its reply is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from delayq.broker.message.attributes import Attributes
from delayq.broker.replies import ClaimReply, TurnReply
from delayq.broker.requests import Messages, OutgoingTable
from delayq.errors import OutcomeUnknown
from delayq.testing.torture.history import CallRecord, Outcome, Recorder, ReplyRecord, digest, now

Columns = dict[str, Any]


class CallHistory:
    """Records the calls of a delay queue; see `broker.context.CallObserver`.

    A reply is recorded when it is read. If a call raises, the caller reports it with `failed`; otherwise its outcome
    stays unknown, which the checker allows for.
    """

    operations = (
        *("send", "ready_to_unack", "pending_to_unack", "turn", "extend"),
        *("ack", "nack", "release", "reject", "complete"),
        *("cancel", "reschedule", "redrive", "dead_purge", "close", "purge"),
    )

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.unanswered: set[int] = set()
        """Numbers of the calls without a reply."""

    def __call__(
        self, operation: str, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Callable[[Any], object] | None:
        """Record a call, unless it does nothing; return what records its reply."""
        if operation == "turn":  # two in one
            receipts = options["receipts"]
            acked = self("ack", [receipts], {}) if receipts else None
            return partial(self._turned, acked, self("pending_to_unack", args, options), len(receipts))
        op, columns = _call_columns(operation, args, options)
        if not op:
            return None
        number = self.recorder.next_call()
        self.unanswered.add(number)
        self.recorder.write(CallRecord(at=now(), call=number, op=op, **columns))
        return partial(self._answered, number, op)

    def _answered(self, number: int, op: str, reply: Any) -> None:
        columns = {} if op == "purge" else _claim_columns(reply) if op == "claim" else {"statuses": str(reply)}
        self._end(number, **columns)

    def _turned(
        self,
        acked: Callable[[Any], object] | None,
        claimed: Callable[[Any], object] | None,
        receipts: int,
        reply: TurnReply,
    ) -> None:
        """Record the replies of both calls; of a queue that is not plain, the turn has settled and claimed nothing."""
        if acked:
            acked(reply.statuses or "?" * receipts)
        if claimed:
            claimed(reply.claimed or ClaimReply(0, 0, 0, []))

    def _end(self, number: int, **columns: Any) -> None:
        self.recorder.write(ReplyRecord(at=now(), call=number, **columns))
        self.unanswered.discard(number)

    def failed(self, error: Exception) -> None:
        """Record that the call without a reply raised; for one operation at a time.

        Of several calls at once the error is that of one, so the outcome of all of them is unknown.
        """
        in_doubt = isinstance(error, OutcomeUnknown) or len(self.unanswered) > 1
        outcome: Outcome = "unknown" if in_doubt else "fail"
        for number in list(self.unanswered):
            self._end(number, outcome=outcome, error=str(error)[:200])


def _call_columns(operation: str, args: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, Columns]:
    """Return the name and the columns of a call in the history; no name if it does nothing."""
    op, columns = operation, {}
    match operation:
        case "ready_to_unack" | "pending_to_unack":
            op, columns = args[0] and "claim", {"lease": options["lease"], "ahead": options.get("ahead", 0)}
        case "send":
            columns = {**_send_columns(args[0]), "replace": bool(options.get("replace"))}
        case "cancel":
            columns = {"ids": args[0]}
        case "reschedule":
            columns = {"ids": [id for id, _ in args[0]], "dues": [_due_time(due) for _, due in args[0]]}
        case "redrive" | "dead_purge":
            columns = _dead_letter_columns(args[0])
        case "close" if (pause := options.get("pause")) is not None:
            op, columns = "break", {"name": args[0] or "", "lasts": pause}
        case "close":
            op, columns = args[0] and "close", {"name": args[0], "lasts": args[1]}
        case "ack" | "complete" | "nack" | "release" | "reject" | "extend":
            op = "start_report" if options.get("started") else "ack" if operation == "complete" else operation
            columns = {"lease": options.get("lease", 0), **_receipt_columns(args[0])}
    return op, columns


def _send_columns(messages: Messages) -> Columns:
    table = messages if isinstance(messages, OutgoingTable) else OutgoingTable(*zip(*messages, strict=True))
    return {
        "ids": list(table.ids),
        "dues": list(map(_due_time, table.dues)),
        "retries": list(table.retries),
        "payloads": list(map(_digest, table.payloads, table.attributes)),
    }


def _claim_columns(reply: ClaimReply) -> Columns:
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


def _receipt_columns(deliveries: Iterable[Any]) -> Columns:
    """Return the ids and tokens of deliveries."""
    return {"ids": [one.id for one in deliveries], "tokens": [one.token for one in deliveries]}


def _digest(payload: bytes, attributes: bytes) -> str:
    return digest(payload, Attributes.of(attributes).name)


def _dead_letter_columns(entries: Sequence[str]) -> Columns:
    """Return the ids and tokens of entries of the dead letter, each `id:token` or only an id."""
    parts = [entry.rpartition(":") for entry in entries]
    pairs = [(id, int(token)) if token.isdecimal() and id else (id + colon + token, 0) for id, colon, token in parts]
    return {"ids": [id for id, _ in pairs], "tokens": [token for _, token in pairs]}


def _due_time(due: str | int) -> int:
    if isinstance(due, int):
        raise TypeError("a recorded message must be sent for a time, not with a delay")
    return int(due.removeprefix("@"))
