"""A queue over partitions in a Cluster: spread over its nodes, whose failures are their own."""

import logging
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from redis.crc import key_slot

from delayq import DelayqError, DelayQueue, NewMessage, UnavailableError
from tests.cluster.load import Load
from tests.partitioned.places import ids_of, place
from tests.support.deployments import RedisCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

PARTITIONS = 16
SOON = 1.0
"""Seconds that a send to a sound node stays below, with a frozen one beside it that is waited for 2 s and longer."""
INSTANT = 2.0
"""Seconds before a kill in which an ack may not have reached the replica, and after the failover."""

REPLICATED = {"lease": "5s", "durability": "replicated", "replication_timeout": "500ms"}


def slot_of(number, queue="reminders"):
    """Return the slot of a partition."""
    return key_slot(f"{queue}#{number}".encode())


def open_partitions(cluster, prefix, partitions=PARTITIONS, **options):
    return DelayQueue("reminders", url=cluster.url, prefix=prefix, partitions=partitions, **options)


def spread(cluster):
    """Return the numbers of the partitions of each master."""
    found = {}
    for number in range(PARTITIONS):
        found.setdefault(cluster.owner(slot_of(number)), []).append(number)
    return found


# Looking and sending


def test_partitions_are_spread_over_all_masters(face, redis_cluster, open_queue):
    seen = []
    queue = open_queue(redis_cluster, partitions=PARTITIONS, callback=lambda message: seen.append(message.id))
    sent = queue.send_many(range(800))
    queue.send_delay_msg("later", 3600, id="later")

    found = spread(redis_cluster)
    assert len(found) == 3
    held = {node: sum(place(id, PARTITIONS) in numbers for id in sent.ids) for node, numbers in found.items()}
    assert sum(held.values()) == 800
    assert min(held.values()) > 100
    for number, partition in enumerate(queue.partitions):
        assert partition.node[1] == redis_cluster.owner(slot_of(number)).port
    queue.start_consume()
    wait_until(lambda: len(seen) == 800)
    assert sorted(seen) == sorted(sent.ids)
    wait_until(lambda: queue.counts().living == 1)
    assert queue.get("later").payload == "later"
    assert [one.id for one in queue.list("pending").messages] == ["later"]
    for number in range(PARTITIONS):  # woken on whatever node it is
        (id,) = ids_of(number, 1, PARTITIONS)
        queue.send_delay_msg("x", id=id)
        wait_until(lambda id=id: seen[-1] == id, 10)
    assert queue.stop_consume()


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "empty"])
def test_a_fan_out_follows_slots_that_move_meanwhile(redis_cluster, prefix, stored):
    with open_partitions(redis_cluster, prefix) as queue:
        ids = [f"m{number}" for number in range(100)]
        if stored:
            queue.send_many([NewMessage("x", id=id, delay=3600) for id in ids])
        queue.open()
        asked, moving = [], threading.Event()

        def look():  # some keys of the slot are here and some there: MOVED, ASK and TRYAGAIN
            number = len(asked)
            asked.append(queue.counts().pending)
            queue.send_many([NewMessage(n, id=f"{number}:{n}", delay=3600) for n in range(40)])
            assert queue.get(f"{number}:7").payload == 7
            assert queue.cancel(f"{number}:8") == "cancelled"

        def look_on():
            while moving.is_set():
                look()

        moving.set()
        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(look_on)
            try:
                for number in (0, 5):
                    slot, before = slot_of(number), len(asked)
                    wait_until(lambda before=before: len(asked) > before or looking.done())
                    source = redis_cluster.owner(slot)
                    target = next(node for node in redis_cluster.masters() if node is not source)
                    redis_cluster.migrate(slot, target, lambda: time.sleep(0.02))
                    wait_until(partial(redis_cluster.agrees, slot, target))
            finally:
                moving.clear()
            looking.result(60)
        look()
        total = 39 * len(asked) + (100 if stored else 0)
        assert queue.counts().pending == total
        assert asked == [39 * n + (100 if stored else 0) for n in range(len(asked))]
        found, cursor = [], None
        while True:
            page = queue.list("pending", limit=70, cursor=cursor)
            found += [one.id for one in page.messages]
            if (cursor := page.cursor) is None:
                break
        assert len(found) == len({*found}) == total


# Slots that move


def move_slots(cluster, prefix, times):
    with Load(cluster.url, "reminders", prefix, {"partitions": 4}) as load:
        for turn in range(times):
            load.goes_on()
            slot = slot_of(turn % 4)
            source = cluster.owner(slot)
            target = next(node for node in cluster.masters() if node is not source)
            cluster.migrate(slot, target, lambda: time.sleep(0.02))
            wait_until(partial(cluster.agrees, slot, target))
            load.goes_on()
        load.finish()
        with open_partitions(cluster, prefix, 4) as queue:
            totals = queue.stats().totals
    assert not load.failed
    assert not load.lost()
    assert not load.doubled
    assert totals["sent"] == totals["acked"] == len(load.returned)
    assert totals["delivered"] >= totals["sent"]  # a claim whose answer was lost is made again


@pytest.mark.long
def test_partitions_move_to_other_nodes_under_load(redis_cluster, prefix):
    move_slots(redis_cluster, prefix, 3)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_partitions_move_again_and_again_under_load(redis_cluster, prefix):
    move_slots(redis_cluster, prefix, 50)


# A node that does not answer


def stay_alive(seconds, caplog):
    """Freeze a master for at least so long, and send to those of others all the time."""
    with RedisCluster(node_timeout=60) as cluster:  # long enough that it is not replaced
        found = spread(cluster)
        frozen = max(found, key=lambda node: len(found[node]))
        sound = [number for node, numbers in found.items() if node is not frozen for number in numbers]
        started = Counter()
        options = {"deadline": "2s", "socket_timeout": "2s"}
        worker = open_partitions(cluster, "p", callback=lambda message: started.update([message.id]), **options)
        producer = open_partitions(cluster, "p", **options)
        with worker, producer:
            worker.start_consume()
            ids = {number: ids_of(number, 400, PARTITIONS) for number in range(PARTITIONS)}
            for number in range(PARTITIONS):
                producer.send_delay_msg("x", id=ids[number].pop())
            wait_until(lambda: len(started) == PARTITIONS)
            frozen.pause()
            try:
                began, took, sent = time.monotonic(), [], []
                while time.monotonic() < began + seconds:
                    for number in sound:
                        at = time.monotonic()
                        sent.append(producer.send_delay_msg("x", id=ids[number].pop()).id)
                        took.append(time.monotonic() - at)
                    wait_until(lambda: all(id in started for id in sent), 15, "a sound partition is held up")
                    time.sleep(0.2)
                with pytest.raises(DelayqError, match="reminders#") as raised:
                    producer.send_delay_msg("x", id=ids[found[frozen][0]].pop())
                with pytest.raises(UnavailableError, match=f"reminders#.*:{frozen.port}") as looked:
                    producer.counts()
            finally:
                frozen.resume()
            late = [ids[number].pop() for number in found[frozen]]
            for id in late:
                producer.send_delay_msg("x", id=id)
            wait_until(lambda: all(id in started for id in late))
            assert worker.stop_consume()
    others = [str(node.port) for node in cluster.servers if node is not frozen]
    told = [record.getMessage() for record in caplog.records if "retrying" in record.getMessage()]
    for text in (str(raised.value), str(looked.value), *told):
        assert f":{frozen.port}" in text
        assert not any(f":{port}" in text for port in others)
    assert told
    assert sorted(took)[len(took) // 2] < SOON
    assert max(started.values()) == 1
    return sorted(took)


def test_a_frozen_node_holds_up_no_other(caplog):
    caplog.set_level(logging.WARNING)
    stay_alive(3, caplog)


@pytest.mark.long
def test_a_node_frozen_for_20_s_holds_up_no_other(caplog):
    caplog.set_level(logging.WARNING)
    took = stay_alive(20, caplog)
    print(f"\n{len(took)} sends to other nodes, median {took[len(took) // 2]:.4f} s, longest {took[-1]:.2f} s")


# A node that is killed


class Passing:
    """A worker, and two threads that send messages until each send has returned."""

    def __init__(self, cluster, prefix, count):
        self.started, self.first, self.second, self.sent = Counter(), {}, set(), set()
        self._lock = threading.Lock()
        self.worker = open_partitions(cluster, prefix, callback=self._work, concurrency=8, **REPLICATED)
        self._producer = open_partitions(cluster, prefix, dedupe_window="1h", **REPLICATED)
        self.ids = [f"m{number}" for number in range(count)]
        parts = [self.ids[part::2] for part in range(2)]
        self.threads = [threading.Thread(target=self._produce, args=(part,), daemon=True) for part in parts]

    def __enter__(self):
        self._producer.open()
        self.worker.start_consume()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.worker.close()
        self._producer.close()

    def _work(self, message):
        with self._lock:
            self.started[message.id] += 1
            if self.started[message.id] == 1:
                self.first[message.id] = time.monotonic()
            else:
                self.second.add(message.id)

    def _produce(self, ids):
        for at in range(0, len(ids), 50):
            some = [NewMessage("x", id=id) for id in ids[at : at + 50]]
            while True:
                try:
                    self._producer.send_many(some)
                except DelayqError:
                    time.sleep(0.1)
                else:
                    break
            with self._lock:
                self.sent.update(one.id for one in some)


def kill_while_passing(cluster, prefix, count, kills=1):
    """Kill masters while so many messages pass; returns how many of these came twice."""
    outages = []
    with Passing(cluster, prefix, count) as passing:
        for turn in range(kills):
            wait_until(lambda turn=turn: len(passing.started) > count * (turn + 1) // (kills + 2), 150)
            slot = slot_of(turn % PARTITIONS)
            killed, at = cluster.owner(slot), time.monotonic()
            killed.kill()
            cluster.await_failover(killed, slot)
            outages.append((at, time.monotonic()))
            cluster.rejoin(killed)
        for thread in passing.threads:
            thread.join(150 * (kills + 1))
        assert len(passing.sent) == count
        wait_until(lambda: passing.worker.counts().living == 0, 60, every=0.1)
        assert passing.worker.stop_consume()
        assert passing.worker.counts().dead == 0
    assert {*passing.started} == {*passing.ids}  # each at least once, and none lost
    for id in passing.second:  # only what was in flight when its node died
        assert any(at - INSTANT < passing.first[id] < back + INSTANT for at, back in outages), id
    return len(passing.second)


def test_a_killed_master_loses_no_message_of_a_queue_over_partitions(redis_cluster, prefix):
    kill_while_passing(redis_cluster, prefix, 5_000)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_killed_masters_lose_none_of_100_000_messages(redis_cluster, prefix):
    twice = kill_while_passing(redis_cluster, prefix, 100_000, kills=5)
    print(f"\n100,000 messages, 5 masters killed: 0 lost, {twice} delivered again of those in flight")


# A node that refuses


def test_a_node_without_the_rights_refuses_its_partitions_alone_by_name(redis_cluster, prefix):
    own = spread(redis_cluster)
    refusing = next(iter(own))
    ids = {number: ids_of(number, 2, PARTITIONS) for number in range(PARTITIONS)}
    url = redis_cluster.url.replace("://", "://producer:secret@")
    with open_partitions(redis_cluster, prefix) as admin:
        admin.open()
        for node in own:
            rights = ["+@all", "-evalsha"] if node is refusing else ["+@all"]
            with node.client() as client:
                client.execute_command("ACL", "SETUSER", "producer", "on", ">secret", "~*", "&*", *rights)
        with DelayQueue("reminders", url=url, prefix=prefix, partitions=PARTITIONS) as queue:
            with pytest.raises(DelayqError, match=r"NOPERM|no permission") as raised:
                queue.send_many([NewMessage("x", id=id) for several in ids.values() for id in several])
            assert any(f"reminders#{number}: " in str(raised.value) for number in own[refusing])
            assert f" on 127.0.0.1:{refusing.port}: this user has no permissions" in str(raised.value)
        stored = {number for number in ids for id in ids[number] if admin.get(id) is not None}
    assert stored == set(range(PARTITIONS)) - set(own[refusing])
