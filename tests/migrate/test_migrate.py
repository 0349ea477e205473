"""A queue of the Go library is taken over: every message, once, as it was."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing
from uuid import uuid4

import pytest
import redis

import delayq.migrate
from delayq import ConfigurationError, DelayQueue
from delayq.config import read_settings
from delayq.executor import open_executor
from delayq.go_queue import PAGE, GoQueue
from delayq.migrate import LeasedError, Left, Migration, Why, migrate
from tests.migrate.conftest import LEASE, Go, Told, dumped, told
from tests.support.deployments import RedisCluster
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

COUNTS = "retry:cnt"


def move(url: str, **options) -> Migration:
    return migrate("example", "example", url=url, **options)


# All of it


@pytest.mark.parametrize("base", ["dp:example", "{dp:example}"])
def test_every_message_is_moved_as_it_was(redis_url, redis_client, queue, base):
    go = Go(redis_client, base)
    left = go.fill()
    made = move(redis_url)
    assert told(queue, go) == go.told
    assert queue.counts().living == len(go.told) == made.moved.total() == 8
    assert go.ids() == left
    assert made.reasons == {Why.NO_PAYLOAD: 2, Why.FAILED: 1}
    assert sorted(made.listed) == sorted(
        Left(place, id, Why.FAILED if place == "garbage" else Why.NO_PAYLOAD) for place, (id,) in left.items()
    )
    assert (made.complete, made.came) == (True, 0)
    assert made.found.total() == made.moved.total() + made.left.total()
    # Of what was moved, nothing is left besides.
    payloads = {f"{base}:msg:{id}".encode() for id in left["garbage"]}
    places = {go.key(place).encode() for place in left}
    theirs = {key for key in redis_client.scan_iter() if key.startswith(base.encode())}
    assert theirs == payloads | places | {go.key(COUNTS).encode()}
    assert {id.decode() for id in redis_client.hkeys(go.key(COUNTS))} == {*left["pending"], *left["ready"]}


def test_all_is_delivered_as_often_as_its_retries_say_and_never_early(redis_url, go, queue):
    go.fill()
    soon = go.pending(b"soon", delay=2, retries=1)
    for id, one in list(go.told.items()):  # what is due in an hour is not waited for
        if one.payload == b"in an hour":
            go.worker.client.zadd(go.key("pending"), {id: go.now + 2})
    move(redis_url)
    delivered: Counter[str] = Counter()
    first: dict[str, float] = {}

    def failing(message):
        first.setdefault(message.id, time.time())
        delivered[message.id] += 1
        assert message.payload == go.told[message.id].payload
        return False

    with DelayQueue("example", url=redis_url, codec="bytes", callback=failing) as consumer:
        wait_until(lambda: (consumer.run(burst=True), consumer.counts().living == 0)[1], every=0.01)
    assert delivered == {id: one.retries + 1 for id, one in go.told.items()}
    assert first[soon] >= go.now + 2
    assert queue.counts().dead == len(go.told)


def test_nothing_is_moved_twice(redis_url, redis_client, go, queue):
    left = go.fill()
    move(redis_url)
    held = dumped(redis_client)
    again = move(redis_url)
    assert again.moved.total() == 0
    assert again.found.total() == again.left.total() == 3
    assert go.ids() == left
    changed = {key for key, value in dumped(redis_client).items() if held.get(key) != value}
    assert changed == set()


@pytest.mark.parametrize("options", [{}, {"take_leased": True}, {"with_garbage": True}])
def test_a_dry_run_tells_the_same_and_changes_nothing(redis_url, redis_client, go, options):
    go.fill()
    held = dumped(redis_client)
    dry = move(redis_url, dry_run=True, **options)
    assert dumped(redis_client) == held
    made = move(redis_url, **options)
    assert (dry.found, dry.moved, dry.left, dry.complete) == (made.found, made.moved, made.left, made.complete)
    assert sorted(dry.listed) == sorted(made.listed)


def test_there_may_be_nothing(redis_url, redis_client):
    assert move(redis_url).found.total() == 0
    assert redis_client.keys() == []


# Where it is


@pytest.fixture(scope="module")
def cluster():
    with RedisCluster() as deployment:
        yield deployment


@pytest.mark.parametrize("payloads", ["dp", "mine"])
@pytest.mark.parametrize("tag", [False, True])
def test_a_prefix_of_its_own_may_be_that_of_the_payloads_or_not(redis_url, redis_client, queue, payloads, tag):
    """`UseCustomPrefix` names the structures by it; the payloads have the usual one all the same."""

    def base(prefix: str) -> str:
        return f"{{{prefix}:example}}" if tag else f"{prefix}:example"

    go = Go(redis_client, base("mine"))
    go.worker.payloads = f"{base(payloads)}:msg:"
    left = go.fill()
    other = Go(redis_client, base("dp"))
    other.pending(b"of another queue")
    made = move(redis_url, from_prefix="mine")
    assert told(queue, go) == go.told
    assert go.ids() == left
    assert made.complete
    assert len(other.ids()["pending"]) == 1
    kept = set(left["garbage"]) | set(other.told)
    assert {key.rpartition(b":")[2].decode() for key in redis_client.keys("*:msg:*")} == kept


def test_what_was_sent_with_and_without_a_hash_tag_is_moved_together(redis_url, redis_client, queue):
    plain, tagged = Go(redis_client, "dp:example"), Go(redis_client, "{dp:example}")
    plain.pending(b"plain")
    tagged.ready(b"tagged")
    assert move(redis_url).moved == {"pending": 1, "ready": 1}
    assert told(queue, plain) | told(queue, tagged) == plain.told | tagged.told
    assert queue.counts().living == 2


def test_from_one_server_to_another(redis_url, go, start_redis):
    there = start_redis()
    left = go.fill()
    assert migrate("example", "other", url=there.url, from_url=redis_url, prefix="mine").complete
    assert go.ids() == left
    with DelayQueue("other", url=there.url, prefix="mine", codec="bytes") as queue:
        assert told(queue, go) == go.told


@pytest.mark.parametrize("protocol", [2, 3])
def test_with_a_client_of_ones_own(redis_url, go, queue, protocol):
    go.fill()
    with redis.Redis.from_url(redis_url, protocol=protocol) as client:
        assert migrate("example", "example", redis=client).complete
    assert told(queue, go) == go.told


@pytest.mark.parametrize("prefix", ["dp", "mine"])
def test_in_a_cluster(cluster, prefix):
    with redis.RedisCluster.from_url(cluster.url.replace("redis+cluster", "redis").partition(",")[0]) as client:
        go = Go(client, f"{{{prefix}:example}}")
        go.worker.payloads = "{dp:example}:msg:"  # in another slot than the structures, if the prefix is another
        left = go.fill()
        made = migrate("example", prefix, url=cluster.url, from_prefix=prefix)
        assert made.complete
        assert go.ids() == left
        assert not any(client.exists(go.worker.payloads + id) for id in go.told)
        with DelayQueue(prefix, url=cluster.url, codec="bytes") as queue:
            assert told(queue, go) == go.told
            assert queue.counts().living == len(go.told)


# What cannot be moved, or only if asked


def test_what_workers_hold_is_not_moved_and_nothing_else_either(redis_url, redis_client, go, queue):
    held = go.leased(b"in work", ago=0)
    go.ready(b"ready")
    go.pending(b"pending")
    before = dumped(redis_client)
    dry = move(redis_url, dry_run=True)
    with pytest.raises(LeasedError, match="Go workers hold 1 of the messages of example"):
        move(redis_url)
    assert dumped(redis_client) == before
    assert Left("unack", held, Why.LEASED) in dry.listed
    assert not dry.complete
    go.worker.ack(held)
    assert move(redis_url).complete
    assert held not in told(queue, go)


def test_what_workers_hold_is_due_when_their_leases_end_if_it_is_to_be_moved(redis_url, go, queue):
    held = go.leased(b"in work", ago=0, retries=4)
    assert move(redis_url, take_leased=True).moved == {"unack": 1}
    assert told(queue, go) == {held: Told(b"in work", 4, go.now + LEASE)}
    assert queue.counts().pending == 1
    assert go.ids() == {}


def test_what_has_failed_for_good_is_delivered_once_more_if_it_is_to_be_moved(redis_url, go, queue):
    id = go.failed(b"failed for good", retries=0)
    assert move(redis_url, with_garbage=True).moved == {"garbage": 1}
    assert go.ids() == {}
    with queue.lease() as message:
        assert (message.id, message.payload, message.retries_left) == (id, b"failed for good", 0)


def test_ids_and_times_that_delayq_does_not_know_are_left(redis_url, redis_client, go, queue):
    go.pending(b"good")
    go.ready(b"good")
    redis_client.set(go.worker.payloads + "white space", b"bad id")
    redis_client.zadd(go.key("pending"), {"white space": go.now, b"\xff": go.now, "later": 1e11, "never": "inf"})
    redis_client.lpush(go.key("ready"), "x" * 129, "")
    made = move(redis_url)
    assert told(queue, go) == go.told
    assert made.reasons == {Why.BAD_ID: 4, Why.BAD_TIME: 2}
    assert Left("pending", "\\xff", Why.BAD_ID) in made.listed
    assert not made.complete
    assert redis_client.zcard(go.key("pending")) == 4
    assert redis_client.llen(go.key("ready")) == 2


@pytest.mark.parametrize(
    ("count", "retries"), [(None, 0), ("-1", 0), ("much", 0), ("5000000", 1_000_000), ("1000000", 1_000_000)]
)
def test_a_number_of_retries_that_is_none_or_too_large(redis_url, go, queue, *, count, retries):
    id = go.pending(b"m")
    go.client.hdel(go.key(COUNTS), id)
    if count is not None:
        go.client.hset(go.key(COUNTS), id, count)
    assert move(redis_url).complete
    assert queue.get(id).retries_left == retries


@pytest.mark.parametrize("score", [-62135596800, "-inf"])
def test_a_time_before_1970_is_past(redis_url, redis_client, go, queue, score):
    id = go.pending(b"zero time of Go")
    redis_client.zadd(go.key("pending"), {id: score})
    assert move(redis_url).complete
    assert queue.get(id).due.timestamp() == 0


def test_an_id_of_another_message_is_left(redis_url, redis_client, go, queue):
    """The first versions of the Go library counted their messages, in each queue from 1."""
    queue.send_delay_msg(b"another", 60, id="1")
    go.pending(b"m", id="1")
    go.ready(b"m", id="2")
    queue.send_delay_msg(b"m", 60, id="2")  # as after a run that was cut off
    made = move(redis_url)
    assert made.listed == [Left("pending", "1", Why.FOREIGN_ID)]
    assert made.moved == {"ready": 1}
    assert go.ids() == {"pending": ["1"]}
    assert redis_client.get(go.worker.payloads + "1") == b"m"
    assert queue.get("1").payload == b"another"


def test_an_id_of_another_message_that_is_settled_meanwhile_is_left(redis_url, go, queue, monkeypatch):
    queue.send_delay_msg(b"another", id="1")
    go.pending(b"m", id="1")
    get = delayq.migrate._Target.get

    def late(self, id):
        with queue.lease() as message:
            assert message.payload == b"another"
        return get(self, id)

    monkeypatch.setattr(delayq.migrate._Target, "get", late)
    assert move(redis_url).listed == [Left("pending", "1", Why.FOREIGN_ID)]
    assert go.ids() == {"pending": ["1"]}


def test_an_id_that_was_settled_is_that_of_another_unless_it_can_be_of_none(redis_url, go, queue, uuid):
    with DelayQueue("example", url=redis_url, codec="bytes", dedupe_window="1h") as settling:
        settling.send_many([delayq.NewMessage(b"m", id=id) for id in ("1", uuid)])
        with settling.lease(n=2) as messages:
            assert len(messages) == 2
    go.pending(b"m", id="1")
    go.pending(b"m", id=uuid)
    assert move(redis_url).listed == [Left("pending", "1", Why.FOREIGN_ID)]
    assert go.ids() == {"pending": ["1"]}
    assert queue.counts().living == 0


def test_an_id_that_stands_twice_is_one_message(redis_url, redis_client, go, queue):
    id = go.ready(b"m")
    redis_client.lpush(go.key("ready"), id)
    assert move(redis_url).moved == {"ready": 2}
    assert go.ids() == {}
    assert queue.counts().living == 1


def test_what_is_no_text_is_no_payload(redis_url, redis_client, go, queue):
    id = go.expire(go.pending(b"m"))
    redis_client.lpush(go.worker.payloads + id, "a list")
    go.pending(b"n")
    assert move(redis_url).listed == [Left("pending", id, Why.NO_PAYLOAD)]
    assert told(queue, go) == go.told


def test_the_window_of_a_queue_that_has_one_stays(redis_url, redis_client, go):
    with DelayQueue("example", url=redis_url, dedupe_window="7d", dedupe_max=5) as owner:
        owner.open()
    go.pending(b"m")
    move(redis_url)
    assert redis_client.hget("delayq:{example}:meta", "dedupe") == b"604800000 5"


def test_the_window_can_be_left_off(redis_url, redis_client, go):
    go.pending(b"m")
    move(redis_url, dedupe_window=0)
    assert not redis_client.hexists("delayq:{example}:meta", "dedupe")


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"name": 7}, {"name": "\udcff"}, {"to": "white space"}, {"from_prefix": ""}]
)
def test_wrong_names_are_refused(redis_url, wrong):
    with pytest.raises(ConfigurationError):
        migrate(**{"name": "example", "to": "example", "url": redis_url, **wrong})


# Many


@pytest.mark.parametrize("place", ["pending", "ready", "retry"])
def test_many_messages_between_which_payloads_are_missing(redis_url, redis_client, go, queue, place):
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
    assert made.reasons == dry.reasons == {Why.NO_PAYLOAD: len(missing)}
    assert {one.id for one in made.listed} == missing
    assert go.ids() == {place: sorted(missing)}
    assert queue.counts().living == len(ids) - len(missing)
    if place == "pending":
        assert [one.id for one in queue.list("pending", limit=5).messages] == ids[:5]


def test_only_some_of_what_is_left_is_listed(redis_url, redis_client, go, monkeypatch):
    monkeypatch.setattr(delayq.migrate, "MOST_LISTED", 3)
    redis_client.zadd(go.key("pending"), {str(uuid4()): go.now for _ in range(5)})
    redis_client.zadd(go.key("pending"), {f"{n} {n}": go.now for n in range(2)})
    made = move(redis_url)
    assert made.reasons == {Why.NO_PAYLOAD: 5, Why.BAD_ID: 2}
    assert Counter(one.why for one in made.listed) == {Why.NO_PAYLOAD: 3, Why.BAD_ID: 2}


def test_payloads_are_held_a_batch_at_a_time(redis_url, go, queue, monkeypatch):
    monkeypatch.setattr(delayq.migrate, "BATCH_BYTES", 1000)
    held: list[int] = []
    read = GoQueue.payloads

    def payloads(self, ids):
        found = read(self, ids)
        held.append(sum(len(payload) for _, payload in found.values()))
        return found

    monkeypatch.setattr(GoQueue, "payloads", payloads)
    for size in (100, 400, 400, 200, 3000, 10, 990, 1):
        go.pending(b"x" * size)
    told_of: list[int] = []
    move(redis_url, tell=lambda made: told_of.append(made.moved.total()))
    assert told(queue, go) == go.told
    assert max(size for size in held if size != 3000) <= 1000
    assert len(held) == len(told_of) > 3
    assert told_of[-1] == 8


def test_a_payload_larger_than_a_queue_takes_is_moved_all_the_same(redis_url, go, queue):
    id = go.pending(b"x" * (queue.settings.max_payload + 1))
    assert move(redis_url).complete
    assert queue.get(id).payload == go.told[id].payload


# Others at work


def test_a_worker_that_takes_a_message_meanwhile_is_noticed_and_nothing_lost(redis_url, go, queue, monkeypatch):
    ids = [go.ready(b"m%d" % n) for n in range(3)]
    take = GoQueue.take

    def late(self, place, entries, keys, *, reach):
        if place == "ready":
            assert go.worker.ready_to_unack() == ids[0]
        return take(self, place, entries, keys, reach=reach)

    with monkeypatch.context() as patch:
        patch.setattr(GoQueue, "take", late)
        with pytest.raises(LeasedError, match="they took 1 messages while these were moved"):
            move(redis_url)
    assert go.ids() == {"unack": [ids[0]]}
    assert told(queue, go) == go.told
    assert go.client.get(go.worker.payloads + ids[0]) == b"m0"
    with pytest.raises(LeasedError):
        move(redis_url)
    go.now -= 100
    go.worker.nack(ids[0])  # so it is moved after all, and is the message that was sent before
    go.worker.unack_to_retry()
    go.now += 100
    assert move(redis_url).complete
    assert go.ids() == {}
    assert queue.counts().living == 3


def test_a_message_that_a_worker_takes_anew_stays_with_it(redis_url, go, queue, monkeypatch):
    """Its lease had run out; between reading and taking it was retried and leased again."""
    id = go.leased(b"m")
    take = GoQueue.take

    def late(self, place, entries, keys, *, reach):
        go.worker.unack_to_retry()
        assert go.worker._pop(go.worker.retry) == id
        return take(self, place, entries, keys, reach=reach)

    with monkeypatch.context() as patch:
        patch.setattr(GoQueue, "take", late)
        with pytest.raises(LeasedError, match="they took 1 messages"):
            move(redis_url)
    assert go.ids() == {"unack": [id]}
    assert go.client.get(go.worker.payloads + id) == b"m"
    assert queue.get(id).payload == b"m"


def test_a_lease_that_ends_now_has_run_out(go):
    with closing(open_executor({"redis": go.client}, read_settings({}))) as executor:
        theirs = GoQueue(executor, "example", "dp", tagged=False)
        go.client.zadd(go.key("unack"), {"a": 99, "b": 100, "c": 101})
        assert [theirs.leased(at) for at in (98, 99, 100, 101)] == [3, 2, 1, 0]


def test_what_a_producer_sends_meanwhile_is_told_of_and_not_lost(redis_url, go, queue):
    go.ready(b"first")

    def sending(_):
        if len(go.told) == 1:
            go.pending(b"second")

    made = move(redis_url, tell=sending)
    assert (made.moved, made.came, made.complete) == ({"ready": 1}, 1, False)
    assert move(redis_url).moved == {"pending": 1}
    assert told(queue, go) == go.told


def test_what_is_sent_before_what_is_left_is_told_of(redis_url, redis_client, go):
    """What was passed stands behind it then, and is met again."""
    later = [go.pending(b"m", delay=1000 + n) for n in range(2)]
    lost = go.expire(go.pending(b"lost", delay=999))

    def sending(_):
        if len(go.told) == len(later):
            go.pending(b"sooner", delay=500)

    made = move(redis_url, tell=sending)
    assert (made.listed, made.came, made.complete) == ([Left("pending", lost, Why.NO_PAYLOAD)], 1, False)


@pytest.fixture(params=["pending", "ready"])
def lost(request, go) -> Left:
    """The one message without a payload, among four pages of others in one place."""
    ids = [str(uuid4()) for _ in range(4 * PAGE)]
    go.client.mset({go.worker.payloads + id: id for id in ids[:50] + ids[51:]})
    if request.param == "pending":
        go.client.zadd(go.key("pending"), {id: go.now + n for n, id in enumerate(ids)})
    else:
        go.client.lpush(go.key("ready"), *ids)
    return Left(request.param, ids[50], Why.NO_PAYLOAD)


def test_another_migration_that_takes_what_was_read_and_dies(redis_url, go, queue, lost, monkeypatch):
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


def test_another_migration_that_takes_everything(redis_url, queue, lost, monkeypatch):
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


def test_two_migrations_at_once(redis_url, redis_client, go, queue):
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


def test_a_full_target_keeps_what_it_refuses_in_the_go_queue(redis_url, go, queue):
    left = go.fill()
    with pytest.raises(delayq.QueueFullError):
        move(redis_url, max_length=1)
    assert move(redis_url).complete
    assert told(queue, go) == go.told
    assert go.ids() == left


def test_a_server_that_is_not_there(tmp_path):
    with RedisServer() as server:
        url = server.url
    with pytest.raises(delayq.UnavailableError):
        move(url, deadline=0.1)
