"""The work queue for threads and for asyncio, with the original's names: each method takes a redis-py client first."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from delayq._parity import awaited
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.clients import Cluster
from delayq.broker.transport.operation import Operation, single, together
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.inspecting.inspector import MAX_ROWS, PREVIEW
from delayq.queue.inspecting.message_info import Page
from delayq.queue.sending.message_options import NewMessage
from delayq.queue.sending.producer import SendStatus, Sent
from delayq.values.checks import check_int
from delayq.values.codec import find_codec
from delayq.values.times import Duration, from_millis, monotonic, to_millis
from delayq.workqueue.calls import ItemClaimReply, ItemView, WorkQueueCalls
from delayq.workqueue.cleaner import MAX_SEARCHED, ScanPosition, clean
from delayq.workqueue.client import add_to_pipeline, max_wait, perform, perform_async
from delayq.workqueue.item import Item, id_bytes
from delayq.workqueue.keys import KeyPrefix, WorkQueueKeys

if TYPE_CHECKING:
    from delayq.broker.transport.executor import Executor

_POSITION = re.compile(r"[0-9]{1,12}")


class ItemState(StrEnum):
    """Where an item is."""

    QUEUED = "queued"
    """It waits to be leased."""
    PROCESSING = "processing"
    """It was leased and is not completed. Without a consumer its lease has expired, and a clean requeues it."""
    ORPHANED = "orphaned"
    """It is in neither list, because an add was cut off. A clean that finds it requeues it."""


@dataclass(frozen=True, slots=True)
class ItemInfo:
    """An item of a work queue at one moment. Its `repr` leaves out the data, which may be private."""

    id: str
    state: ItemState
    data: bytes = field(repr=False)
    """All bytes; in a page, the first 4,096."""
    size: int
    """Bytes of the data as stored."""
    consumer: str | None
    """The session that has leased it."""
    deadline: datetime | None
    """When that lease expires."""


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Some items of a state, and the cursor of the next page (None on the last page)."""

    items: list[ItemInfo]
    cursor: str | None


def get(calls: WorkQueueCalls, id: str) -> Operation[ItemInfo | None]:
    """Read one item."""
    ((view,),) = yield [calls.view([id_bytes(id)], last=-1, max_searched=MAX_SEARCHED)]
    return _info(id, view, None)


def page(calls: WorkQueueCalls, state: ItemState | str, *, limit: int, cursor: str | None) -> Operation[ItemPage]:
    """Read one page of the items in a state, the oldest first."""
    calls.capabilities.check_state(state)
    check_int(limit, "limit", 1, MAX_ROWS)
    if cursor and not (isinstance(cursor, str) and _POSITION.fullmatch(cursor)):
        raise ConfigurationError(f"cursor must be one that list({str(state)!r}) returned, not {short_repr(cursor)}")
    state, first = ItemState(state), int(cursor or 0)
    key = calls.keys.queue if state is ItemState.QUEUED else calls.keys.processing
    (listed,) = yield [calls.ids(key, -first - limit, -first - 1)]  # both lists are added to at the left
    ids: list[bytes] = list(dict.fromkeys(reversed(listed)))
    (views,) = yield [calls.view(ids, last=PREVIEW - 1, max_searched=0)]
    infos = (_info(id.decode("utf-8", "surrogateescape"), view, state) for id, view in zip(ids, views, strict=True))
    return ItemPage([info for info in infos if info], str(first + limit) if len(listed) == limit else None)


def _info(id: str, view: ItemView | None, state: ItemState | None) -> ItemInfo | None:
    if view is None:
        return None
    ends = from_millis(view.now + view.remaining) if view.consumer and view.remaining >= 0 else None
    return ItemInfo(id, state or ItemState(view.location), view.data, view.size, view.consumer or None, ends)


MIN_PEEK = 8
MAX_PEEK = 256
"""Ids that a claim passes. Doubled each time that another client was faster, or that the ids were stale."""
MIN_WAIT = 0.002
"""Shortest wait of a blocking command, in seconds: Redis 6.2 treats a millisecond as 0, which means for ever."""


class LookAhead:
    """Ids that the last claim read but did not lease. If they are still queued, the next lease need not read."""

    ids: Sequence[bytes] = ()


def lease(
    calls: WorkQueueCalls,
    session: str,
    ahead: LookAhead,
    milliseconds: int,
    *,
    block: bool,
    timeout: float,
    longest: float,
) -> Operation[Item | None]:
    """Lease the next item; if there is none and `block`, wait `timeout` seconds (0: for ever), else return None.

    A single wait takes `longest` seconds at most.
    """
    deadline = monotonic() + timeout if timeout else float("inf")
    ids, peek = ahead.ids, MIN_PEEK
    while True:
        claimed: ItemClaimReply
        (claimed,) = yield [calls.claim(session, milliseconds, ids, peek)]
        if claimed.item is not None:
            ahead.ids = ids[: ids.index(id_bytes(claimed.item.id()))]
            return claimed.item
        ids = claimed.ids
        peek = min(2 * peek, MAX_PEEK)
        while not ids:
            remaining = deadline - monotonic()
            if not block or remaining <= 0:
                return None
            (waiting,) = yield [calls.await_item(max(MIN_WAIT, min(remaining, longest)))]
            ids, peek = [waiting] if waiting is not None else (), MIN_PEEK


T = TypeVar("T")

GRACE = 0.05
"""Seconds that a client of another language has between its two commands of a lease or an add."""


class _WorkQueueBase:
    """What both work queues share: the operations, not how they run."""

    def __init__(self, name: KeyPrefix | str) -> None:
        """Name the queue by its prefix, the same in all languages; each object is a session of its own."""
        if not isinstance(name, KeyPrefix | str):
            raise ConfigurationError(f"name of a work queue must be a KeyPrefix, not {short_repr(name)}")
        self._keys = WorkQueueKeys(name if isinstance(name, KeyPrefix) else KeyPrefix(name))
        self._calls = WorkQueueCalls(self._keys)
        self._session = uuid.uuid4().hex
        self._look_ahead, self._scan_position = LookAhead(), ScanPosition()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._keys.prefix!r})"

    def add_item_to_pipeline(self, pipeline: Any, item: Item) -> None:
        """Add an item in a pipeline, as `add_item` does; its reply in the pipeline's is 1 if added, else 0."""
        add_to_pipeline(pipeline, self._add(item, known=False))

    def add_unique_item_to_pipeline(self, pipeline: Any, item: Item) -> None:
        """Add an item in a pipeline, as `add_unique_item` does."""
        add_to_pipeline(pipeline, self._add(item, known=True))

    def _add(self, item: Item, *, known: bool) -> ScriptCall[bool]:
        return self._calls.add(_id(item), item.data(), known=known)

    def _add_known(self, item: Item) -> Operation[None]:
        yield [self._add(item, known=True)]

    def _lease(self, db: Any, lease_secs: Duration, timeout: Duration, *, block: bool) -> Operation[Item | None]:
        milliseconds = to_millis(lease_secs, "lease_secs", min=1)
        seconds = to_millis(timeout, "timeout") / 1000
        session, ahead, longest = self._session, self._look_ahead, max_wait(db)
        return lease(self._calls, session, ahead, milliseconds, block=block, timeout=seconds, longest=longest)

    def _clean(self, grace: Duration, *, deep: bool) -> Operation[int]:
        return clean(self._calls, self._scan_position, deep=deep, grace=to_millis(grace, "grace") / 1000)


class WorkQueue(_WorkQueueBase):
    """A work queue of redis-work-queue's protocol, on a blocking redis-py client.

    Safe to use from several threads. Redis errors are redis-py's own; wrong arguments raise `ConfigurationError`.
    """

    def add_item(self, db: Any, item: Item) -> bool:
        """Add an item unless an item with its id is not completed yet; return whether it was added.

        Data and id are stored together or not at all.
        """
        return self._perform(db, single(self._add(item, known=False)))

    def add_unique_item(self, db: Any, item: Item) -> None:
        """Add an item whose id is known to be new, such as a random one, without checking for another.

        If the id was not new, the data is replaced and the id is listed twice. The second entry is dropped when its
        turn comes.
        """
        return self._perform(db, self._add_known(item))

    def lease(
        self,
        db: Any,
        lease_secs: Duration,
        block: bool = True,  # noqa: FBT001, FBT002 - the original's signature
        timeout: Duration = 0,
    ) -> Item | None:
        """Lease the next item for a duration, which may be less than a second; None if there is none.

        With `block`, wait for an item up to `timeout`, or for ever if that is 0. One script takes and leases the item.
        If it is not completed before the lease expires, the next clean requeues it.
        """
        return self._perform(db, self._lease(db, lease_secs, timeout, block=block))

    def complete(self, db: Any, item: Item) -> bool:
        """Complete an item, which is then never leased again. Exactly one of all calls returns true."""
        return self._perform(db, single(self._calls.complete(_id(item))))

    def get_item_data(self, db: Any, item_id: str) -> bytes | None:
        """Return the data of an item by its id; None if it is completed or was never added."""
        return self._perform(db, single(self._calls.data(id_bytes(item_id))))

    def queue_len(self, db: Any) -> int:
        """Count the items that wait to be leased."""
        return self._perform(db, single(self._calls.length(self._keys.queue)))

    def processing(self, db: Any) -> int:
        """Count the items that were leased and are not completed, including those whose lease has expired."""
        return self._perform(db, single(self._calls.length(self._keys.processing)))

    def counts(self, db: Any) -> tuple[int, int]:
        """Return `queue_len` and `processing`, both at one moment."""
        return self._perform(db, single(self._calls.counts()))

    def get(self, db: Any, item_id: str) -> ItemInfo | None:
        """Read an item by its id, with its state and consumer; None if it is completed or was never added. Read-only.

        It is searched for among the first million ids of each list; beyond that it is reported as queued.
        """
        return self._perform(db, get(self._calls, item_id))

    def list(self, db: Any, state: ItemState | str, *, limit: int = 100, cursor: str | None = None) -> ItemPage:
        """Read a page of the `queued` or the `processing` items, the oldest first. Read-only.

        Pass its cursor to read the next page. A page reads `limit` ids (at most 1,000) and may contain fewer items.
        The queue may change between two pages: an item that moves may appear twice or not at all.
        """
        return self._perform(db, page(self._calls, state, limit=limit, cursor=cursor))

    def light_clean(self, db: Any, *, grace: Duration = GRACE) -> int:
        """Requeue items whose lease has expired; return how many. Call it about once per lease time.

        Checks the items in processing. While the queue has at most 20,000 items, it also looks for adds that were cut
        off among the next 10,000 keys of the database. It checks what it finds again after `grace`, the time that
        clients of other languages have between taking an item and leasing it. If it finds nothing, it does not wait.
        Any number of cleaners may run at the same time.
        """
        return self._perform(db, self._clean(grace, deep=False))

    def deep_clean(self, db: Any, *, grace: Duration = GRACE) -> int:
        """Do a light clean, and search the whole database for items that are in neither list.

        The database is read in small steps (SCAN), so others are not blocked.
        """
        return self._perform(db, self._clean(grace, deep=True))

    def _perform(self, db: Any, operation: Operation[T]) -> T:
        return perform(db, self._keys, operation)


class AsyncWorkQueue(_WorkQueueBase):
    """A work queue of redis-work-queue's protocol, on an asyncio redis-py client.

    A task that is cancelled while it leases may leave an item leased; it comes back after that lease has expired.
    """

    add_item = awaited(WorkQueue.add_item)
    add_unique_item = awaited(WorkQueue.add_unique_item)
    lease = awaited(WorkQueue.lease)
    complete = awaited(WorkQueue.complete)
    get_item_data = awaited(WorkQueue.get_item_data)
    queue_len = awaited(WorkQueue.queue_len)
    processing = awaited(WorkQueue.processing)
    counts = awaited(WorkQueue.counts)
    get = awaited(WorkQueue.get)
    list = awaited(WorkQueue.list)
    light_clean = awaited(WorkQueue.light_clean)
    deep_clean = awaited(WorkQueue.deep_clean)

    async def _perform(self, db: Any, operation: Operation[T]) -> T:
        return await perform_async(db, self._keys, operation)


class ConnectedWorkQueue:
    """A work queue over connections of delayq, which retry and raise its errors; methods as those of a `DelayQueue`."""

    def __init__(self, executor: Executor, name: str, codec: str = "bytes") -> None:
        """Open the queue of a prefix; `ConfigurationError` on a Cluster for a prefix without a hash tag."""
        self.name = name
        keys = WorkQueueKeys(KeyPrefix(name))
        if isinstance(executor.client, Cluster):
            keys.check_for_cluster()
        self._calls = WorkQueueCalls(keys)
        self._executor = executor
        self._encode = find_codec(codec, None).encode

    def send_many(self, messages: Sequence[NewMessage[Any]]) -> list[Sent]:
        """Add an item for each message."""
        items = [Item(self._encode(message.payload), id=message.id) for message in messages]
        adding = [self._calls.add(_id(item), item.data(), known=False) for item in items]
        replies = self._executor.perform(together(adding))
        # A random id is new: if it exists, the reply to our first try was lost, and the item is the one it added.
        return [
            Sent(item.id(), SendStatus.NEW if added or message.id is None else SendStatus.EXISTS)
            for message, item, added in zip(messages, items, replies, strict=True)
        ]

    def counts(self) -> tuple[int, int]:
        """Count the items in each state."""
        return self._executor.perform(single(self._calls.counts()))

    def list(self, state: str, *, limit: int, cursor: str | None = None) -> Page:
        """Read a page of the items in a state."""
        found = self._executor.perform(page(self._calls, state, limit=limit, cursor=cursor))
        return Page(found.items, found.cursor)  # type: ignore[arg-type]

    def get(self, id: str) -> ItemInfo | None:
        """Read an item; None if there is none."""
        return self._executor.perform(get(self._calls, id))


def _id(item: Item) -> bytes:
    if not isinstance(item, Item):
        raise ConfigurationError(f"item must be an Item, not {short_repr(item)}")
    return id_bytes(item.id())
