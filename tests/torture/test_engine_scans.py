"""The final scans of a stream and of a work queue report remaining messages and every inconsistency."""

import pytest

from delayq.broker.transport.executor import open_executor
from delayq.errors import DelayqError
from delayq.options import read_settings
from delayq.streams import StreamQueue
from delayq.streams.keys import StreamKeys
from delayq.testing.torture.streams import stream_scan as streams_scan
from delayq.testing.torture.workqueue import workqueue_scan
from delayq.workqueue import Item, WorkQueue
from delayq.workqueue.keys import KeyPrefix, WorkQueueKeys

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


def test_scan_reports_all_messages_of_a_stream(scan_stream):
    final = scan_stream()
    assert {(id, state) for id, state, _ in final.living} == {
        ("backoff", "backoff"),
        ("held", "active"),
        ("ready", "ready"),
    }
    dues = {id: due - final.server for id, _, due in final.living}
    assert -20_000 < dues["ready"] <= 0
    # The scan reads the server's time first, and all times are rounded to milliseconds.
    assert 0 < dues["held"] <= 20_500 < dues["backoff"] <= 60_500
    assert final.dead == [("dead", 0, 1, 1, "no")]
    assert final.leftovers == []


def test_scan_of_a_missing_stream_is_empty(redis_url):
    with StreamQueue("scanned", url=redis_url) as stream:
        final = streams_scan.scan(stream._executor, STREAM, "workers", 30_000, own=True)
    assert (final.living, final.dead, final.leftovers) == ([], [], [])


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("XACK", "scanned", "workers", "<held>"), "held is settled, but still in the stream as"),
        (("XDEL", "scanned", "<held>"), "<held> is delivered, but not in the stream"),
        (("XADD", "scanned", "*", "id", "held", "payload", "x", "unique", "1"), "held is in the stream 2 times"),
        (("SREM", STREAM.ids, "held"), "held is not among the unique ids"),
        (("SADD", STREAM.ids, "ghost"), "ghost is among the unique ids, but not a message"),
        (("HSET", STREAM.errors, "1-1", "x"), "1-1 has an error, but is not a message"),
        (("HSET", STREAM.delays, "1-1", "1"), "1-1 has a delay, but is not a message"),
        (("XADD", STREAM.dead, "*", "id", "ghost"), "ghost is dead without a reason"),
        (("XGROUP", "CREATE", "scanned", "others", "0"), "unknown group others"),
        (("SET", STREAM.meta + "x", 1), f"unknown key {STREAM.meta}x"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_inconsistency_of_a_stream_is_reported(scan_stream, redis_client, command, text):
    (held,) = (entry.decode() for entry, row in redis_client.xrange("scanned") if row[b"id"] == b"held")
    redis_client.execute_command(*(str(word).replace("<held>", held) for word in command))
    assert [found for found in scan_stream().leftovers if found.startswith(text.replace("<held>", held))]


def test_scan_of_an_unreadable_stream_is_an_error(scan_stream, redis_client):
    redis_client.delete(STREAM.ids)
    redis_client.set(STREAM.ids, "no set")
    with pytest.raises(DelayqError):
        scan_stream()


ITEMS = WorkQueueKeys(KeyPrefix("scanned"))


@pytest.fixture
def executor(redis_url):
    options = {"url": redis_url}
    executor = open_executor(options, read_settings(options))
    yield executor
    executor.close()


@pytest.fixture
def items(redis_client):
    """A work queue with a queued and a leased item."""
    queue = WorkQueue("scanned")
    queue.add_item(redis_client, Item(b"held", id="held"))
    queue.lease(redis_client, 20)
    queue.add_item(redis_client, Item(b"next", id="ready"))


@pytest.fixture
def scan_items(items, executor):
    return lambda own=True: workqueue_scan.scan(executor, ITEMS, 20, own=own)


def test_scan_reports_all_items_of_a_work_queue(scan_items, redis_client):
    redis_client.set("precious", 1)
    final = scan_items(own=False)
    (held, *facts), ready = final.living
    assert ready == ("ready", "ready", 0)
    assert (held, facts[0]) == ("held", "active")
    assert 0 < facts[1] - final.server <= 20_000
    assert final.leftovers == []
    assert scan_items().leftovers == ["unknown key precious"]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("LPUSH", ITEMS.queue, "held"), "held is listed 2 times"),
        (("LPUSH", ITEMS.queue, "ghost"), "ghost is listed, but not an item"),
        (("SET", ITEMS.item(b"lost"), "x"), "lost is an item in neither list"),
        (("SET", "scanned:more", "x"), "unknown key scanned:more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_inconsistency_of_a_work_queue_is_reported(scan_items, redis_client, command, text):
    redis_client.execute_command(*command)
    assert scan_items().leftovers == [text]


@pytest.mark.parametrize(("ms", "leftovers"), [(150, []), (60_000, ["ghost is leased, but not an item"])])
def test_scan_waits_for_a_lease_without_item_that_expires_soon(executor, redis_client, monkeypatch, ms, leftovers):
    """A cleaner that died left the lease."""
    monkeypatch.setattr(workqueue_scan, "ABANDONED_AFTER", 0)
    redis_client.set(ITEMS.lease(b"ghost"), "a-cleaner", px=ms)
    assert workqueue_scan.scan(executor, ITEMS, 0, own=True).leftovers == leftovers
