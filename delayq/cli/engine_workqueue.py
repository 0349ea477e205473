"""Work queues over the connections of the command line, whose errors are delayq's own, and how items are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from delayq.cli.output import Column
from delayq.cli.text import preview, when
from delayq.codec import find_codec
from delayq.errors import ConfigurationError
from delayq.inspector import Page
from delayq.operation import together
from delayq.producer import NewMessage, SendStatus, Sent
from delayq.workqueue.calls import Run, Work, add, counts, one
from delayq.workqueue.inspecting import ItemInfo, get, page
from delayq.workqueue.item import Item, id_bytes
from delayq.workqueue.keys import KeyPrefix, Keys

if TYPE_CHECKING:
    from delayq.cli.session import Session

T = TypeVar("T")

_COLUMNS: dict[Column, Callable[[ItemInfo, datetime], str]] = {
    Column("id"): lambda item, _: item.id,
    Column("lease ends"): lambda item, now: when(item.deadline, now) or "over",
    Column("holder"): lambda item, _: item.holder or "",
    Column("payload", flexible=True): lambda item, _: preview(item.data, item.size),
}


class WorkQueueOfSession:
    """A work queue as the commands know a queue: what can be sent to, counted and looked into."""

    def __init__(self, session: Session, name: str, codec: str = "bytes") -> None:
        """Open the queue of a prefix; on a Cluster `ConfigurationError` for one without a hash tag."""
        from delayq.clients import Cluster

        self.name = name
        self._keys = Keys(KeyPrefix(name))
        if isinstance(session.executor.client, Cluster) and not self._keys.tagged:
            raise ConfigurationError("on a Cluster the prefix of a work queue must hold a hash tag, such as {jobs}")
        self._executor = session.executor
        self._encode = find_codec(codec, None).encode

    def send_many(self, messages: Sequence[NewMessage[Any]]) -> list[Sent]:
        """Add items in one round trip; returns what became of each."""
        items = [Item(self._encode(message.payload), id=message.id) for message in messages]
        adding = [add(self._keys, id_bytes(item.id()), item.data(), known=False).call for item in items]
        answers = self._executor.perform(together(adding))
        # A random id is new: where it is not, an answer was lost, and the item is that of our first try.
        return [
            Sent(item.id(), SendStatus.NEW if added or message.id is None else SendStatus.EXISTS)
            for message, item, added in zip(messages, items, answers, strict=True)
        ]

    def counts(self) -> tuple[int, int]:
        """Count the items that are queued, and those in processing."""
        return self._perform(one(counts(self._keys)))

    def list(self, state: str, *, limit: int, cursor: str | None = None) -> Page:
        """Read a page of items."""
        found = self._perform(page(self._keys, state, limit=limit, cursor=cursor))
        return Page(found.items, found.cursor)  # type: ignore[arg-type]  # shown by the columns of items

    def get(self, id: str) -> ItemInfo | None:
        """Read one item."""
        return self._perform(get(self._keys, id))

    def _perform(self, work: Work[T]) -> T:
        answer: Any = None
        try:
            while True:
                step: Any = work.send(answer)
                answer = self._executor.call(step.call if isinstance(step, Run) else step)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what a Work[T] returns is a T


def columns(state: str) -> dict[Column, Callable[[ItemInfo, datetime], str]]:
    """Return what is shown of the items in a state, and how."""
    titles = ("id", "payload") if state == "queued" else ("id", "lease ends", "holder", "payload")
    return {column: cell for column, cell in _COLUMNS.items() if column.title in titles}
