"""A queue of the Go library is migrated: every message once and unchanged."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing
from uuid import uuid4

import pytest
import redis

import delayq.migrate.migration
from delayq import ConfigurationError, DelayQueue
from delayq.broker.transport.executor import open_executor
from delayq.migrate import LeasedError, Migration, migrate
from delayq.migrate.go_queue import PAGE, GoQueue
from delayq.migrate.migration import Left, WhyLeft
from delayq.options import read_settings
from tests.migrate.conftest import LEASE, Go, Message, arrived, dump_all
from tests.support.deployments import RedisCluster
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

COUNTS = "retry:cnt"


def move(url: str, **options) -> Migration:
    return migrate("example", "example", url=url, **options)


# Whole queues


@pytest.mark.parametrize("base", ["dp:example", "{dp:example}"])
def test_every_message_is_moved_unchanged(redis_url, redis_client, queue, base):
    go = Go(redis_client, base)
    left = go.fill()
    made = move(redis_url)
    assert arrived(queue, go) == go.expected
    assert queue.counts().living == len(go.expected) == made.moved.total() == 8
    assert go.ids() == left
    assert made.reasons == {WhyLeft.NO_PAYLOAD: 2, WhyLeft.FAILED: 1}
    assert sorted(made.listed) == sorted(
        Left(place, id, WhyLeft.FAILED if place == "garbage" else WhyLeft.NO_PAYLOAD) for place, (id,) in left.items()
    )
    assert (made.complete, made.came) == (True, 0)
    assert made.found.total() == made.moved.total() + made.left.total()
    # Nothing else is left of the moved messages.
    payloads = {f"{base}:msg:{id}".encode() for id in left["garbage"]}
    places = {go.key(place).encode() for place in left}
    theirs = {key for key in redis_client.scan_iter() if key.startswith(base.encode())}
    assert theirs == payloads | places | {go.key(COUNTS).encode()}
    assert {id.decode() for id in redis_client.hkeys(go.key(COUNTS))} == {*left["pending"], *left["ready"]}


@pytest.mark.long
def test_moved_messages_keep_retries_and_due_times(redis_url, go, queue):
    go.fill()
    soon = go.pending(b"soon", delay=2, retries=1)
    for id, one in list(go.expected.items()):  # do not wait for messages due in an hour
        if one.payload == b"in an hour":
            go.worker.client.zadd(go.key("pending"), {id: go.now + 2})
    move(redis_url)
    delivered: Counter[str] = Counter()
    first: dict[str, float] = {}

    def failing(message):
        first.setdefault(message.id, time.time())
        delivered[message.id] += 1
        assert message.payload == go.expected[message.id].payload
        return False

    with DelayQueue("example", url=redis_url, codec="bytes", callback=failing, nack_delay=0) as consumer:
        wait_until(lambda: (consumer.run(burst=True), consumer.counts().living == 0)[1], every=0.01)
    assert delivered == {id: one.retries + 1 for id, one in go.expected.items()}
    assert first[soon] >= go.now + 2
    assert queue.counts().dead == len(go.expected)


def test_nothing_is_moved_twice(redis_url, redis_client, go, queue):
    left = go.fill()
    move(redis_url)
    held = dump_all(redis_client)
    again = move(redis_url)
    assert again.moved.total() == 0
    assert again.found.total() == again.left.total() == 3
    assert go.ids() == left
    changed = {key for key, value in dump_all(redis_client).items() if held.get(key) != value}
    assert changed == set()


@pytest.mark.parametrize("options", [{}, {"take_leased": True}, {"with_garbage": True}])
def test_dry_run_reports_the_same_and_changes_nothing(redis_url, redis_client, go, options):
    go.fill()
    held = dump_all(redis_client)
    dry = move(redis_url, dry_run=True, **options)
    assert dump_all(redis_client) == held
    made = move(redis_url, **options)
    assert (dry.found, dry.moved, dry.left, dry.complete) == (made.found, made.moved, made.left, made.complete)
    assert sorted(dry.listed) == sorted(made.listed)


def test_empty_queue(redis_url, redis_client):
    assert move(redis_url).found.total() == 0
    assert redis_client.keys() == []


# Prefixes and servers


@pytest.fixture(scope="module")
def cluster():
    with RedisCluster() as deployment:
        yield deployment


@pytest.mark.parametrize("payloads", ["dp", "mine"])
@pytest.mark.parametrize("tag", [False, True])
def test_custom_prefix_with_and_without_payloads(redis_url, redis_client, queue, payloads, tag):
    """`UseCustomPrefix` renames the structures; the payloads keep the default prefix."""

    def base(prefix: str) -> str:
        return f"{{{prefix}:example}}" if tag else f"{prefix}:example"

    go = Go(redis_client, base("mine"))
    go.worker.payloads = f"{base(payloads)}:msg:"
    left = go.fill()
    other = Go(redis_client, base("dp"))
    other.pending(b"of another queue")
    made = move(redis_url, from_prefix="mine")
    assert arrived(queue, go) == go.expected
    assert go.ids() == left
    assert made.complete
    assert len(other.ids()["pending"]) == 1
    kept = set(left["garbage"]) | set(other.expected)
    assert {key.rpartition(b":")[2].decode() for key in redis_client.keys("*:msg:*")} == kept


def test_messages_with_and_without_a_hash_tag_are_moved(redis_url, redis_client, queue):
    plain, tagged = Go(redis_client, "dp:example"), Go(redis_client, "{dp:example}")
    plain.pending(b"plain")
    tagged.ready(b"tagged")
    assert move(redis_url).moved == {"pending": 1, "ready": 1}
    assert arrived(queue, plain) | arrived(queue, tagged) == plain.expected | tagged.expected
    assert queue.counts().living == 2


def test_messages_are_moved_to_another_server(redis_url, go, start_redis):
    there = start_redis()
    left = go.fill()
    assert migrate("example", "other", url=there.url, from_url=redis_url, prefix="mine").complete
    assert go.ids() == left
    with DelayQueue("other", url=there.url, prefix="mine", codec="bytes") as queue:
        assert arrived(queue, go) == go.expected


@pytest.mark.parametrize("protocol", [2, 3])
def test_client_of_the_caller_is_used(redis_url, go, queue, protocol):
    go.fill()
    with redis.Redis.from_url(redis_url, protocol=protocol) as client:
        assert migrate("example", "example", redis=client).complete
    assert arrived(queue, go) == go.expected


@pytest.mark.long
@pytest.mark.parametrize("prefix", ["dp", "mine"])
def test_messages_are_moved_within_a_cluster(cluster, prefix):
    with redis.RedisCluster.from_url(cluster.url.replace("redis+cluster", "redis").partition(",")[0]) as client:
        go = Go(client, f"{{{prefix}:example}}")
        go.worker.payloads = "{dp:example}:msg:"  # in another slot than the structures if the prefix differs
        left = go.fill()
        made = migrate("example", prefix, url=cluster.url, from_prefix=prefix)
        assert made.complete
        assert go.ids() == left
        assert not any(client.exists(go.worker.payloads + id) for id in go.expected)
        with DelayQueue(prefix, url=cluster.url, codec="bytes") as queue:
            assert arrived(queue, go) == go.expected
            assert queue.counts().living == len(go.expected)


# Messages that are moved only on request, or never


def test_nothing_is_moved_while_go_workers_have_leases(redis_url, redis_client, go, queue):
    held = go.leased(b"in work", ago=0)
    go.ready(b"ready")
    go.pending(b"pending")
    before = dump_all(redis_client)
    dry = move(redis_url, dry_run=True)
    with pytest.raises(LeasedError, match="Go workers have leased 1 of the messages of example"):
        move(redis_url)
    assert dump_all(redis_client) == before
    assert Left("unack", held, WhyLeft.LEASED) in dry.listed
    assert not dry.complete
    go.worker.ack(held)
    assert move(redis_url).complete
    assert held not in arrived(queue, go)


def test_take_leased_moves_leased_messages_due_when_leases_end(redis_url, go, queue):
    held = go.leased(b"in work", ago=0, retries=4)
    assert move(redis_url, take_leased=True).moved == {"unack": 1}
    assert arrived(queue, go) == {held: Message(b"in work", 4, go.now + LEASE)}
    assert queue.counts().pending == 1
    assert go.ids() == {}


def test_with_garbage_failed_messages_are_delivered_once_more(redis_url, go, queue):
    id = go.failed(b"failed for good", retries=0)
    assert move(redis_url, with_garbage=True).moved == {"garbage": 1}
    assert go.ids() == {}
    with queue.lease() as message:
        assert (message.id, message.payload, message.retries_left) == (id, b"failed for good", 0)


def test_invalid_ids_and_times_are_left(redis_url, redis_client, go, queue):
    go.pending(b"good")
    go.ready(b"good")
    redis_client.set(go.worker.payloads + "white space", b"bad id")
    redis_client.zadd(go.key("pending"), {"white space": go.now, b"\xff": go.now, "later": 1e11, "never": "inf"})
    redis_client.lpush(go.key("ready"), "x" * 129, "")
    made = move(redis_url)
    assert arrived(queue, go) == go.expected
    assert made.reasons == {WhyLeft.BAD_ID: 4, WhyLeft.BAD_TIME: 2}
    assert Left("pending", "\\xff", WhyLeft.BAD_ID) in made.listed
    assert not made.complete
    assert redis_client.zcard(go.key("pending")) == 4
    assert redis_client.llen(go.key("ready")) == 2


@pytest.mark.parametrize(
    ("count", "retries"), [(None, 0), ("-1", 0), ("much", 0), ("5000000", 1_000_000), ("1000000", 1_000_000)]
)
def test_invalid_retries_are_corrected(redis_url, go, queue, *, count, retries):
    id = go.pending(b"m")
    go.client.hdel(go.key(COUNTS), id)
    if count is not None:
        go.client.hset(go.key(COUNTS), id, count)
    assert move(redis_url).complete
    assert queue.get(id).retries_left == retries


@pytest.mark.parametrize("score", [-62135596800, "-inf"])
def test_due_time_before_1970_is_past(redis_url, redis_client, go, queue, score):
    id = go.pending(b"zero time of Go")
    redis_client.zadd(go.key("pending"), {id: score})
    assert move(redis_url).complete
    assert queue.get(id).due.timestamp() == 0


def test_foreign_id_is_left(redis_url, redis_client, go, queue):
    """The first versions of the Go library numbered messages from 1 in each queue."""
    queue.send_delay_msg(b"another", 60, id="1")
    go.pending(b"m", id="1")
    go.ready(b"m", id="2")
    queue.send_delay_msg(b"m", 60, id="2")  # as after an interrupted run
    made = move(redis_url)
    assert made.listed == [Left("pending", "1", WhyLeft.FOREIGN_ID)]
    assert made.moved == {"ready": 1}
    assert go.ids() == {"pending": ["1"]}
    assert redis_client.get(go.worker.payloads + "1") == b"m"
    assert queue.get("1").payload == b"another"


def test_foreign_id_settled_meanwhile_is_left(redis_url, go, queue, monkeypatch):
    queue.send_delay_msg(b"another", id="1")
    go.pending(b"m", id="1")
    get = delayq.migrate.migration.MigrationTarget.get

    def late(self, id):
        with queue.lease() as message:
            assert message.payload == b"another"
        return get(self, id)

    monkeypatch.setattr(delayq.migrate.migration.MigrationTarget, "get", late)
    assert move(redis_url).listed == [Left("pending", "1", WhyLeft.FOREIGN_ID)]
    assert go.ids() == {"pending": ["1"]}


def test_settled_id_is_foreign_unless_it_is_a_uuid(redis_url, go, queue, uuid):
    with DelayQueue("example", url=redis_url, codec="bytes", dedupe_window="1h") as settling:
        settling.send_many([delayq.NewMessage(b"m", id=id) for id in ("1", uuid)])
        with settling.lease(n=2) as messages:
            assert len(messages) == 2
    go.pending(b"m", id="1")
    go.pending(b"m", id=uuid)
    assert move(redis_url).listed == [Left("pending", "1", WhyLeft.FOREIGN_ID)]
    assert go.ids() == {"pending": ["1"]}
    assert queue.counts().living == 0


def test_id_in_a_structure_twice_is_one_message(redis_url, redis_client, go, queue):
    id = go.ready(b"m")
    redis_client.lpush(go.key("ready"), id)
    assert move(redis_url).moved == {"ready": 2}
    assert go.ids() == {}
    assert queue.counts().living == 1


def test_payload_key_of_another_type_is_no_payload(redis_url, redis_client, go, queue):
    id = go.expire(go.pending(b"m"))
    redis_client.lpush(go.worker.payloads + id, "a list")
    go.pending(b"n")
    assert move(redis_url).listed == [Left("pending", id, WhyLeft.NO_PAYLOAD)]
    assert arrived(queue, go) == go.expected


def test_existing_dedupe_window_is_kept(redis_url, redis_client, go):
    with DelayQueue("example", url=redis_url, dedupe_window="7d", dedupe_max=5) as owner:
        owner.open()
    go.pending(b"m")
    move(redis_url)
    assert redis_client.hget("delayq:{example}:meta", "dedupe") == b"604800000 5"


def test_dedupe_window_can_be_off(redis_url, redis_client, go):
    go.pending(b"m")
    move(redis_url, dedupe_window=0)
    assert not redis_client.hexists("delayq:{example}:meta", "dedupe")


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"name": 7}, {"name": "\udcff"}, {"to": "white space"}, {"from_prefix": ""}]
)
def test_wrong_names_are_refused(redis_url, wrong):
    with pytest.raises(ConfigurationError):
        migrate(**{"name": "example", "to": "example", "url": redis_url, **wrong})


# Many messages


@pytest.mark.parametrize("place", ["pending", "ready", "retry"])
def test_many_messages_without_payloads_are_left(redis_url, redis_client, go, queue, place):
    ids = [str(uuid4()) for _ in range(2 * PAGE + 100)]
    missing = set(ids[100:200] + ids[300::3])
    redis_client.mset({go.worker.payloads + id: id for id in ids if id not in missing})
    if place == "pending":
        redis_client.zadd(go.key(place), {id: go.now + n for n, id in enumerate(ids)})
    else:
        redis_client.lpush(go.key(place), *ids)
    dry = move(redis_url, dry_run=True)
    made = move(redis_url)
    assert made.moved == dry.moved == {place: len(ids) - len(missing)}
    assert made.reasons == dry.reasons == {WhyLeft.NO_PAYLOAD: len(missing)}
    assert {one.id for one in made.listed} == missing
    assert go.ids() == {place: sorted(missing)}
    assert queue.counts().living == len(ids) - len(missing)
    if place == "pending":
        waiting = [*queue.list("ready", limit=1000).messages, *queue.list("pending", limit=5).messages]
        assert [one.id for one in waiting][:5] == ids[:5]


def test_list_of_left_messages_is_limited(redis_url, redis_client, go, monkeypatch):
    monkeypatch.setattr(delayq.migrate.migration, "MAX_LISTED", 3)
    redis_client.zadd(go.key("pending"), {str(uuid4()): go.now for _ in range(5)})
    redis_client.zadd(go.key("pending"), {f"{n} {n}": go.now for n in range(2)})
    made = move(redis_url)
    assert made.reasons == {WhyLeft.NO_PAYLOAD: 5, WhyLeft.BAD_ID: 2}
    assert Counter(one.why for one in made.listed) == {WhyLeft.NO_PAYLOAD: 3, WhyLeft.BAD_ID: 2}


def test_payloads_are_read_in_batches(redis_url, go, queue, monkeypatch):
    monkeypatch.setattr(delayq.migrate.migration, "BATCH_BYTES", 1000)
    held: list[int] = []
    read = GoQueue.payloads

    def payloads(self, ids):
        found = read(self, ids)
        held.append(sum(len(payload) for _, payload in found.values()))
        return found

    monkeypatch.setattr(GoQueue, "payloads", payloads)
    for size in (100, 400, 400, 200, 3000, 10, 990, 1):
        go.pending(b"x" * size)
    totals: list[int] = []
    move(redis_url, tell=lambda made: totals.append(made.moved.total()))
    assert arrived(queue, go) == go.expected
    assert max(size for size in held if size != 3000) <= 1000
    assert len(held) == len(totals) > 3
    assert totals[-1] == 8


def test_payload_larger_than_max_payload_is_moved(redis_url, go, queue):
    id = go.pending(b"x" * (queue.settings.max_payload + 1))
    assert move(redis_url).complete
    assert queue.get(id).payload == go.expected[id].payload


# Concurrent workers, senders and migrations


def test_lease_during_the_move_is_detected_and_nothing_lost(redis_url, go, queue, monkeypatch):
    ids = [go.ready(b"m%d" % n) for n in range(3)]
    take = GoQueue.remove

    def late(self, place, entries, keys, *, depth):
        if place == "ready":
            assert go.worker.ready_to_unack() == ids[0]
        return take(self, place, entries, keys, depth=depth)

    with monkeypatch.context() as patch:
        patch.setattr(GoQueue, "remove", late)
        with pytest.raises(LeasedError, match="they leased 1 of the messages of example during the move"):
            move(redis_url)
    assert go.ids() == {"unack": [ids[0]]}
    assert arrived(queue, go) == go.expected
    assert go.client.get(go.worker.payloads + ids[0]) == b"m0"
    with pytest.raises(LeasedError):
        move(redis_url)
    go.now -= 100
    go.worker.nack(ids[0])  # so it is moved after all: it is the message that was sent before
    go.worker.unack_to_retry()
    go.now += 100
    assert move(redis_url).complete
    assert go.ids() == {}
    assert queue.counts().living == 3


def test_message_leased_again_stays_with_its_worker(redis_url, go, queue, monkeypatch):
    """Its lease has expired; between reading and moving it was retried and leased again."""
    id = go.leased(b"m")
    take = GoQueue.remove

    def late(self, place, entries, keys, *, depth):
        go.worker.unack_to_retry()
        assert go.worker._pop(go.worker.retry) == id
        return take(self, place, entries, keys, depth=depth)

    with monkeypatch.context() as patch:
        patch.setattr(GoQueue, "remove", late)
        with pytest.raises(LeasedError, match="they leased 1 of the messages"):
            move(redis_url)
    assert go.ids() == {"unack": [id]}
    assert go.client.get(go.worker.payloads + id) == b"m"
    assert queue.get(id).payload == b"m"


def test_lease_that_ends_now_has_expired(go):
    with closing(open_executor({"redis": go.client}, read_settings({}))) as executor:
        theirs = GoQueue(executor, "example", "dp", tagged=False)
        go.client.zadd(go.key("unack"), {"a": 99, "b": 100, "c": 101})
        assert [theirs.leased(at) for at in (98, 99, 100, 101)] == [3, 2, 1, 0]


def test_messages_sent_meanwhile_are_reported_and_not_lost(redis_url, go, queue):
    go.ready(b"first")

    def sending(_):
        if len(go.expected) == 1:
            go.pending(b"second")

    made = move(redis_url, tell=sending)
    assert (made.moved, made.came, made.complete) == ({"ready": 1}, 1, False)
    assert move(redis_url).moved == {"pending": 1}
    assert arrived(queue, go) == go.expected


def test_messages_sent_before_left_ones_are_reported(redis_url, redis_client, go):
    """Messages that were read before then stand behind it, and are read again."""
    later = [go.pending(b"m", delay=1000 + n) for n in range(2)]
    lost = go.expire(go.pending(b"lost", delay=999))

    def sending(_):
        if len(go.expected) == len(later):
            go.pending(b"sooner", delay=500)

    made = move(redis_url, tell=sending)
    assert (made.listed, made.came, made.complete) == ([Left("pending", lost, WhyLeft.NO_PAYLOAD)], 1, False)


@pytest.fixture(params=["pending", "ready"])
def lost(request, go) -> Left:
    """The only message without a payload, among four pages of others in one structure."""
    ids = [str(uuid4()) for _ in range(4 * PAGE)]
    go.client.mset({go.worker.payloads + id: id for id in ids[:50] + ids[51:]})
    if request.param == "pending":
        go.client.zadd(go.key("pending"), {id: go.now + n for n, id in enumerate(ids)})
    else:
        go.client.lpush(go.key("ready"), *ids)
    return Left(request.param, ids[50], WhyLeft.NO_PAYLOAD)


def test_migration_completes_after_another_moved_messages_and_died(redis_url, go, queue, lost, monkeypatch):
    measure = GoQueue.measure

    class DeadError(Exception):
        pass

    def die(_):
        raise DeadError

    def late(self, ids):
        monkeypatch.setattr(GoQueue, "measure", measure)
        with pytest.raises(DeadError):
            move(redis_url, tell=die)
        return measure(self, ids)

    monkeypatch.setattr(GoQueue, "measure", late)
    made = move(redis_url)
    assert go.ids() == {lost.place: [lost.id]}
    assert (made.listed, made.complete) == ([lost], True)
    assert queue.counts().living == 4 * PAGE - 1


def test_migration_completes_if_another_moves_every_message(redis_url, queue, lost, monkeypatch):
    page, pages = GoQueue.page, []

    def late(self, *where):
        if entries := page(self, *where):
            pages.append(entries)
            if len(pages) == 1:
                assert move(redis_url).complete
        return entries

    monkeypatch.setattr(GoQueue, "page", late)
    made = move(redis_url)
    assert (made.listed, made.complete) == ([lost], True)
    assert queue.counts().living == 4 * PAGE - 1
    assert len(pages) < 100


def test_concurrent_migrations_move_each_message_once(redis_url, redis_client, go, queue):
    ids = [str(uuid4()) for _ in range(2000)]
    redis_client.mset({go.worker.payloads + id: id for id in ids})
    redis_client.zadd(go.key("pending"), dict.fromkeys(ids[:1000], go.now))
    redis_client.lpush(go.key("ready"), *ids[1000:])
    threads = [threading.Thread(target=move, args=(redis_url,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert go.ids() == {}
    assert queue.counts().living == 2000
    assert queue.stats().totals["sent"] == 2000


def test_messages_refused_by_a_full_target_stay_in_the_go_queue(redis_url, go, queue):
    left = go.fill()
    with pytest.raises(delayq.QueueFullError):
        move(redis_url, max_length=1)
    assert move(redis_url).complete
    assert arrived(queue, go) == go.expected
    assert go.ids() == left


def test_unreachable_server_is_an_error(tmp_path):
    with RedisServer() as server:
        url = server.url
    with pytest.raises(delayq.UnavailableError):
        move(url, deadline=0.1)
