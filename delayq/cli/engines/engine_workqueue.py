"""What the commands do with work queues, over delayq's own connections and with its errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from delayq.broker.engine import WORKQUEUE
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.operation import single, together
from delayq.cli.support.engines import EngineCommands, StateCounts
from delayq.queue.inspecting.message_info import Page
from delayq.queue.sending.message_options import NewMessage
from delayq.queue.sending.producer import SendStatus, Sent
from delayq.values.codec import find_codec
from delayq.workqueue.calls import WorkQueueCalls
from delayq.workqueue.inspector import ItemInfo, get, page
from delayq.workqueue.item import Item, id_bytes
from delayq.workqueue.keys import KeyPrefix, WorkQueueKeys

if TYPE_CHECKING:
    from delayq.cli.support.session import Session

_COLUMNS = {
    None: ("id", "state", "payload"),
    "queued": ("id", "payload"),
    "processing": ("id", "lease ends", "holder", "payload"),
}


class WorkQueueCommands(EngineCommands):
    """Work queues, by their key prefixes."""

    capabilities = WORKQUEUE
    message = "item"
    columns = _COLUMNS
    check_id = check_stored_id = staticmethod(str)  # it may be any text

    check_queue = staticmethod(lambda name: KeyPrefix(name).prefix)

    @classmethod
    def page_class(cls) -> type:
        return ItemInfo

    def open_to_send(self, name: str, codec: str) -> Any:
        return _WorkQueue(self._session, name, codec)

    def open_to_read(self, name: str, *, reveal: bool = False) -> Any:  # noqa: ARG002 - nothing is redacted
        self._session.exists(RedisCommand(("PING",), bool))  # reads the server's time; an empty queue leaves no trace
        return _WorkQueue(self._session, name)

    def absence_note(self, queue: Any, id: str) -> str:  # noqa: ARG002 - all items are searched
        return ": it was never added, or is completed, which leaves no trace"

    def counting(self, name: str) -> Callable[[], StateCounts]:
        states = self.capabilities.states
        return lambda: StateCounts(dict(zip(states, _WorkQueue(self._session, name).counts(), strict=True)))


class _WorkQueue:
    """A work queue over the connections of a session."""

    def __init__(self, session: Session, name: str, codec: str = "bytes") -> None:
        """Open the queue of a prefix; `ConfigurationError` on a Cluster for a prefix without a hash tag."""
        from delayq.broker.transport.clients import Cluster

        self.name = name
        keys = WorkQueueKeys(KeyPrefix(name))
        if isinstance(session.executor.client, Cluster):
            keys.check_for_cluster()
        self._calls = WorkQueueCalls(keys)
        self._executor = session.executor
        self._encode = find_codec(codec, None).encode

    def send_many(self, messages: Sequence[NewMessage[Any]]) -> list[Sent]:
        items = [Item(self._encode(message.payload), id=message.id) for message in messages]
        adding = [self._calls.add(id_bytes(item.id()), item.data(), known=False) for item in items]
        replies = self._executor.perform(together(adding))
        # A random id is new: if it exists, the reply to our first try was lost, and the item is the one it added.
        return [
            Sent(item.id(), SendStatus.NEW if added or message.id is None else SendStatus.EXISTS)
            for message, item, added in zip(messages, items, replies, strict=True)
        ]

    def counts(self) -> tuple[int, int]:
        return self._executor.perform(single(self._calls.counts()))

    def list(self, state: str, *, limit: int, cursor: str | None = None) -> Page:
        found = self._executor.perform(page(self._calls, state, limit=limit, cursor=cursor))
        return Page(found.items, found.cursor)  # type: ignore[arg-type]  # shown by the columns of items

    def get(self, id: str) -> ItemInfo | None:
        return self._executor.perform(get(self._calls, id))
