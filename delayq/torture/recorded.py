"""The calls of a queue, each written into the history before it is sent and when it is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as changed
from typing import Any, TypeVar

from delayq.answers import Claimed
from delayq.calls import Calls
from delayq.errors import DelayqError, OutcomeUnknown
from delayq.keys import Keys
from delayq.torture.history import Answer, Invoke, Outcome, Recorder, digest, now
from delayq.values import Call, Failure, Outgoing, OutgoingTable, Receipt, Rejection

T = TypeVar("T")


class Telling:
    """Calls that tell a recorder what is sent and what came back.

    An answer is written when it is read. A call that raised is for the caller to tell with `failed`, else it stays in
    doubt, which the checker allows for.
    """

    recorder: Recorder
    unanswered: set[int]
    """Numbers of the calls that have not been answered."""

    def tell(self, recorder: Recorder) -> None:
        """Tell this recorder from now on; calls are values, so it is put past what freezes them."""
        object.__setattr__(self, "recorder", recorder)
        object.__setattr__(self, "unanswered", set())

    def failed(self, error: DelayqError) -> None:
        """Tell that what has no answer yet raised; for a process that makes one operation at a time.

        Of several calls at once the error is that of one, so the others stay in doubt.
        """
        certain = len(self.unanswered) == 1 and not isinstance(error, OutcomeUnknown)
        for number in self.unanswered:
            outcome: Outcome = "fail" if certain else "unknown"
            self.recorder.write(Answer(at=now(), call=number, outcome=outcome, error=str(error)[:200]))
        self.unanswered.clear()

    def _settling(self, call: Call[str], op: Any, **columns: Any) -> Call[str]:
        return self._recorded(call, lambda number, digits: Answer(at=now(), call=number, digits=digits), op, **columns)

    def _recorded(self, call: Call[T], answer: Callable[[int, T], Answer], op: Any, **columns: Any) -> Call[T]:
        number, parse, write = self.recorder.next_call(), call.parse, self.recorder.write
        self.unanswered.add(number)
        write(Invoke(at=now(), call=number, op=op, **columns))

        def recorded(reply: Any) -> T:
            value = parse(reply)
            write(answer(number, value))
            self.unanswered.discard(number)
            return value

        return changed(call, parse=recorded)


class Settlements(Telling):
    """The calls that settle and extend deliveries, told; stands before the calls of a queue, whichever kind it is."""

    def ack(self, receipts: Iterable[Receipt], *, discarded: bool = False) -> Call[str]:
        """See `Calls.ack`."""
        held = list(receipts)
        return self._settling(super().ack(held, discarded=discarded), "ack", **columns_of(held))  # type: ignore[misc]

    def nack(self, failures: Iterable[Failure]) -> Call[str]:
        """See `Calls.nack`."""
        failed = list(failures)
        return self._settling(super().nack(failed), "nack", **columns_of(failed))  # type: ignore[misc]

    def release(self, receipts: Iterable[Receipt]) -> Call[str]:
        """See `Calls.release`."""
        held = list(receipts)
        return self._settling(super().release(held), "release", **columns_of(held))  # type: ignore[misc]

    def extend(self, receipts: Iterable[Receipt], *, lease: int) -> Call[str]:
        """See `Calls.extend`."""
        held = list(receipts)
        return self._settling(super().extend(held, lease=lease), "extend", lease=lease, **columns_of(held))  # type: ignore[misc]

    def reject(self, rejections: Iterable[Rejection]) -> Call[str]:
        """See `Calls.reject`."""
        rejected = list(rejections)
        return self._settling(super().reject(rejected), "reject", **columns_of(rejected))  # type: ignore[misc]


class RecordedCalls(Settlements, Calls):
    """The calls of a delay queue, told."""

    def __init__(self, keys: Keys, recorder: Recorder) -> None:
        """Record the calls of the queue of `keys`."""
        super().__init__(keys)
        self.tell(recorder)

    def send(
        self, messages: Sequence[Outgoing] | OutgoingTable, *, replace: bool, max_length: int | None, run: str = ""
    ) -> Call[str]:
        """See `Calls.send`; due times are to be given as times."""
        table = messages if isinstance(messages, OutgoingTable) else OutgoingTable(*zip(*messages, strict=True))
        call = super().send(table, replace=replace, max_length=max_length, run=run)
        return self._settling(
            call,
            "send",
            ids=list(table.ids),
            dues=list(map(_time, table.dues)),
            retries=list(table.retries),
            payloads=list(map(digest, table.payloads)),
            replace=replace,
        )

    def ready_to_unack(self, wanted: int, *, lease: int, holder: str) -> Call[Claimed]:
        """See `Calls.ready_to_unack`."""
        call = super().ready_to_unack(wanted, lease=lease, holder=holder)
        return self._recorded(call, claimed, "claim", lease=lease) if wanted else call

    def cancel(self, ids: Iterable[str]) -> Call[str]:
        """See `Calls.cancel`."""
        named = list(ids)
        return self._settling(super().cancel(named), "cancel", ids=named)

    def reschedule(self, times: Iterable[tuple[str, str | int]]) -> Call[str]:
        """See `Calls.reschedule`; times are to be given as times."""
        given = list(times)
        ids, dues = [id for id, _ in given], [_time(due) for _, due in given]
        return self._settling(super().reschedule(given), "reschedule", ids=ids, dues=dues)

    def redrive(self, entries: Iterable[str], *, retries: int | None) -> Call[str]:
        """See `Calls.redrive`."""
        named = list(entries)
        return self._settling(super().redrive(named, retries=retries), "redrive", **_entries(named))

    def dead_purge(self, entries: Iterable[str]) -> Call[str]:
        """See `Calls.dead_purge`."""
        named = list(entries)
        return self._settling(super().dead_purge(named), "dead_purge", **_entries(named))

    def purge(self) -> Call[int]:
        """See `Calls.purge`."""
        return self._recorded(super().purge(), lambda number, _: Answer(at=now(), call=number), "purge")


def claimed(number: int, found: Claimed) -> Answer:
    """Return what a claim was answered."""
    deliveries = found.deliveries
    return Answer(
        at=now(),
        call=number,
        now=found.now,
        deadline=found.deadline,
        ids=[one.id for one in deliveries],
        tokens=[one.token for one in deliveries],
        dues=[one.due for one in deliveries],
        attempts=[one.attempt for one in deliveries],
        payloads=[digest(one.payload) for one in deliveries],
    )


def columns_of(held: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the columns of a call about receipts, or what begins as one."""
    return {"ids": [one.id for one in held], "tokens": [one.token for one in held]}


def _entries(entries: Sequence[str]) -> dict[str, list[Any]]:
    """Return ids and tokens of entries of the dead letter, each `id:token` or an id alone."""
    parts = [entry.rpartition(":") for entry in entries]
    named = [(id, int(token)) if token.isdecimal() and id else (id + colon + token, 0) for id, colon, token in parts]
    return {"ids": [id for id, _ in named], "tokens": [token for _, token in named]}


def _time(due: str | int) -> int:
    if isinstance(due, int):
        raise TypeError("a history is of messages sent for a time, not after a delay")
    return int(due.removeprefix("@"))
