"""What another program has stored in a queue ends no consumer, and no other message waits for it."""

from __future__ import annotations

import pytest
import redis

from delayq import DelayQueue, NewMessage
from tests.support.waiting import wait_until

ODD = "odd"
HASHES = {
    "retries": [b"abc", b"", b"-1", b"1.5", b"inf", b"9" * 400],
    "deliveries": [b"x", b"\xff", b"ready 1 2", b"pending 9e9 0 0 0 -", b"leased " + b"9 " * 5],
    "headers": [b"{", b"[1]", b"\xff"],
    "attributes": [b"\xff", b"name=\xff priority=" + b"9" * 400, b"timeout=x expires=++1 latest=1", b"retention=-5"],
}
META = ("token", "delivered", "sent", "acked", "stale_ready", "stale_retry", "backoffs", "stopping", "dedupe", "paused")


def foreign():
    """Yield commands that make a message or the queue foreign, with part names in place of keys."""
    for part, texts in HASHES.items():
        for text in texts:
            yield pytest.param([("HSET", part, ODD, text)], id=f"{part} {text[:12]!r}")
    for score in ("-inf", "inf", "1.5", "-5"):
        yield pytest.param([("ZADD", "pending", score, ODD)], id=f"due {score}")
    stranger = [("HSET", "messages", b"\xff \n", b"1"), ("HSET", "retries", b"\xff \n", b"3")]
    yield pytest.param([*stranger, ("ZADD", "pending", "5", b"\xff \n")], id="id that is no UTF-8")
    yield pytest.param([*stranger, ("LPUSH", "ready", b"\xff \n")], id="entry of ready without a record")
    yield pytest.param([("ZADD", "unack", "inf", ODD)], id="lease without an end")
    yield pytest.param([("ZADD", "schedules", "5", b"\xff"), ("HSET", "schedule_specs", b"\xff", b"{")], id="schedule")
    for name in META:
        yield pytest.param([("HSET", "meta", name, b"\xff nan")], id=f"meta {name}")


@pytest.mark.parametrize("commands", [*foreign()])
def test_good_messages_are_delivered_beside_a_foreign_value(redis_url, commands):
    queue, ran = DelayQueue("beside", url=redis_url, tick=0.05), []
    queue.callback(lambda message: ran.append(message.id))
    queue.send_many([NewMessage(n, id=f"good-{n}", priority=n % 2) for n in range(4)])
    queue.send_delay_msg(1, id=ODD)
    with redis.Redis.from_url(redis_url) as client:
        for name, part, *rest in commands:
            client.execute_command(name, f"delayq:{{beside}}:{part}", *rest)
    consuming = queue.start_consume()
    try:
        wait_until(lambda: {f"good-{n}" for n in range(4)} <= set(ran), 5)
        queue.send_delay_msg(1, id="later")
        wait_until(lambda: "later" in ran, 5)
        assert consuming.running
    finally:
        consuming.stop(0)
    for state in ("pending", "ready", "dead"):
        queue.list(state)
    queue.stats()
    queue.examine(deep=True)
    queue.get(ODD)


@pytest.mark.parametrize(
    ("part", "text", "error"),
    [("retries", b"abc", "the retries left are b'abc'"), ("headers", b"{", "undecodable headers")],
)
def test_unreadable_message_goes_to_the_dead_letter_with_the_reason(redis_url, part, text, error):
    queue = DelayQueue("unreadable", url=redis_url, tick=0.05, default_retries=0)
    queue.callback(lambda message: None)
    queue.send_delay_msg(1, id=ODD)
    with redis.Redis.from_url(redis_url) as client:
        client.hset(f"delayq:{{unreadable}}:{part}", ODD, text)
    consuming = queue.start_consume()
    wait_until(lambda: queue.counts().dead == 1)
    consuming.stop(0)
    (dead,) = queue.list("dead").messages
    assert error in f"{dead.reason} {dead.error}"


def test_examination_tells_what_cannot_be_read(redis_url):
    queue = DelayQueue("examined", url=redis_url)
    queue.send_many([NewMessage(n, "1h", id=f"m{n}", headers={"a": "b"}) for n in range(4)])
    with redis.Redis.from_url(redis_url) as client:
        client.hset("delayq:{examined}:retries", "m0", b"\xff")
        client.hset("delayq:{examined}:headers", "m1", "{")
        client.zadd("delayq:{examined}:pending", {"m2": "inf"})
    found = {
        finding.kind: (finding.count, finding.ids or finding.text) for finding in queue.examine(deep=True).findings
    }
    told = {"unreadable retries": (1, ("m0",)), "headers unreadable": (1, "m1"), "time that never comes": (1, ("m2",))}
    assert {kind: found.get(kind) for kind in told} == told
    queue.repair(deep=True)
    left = {finding.kind for finding in queue.examine(deep=True).findings}
    assert left & told.keys() == {"headers unreadable"}
    assert queue.get("m2").state in {"pending", "ready"}
    assert queue.get("m2").due <= queue.stats().at
