"""The final scans of a stream and of a work queue: what is left, and that nothing out of order is overlooked."""

import pytest

from delayq.config import read_settings
from delayq.errors import DelayqError
from delayq.executor import open_executor
from delayq.streams import StreamQueue
from delayq.streams.keys import StreamKeys
from delayq.torture.streams import scan as streams_scan
from delayq.torture.workqueue import scan as workqueue_scan
from delayq.workqueue import Item, WorkQueue
from delayq.workqueue.keys import KeyPrefix, Keys

STREAM = StreamKeys.of("scanned")


@pytest.fixture
def stream(redis_url):
    """A stream with a message in most states."""
    with StreamQueue("scanned", url=redis_url, default_retries=1, codec="bytes") as stream:
        stream.send(b"wrong", id="dead")
        with stream.lease() as message:
            message.reject("no")
        stream.send(b"again", id="backoff")
        with stream.lease() as message:
            message.nack(delay=60)
        stream.send(b"held", id="held")
        stream.lease(20).__enter__()
        stream.send(b"next", id="ready")
        yield stream


@pytest.fixture
def scan_stream(stream):
    return lambda: streams_scan.scan(stream._executor, STREAM, stream.group, 30_000, own=True)


def test_all_that_a_stream_holds_is_told(scan_stream):
    final = scan_stream()
    assert {(id, state) for id, state, _ in final.living} == {
        ("backoff", "backoff"),
        ("held", "active"),
        ("ready", "ready"),
    }
    dues = {id: due - final.server for id, _, due in final.living}
    assert -20_000 < dues["ready"] <= 0
    assert 0 < dues["held"] <= 20_000 < dues["backoff"] <= 60_000
    assert final.dead == [("dead", 0, 1, 1, "no")]
    assert final.leftovers == []


def test_of_a_stream_that_never_was_nothing_is_left(redis_url):
    with StreamQueue("scanned", url=redis_url) as stream:
        final = streams_scan.scan(stream._executor, STREAM, "workers", 30_000, own=True)
    assert (final.living, final.dead, final.leftovers) == ([], [], [])


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("XACK", "scanned", "workers", "<held>"), "held is settled, and left in the stream as"),
        (("XDEL", "scanned", "<held>"), "<held> is delivered, and not in the stream"),
        (("XADD", "scanned", "*", "id", "held", "payload", "x", "unique", "1"), "held stands in the stream 2 times"),
        (("SREM", STREAM.ids, "held"), "held is not among the unique ids"),
        (("SADD", STREAM.ids, "nobody"), "nobody is among the unique ids and no message"),
        (("HSET", STREAM.errors, "1-1", "x"), "1-1 has an error and is no message"),
        (("HSET", STREAM.delays, "1-1", "1"), "1-1 has a delay and is no message"),
        (("XADD", STREAM.dead, "*", "id", "nobody"), "nobody is dead without a reason"),
        (("XGROUP", "CREATE", "scanned", "others", "0"), "unknown group others"),
        (("SET", STREAM.meta + "x", 1), f"unknown key {STREAM.meta}x"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_out_of_order_in_a_stream_is_overlooked(scan_stream, redis_client, command, told):
    (held,) = (entry.decode() for entry, row in redis_client.xrange("scanned") if row[b"id"] == b"held")
    redis_client.execute_command(*(str(word).replace("<held>", held) for word in command))
    assert [text for text in scan_stream().leftovers if text.startswith(told.replace("<held>", held))]


def test_a_stream_that_cannot_be_read_is_no_empty_one(scan_stream, redis_client):
    redis_client.delete(STREAM.ids)
    redis_client.set(STREAM.ids, "no set")
    with pytest.raises(DelayqError):
        scan_stream()


ITEMS = Keys(KeyPrefix("scanned"))


@pytest.fixture
def executor(redis_url):
    options = {"url": redis_url}
    executor = open_executor(options, read_settings(options))
    yield executor
    executor.close()


@pytest.fixture
def items(redis_client):
    """A work queue with an item that waits and one that is held."""
    queue = WorkQueue("scanned")
    queue.add_item(redis_client, Item(b"held", id="held"))
    queue.lease(redis_client, 20)
    queue.add_item(redis_client, Item(b"next", id="ready"))


@pytest.fixture
def scan_items(items, executor):
    return lambda own=True: workqueue_scan.scan(executor, ITEMS, 20, own=own)


def test_all_that_a_work_queue_holds_is_told(scan_items, redis_client):
    redis_client.set("precious", 1)
    final = scan_items(own=False)
    (held, *facts), ready = final.living
    assert ready == ("ready", "ready", 0)
    assert (held, facts[0]) == ("held", "active")
    assert 0 < facts[1] - final.server <= 20_000
    assert final.leftovers == []
    assert scan_items().leftovers == ["unknown key precious"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("LPUSH", ITEMS.queue, "held"), "held is listed 2 times"),
        (("LPUSH", ITEMS.queue, "nobody"), "nobody is listed and no item"),
        (("SET", ITEMS.item(b"lost"), "x"), "lost is an item in neither list"),
        (("SET", "scanned:more", "x"), "unknown key scanned:more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_out_of_order_in_a_work_queue_is_overlooked(scan_items, redis_client, command, told):
    redis_client.execute_command(*command)
    assert scan_items().leftovers == [told]


@pytest.mark.parametrize(("ms", "told"), [(150, []), (60_000, ["nobody is leased and no item"])])
def test_a_lease_of_no_item_that_runs_out_soon_is_waited_for(executor, redis_client, monkeypatch, ms, told):
    """A cleaner that died has left it."""
    monkeypatch.setattr(workqueue_scan, "ABANDONED", 0)
    redis_client.set(ITEMS.lease(b"nobody"), "a-cleaner", px=ms)
    assert workqueue_scan.scan(executor, ITEMS, 0, own=True).leftovers == told
