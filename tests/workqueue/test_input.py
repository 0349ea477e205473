"""Items, prefixes, and errors for invalid arguments."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest
import redis
import redis.asyncio
from redis.crc import key_slot

from delayq import ConfigurationError, PayloadError, UndecodableError
from delayq.workqueue import AsyncWorkQueue, Item, KeyPrefix, WorkQueue
from delayq.workqueue.client import max_wait
from delayq.workqueue.keys import WorkQueueKeys

# Items


@pytest.mark.parametrize("data", [b"\xff[1]", bytearray(b"\xff[1]"), memoryview(b"\xff[1]")])
def test_an_item_is_a_dictionary_of_an_id_and_bytes(data):
    item = Item(data, id="a")
    assert (item.id(), item.data(), item) == ("a", b"\xff[1]", {"id": "a", "data": b"\xff[1]"})


def test_a_text_becomes_utf_8():
    assert Item("ä").data() == "ä".encode()


def test_an_item_without_an_id_gets_a_random_one():
    assert len({Item("x").id() for _ in range(100)}) == 100
    assert uuid.UUID(Item("x").id()).version == 4
    given = uuid.uuid4()
    assert (Item("x", id=7).id(), Item("x", id=given).id()) == ("7", str(given))


def test_an_item_holds_json():
    item = Item.from_json_data({"a": [1, 2]}, id="a")
    assert item.data() == b'{"a":[1,2]}'
    assert item.data_json() == {"a": [1, 2]}
    assert Item.from_json_data([1]).id() != Item.from_json_data([1]).id()


def test_an_item_is_read_from_json():
    assert Item.parse('{"id": "a", "data": "x"}') == Item("x", id="a")
    assert Item.from_dict({"data": b"x"}).data() == b"x"
    assert Item.parse(json.dumps({"data": "x"})).id()


@pytest.mark.table(
    ("make", "error", "message"),
    [
        (lambda: Item(5), PayloadError, "must be bytes or a str, not 5"),
        (lambda: Item(None), PayloadError, "must be bytes or a str, not None"),
        (lambda: Item("\ud800"), PayloadError, "UTF-8"),
        (lambda: Item("x", id=""), ConfigurationError, "must not be empty"),
        (lambda: Item("x", id=b"a"), ConfigurationError, "must be a str, an int or a UUID, not b'a'"),
        (lambda: Item("x", id=True), ConfigurationError, "not True"),
        (lambda: Item("x", id="\ud800"), ConfigurationError, "UTF-8"),
        (lambda: Item.from_json_data({1j}), PayloadError, "cannot be encoded as JSON"),
        (lambda: Item.from_json_data("x", id=""), ConfigurationError, "must not be empty"),
        (lambda: Item.parse("{"), UndecodableError, "must be a JSON object, not '{'"),
        (lambda: Item.parse(5), UndecodableError, "must be a JSON object, not 5"),
        (lambda: Item.parse("[]"), ConfigurationError, "a mapping with 'data', not []"),
        (lambda: Item.from_dict({"id": "a"}), ConfigurationError, "a mapping with 'data'"),
        (lambda: Item(b"\xff").data_json(), UndecodableError, "is not valid JSON"),
    ],
)
def test_an_invalid_item_raises(make, error, message):
    with pytest.raises(error) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# Prefixes


def test_a_prefix_makes_keys_and_prefixes():
    prefix = KeyPrefix("cv:")
    assert (prefix.of("7"), prefix.prefix) == ("cv:7", "cv:")
    assert KeyPrefix.concat(prefix, "x:") == KeyPrefix("cv:x:")
    assert repr(WorkQueue(prefix)) == "WorkQueue('cv:')"
    assert repr(AsyncWorkQueue("cv:")) == "AsyncWorkQueue('cv:')"


@pytest.mark.parametrize("prefix", ["{jobs}", "a{jobs}b", "}{jobs}", "{{jobs}", "jobs", "{}{jobs}", "{jobs", "a{}"])
def test_a_prefix_has_a_hash_tag_if_it_puts_all_keys_in_one_slot(prefix):
    keys = WorkQueueKeys(KeyPrefix(prefix))
    slots = {key_slot(key) for key in (keys.queue, keys.processing, keys.item(b"a"), keys.lease(b"a"), keys.item(b"b"))}
    assert keys.tagged is (len(slots) == 1)


# Queues


@pytest.mark.parametrize("module", [redis, redis.asyncio], ids=["blocking", "asyncio"])
@pytest.mark.parametrize("options", ["", "?socket_timeout=0.5", "?db=3"])
@pytest.mark.parametrize("server", ["redis://localhost", "rediss://localhost", "unix:///nowhere"])
def test_a_client_of_a_url_waits_within_its_socket_timeout(module, server, options):
    client = module.Redis.from_url(server + options)
    timeout = client.connection_pool.make_connection().socket_timeout
    assert timeout is None or max_wait(client) < timeout


@pytest.fixture
def client():
    """A client that cannot connect."""
    with redis.Redis(port=1, retry=None) as client:
        yield client


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda queue, db: KeyPrefix(5), "prefix must be a str, not 5"),
        (lambda queue, db: KeyPrefix("\ud800"), "prefix must be valid UTF-8 text"),
        (lambda queue, db: WorkQueue(5), "must be a KeyPrefix, not 5"),
        (lambda queue, db: queue.add_item(db, {"id": "a", "data": b""}), "must be an Item"),
        (lambda queue, db: queue.complete(db, "a"), "must be an Item, not 'a'"),
        (lambda queue, db: queue.get_item_data(db, 5), "item id must be a str, not 5"),
        (lambda queue, db: queue.lease(db, 0), "lease_secs must be between"),
        (lambda queue, db: queue.lease(db, -1), "lease_secs must be between"),
        (lambda queue, db: queue.lease(db, None), "lease_secs must be"),
        (lambda queue, db: queue.lease(db, 5, timeout=-1), "timeout must be between"),
        (lambda queue, db: queue.lease(db, 5, timeout="soon"), "timeout must look like"),
        (lambda queue, db: queue.light_clean(db, grace=-1), "grace must be between"),
        (lambda queue, db: queue.add_item(Item("x"), db), "must be an Item"),
        (lambda queue, db: queue.add_item(5, Item("x")), "db must be a client such as redis.Redis, not 5"),
        (lambda queue, db: queue.queue_len(redis.asyncio.Redis()), "db must be a client such as redis.Redis"),
        (lambda queue, db: queue.add_item(db.pipeline(), Item("x")), "db must be a client such as redis.Redis, not <"),
        (lambda queue, db: queue.add_item_to_pipeline(db, Item("x")), "pipeline must be one of a redis-py client"),
        (lambda queue, db: queue.add_unique_item_to_pipeline(5, Item("x")), "such as db.pipeline(), not 5"),
    ],
)
def test_an_invalid_argument_raises_a_configuration_error_of_one_line(client, use, message):
    with pytest.raises(ConfigurationError) as caught:
        use(WorkQueue("jobs"), client)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_blocking_client_is_refused_by_the_async_queue(client):
    with pytest.raises(ConfigurationError, match=r"db must be a client such as redis\.asyncio\.Redis"):
        asyncio.run(AsyncWorkQueue("jobs").queue_len(client))


def test_redis_errors_are_those_of_the_client(client):
    with pytest.raises(redis.ConnectionError):
        WorkQueue("jobs").queue_len(client)


def test_a_cancellation_that_the_client_swallows_still_ends_a_lease():
    """As `asyncio.wait_for` of Python 3.11 does with a cancellation that arrives when its work is done."""

    class Swallowing:
        async def execute_command(self, *args, **options):
            if args[0] != "BLMOVE":
                return [0]
            waiting.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                return None

    async def scene():
        leasing = asyncio.create_task(AsyncWorkQueue("jobs").lease(Swallowing(), 5))
        await waiting.wait()
        leasing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(leasing, 30)

    waiting = asyncio.Event()
    asyncio.run(scene())
