"""What the commands do with stream queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from delayq.broker.engine import STREAMS
from delayq.broker.requests import RedisCommand
from delayq.cli.messages.list import ALL_PAGES, pages_from
from delayq.cli.support.engines import EngineCommands, StateCounts
from delayq.cli.support.exit_codes import NotFoundError
from delayq.cli.support.output import print_note
from delayq.errors import ConfigurationError
from delayq.options import QueueOptions
from delayq.queue.dead_letter import DeadFilter, Redriven
from delayq.queue.inspecting.message_info import Page
from delayq.streams import StreamQueue, inspector
from delayq.streams.keys import check_stream
from delayq.values.states import State

_COLUMNS = {
    None: ("id", "state", "entry", "payload"),
    State.READY: ("id", "entry", "retries", "payload"),
    State.ACTIVE: ("id", "entry", "lease ends", "attempts", "holder", "payload"),
    State.BACKOFF: ("id", "entry", "next try", "attempts", "retries", "error"),
    State.DEAD: ("id", "died", "attempts", "reason", "error"),
}


class StreamCommands(EngineCommands):
    """Stream queues, by the keys of their streams."""

    capabilities = STREAMS
    columns = _COLUMNS
    check_queue = staticmethod(check_stream)

    def open_to_send(self, name: str, codec: str) -> Any:
        return self._open(name, codec=codec)

    def open_to_read(self, name: str, *, reveal: bool = False) -> Any:  # noqa: ARG002 - nothing is redacted
        options = {} if self._lease is None else {"lease": self._lease}
        queue = self._open_existing(name, group=self._group, **options)
        if note := _note_on_group(queue, queue.groups()):
            print_note(note)
        return queue

    def counting(self, name: str) -> Callable[[], StateCounts]:
        def count() -> StateCounts:
            queue = self._open_existing(name, group=self._group)
            groups, counts = queue.groups(), queue.counts()
            facts = {"group": queue.group, "group_exists": queue.group in groups}
            numbers = {state: getattr(counts, state) for state in self.capabilities.states}
            return StateCounts(numbers, facts, _note_on_group(queue, groups))

        return count

    def open_dead(self, name: str, *, reveal: bool = False) -> Any:  # noqa: ARG002 - nothing is redacted
        return _DeadLetterById(self._open_existing(name))

    def open_to_consume(self, name: str, options: QueueOptions) -> Any:
        return StreamQueue(name, group=self._group, **options)

    def absence_note(self, queue: Any, id: str) -> str:  # noqa: ARG002 - all ids are searched alike
        counts, limit = queue.counts(), inspector.MAX_SEARCHED
        if max(counts.living, counts.dead) <= limit:
            return ": it was never sent, or is done; delayq worker --log-messages tells of each that is done"
        return f": searched only its first {limit:,} entries; give the entry instead"

    def _open(self, name: str, **options: Any) -> StreamQueue[Any]:
        merged: Any = {**self._session.shared_options, **options}
        merged.pop("prefix")  # the user names the key of a stream
        return StreamQueue(name, **merged)

    def _open_existing(self, name: str, **options: Any) -> StreamQueue[Any]:
        """Return the queue on a stream that exists, with payloads as bytes; raise `NotFoundError` for any other."""
        if not self._session.exists(RedisCommand(("EXISTS", name), bool)):
            raise NotFoundError("stream", name, [])
        return self._open(name, codec="bytes", **options)


def _note_on_group(queue: StreamQueue[Any], groups: Sequence[str]) -> str:
    if queue.group in groups:
        return ""
    others = f" (it has {', '.join(groups[:10])})" if groups else ""
    return f"{queue.name} has no group {queue.group!r} yet{others}: it begins with the first message of the stream"


class _DeadLetterById:
    """The dead letter of a stream, as `delayq dead` uses that of a delay queue: by id, reason or error, too."""

    def __init__(self, queue: StreamQueue[Any]) -> None:
        self.name = queue.name
        self.counts = queue.counts
        self.dead = self
        self._queue = queue

    def list(self, *, limit: int, cursor: str | None = None) -> Page:
        return self._queue.list(State.DEAD, limit=limit, cursor=cursor)

    def redrive(
        self,
        *,
        retries: int | None = None,
        all: bool = False,
        rate: str | None = None,
        payloads: Mapping[str, Any] | None = None,
        **which: str | None,
    ) -> Redriven:
        if payloads is not None:
            raise ConfigurationError("a dead message of a stream keeps its payload: redrive it, or send another")
        if rate is not None:
            raise ConfigurationError("a stream has no due times: a redrive has no rate")
        if all:
            return self._queue.dead.redrive(all=True, retries=retries)
        done = [self._queue.dead.redrive(entry, retries=retries) for entry in self._matching(**which)]
        return Redriven(sum(one.redriven for one in done), sum(one.exists for one in done))

    def purge(self, *, all: bool = False, **which: str | None) -> int:
        if all:
            return self._queue.dead.purge(all=True)
        return sum(self._queue.dead.purge(entry) for entry in self._matching(**which))

    def _matching(
        self,
        id: str | None = None,
        reason: str | None = None,
        error: str | None = None,
        group: str | None = None,
    ) -> Sequence[str]:
        """Return the entry of the last death of an id, or the entries that match."""
        wanted = DeadFilter(reason, error, group)
        pages = pages_from(self.list, ALL_PAGES)
        found = [message for page in pages for message in page.messages if wanted.matches(message)]
        if id is not None:
            found = [message for message in found if id in (message.entry, message.id)][-1:]
        return [str(message.entry) for message in found]
