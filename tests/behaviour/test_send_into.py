"""Sends within the caller's own transaction of Redis: both happen, or neither."""

from __future__ import annotations

import asyncio

import pytest
import redis
import redis.asyncio

from delayq import AsyncDelayQueue, ConfigurationError, DelayQueue, FindingKind, PayloadTooLargeError


@pytest.fixture
def queue(redis_url):
    with DelayQueue("reminders", url=redis_url) as queue:
        yield queue


def test_send_is_done_with_the_rest_of_the_transaction(queue, redis_client):
    with redis_client.pipeline() as pipeline:
        pipeline.set("mine", 1)
        ids = [queue.send_into(pipeline, n, delay=60, headers={"n": str(n)}, priority=n) for n in range(3)]
        assert queue.counts().living == 0
        replies = pipeline.execute()
    assert [reply[:1] for reply in replies[1:]] == [b"1"] * 3
    found = [queue.get(id) for id in ids]
    assert [(one.payload, one.headers, one.priority) for one in found] == [(n, {"n": str(n)}, n) for n in range(3)]
    assert redis_client.get("mine") == b"1"
    assert {one.kind for one in queue.examine().findings} <= {FindingKind.SERVER}


def test_transaction_that_is_not_executed_sends_nothing(queue, redis_client):
    with redis_client.pipeline() as pipeline:
        pipeline.watch("mine")
        with pytest.raises(ConfigurationError, match=r"call its multi\(\)"):
            queue.send_into(pipeline, 1)
        pipeline.multi()
        queue.send_into(pipeline, 1)
        redis_client.set("mine", 2)
        with pytest.raises(redis.WatchError):
            pipeline.execute()
    assert queue.counts().living == 0


def test_id_that_exists_is_answered_so_and_each_pipeline_counts(queue, redis_client):
    for expected in (b"1", b"0"):
        with redis_client.pipeline() as pipeline:
            assert queue.send_into(pipeline, 1, id="one") == "one"
            assert pipeline.execute()[0][:1] == expected
    first, second = redis_client.pipeline(), redis_client.pipeline()
    queue.send_into(first, 1, id="two")
    queue.send_into(second, 2, id="two", replace=True)
    queue.send_into(second, 3, id="three")
    assert [reply[:1] for reply in second.execute()] == [b"1", b"1"]
    assert first.execute()[0][:1] == b"0"
    assert queue.get("two").payload == 2
    slots = [name for name in redis_client.hkeys("delayq:{reminders}:meta") if name.startswith(b"pipeline")]
    assert slots == [b"pipeline.0"], "one field for all of them"


def test_scripts_need_not_be_known_to_the_server(queue, redis_client):
    queue.open()
    with redis_client.pipeline() as pipeline:
        queue.send_into(pipeline, 1)
        redis_client.script_flush()
        pipeline.execute()
    assert queue.counts().living == 1


def test_what_cannot_be_sent_leaves_the_pipeline_as_it_is(queue, redis_client, redis_url):
    small = DelayQueue("small", url=redis_url, max_payload=10)
    with redis_client.pipeline() as pipeline:
        with pytest.raises(PayloadTooLargeError):
            small.send_into(pipeline, "x" * 20)
        with pytest.raises(ConfigurationError, match="not both"):
            queue.send_into(pipeline, 1, delay=1, at=queue)
        with pytest.raises(ConfigurationError, match="no debounce"):
            queue.send_into(pipeline, 1, id="a", debounce=1)
        assert len(pipeline) == 0
    with pytest.raises(ConfigurationError, match="pipeline must be one"):
        queue.send_into(redis_client, 1)
    with pytest.raises(ConfigurationError, match="no transaction"):
        queue.send_into(redis_client.pipeline(transaction=False), 1)


def test_asyncio(redis_url):
    async def main():
        client = redis.asyncio.Redis.from_url(redis_url)
        async with AsyncDelayQueue("reminders", url=redis_url) as queue, client.pipeline() as pipeline:
            id = await queue.send_into(pipeline, 1)
            pipeline.set("mine", 1)
            await pipeline.execute()
            assert (await queue.get(id)).payload == 1
        await client.aclose()

    asyncio.run(main())


def test_embedded():
    with DelayQueue("reminders", url="memory://pipelined") as queue, queue.executor.client.pipeline() as pipeline:
        id = queue.send_into(pipeline, 1)
        pipeline.execute()
        assert queue.get(id).payload == 1
