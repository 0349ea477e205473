"""The work queue and its asyncio twin, with the names of the original: each method takes a client of redis-py first."""

from __future__ import annotations

import uuid
from typing import Any, TypeVar

from delayq.clock import Duration, milliseconds
from delayq.errors import ConfigurationError, shown
from delayq.twins import twin
from delayq.workqueue.calls import Run, Work, add, complete, counts, data, length, one
from delayq.workqueue.cleaning import Walk, clean
from delayq.workqueue.client import check, longest_wait, perform, perform_async, queue_in
from delayq.workqueue.inspecting import ItemInfo, ItemPage, ItemState, get, page
from delayq.workqueue.item import Item, id_bytes
from delayq.workqueue.keys import KeyPrefix, Keys
from delayq.workqueue.leasing import Seen, lease

T = TypeVar("T")

GRACE = 0.05
"""Seconds that a client of another language has between taking an item and leasing it, or an add's two commands."""


class _Queue:
    """What both faces say; only how it is sent differs."""

    def __init__(self, name: KeyPrefix | str) -> None:
        """Name the queue by its prefix, the same in all languages; the object is a session of its own."""
        if not isinstance(name, KeyPrefix | str):
            raise ConfigurationError(f"a work queue is named by a KeyPrefix, not {shown(name)}")
        self._keys = Keys(name if isinstance(name, KeyPrefix) else KeyPrefix(name))
        self._session = uuid.uuid4().hex
        self._seen, self._walk = Seen(), Walk()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._keys.prefix!r})"

    def add_item_to_pipeline(self, pipeline: Any, item: Item) -> None:
        """Have a pipeline add an item as `add_item` does; its answer in the pipeline's is 1, or 0."""
        queue_in(pipeline, self._add(item, known=False))

    def add_unique_item_to_pipeline(self, pipeline: Any, item: Item) -> None:
        """Have a pipeline add an item as `add_unique_item` does."""
        queue_in(pipeline, self._add(item, known=True))

    def _add(self, item: Item, *, known: bool) -> Run[bool]:
        return add(self._keys, _id(item), item.data(), known=known)

    def _complete(self, item: Item) -> Run[bool]:
        return complete(self._keys, _id(item))

    def _lease(self, db: Any, lease_secs: Duration, timeout: Duration, *, block: bool) -> Work[Item | None]:
        held = milliseconds(lease_secs, "lease_secs", least=1)
        seconds = milliseconds(timeout, "timeout") / 1000
        longest = longest_wait(db)
        return lease(self._keys, self._session, self._seen, held, block=block, timeout=seconds, longest=longest)

    def _clean(self, grace: Duration, *, deep: bool) -> Work[int]:
        return clean(self._keys, self._walk, deep=deep, grace=milliseconds(grace, "grace") / 1000)


class WorkQueue(_Queue):
    """A work queue of redis-work-queue's protocol, on a blocking client of redis-py.

    Safe to use from several threads. Errors of Redis are those of redis-py; wrong arguments are a `ConfigurationError`.
    """

    def add_item(self, db: Any, item: Item) -> bool:
        """Add an item, unless there is one of its id that is not completed; return whether it was added.

        Data and id are stored together, or not at all.
        """
        return self._perform(db, one(self._add(item, known=False)))

    def add_unique_item(self, db: Any, item: Item) -> None:
        """Add an item whose id is known to be new, as a random one is: the same without looking for another.

        If the id was not new, the data is replaced and the id listed twice; the second entry is dropped when its turn
        comes.
        """
        self._perform(db, one(self._add(item, known=True)))

    def lease(
        self,
        db: Any,
        lease_secs: Duration,
        block: bool = True,  # noqa: FBT001, FBT002 - the original's signature
        timeout: Duration = 0,
    ) -> Item | None:
        """Lease the next item for a duration, also of less than a second; None if there is none.

        With `block` it waits for one, up to `timeout`, or for ever if that is 0. An item is taken and leased by one
        script. Whoever does not complete it in time loses it: the next clean puts it back.
        """
        return self._perform(db, self._lease(db, lease_secs, timeout, block=block))

    def complete(self, db: Any, item: Item) -> bool:
        """Complete an item, which is then never leased again; true for exactly one of all who call it."""
        return self._perform(db, one(self._complete(item)))

    def get_item_data(self, db: Any, item_id: str) -> bytes | None:
        """Return the data of an item by its id, None if it is completed or never was."""
        return self._perform(db, one(data(self._keys, id_bytes(item_id))))

    def queue_len(self, db: Any) -> int:
        """Count the items that wait to be leased."""
        return self._perform(db, one(length(self._keys.queue)))

    def processing(self, db: Any) -> int:
        """Count the items that were leased and are not completed, those whose lease has run out included."""
        return self._perform(db, one(length(self._keys.processing)))

    def counts(self, db: Any) -> tuple[int, int]:
        """Return `queue_len` and `processing` as of one moment."""
        return self._perform(db, one(counts(self._keys)))

    def get(self, db: Any, item_id: str) -> ItemInfo | None:
        """Read an item by its id, where it is and who holds it; None if it is completed or never was. Touches nothing.

        It is searched for among a million ids of each list; beyond that it is taken for queued.
        """
        return self._perform(db, get(self._keys, item_id))

    def list(self, db: Any, state: ItemState | str, *, limit: int = 100, cursor: str | None = None) -> ItemPage:
        """Read a page of the items that are `queued`, or `processing`, the oldest first. Touches nothing.

        Give its cursor back for the next page. A page looks at `limit` ids (at most 1,000), and may hold fewer items.
        Pages are read one after another while others work: an item on the move may be seen twice or not at all.
        """
        return self._perform(db, page(self._keys, state, limit=limit, cursor=cursor))

    def light_clean(self, db: Any, *, grace: Duration = GRACE) -> int:
        """Put items whose lease has run out back into the queue; return how many. For every shortest lease, say.

        Looks at the items in processing, and, while the queue is not longer than 20,000, for adds that were cut off
        among the next 10,000 keys of the database. What it finds is looked at once more after `grace`, which clients of
        other languages have between taking an item and leasing it; where nothing is found there is no wait. Any
        number of cleaners may run at a time.
        """
        return self._perform(db, self._clean(grace, deep=False))

    def deep_clean(self, db: Any, *, grace: Duration = GRACE) -> int:
        """Do what a light clean does, and look through the whole database for items that are in neither list.

        Reads it in small steps (SCAN), beside which others work on.
        """
        return self._perform(db, self._clean(grace, deep=True))

    def _perform(self, db: Any, work: Work[T]) -> T:
        check(db, self._keys, awaited=False)
        return perform(db, work)


class AsyncWorkQueue(_Queue):
    """A work queue of redis-work-queue's protocol, on an asyncio client of redis-py.

    A task that is cancelled while it leases may leave an item leased, which comes back when that lease has run out.
    """

    @twin(of=WorkQueue.add_item)
    async def add_item(self, db: Any, item: Item) -> bool:
        return await self._perform(db, one(self._add(item, known=False)))

    @twin(of=WorkQueue.add_unique_item)
    async def add_unique_item(self, db: Any, item: Item) -> None:
        await self._perform(db, one(self._add(item, known=True)))

    @twin(of=WorkQueue.lease)
    async def lease(
        self,
        db: Any,
        lease_secs: Duration,
        block: bool = True,  # noqa: FBT001, FBT002 - the original's signature
        timeout: Duration = 0,  # noqa: ASYNC109 - the original's signature
    ) -> Item | None:
        return await self._perform(db, self._lease(db, lease_secs, timeout, block=block))

    @twin(of=WorkQueue.complete)
    async def complete(self, db: Any, item: Item) -> bool:
        return await self._perform(db, one(self._complete(item)))

    @twin(of=WorkQueue.get_item_data)
    async def get_item_data(self, db: Any, item_id: str) -> bytes | None:
        return await self._perform(db, one(data(self._keys, id_bytes(item_id))))

    @twin(of=WorkQueue.queue_len)
    async def queue_len(self, db: Any) -> int:
        return await self._perform(db, one(length(self._keys.queue)))

    @twin(of=WorkQueue.processing)
    async def processing(self, db: Any) -> int:
        return await self._perform(db, one(length(self._keys.processing)))

    @twin(of=WorkQueue.counts)
    async def counts(self, db: Any) -> tuple[int, int]:
        return await self._perform(db, one(counts(self._keys)))

    @twin(of=WorkQueue.get)
    async def get(self, db: Any, item_id: str) -> ItemInfo | None:
        return await self._perform(db, get(self._keys, item_id))

    @twin(of=WorkQueue.list)
    async def list(self, db: Any, state: ItemState | str, *, limit: int = 100, cursor: str | None = None) -> ItemPage:
        return await self._perform(db, page(self._keys, state, limit=limit, cursor=cursor))

    @twin(of=WorkQueue.light_clean)
    async def light_clean(self, db: Any, *, grace: Duration = GRACE) -> int:
        return await self._perform(db, self._clean(grace, deep=False))

    @twin(of=WorkQueue.deep_clean)
    async def deep_clean(self, db: Any, *, grace: Duration = GRACE) -> int:
        return await self._perform(db, self._clean(grace, deep=True))

    async def _perform(self, db: Any, work: Work[T]) -> T:
        check(db, self._keys, awaited=True)
        return await perform_async(db, work)


def _id(item: Item) -> bytes:
    if not isinstance(item, Item):
        raise ConfigurationError(f"expected an Item, not {shown(item)}")
    return id_bytes(item.id())
