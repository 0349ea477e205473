"""What the commands do with delay queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from delayq.broker.engine import DELAY
from delayq.broker.keys import check_name
from delayq.cli.support.engines import EngineCommands
from delayq.options import QueueOptions
from delayq.queue.inspecting.counts import Stats
from delayq.values.states import State

_COLUMNS = {
    None: ("id", "state", "due", "payload"),
    State.PENDING: ("id", "due", "retries", "payload"),
    State.READY: ("id", "due", "attempts", "retries", "payload"),
    State.ACTIVE: ("id", "lease ends", "attempts", "holder", "payload"),
    State.BACKOFF: ("id", "next try", "attempts", "retries", "error"),
    State.RETRY: ("id", "due", "attempts", "retries", "error"),
    State.THROTTLED: ("id", "due", "attempts", "retries", "payload"),
    State.GARBAGE: ("id", "due", "attempts", "error"),
    State.DEAD: ("id", "died", "attempts", "reason", "error"),
    State.COMPLETED: ("id", "completed", "attempts", "reason", "result"),
}


class DelayCommands(EngineCommands):
    """Delay queues, by their names under the session's prefix."""

    capabilities = DELAY
    columns = _COLUMNS
    check_queue = staticmethod(check_name)

    def open_to_send(self, name: str, codec: str) -> Any:
        return self._session.queue(name, codec=codec)

    def open_to_read(self, name: str, *, reveal: bool = False) -> Any:
        return self._session.existing_queue(name, reveal=reveal)

    def counting(self, name: str) -> Callable[[], Stats]:
        return self._session.existing_queue(name).stats

    def absence_note(self, queue: Any, id: str) -> str:
        gone = ": it was never sent, or is done, cancelled or expired; "
        if any(queue.events()):
            return f"{gone}what became of it may be in delayq events {queue.name} --id {id}"
        means = f"--retention of a send, delayq events {queue.name} --on, or delayq worker --log-messages"
        return f"{gone}to learn what becomes of messages use {means}"

    def open_to_consume(self, name: str, options: QueueOptions) -> Any:
        from delayq.queue.delay_queue import DelayQueue

        merged: QueueOptions = {**options, "prefix": self._session.prefix}
        return DelayQueue(name, **merged)
