"""The mover is killed again and again while a process sends and others consume: each message is delivered once."""

from __future__ import annotations

import subprocess
import sys

import pytest
import redis

from delayq import DelayQueue
from delayq.queue.placing.repartitioning import read_partitions
from tests.support.partitions import NAME, PREFIX, contents
from tests.support.processes import Process
from tests.support.waiting import wait_until

PROGRAM = """
import sys, time
from delayq.broker.keys import Keys
from delayq.broker.partition_calls import PartitionCalls
from delayq.broker.requests import Outgoing, Receipt
from delayq.broker.transport.executor import open_executor
from delayq.broker.transport.failures import EpochError
from delayq.options import read_settings
from delayq.queue.placing.partition_finding import find_partitions
from delayq.queue.placing.layout import Layout, names_of, read_layout

NAME, PREFIX = "reminders", "delayq"
executor = open_executor({"url": sys.argv[2]}, read_settings({}))
epoch = 0


def calls_of(name):
    return PartitionCalls(Keys.of(PREFIX, name), epoch=lambda: epoch)


def stage():
    global epoch
    (found,) = executor.run([read_layout(PREFIX, NAME)])
    epoch = int(found.epoch or 0)
    return found


def send(n):
    id = f"m-{n}"
    while True:
        try:
            found = stage()
            layout = Layout(NAME, found.partitions, epoch, found.before)
            (home,) = executor.perform(find_partitions(calls_of, layout, [(id, id)]))
            status = executor.call(calls_of(home).send_one(Outgoing(id, n % 3 * 100, 3, b"x", b"")))
            assert status == "1", status
            return
        except EpochError:
            continue


def consume():
    found = stage()
    for name in names_of(NAME, found.partitions, found.before or found.left):
        calls = calls_of(name)
        _, claimed = executor.run([calls.pending_to_ready(), calls.ready_to_unack(20, lease=600_000, consumer_id="w")])
        for one in claimed.messages:
            executor.client.rpush("delivered", one.id)
            time.sleep(0.001)
            executor.call(calls.ack([Receipt(one.id, one.token)]))


print("ready", flush=True)
if sys.argv[1] == "send":
    for n in range(int(sys.argv[3])):
        send(n)
        time.sleep(0.001)
else:
    while True:
        consume()
"""
SENT = 1000


def looked(client: redis.Redis) -> int:
    """Return how often movers have looked what is on its way from a partition: once for each that they go through."""
    return int(client.info("commandstats").get("cmdstat_hkeys", {}).get("calls", 0))


@pytest.mark.long
def test_each_message_is_delivered_once_while_movers_are_killed(redis_url, redis_client):
    with DelayQueue(NAME, url=redis_url) as queue:
        queue.send("first", id="first")
        producer = Process([sys.executable, "-c", PROGRAM, "send", redis_url, str(SENT)], stdout=subprocess.PIPE)
        workers = [Process([sys.executable, "-c", PROGRAM, "consume", redis_url]) for _ in range(2)]
        assert producer.stdout.readline() == b"ready\n"
        for partitions in (4, 16, 5, 1):
            command = [sys.executable, "-m", "delayq", "--url", redis_url, "partitions", NAME, "--to", str(partitions)]
            for turns in (1, 3, 9):  # the mover is killed once it has begun with so many partitions
                with Process(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as mover:
                    most = looked(redis_client) + turns
                    wait_until(lambda mover=mover, most=most: mover.poll() is not None or looked(redis_client) >= most)
                    mover.end()
            with Process(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as mover:
                assert mover.wait(100) == 0
        assert producer.wait(100) == 0
        producer.stdout.close()
        wait_until(lambda: redis_client.llen("delivered") >= SENT + 1, timeout=60)
        for worker in workers:
            worker.end()
        delivered = redis_client.lrange("delivered", 0, -1)
        assert sorted(delivered) == sorted([b"first", *(b"m-%d" % n for n in range(SENT))])
        assert not contents(redis_client)["messages"]
        stage, states = queue.executor.perform(read_partitions(PREFIX, NAME))
        assert (stage.partitions, stage.moving_from) == (1, None)
        assert [one.on_the_way for one in states] == [0]
