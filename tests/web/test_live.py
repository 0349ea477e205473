"""Figures that are sent to browsers: one reader for all, which ends with the last viewer."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing

import pytest

from delayq import DelayQueue
from delayq.web import live_figures
from delayq.web.live_figures import LiveFigures
from delayq.web.queue_source import QueueSource
from tests.support.visitor import text_of


@pytest.fixture
def source(queue, redis_url):
    queue.send_delay_msg(1, "1h")
    source = QueueSource({"url": redis_url, "deadline": 0.2})
    yield source
    source.close()


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(live_figures, "EVERY", 0.02)


def test_fifty_viewers_cost_redis_what_one_does(source, fast, redis_client):
    reads = []
    read, source._read = source._read, lambda: reads.append(1) or read()

    async def look(number):
        live = LiveFigures(source)
        async with AsyncExitStack() as stack:
            watching = [await stack.enter_async_context(aclosing(live.watch())) for _ in range(number)]
            for _ in range(3):
                found = await asyncio.gather(*(anext(one) for one in watching))
            for _ in range(5):
                live.snapshot()
            return found

    def cost(number):
        reads.clear()
        before = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]
        found = asyncio.run(look(number))
        assert len({id(one) for one in found}) == 1
        assert found[0].snapshot.queues["orders"].stats.counts.pending == 1
        calls = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] - before
        assert calls == 2 * len(reads)
        return len(reads)

    source.snapshot()
    assert cost(1) <= 5
    assert cost(50) <= 5


def test_reader_ends_with_the_last_viewer_and_starts_again(source, fast):
    async def scene():
        live = LiveFigures(source)
        for _ in range(2):
            async with aclosing(live.watch()) as watching:
                await anext(watching)
            await asyncio.wait_for(live._task, 10)

    asyncio.run(scene())


def test_parts_of_pages_are_made_once_for_equal_viewers(source):
    reading = live_figures.LiveReading(source.snapshot())
    made = []
    for _ in range(50):
        assert reading.part("all", lambda snapshot: made.append(1) or "<p>") == "<p>"
    assert len(made) == 1


def test_redis_that_does_not_answer_is_told_and_its_return_too(start_redis, fast):
    server = start_redis()
    source = QueueSource({"url": server.url, "deadline": 0.1})

    async def scene():
        async with aclosing(LiveFigures(source).watch()) as watching:
            assert (await anext(watching)).snapshot is not None
            server.kill()
            async for reading in watching:
                if reading.snapshot is None:
                    break
            server.start()
            async for reading in watching:
                if reading.snapshot is not None:
                    return

    asyncio.run(asyncio.wait_for(scene(), 30))
    source.close()


@pytest.mark.parametrize("query", [b"view=queues", b"queue=orders"])
def test_stream_sends_the_part_of_the_page(visit, queue, query):
    queue.send_delay_msg(1, "1h")
    visitor = visit()
    app = visitor.app

    async def scene():
        sent = asyncio.Queue()
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "path": "/live", "raw_path": b"/live",
            "root_path": "", "scheme": "http", "query_string": query, "headers": [(b"host", b"localhost")],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        gone = asyncio.Event()

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        serving = asyncio.create_task(app(scope, receive, sent.put))
        start, body = await sent.get(), await sent.get()
        gone.set()
        await serving
        return start, body["body"].decode()

    start, body = asyncio.run(asyncio.wait_for(scene(), 20))
    assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert body.startswith("event: figures\r\n")
    assert "orders" in body
    assert all(line.startswith(("event: ", "data: ", "retry: ")) for line in body.split("\r\n") if line)


def test_queue_of_others_has_no_stream(visit, queue):
    queue.send_delay_msg(1, "1h")
    assert visit(queues=["mails"]).get("/live?queue=orders").status_code == 404


def test_reader_goes_on_after_any_error(source, fast, caplog):
    read, failures = source._read, [RuntimeError("a defect")]
    source._read = lambda: read() if not failures else (_ for _ in ()).throw(failures.pop())

    async def scene():
        async with aclosing(LiveFigures(source).watch()) as watching:
            assert (await anext(watching)).snapshot is None
            assert (await anext(watching)).snapshot is not None

    asyncio.run(asyncio.wait_for(scene(), 30))
    assert "a defect" in caplog.text


def test_page_of_a_queue_and_its_stream_read_no_other_queue(visit, queue, redis_client, fast):
    with DelayQueue("mails", redis=redis_client) as mails:
        mails.send_delay_msg(1, "1h")
    queue.send_delay_msg(1, "1h")
    visitor = visit()
    read = []
    calls, source = QueueSource.calls, visitor.app.state.site.source
    source.calls = lambda name: read.append(name) or calls(source, name)
    assert "failed a second – Workers" in text_of(visitor.get("/queue?queue=orders"))  # no rates yet
    queue.send_delay_msg(1, "1h")
    assert ", 0, 0 Workers" in text_of(visitor.get("/queue?queue=orders"))

    async def watch():
        live = visitor.app.state.site.live
        async with aclosing(live.of("orders").watch()) as watching:
            found = [await anext(watching) for _ in range(3)]
            assert live.of("orders") is live.of("orders")
        live.of("other")
        assert len(live._watched) == 1
        return found

    assert {name for one in asyncio.run(watch()) for name in one.snapshot.queues} == {"orders"}
    assert {*read} == {"orders"}
    visitor.get("/")
    assert {*read} == {"orders", "mails"}
