"""Repair: what somebody puts in a wrong place is found, told and put right, and nothing is lost meanwhile."""

from __future__ import annotations

import random
import threading
from collections import Counter
from functools import partial

import pytest

from delayq import ConfigurationError, FindingKind
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults


def key(part: str) -> str:
    return f"delayq:{{reminders}}:{part}"


def told(checkup) -> dict[str, int]:
    """What a look has found, but for the server, which is a throwaway one."""
    return {str(one.kind): one.count for one in checkup.findings if one.kind is not FindingKind.SERVER}


def ids(checkup) -> set[str]:
    return {id for one in checkup.findings for id in one.ids}


def mend(queue, *, deep: bool = True) -> dict[str, int]:
    """Look, mend, look again: what was found is what was mended, and nothing is left."""
    before = told(queue.examine(deep=deep))
    checkup = queue.repair(deep=deep)
    assert all(one.mended == one.count for one in checkup.findings if one.kind is not FindingKind.SERVER)
    assert told(checkup) == before
    assert told(queue.examine(deep=True)) == {}
    return before


@pytest.fixture
def crowd(open_queue):
    """A queue with a message in each state, of which nothing may change."""
    queue = open_queue()
    queue.send_delay_msg("later", 60, id="pending")
    queue.send_many(["one", "two"])
    first, second = queue.lease(60, n=2, block=5)
    second.nack(delay=60)
    for id in ("plug", "ready", "dead"):
        queue.send_delay_msg(id, id=id)
    wait_until(lambda: queue.stats().at > queue.get("dead").due)
    acts = {message.id: message for message in queue.lease(60, n=3, block=5)}
    acts["plug"].ack()
    acts["dead"].reject("no")
    acts["ready"].release()
    assert first.payload == "one"
    return queue


def test_a_healthy_queue_is_left_as_it_is(crowd, redis_client):
    before = {one: redis_client.dump(one) for one in redis_client.scan_iter() if b":replies" not in one}
    assert mend(crowd) == {}
    assert mend(crowd, deep=False) == {}
    assert {one: redis_client.dump(one) for one in redis_client.scan_iter() if b":replies" not in one} == before


def test_looking_makes_no_queue_known(open_queue, redis_client):
    assert told(open_queue().examine(deep=True)) == {}
    assert redis_client.keys() == []


def test_an_id_in_pending_and_unack_is_not_delivered_twice(crowd, redis_client):
    (held,) = crowd.list("active").messages
    redis_client.zadd(key("pending"), {held.id: 0})
    assert mend(crowd, deep=False) == {"in a second place": 1}
    found = crowd.get(held.id)
    assert (found.state, found.token) == ("active", held.token)


def test_an_entry_of_ready_without_a_record_is_a_message_again(crowd, redis_client):
    redis_client.hdel(key("deliveries"), "ready")
    assert mend(crowd, deep=False) == {"payload without place": 1, "counter off": 1}
    assert crowd.get("ready").state == "pending"
    assert {message.payload for message in crowd.lease(60, n=5, block=5)} == {"ready"}


def test_a_record_that_names_another_place_is_believed_only_if_it_is_there(crowd, redis_client):
    record = redis_client.hget(key("deliveries"), "ready")
    redis_client.hset(key("deliveries"), "ready", record.replace(b"ready", b"retry"))
    assert mend(crowd, deep=False) == {"payload without place": 1, "counter off": 1}
    assert {message.payload for message in crowd.lease(60, n=5, block=5)} == {"ready"}


def test_a_payload_without_a_place_is_delivered_now(crowd, redis_client):
    redis_client.zrem(key("pending"), "pending")
    assert mend(crowd) == {"payload without place": 1}
    assert {message.payload for message in crowd.lease(60, n=5, block=5)} >= {"later"}


def test_a_message_that_was_taken_out_of_its_lease_comes_back_and_a_late_ack_still_counts(crowd, redis_client):
    crowd.send_delay_msg("held", id="held")
    (held,) = (one for one in crowd.lease(60, n=5, block=5) if one.id == "held")
    redis_client.zrem(key("unack"), "held")
    assert told(crowd.repair()) == {"payload without place": 1}
    assert held.ack()
    assert crowd.get("held") is None


def test_a_place_without_payload_is_cleared_and_told(crowd, redis_client):
    redis_client.hdel(key("messages"), "pending", "ready")
    found = mend(crowd)
    assert found["place without payload"] == 1
    assert found["remains of no message"] == 1
    assert crowd.get("pending") is None
    assert not redis_client.hexists(key("retries"), "pending")


@pytest.mark.parametrize("part", ["retries", "headers", "errors"])
def test_remains_of_no_message_are_deleted(crowd, redis_client, part):
    redis_client.hset(key(part), mapping={"nobody": "3", "nothing": "4"})
    checkup = crowd.examine(deep=True)
    assert ids(checkup) == {"nobody", "nothing"}
    assert mend(crowd) == {"remains of no message": 2}
    assert not redis_client.hexists(key(part), "nobody")


def test_a_delivery_of_no_message_is_deleted_by_a_light_look(crowd, redis_client):
    redis_client.hset(key("deliveries"), "nobody", "leased 5 1 7 7 me")
    assert mend(crowd, deep=False) == {"remains of no message": 1}


def test_a_message_without_retries_gets_the_default(crowd, redis_client):
    redis_client.hdel(key("retries"), "pending")
    assert mend(crowd) == {"without retries": 1}
    assert crowd.get("pending").retries_left == 3


@pytest.mark.parametrize(
    ("name", "value"), [("stale_ready", 5), ("stale_retry", -2), ("backoffs", 4), ("backoffs", "x")]
)
def test_counters_are_counted_anew(crowd, redis_client, name, value):
    counts = crowd.counts()
    redis_client.hset(key("meta"), name, value)
    assert told(crowd.repair()) == {"counter off": 1}
    assert crowd.counts() == counts
    assert told(crowd.examine(deep=True)) == {}


def test_of_several_wake_ups_one_is_left(crowd, redis_client):
    redis_client.delete(key("wake"))
    redis_client.rpush(key("wake"), 1, 1, 1)
    assert mend(crowd, deep=False) == {"wake-ups too many": 2}
    assert redis_client.llen(key("wake")) == 1


def test_a_death_of_which_a_part_is_gone_is_put_in_step(crowd, redis_client):
    (entry,) = crowd.dead.list().messages
    redis_client.zrem(key("dead"), entry.entry)
    assert mend(crowd) == {"dead without entry": 1}
    assert crowd.dead.list().messages == [entry]
    redis_client.hdel(key("dead_ids"), "dead")
    assert mend(crowd) == {"dead out of step": 1}
    assert crowd.get("dead") == entry
    redis_client.hdel(key("dead_messages"), entry.entry)
    assert mend(crowd) == {"dead without message": 1}
    assert crowd.counts().dead == 0
    assert crowd.get("dead") is None


def test_an_unknown_field_is_told_and_kept(crowd, redis_client):
    redis_client.hset(key("meta"), "colour", "blue")
    checkup = crowd.repair()
    (finding,) = (one for one in checkup.findings if one.kind is FindingKind.FIELD)
    assert (finding.text, finding.mended, checkup.healthy) == ("colour", 0, False)
    assert redis_client.hget(key("meta"), "colour") == b"blue"


@pytest.mark.parametrize("part", ["pending", "ready", "unack", "retries", "deliveries", "messages", "meta"])
def test_a_deleted_key_costs_no_message_that_has_its_payload(open_queue, redis_client, part):
    queue = open_queue()
    queue.send_many(range(20))
    held = list(queue.lease(60, n=5, block=5))
    queue.send_many(range(20, 30), 60)
    redis_client.delete(key(part))
    queue.repair(deep=True)
    assert told(queue.examine(deep=True)) == {}
    assert queue.counts().living == (0 if part == "messages" else 30)
    if part in ("retries", "meta"):
        assert all(message.ack() for message in held)


def test_the_log_tells_what_was_given_a_new_time(open_queue, redis_client):
    queue = open_queue(events=True)
    queue.send_delay_msg("hello", 60, id="m")
    redis_client.zrem(key("pending"), "m")
    queue.repair(deep=True)
    assert [event.kind for event in queue.events()] == ["sent", "rescheduled"]
    assert queue.stats().totals["repaired"] == 1


def test_what_is_no_truth_is_refused(open_queue):
    with pytest.raises(ConfigurationError, match="deep"):
        open_queue().repair(deep=1)


DAMAGE = ("pending", "unack", "garbage", "retries", "deliveries")


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_planted_is_mended_and_every_payload_delivered(open_queue, redis_client, seed):
    queue, choice = open_queue(), random.Random(seed)
    queue.send_many(range(200), retries=0)
    for message in queue.lease(60, n=60, block=5):
        choice.choice([list, message.ack, message.nack, message.release, partial(message.reject, "no")])()
    left = {int(value) for value in redis_client.hvals(key("messages"))}
    known = [*redis_client.hkeys(key("messages")), *(f"ghost-{number}" for number in range(20))]
    for id in choice.sample(known, 80):
        part = choice.choice(DAMAGE)
        if part in ("pending", "unack"):
            choice.choice([redis_client.zrem, lambda at, one: redis_client.zadd(at, {one: 1})])(key(part), id)
        elif part == "garbage":
            choice.choice([redis_client.sadd, redis_client.srem])(key(part), id)
        else:
            redis_client.hdel(key(part), id)
    redis_client.rpush(key("ready"), *choice.sample(known, 10))

    queue.repair(deep=True)

    assert told(queue.examine(deep=True)) == {}
    seen = set()
    queue.callback(lambda message: seen.add(message.payload))
    for id in (one.id for one in queue.list("active").messages):
        redis_client.zadd(key("unack"), {id: 1})  # their leases are over
    queue.run(burst=True)
    dead = {message.payload for message in queue.dead.list().messages}
    assert left <= seen | dead
    assert told(queue.examine(deep=True)) == {}


def repair_beside_load(open_queue, redis_client, messages: int) -> None:
    """Producers and consumers at work, places torn away from under them, and repairs without end."""
    done, rounds, ghosts = threading.Event(), [], 0
    deliveries: Counter[int] = Counter()
    queue = open_queue(callback=lambda message: deliveries.update([message.payload]), concurrency=4, lease="5s")
    producer, doctor = open_queue(), open_queue()
    queue.start_consume()

    def repair() -> None:
        while not done.is_set():
            rounds.append(told(doctor.repair(deep=len(rounds) % 3 == 0)))

    repairing = threading.Thread(target=repair)
    repairing.start()
    lost = []
    try:
        for first in range(0, messages, 100):
            producer.send_many(range(first, first + 100), (first % 300) / 1000)
            if first % 1000 == 0:
                id = f"torn-{first}"
                producer.send_delay_msg(-1 - first, 60, id=id)
                redis_client.zrem(key("pending"), id)
                redis_client.zadd(key("pending"), {f"ghost-{first}": 1e13})
                lost.append(-1 - first)
                ghosts += 1
        wait_until(lambda: set(deliveries) == {*range(messages), *lost}, 60)
        wait_until(lambda: redis_client.zcard(key("pending")) == 0, 60)
    finally:
        done.set()
        repairing.join()

    assert queue.stop_consume()
    assert deliveries == dict.fromkeys([*range(messages), *lost], 1)
    found: Counter[str] = Counter()
    for one in rounds:
        found.update(one)
    found.pop("counts do not add up", 0)  # a light look that came between a tear and a deep look
    assert found == {"payload without place": len(lost), "place without payload": ghosts}
    assert told(queue.examine(deep=True)) == {}
    assert queue.counts().living == 0


def test_repairing_beside_producers_and_consumers_loses_and_doubles_nothing(open_queue, redis_client):
    repair_beside_load(open_queue, redis_client, 3000)


@pytest.mark.torture
def test_repairing_beside_producers_and_consumers_for_long(open_queue, redis_client):
    repair_beside_load(open_queue, redis_client, 200_000)
