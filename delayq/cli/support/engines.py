"""The engines as the commands know them: what is done with a queue of each, and a table with one entry each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from delayq.broker.engine import DELAY, STREAMS, WORKQUEUE, EngineCapabilities
from delayq.broker.keys import check_id, check_queue_name, check_stored_id
from delayq.broker.requests import RedisCommand
from delayq.cli.support.exit_codes import NotFoundError
from delayq.values.states import State

if TYPE_CHECKING:
    from delayq.cli.support.session import Session
    from delayq.options import QueueOptions
    from delayq.queue.inspecting.counts import Stats
    from delayq.streams import StreamQueue
    from delayq.workqueue.queue import ConnectedWorkQueue

GROUP = "workers"
"""The consumer group of a stream queue by default."""


class StateCounts(NamedTuple):
    """How many messages are in each state, with other facts and a note for the user."""

    counts: Mapping[str, int]
    facts: Mapping[str, Any] = MappingProxyType({})
    note: str = ""


class EngineCommands(ABC):
    """What the commands do with a queue of one engine; they ask only for features that it has."""

    capabilities: ClassVar[EngineCapabilities]
    message: ClassVar[str] = "message"
    """What the engine calls a message."""
    columns: ClassVar[Mapping[Any, tuple[str, ...]]]
    """The titles of the columns in a table of messages, by state; None for messages in any."""
    check_queue: ClassVar[staticmethod[[str], str]]
    """Returns a valid QUEUE; raises `ConfigurationError` for any other."""
    check_id: ClassVar[staticmethod[[str], str]] = staticmethod(check_id)
    """Returns a valid message id; raises `ConfigurationError` for any other."""
    check_stored_id: ClassVar[staticmethod[[str], str]] = staticmethod(check_stored_id)
    """Does as `check_id` for a message that may exist, also of another program."""

    def __init__(self, session: Session, *, group: str | None = None, lease: timedelta | None = None) -> None:
        """Work over the connections of a session; group and lease are for engines with consumer groups."""
        self._session = session
        self._group = group or GROUP
        self._lease = lease

    @staticmethod
    def page_class() -> type:
        """Return the class of what its pages contain."""
        from delayq.queue.inspecting.message_info import MessageInfo  # only commands that read messages need it

        return MessageInfo

    @abstractmethod
    def open_to_send(self, name: str, codec: str) -> Any:
        """Return an object with a `name` and `send_many`."""

    @abstractmethod
    def open_to_read(self, name: str, *, reveal: bool = False) -> Any:
        """Return an object with `list` and `get`; raise `NotFoundError` for an unknown queue.

        What the queue redacts is hidden, unless `reveal`; engines that redact nothing take no notice.
        """

    @abstractmethod
    def counting(self, name: str) -> Callable[[], Stats | StateCounts]:
        """Return a function that counts the messages in each state."""

    def open_dead(self, name: str, *, reveal: bool = False) -> Any:
        """Return an object with `list`, `counts` and `dead`."""
        return self.open_to_read(name, reveal=reveal)

    def open_to_consume(self, name: str, options: QueueOptions) -> Any:
        """Return a queue that takes a callback, on a connection of its own."""
        raise NotImplementedError

    @abstractmethod
    def absence_note(self, queue: Any, id: str) -> str:
        """Return what "no such message" is to add: where it was searched, and how to learn what became of it."""


class DelayCommands(EngineCommands):
    """Delay queues, by their names under the session's prefix."""

    capabilities = DELAY
    columns: ClassVar = {
        None: ("id", "state", "due", "payload"),
        State.PENDING: ("id", "due", "retries", "payload"),
        State.READY: ("id", "due", "attempts", "retries", "payload"),
        State.ACTIVE: ("id", "lease ends", "attempts", "consumer", "payload"),
        State.BACKOFF: ("id", "next try", "attempts", "retries", "error"),
        State.RETRY: ("id", "due", "attempts", "retries", "error"),
        State.THROTTLED: ("id", "due", "attempts", "retries", "payload"),
        State.GARBAGE: ("id", "due", "attempts", "error"),
        State.DEAD: ("id", "died", "attempts", "reason", "error"),
        State.COMPLETED: ("id", "completed", "attempts", "reason", "result"),
    }
    check_queue = staticmethod(check_queue_name)

    def open_to_send(self, name: str, codec: str) -> Any:
        return self._session.queue(name, codec=codec)

    def open_to_read(self, name: str, *, reveal: bool = False) -> Any:
        return self._session.existing_queue(name, reveal=reveal)

    def counting(self, name: str) -> Callable[[], Stats]:
        return self._session.existing_queue(name).stats

    def absence_note(self, queue: Any, id: str) -> str:
        gone = ": it was never sent, or is done, cancelled or expired; "
        if cold := queue.counts().cold:
            gone = f"{gone[:-2]}, or is one of {cold:,} in the cold tier (delayq cold {queue.name} --find {id}); "
        if any(queue.events()):
            return f"{gone}what became of it may be in delayq events {queue.name} --id {id}"
        means = f"--retention of a send, delayq events {queue.name} --on, or delayq worker --log-messages"
        return f"{gone}to learn what becomes of messages use {means}"

    def open_to_consume(self, name: str, options: QueueOptions) -> Any:
        from delayq.queue.delay_queue import DelayQueue

        merged: QueueOptions = {**options, "prefix": self._session.prefix}
        if len(self._session.partitions(name)) > 1:
            merged["partitions"] = "stored"
        return DelayQueue(name, **merged)


class StreamCommands(EngineCommands):
    """Stream queues, by the keys of their streams."""

    capabilities = STREAMS
    columns: ClassVar = {
        None: ("id", "state", "entry", "payload"),
        State.READY: ("id", "entry", "retries", "payload"),
        State.ACTIVE: ("id", "entry", "lease ends", "attempts", "consumer", "payload"),
        State.BACKOFF: ("id", "entry", "next try", "attempts", "retries", "error"),
        State.DEAD: ("id", "died", "attempts", "reason", "error"),
    }

    @staticmethod
    def check_queue(name: str) -> str:
        from delayq.streams.keys import check_stream

        return check_stream(name)

    def open_to_send(self, name: str, codec: str) -> Any:
        return self._open(name, codec=codec)

    def open_to_read(self, name: str, *, reveal: bool = False) -> Any:  # noqa: ARG002 - nothing is redacted
        options = {} if self._lease is None else {"lease": self._lease}
        queue = self._open_existing(name, group=self._group, **options)
        if note := _note_on_group(queue, queue.groups()):
            from delayq.cli.support.output import print_note

            print_note(note)
        return queue

    def open_dead(self, name: str, *, reveal: bool = False) -> Any:  # noqa: ARG002 - nothing is redacted
        return self._open_existing(name)

    def counting(self, name: str) -> Callable[[], StateCounts]:
        def count() -> StateCounts:
            queue = self._open_existing(name, group=self._group)
            groups, counts = queue.groups(), queue.counts()
            facts = {"group": queue.group, "group_exists": queue.group in groups}
            numbers = {state: getattr(counts, state) for state in self.capabilities.states}
            return StateCounts(numbers, facts, _note_on_group(queue, groups))

        return count

    def open_to_consume(self, name: str, options: QueueOptions) -> Any:
        from delayq.streams import StreamQueue

        return StreamQueue(name, group=self._group, **options)

    def absence_note(self, queue: Any, id: str) -> str:  # noqa: ARG002 - all ids are searched alike
        from delayq.streams.inspector import MAX_SEARCHED as limit  # noqa: N811

        counts = queue.counts()
        if max(counts.living, counts.dead) <= limit:
            return ": it was never sent, or is done; delayq worker --log-messages tells of each that is done"
        return f": searched only its first {limit:,} entries; give the entry instead"

    def _open(self, name: str, **options: Any) -> StreamQueue[Any]:
        from delayq.streams import StreamQueue

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


class WorkQueueCommands(EngineCommands):
    """Work queues, by their key prefixes."""

    capabilities = WORKQUEUE
    message = "item"
    columns: ClassVar = {
        None: ("id", "state", "payload"),
        "queued": ("id", "payload"),
        "processing": ("id", "lease ends", "consumer", "payload"),
    }
    check_id = check_stored_id = staticmethod(str)  # it may be any text

    @staticmethod
    def check_queue(name: str) -> str:
        from delayq.workqueue.keys import KeyPrefix

        return KeyPrefix(name).prefix

    @staticmethod
    def page_class() -> type:
        from delayq.workqueue.queue import ItemInfo

        return ItemInfo

    def open_to_send(self, name: str, codec: str) -> Any:
        return self._open(name, codec)

    def open_to_read(self, name: str, *, reveal: bool = False) -> Any:  # noqa: ARG002 - nothing is redacted
        self._session.exists(RedisCommand(("PING",), bool))  # reads the server's time; an empty queue leaves no trace
        return self._open(name)

    def absence_note(self, queue: Any, id: str) -> str:  # noqa: ARG002 - all items are searched
        return ": it was never added, or is completed, which leaves no trace"

    def counting(self, name: str) -> Callable[[], StateCounts]:
        states = self.capabilities.states
        return lambda: StateCounts(dict(zip(states, self._open(name).counts(), strict=True)))

    def _open(self, name: str, codec: str = "bytes") -> ConnectedWorkQueue:
        from delayq.workqueue.queue import ConnectedWorkQueue

        return ConnectedWorkQueue(self._session.executor, name, codec)


class EngineInfo(NamedTuple):
    """An engine that `--engine` can name."""

    capabilities: EngineCapabilities
    queue: str
    """What its QUEUE is."""
    commands: type[EngineCommands]


ENGINES = {
    "delay": EngineInfo(DELAY, "its name", DelayCommands),
    "streams": EngineInfo(STREAMS, "the key of the stream", StreamCommands),
    "workqueue": EngineInfo(WORKQUEUE, "the prefix of the work queue", WorkQueueCommands),
}
