"""The calls of a stream queue, each written into the history before it is sent and when it is answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace as changed
from typing import Any

from msgspec import structs

from delayq.answers import Claimed
from delayq.streams.calls import StreamCalls
from delayq.torture.history import Answer, Recorder, digest
from delayq.torture.recorded import Settlements, claimed
from delayq.values import Call, Command, Outgoing, OutgoingTable


class RecordedStreamCalls(Settlements, StreamCalls):
    """The calls of a stream queue, told.

    A blocking read is none of them: what it gets is delivered by the claim that follows.
    """

    named: dict[str, str]
    """Ids of dead messages by their entries, as far as those were read: what is redriven has been."""

    def __init__(self, calls: StreamCalls, recorder: Recorder) -> None:
        """Record what stands in the place of `calls`."""
        super().__init__(calls.keys, calls.group, calls.settings, calls.holder, calls.embedded)
        self.tell(recorder)
        object.__setattr__(self, "named", {})

    def send(
        self,
        messages: Sequence[Outgoing] | OutgoingTable,
        *,
        replace: bool = False,
        max_length: int | None,
        run: str = "",
    ) -> Call[str]:
        """See `StreamCalls.send`; of messages with ids of their own."""
        table = messages if isinstance(messages, OutgoingTable) else OutgoingTable(*zip(*messages, strict=True))
        call = super().send(table, replace=replace, max_length=max_length, run=run)
        payloads = list(map(digest, table.payloads))
        return self._settling(call, "send", ids=list(table.ids), retries=list(table.retries), payloads=payloads)

    def ready_to_unack(self, wanted: int, *, lease: int, holder: str) -> Call[Claimed]:
        """See `StreamCalls.ready_to_unack`."""
        call = super().ready_to_unack(wanted, lease=lease, holder=holder)
        return self._recorded(call, _at_once, "claim", lease=lease) if wanted else call

    def dead(self, first: str, last: str, *, limit: int) -> Command[list[tuple[str, dict[bytes, bytes]]]]:
        """See `StreamCalls.dead`."""
        command = super().dead(first, last, limit=limit)

        def noted(reply: Any) -> list[tuple[str, dict[bytes, bytes]]]:
            rows = command.parse(reply)
            self.named.update((entry, fields[b"id"].decode()) for entry, fields in rows)
            return rows

        return changed(command, parse=noted)

    def redrive(self, entries: Iterable[str], *, retries: int | None) -> Call[str]:
        """See `StreamCalls.redrive`."""
        listed = list(entries)
        ids = [self.named[entry] for entry in listed]
        return self._settling(super().redrive(listed, retries=retries), "redrive", ids=ids)


def _at_once(number: int, found: Claimed) -> Answer:
    """Return what a claim was answered, of messages for which nobody has asked for a time."""
    return structs.replace(claimed(number, found), dues=[])
