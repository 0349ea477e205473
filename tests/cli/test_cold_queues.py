"""Commands that take a whole queue of which messages are cold: each counts them, refuses, or says that they stay."""

from __future__ import annotations

import json

import pytest

from delayq import DelayQueue, NewMessage, PartitionsError, QueueInUseError
from delayq.bulk import move_cold
from delayq.queue.placing.repartitioning import change_partitions
from tests.support.cold import FOREVER

COLD = 3
"""How many of the four messages are cold."""
SEEN = "3 messages are cold, and {}: see `delayq docs cold`"


@pytest.fixture
def queue(redis_url):
    with DelayQueue("reminders", url=redis_url, codec="bytes", redact=[]) as made:
        made.send_many([NewMessage(b"1", id=f"c{number}", delay="30d") for number in range(COLD)])
        made.send(b"1", id="soon", delay="1h")
        yield made


@pytest.fixture
def move(queue, redis_url, tmp_path):
    return lambda keep="7d": move_cold("reminders", tmp_path / "cold", url=redis_url, keep=keep)


def test_purge_counts_what_is_cold(cli, queue, move):
    move()
    assert cli("purge", "reminders", "--dry-run").out == "would delete 4 messages, 3 of them cold\n"
    done = cli("purge", "reminders", "--yes", "--json")
    assert done.json == {"queue": "reminders", "matched": 4, "purged": 4, "dry_run": False, "cold": 3}
    assert cli("purge", "reminders", "--yes").out == "deleted 0 messages\n"
    totals = queue.stats().totals
    assert totals["sent"] == totals["purged"] == 4
    assert move(FOREVER).restored == 0


def test_queue_with_cold_messages_is_not_removed(cli, queue, move):
    move()
    assert queue.cancel("soon") == "cancelled"
    refused = cli("remove", "reminders", "--yes")
    assert (refused.code, refused.out) == (1, "")
    assert refused.line == "reminders is not removed, it has 3 cold messages (bring them back, or purge it)"
    with pytest.raises(QueueInUseError, match="3 cold messages"):
        queue.remove()
    assert move(FOREVER).restored == 3, "nothing was lost"


def test_purged_queue_is_removed(cli, queue, move, redis_client):
    move()
    cli("purge", "reminders", "--yes")
    assert cli("remove", "reminders", "--yes").code == 0
    assert not redis_client.keys("*{reminders}*")


def test_queue_with_cold_messages_gets_no_partitions(cli, queue, move, redis_client):
    move()
    before = redis_client.hgetall("delayq:{reminders}:meta")
    refused = cli("partitions", "reminders", "--to", "4")
    assert (refused.code, refused.out) == (2, "")
    text = "queue reminders has 3 cold messages, and a queue with partitions has no cold tier: bring them back before"
    assert refused.line == text
    with pytest.raises(PartitionsError, match=text):
        queue.executor.perform(change_partitions("delayq", "reminders", 4))
    assert redis_client.hgetall("delayq:{reminders}:meta") == before
    assert not redis_client.keys("*{reminders#*")
    assert queue.get("soon") is not None
    assert "1 partition," in cli("partitions", "reminders").out
    assert "nothing to do" in cli("partitions", "reminders", "--to", "1").err


def test_queue_whose_messages_are_back_gets_partitions(cli, queue, move, redis_url):
    move()
    move(FOREVER)
    assert "4 partitions" in cli("partitions", "reminders", "--to", "4").out
    with DelayQueue("reminders", url=redis_url, partitions=4, codec="bytes") as parted:
        assert {message.id for message in parted.list("pending").messages} == {"c0", "c1", "c2", "soon"}
    assert cli("partitions", "reminders", "--to", "1").code == 0
    assert move().spilled == 3, "the plain queue has its tier again"
    assert move(FOREVER).restored == 3


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["export", "reminders", "out.jsonl"], "not exported"),
        (["forget", "reminders", "c0", "--yes"], "not looked at"),
        (["forget", "reminders", "--id-prefix=c", "--dry-run"], "not looked at"),
    ],
)
def test_command_says_what_it_does_not_see(cli, queue, move, words, left):
    assert "cold" not in cli(*words).err
    move()
    again = cli(*words, "--force") if words[0] == "export" else cli(*words)
    assert SEEN.format(left) in again.err.splitlines()
    assert move(FOREVER).restored == 3


def test_export_has_only_what_is_in_redis(cli, queue, move, tmp_path):
    move()
    ended = cli("export", "reminders", "out.jsonl", "--json")
    assert (ended.code, ended.json["exported"]) == (0, 1)
    assert [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == ["soon"]
    move(FOREVER)
    assert cli("export", "reminders", "all.jsonl", "--json").json["exported"] == 4
