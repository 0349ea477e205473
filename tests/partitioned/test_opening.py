"""Opening a queue over partitions: how many it has is settled once, and everybody else is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from delayq import ConfigurationError, DelayQueue, InvalidValueError
from delayq.errors import PartitionsError, QueueInUseError
from delayq.queue.placing.layout import names_of
from tests.behaviour.places import everywhere
from tests.partitioned.places import PARTITIONS
from tests.support.processes import Process

FIRST = "import sys; from delayq import DelayQueue; from delayq.errors import PartitionsError"
CHILD = f"""{FIRST}
queue = DelayQueue("reminders", url=sys.argv[1], partitions=int(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
try:
    queue.send_many([f"{{number}}" for number in range(50)], 60)
except PartitionsError as error:
    print("refused", error)
else:
    print("sent")
"""


def meta(client, name="reminders"):
    found = client.hgetall(f"delayq:{{{name}}}:meta")
    return {key.decode(): value.decode() for key, value in found.items()}


@pytest.mark.parametrize("number", [0, 1.5, True, "x", 10_000, None, -3])
def test_other_numbers_are_refused_before_anything_is_asked(open_queue, number):
    with pytest.raises(InvalidValueError, match="partitions must be a whole number from 1 to 1000"):
        open_queue(partitions=number)


def test_the_number_is_stored_when_the_queue_is_opened(open_queue, redis_client):
    queue = open_queue(partitions=PARTITIONS)
    assert redis_client.dbsize() == 0
    queue.open()
    assert meta(redis_client).items() >= {"schema": "7", "partitions": "4", "epoch": "1"}.items()
    assert all(meta(redis_client, name)["epoch"] == "1" for name in names_of("reminders", PARTITIONS))


def test_looking_stores_nothing(open_queue, redis_client):
    queue = open_queue(partitions=PARTITIONS)
    assert queue.counts().living == 0
    assert queue.get("m") is None
    assert redis_client.dbsize() == 0


@everywhere
@pytest.mark.parametrize("other", [1, 2, 5, 1000])
def test_another_number_than_stored_is_refused(open_queue, other):
    open_queue(partitions=PARTITIONS).open()
    queue = open_queue(partitions=other)
    with pytest.raises(PartitionsError, match=f"queue reminders has 4 partitions, not {other}: .* --to {other}"):
        queue.open()
    with pytest.raises(PartitionsError):
        queue.send_delay_msg("x")


@everywhere
def test_the_stored_number_is_taken(open_queue):
    open_queue(partitions=PARTITIONS).send_delay_msg("hello", 60, id="m")
    queue = open_queue(partitions="stored")
    assert queue.get("m").payload == "hello"
    assert len(queue.partitions) == PARTITIONS
    queue.send_delay_msg("x", 60)
    assert queue.counts().pending == 2


@everywhere
def test_of_a_queue_without_partitions_their_number_is_wanted(open_queue):
    with pytest.raises(PartitionsError, match="queue reminders has no partitions: give their number"):
        open_queue(partitions="stored").open()
    open_queue().open()
    with pytest.raises(PartitionsError, match="no partitions"):
        open_queue(partitions="stored").counts()


@everywhere
def test_a_plain_queue_is_not_spread_by_opening_it(open_queue):
    plain = open_queue()
    plain.send_delay_msg("hello", 60, id="m")
    with pytest.raises(
        PartitionsError, match="exists without partitions: move it by `delayq partitions reminders --to"
    ):
        open_queue(partitions=PARTITIONS).open()
    assert plain.get("m").payload == "hello"
    assert plain.send_delay_msg("x", 60)


@everywhere
def test_a_plain_client_does_not_open_a_queue_over_partitions(open_queue):
    open_queue(partitions=PARTITIONS).open()
    plain = open_queue()
    with pytest.raises(PartitionsError, match="has partitions: open it with partitions='stored', or their number"):
        plain.open()
    with pytest.raises(PartitionsError):
        plain.send_delay_msg("x")


def test_a_number_that_cannot_be_read_is_told(open_queue, redis_client):
    redis_client.hset("delayq:{reminders}:meta", mapping={"schema": "7", "partitions": "many"})
    with pytest.raises(PartitionsError, match=r"its field `partitions` in .* is no number: 'many'"):
        open_queue(partitions=PARTITIONS).open()


def test_one_partition_is_the_plain_queue(open_queue, redis_client):
    queue = open_queue(partitions=1)
    queue.send_delay_msg("hello", 60, id="m")
    assert open_queue().get("m").payload == "hello"
    assert {key.split(b":")[1] for key in redis_client.scan_iter("delayq:*}:*")} == {b"{reminders}"}
    assert "partitions" not in meta(redis_client)
    open_queue().send_delay_msg("x", 60, id="n")
    assert queue.get("n").payload == "x"
    queue.limits.set("mail", rate_limit="10/s")  # as of any plain queue
    assert queue.limits.list()[0].name == "mail"


@pytest.mark.timeout(120)
def test_of_two_processes_that_open_with_different_numbers_one_wins(redis_url, redis_client):
    for turn in range(4):
        redis_client.flushdb()
        numbers = (4, 7) if turn % 2 else (16, 1)
        children = [
            Process(
                [sys.executable, "-c", CHILD, redis_url, str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in numbers
        ]
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("\n")
            child.stdin.flush()
        told = [child.communicate(timeout=60)[0].strip() for child in children]
        assert sorted(text.partition(" ")[0] for text in told) == ["refused", "sent"], told
        won = numbers[told.index("sent")]
        with DelayQueue("reminders", url=redis_url, **({"partitions": won} if won > 1 else {})) as queue:
            assert queue.counts().pending == 50


# What is refused


@everywhere
def test_limits_of_names_are_refused(open_queue):
    queue = open_queue(partitions=PARTITIONS)
    with pytest.raises(ConfigurationError, match="would count in each partition by itself"):
        queue.limits.set("mail", rate_limit="10/s")
    assert queue.limits.list() == []
    queue.limits.set("account:*", running=1)
    assert [limit.name for limit in queue.limits.list()] == ["account:*"]
    assert queue.limits.remove("account:*")


def test_limits_of_tasks_are_refused(open_queue):
    queue = open_queue(partitions=PARTITIONS)
    queue.task(name="mail", rate_limit="10/s")(lambda user: None)
    with pytest.raises(ConfigurationError, match="would count in each partition by itself"):
        queue.start_consume()


def test_only_an_empty_queue_is_removed_with_all_its_keys(open_queue, redis_client):
    queue = open_queue(partitions=PARTITIONS)
    queue.send(1, 60, id="a")
    with pytest.raises(QueueInUseError, match="1 message"):
        queue.remove()
    assert queue.get("a").state == "pending"
    queue.cancel("a")
    assert queue.remove()
    assert not redis_client.keys(f"{queue.prefix}:*")
    queue.send(2, id="b")
    assert queue.counts().living == 1


@everywhere
def test_a_partition_has_no_partitions(open_queue):
    with pytest.raises(ConfigurationError, match="queue name"):
        open_queue("reminders#3", partitions=4).open()
