"""The engines as the commands know them: a table with one entry each, and the base class of what they do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from delayq.broker.engine import DELAY, STREAMS, WORKQUEUE, EngineCapabilities
from delayq.broker.keys import check_id, check_stored_id

if TYPE_CHECKING:
    from delayq.cli.support.session import Session
    from delayq.options import QueueOptions
    from delayq.queue.inspecting.counts import Stats

GROUP = "workers"
"""The consumer group of a stream queue by default."""


class EngineInfo(NamedTuple):
    """An engine that `--engine` can name."""

    capabilities: EngineCapabilities
    queue: str
    """What its QUEUE is."""
    home: str

    @property
    def commands(self) -> type[EngineCommands]:
        """The class that does the work of the commands; loaded when it is first needed."""
        module, _, name = self.home.partition(":")
        return getattr(import_module(module), name)  # type: ignore[no-any-return]  # as the table says


ENGINES = {
    "delay": EngineInfo(DELAY, "its name", "delayq.cli.engines.engine_delay:DelayCommands"),
    "streams": EngineInfo(STREAMS, "the key of the stream", "delayq.cli.engines.engine_streams:StreamCommands"),
    "workqueue": EngineInfo(
        WORKQUEUE, "the prefix of the work queue", "delayq.cli.engines.engine_workqueue:WorkQueueCommands"
    ),
}


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
    """Does as `check_id` for a message that may exist, whoever sent it."""

    def __init__(self, session: Session, *, group: str | None = None, lease: timedelta | None = None) -> None:
        """Work over the connections of a session; group and lease are for engines with consumer groups."""
        self._session = session
        self._group = group or GROUP
        self._lease = lease

    @classmethod
    def page_class(cls) -> type:
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
        """Return an object with a `name`, `counts` and `dead`."""
        return self.open_to_read(name, reveal=reveal)

    def open_to_consume(self, name: str, options: QueueOptions) -> Any:
        """Return a queue that takes a callback, on a connection of its own."""
        raise NotImplementedError

    @abstractmethod
    def absence_note(self, queue: Any, id: str) -> str:
        """Return what "no such message" is to add: where it was searched, and how to learn what became of it."""
