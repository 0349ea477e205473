"""The calls of a stream queue, recorded: each before it is sent and when its reply is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from delayq.broker.replies.replies import ClaimReply
from delayq.broker.replies.send_replies import SendStatuses
from delayq.broker.requests import Messages, ScriptCall
from delayq.streams.calls import StreamCalls
from delayq.streams.replies import StreamPageReply, read_page
from delayq.testing.torture.history import Recorder, digest
from delayq.testing.torture.recorded_calls import RecordedSettlements, as_table, claim_columns
from delayq.values.states import State


class RecordedStreamCalls(RecordedSettlements, StreamCalls):
    """The calls of a stream queue, recorded.

    A blocking read is not: the claim that follows it delivers what it returns.
    """

    dead_ids: dict[str, str]
    """Ids of dead messages by entry: an entry is always listed before it is redriven."""

    def __init__(self, calls: StreamCalls, recorder: Recorder) -> None:
        super().__init__(calls.keys, calls.group, calls.settings, calls.consumer_id, calls.embedded)
        self.record_to(recorder)
        object.__setattr__(self, "dead_ids", {})

    def send(self, messages: Messages, *, max_length: int | None) -> ScriptCall[SendStatuses]:
        table = as_table(messages)
        call = super().send(table, max_length=max_length)
        payloads = list(map(digest, table.payloads))
        return self.with_statuses(call, "send", ids=list(table.ids), retries=list(table.retries), payloads=payloads)

    def ready_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> ScriptCall[ClaimReply]:
        call = super().ready_to_unack(wanted, lease=lease, consumer_id=consumer_id)
        # Nobody asked for the due times that the reply has.
        return self.recorded(call, lambda r: claim_columns(r) | {"dues": []}, "claim", lease=lease) if wanted else call

    def page(self, state: str, *, limit: int, after: str, preview: int) -> ScriptCall[StreamPageReply]:
        call = super().page(state, limit=limit, after=after, preview=preview)

        def noted(reply: Any) -> StreamPageReply:
            page = read_page(reply)
            if state == State.DEAD:
                self.dead_ids.update((row.entry, row.fields[b"id"].decode()) for row in page.rows)
            return page

        return replace(call, parse=noted)

    def redrive(self, entries: Iterable[str], *, retries: int | None) -> ScriptCall[str]:
        entries = list(entries)
        ids = [self.dead_ids[entry] for entry in entries]
        return self.with_statuses(super().redrive(entries, retries=retries), "redrive", ids=ids)
