"""Names and data: queues never mix, any bytes survive the round trip, and no payload harms a worker."""

from __future__ import annotations

import random

import pytest

from delayq import ConfigurationError
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

HOSTILE = [
    *("", "x" * 129, "x" * 10_000, "{", "}", "{a}", "a}b{c", "*", "?", "[a-z]", "a b", "a\r\nb", "a\0b", "\0"),
    *(
        "\u202eabc",
        "\u200b",
        "аdmin",
        "naïve",
        "🙂",
        "a\tb",
        "a'b",
        'a"b',
        "a\\b",
        "$(id)",
        "a#b",
        b"bytes",
        7,
        None,
    ),
]
"""The `а` of one of them is Cyrillic."""


@pytest.mark.parametrize("name", HOSTILE, ids=repr)
def test_hostile_names_and_ids_are_refused(open_queue, redis_client, name):
    with pytest.raises(ConfigurationError):
        open_queue(name)
    queue = open_queue()
    acts = [lambda: queue.cancel(name), lambda: queue.reschedule(name, 5), lambda: queue.get(name)]
    if name is not None:
        acts.append(lambda: queue.send_delay_msg("hello", id=name))
    for act in acts:
        with pytest.raises(ConfigurationError):
            act()
    assert list(redis_client.scan_iter()) == []


NAMES = ["a", "A", "a.b", "a-b", "a_b", "ab", "a.pending", "a-pending", "pending", "messages", "queues", "0", "-", "."]


def test_queues_with_similar_names_are_separate(open_queue, redis_client):
    queues = {name: open_queue(name) for name in NAMES}
    for name, queue in queues.items():
        queue.send_delay_msg(name, 60, id="m")
        queue.send_delay_msg(name, 60, id=f"m:{name}")
    for name, queue in queues.items():
        assert queue.get("m").payload == name
        assert queue.counts().living == 2
    assert queues["a"].purge() == 2
    assert all(queue.counts().living == (0 if name == "a" else 2) for name, queue in queues.items())
    keys = {key for key in redis_client.scan_iter() if key.endswith(b":messages")}
    assert len(keys) == len(NAMES) - 1


def test_similar_ids_are_separate(open_queue):
    queue = open_queue()
    ids = ["a", "A", "a:1", "a:2", "a:1:2", "a=", "a/b", "a@b", "a+b", "-", "=", "0", "00", "1", "a" * 128]
    for id in ids:
        queue.send_delay_msg(id, id=id, retries=0)
    for message in queue.lease(60, n=100, block=5):
        message.reject("no")
    assert {message.id for message in queue.dead.list().messages} == set(ids)
    for id in ids:
        assert queue.get(id).payload == id
        assert queue.dead.redrive(id).redriven == 1
        assert queue.get(id).state == "ready"


def test_any_bytes_survive_the_round_trip(open_queue):
    choice = random.Random(7)
    payloads = [
        b"",
        b"\0",
        b"\r\n",
        b"\xff\xfe",
        *(bytes([one]) for one in range(256)),
        *map(choice.randbytes, range(64)),
    ]
    seen = {}
    queue = open_queue(codec="bytes", callback=lambda message: seen.__setitem__(message.id, message.payload))
    ids = queue.send_many(payloads).ids
    queue.run(burst=True)
    assert seen == dict(zip(ids, payloads, strict=True))


BOMBS = {
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "open": b"[" * 1_000_000,
    "objects": b'{"a":' * 100_000,
    "number": b"9" * 900_000,
    "no JSON": b"\x80\x04\x95",
    "no text": b"\xff\xfe",
    "nothing": b"",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_undecodable_payload_is_dead_and_the_worker_continues(open_queue, bomb):
    open_queue(codec="bytes").send_delay_msg(BOMBS[bomb], id="bomb", retries=1)
    seen = []
    queue = open_queue(payload_type=dict, nack_delay=0, callback=lambda message: seen.append(message.payload))
    consuming = queue.start_consume()
    queue.send_delay_msg({"a": 1})
    wait_until(lambda: seen == [{"a": 1}])
    wait_until(lambda: queue.counts().dead == 1)
    assert consuming.running
    found = queue.get("bomb")
    assert (found.state, found.payload, found.attempts) == ("dead", BOMBS[bomb], 2)
    assert found.reason.startswith("undecodable")
