"""A work queue on a Redis Cluster: its prefix holds a hash tag, or it is refused."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio.cluster
import redis.cluster

from delayq import ConfigurationError
from delayq.workqueue import AsyncWorkQueue, Item, WorkQueue


def test_work_queue_with_a_hash_tag_works_on_a_cluster(redis_cluster, prefix):
    jobs = WorkQueue(f"{{{prefix}}}")
    with redis.cluster.RedisCluster.from_url(redis_cluster.servers[0].url, decode_responses=True) as db:
        assert jobs.add_item(db, Item(b"\xff", id="a"))
        db.set(f"{{{prefix}}}:item:orphan", "x")
        item = jobs.lease(db, 0.01, timeout=1)
        assert item.data() == b"\xff"
        while db.exists(f"{{{prefix}}}:lease:a"):
            pass
        assert jobs.deep_clean(db) == 2
        assert jobs.complete(db, item)
        assert jobs.lease(db, 5).id() == "orphan"
        assert (jobs.complete(db, Item("", id="orphan")), jobs.counts(db)) == (True, (0, 0))
        with pytest.raises(ConfigurationError, match="needs a hash tag"):
            WorkQueue(prefix).queue_len(db)


@pytest.mark.long
def test_asyncio_work_queue_works_on_a_cluster(redis_cluster, prefix):
    async def work():
        jobs = AsyncWorkQueue(f"{{{prefix}}}")
        async with redis.asyncio.cluster.RedisCluster.from_url(redis_cluster.servers[0].url) as db:
            await jobs.add_unique_item(db, Item(b"\xff", id="a"))
            await db.set(f"{{{prefix}}}:item:orphan", "x")
            item = await jobs.lease(db, 60, timeout=1)
            assert await jobs.deep_clean(db) == 1
            assert await jobs.complete(db, item)
            assert (await jobs.lease(db, 5)).id() == "orphan"
            with pytest.raises(ConfigurationError, match="needs a hash tag"):
                await AsyncWorkQueue(prefix).queue_len(db)

    asyncio.run(work())
