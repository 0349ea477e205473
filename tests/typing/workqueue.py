"""What the checker knows of a work queue's answers."""

from typing import assert_type

import redis
import redis.asyncio

from delayq.workqueue import AsyncWorkQueue, Item, KeyPrefix, WorkQueue


def blocking(db: redis.Redis) -> None:
    """Each answer has its type."""
    jobs = WorkQueue(KeyPrefix("jobs"))
    assert_type(jobs.add_item(db, Item("x")), bool)
    assert_type(jobs.lease(db, "1m", timeout=0.5), Item | None)
    assert_type(jobs.light_clean(db), int)
    assert_type(jobs.counts(db), tuple[int, int])
    jobs.complete(db, "an id")  # type: ignore[arg-type]


async def awaited(db: redis.asyncio.Redis) -> None:
    """The same, awaited."""
    jobs = AsyncWorkQueue("jobs")
    assert_type(await jobs.add_item(db, Item(b"x", id=7)), bool)
    item = await jobs.lease(db, 30, block=False)
    if item is not None:
        assert_type(item.data(), bytes)
        assert_type(await jobs.complete(db, item), bool)
    assert_type(await jobs.get_item_data(db, "7"), bytes | None)
