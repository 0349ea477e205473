"""Repair: inconsistencies are found, reported and repaired, and nothing is lost meanwhile."""

from __future__ import annotations

import random
import threading
from collections import Counter
from functools import partial

import pytest

from delayq import ConfigurationError, FindingKind
from tests.support.scripts import NUMBERING
from tests.support.stored import all_but_slots
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults


def key(part: str) -> str:
    return f"delayq:{{reminders}}:{part}"


def counts_of(checkup) -> dict[str, int]:
    """The findings of a check, except those about the temporary server."""
    return {str(one.kind): one.count for one in checkup.findings if one.kind is not FindingKind.SERVER}


def ids(checkup) -> set[str]:
    return {id for one in checkup.findings for id in one.ids}


def repair_completely(queue, *, deep: bool = True) -> dict[str, int]:
    """Check, repair, check again: exactly the findings were repaired, and none is left."""
    before = counts_of(queue.examine(deep=deep))
    checkup = queue.repair(deep=deep)
    assert all(one.mended == one.count for one in checkup.findings if one.kind is not FindingKind.SERVER)
    assert counts_of(checkup) == before
    assert counts_of(queue.examine(deep=True)) == {}
    return before


@pytest.fixture
def crowd(open_queue):
    """A queue with a message in each state."""
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


def test_repair_does_not_change_a_healthy_queue(crowd, redis_client):
    before = all_but_slots(redis_client)
    assert repair_completely(crowd) == {}
    assert repair_completely(crowd, deep=False) == {}
    assert all_but_slots(redis_client) == before


def test_examine_does_not_register_a_queue(open_queue, redis_client):
    assert counts_of(open_queue().examine(deep=True)) == {}
    assert redis_client.keys() == []


def test_id_in_pending_and_unack_is_not_delivered_twice(crowd, redis_client):
    (held,) = crowd.list("active").messages
    redis_client.zadd(key("pending"), {held.id: 0})
    assert repair_completely(crowd, deep=False) == {"in a second place": 1}
    found = crowd.get(held.id)
    assert (found.state, found.token) == ("active", held.token)


def test_entry_of_ready_without_a_record_is_delivered(crowd, redis_client):
    redis_client.hdel(key("deliveries"), "ready")
    assert repair_completely(crowd, deep=False) == {"payload without place": 1, "counter off": 1}
    assert crowd.get("ready").state == "ready"
    assert {message.payload for message in crowd.lease(60, n=5, block=5)} == {"ready"}


def test_message_with_a_record_of_another_state_is_delivered(crowd, redis_client):
    record = redis_client.hget(key("deliveries"), "ready")
    redis_client.hset(key("deliveries"), "ready", record.replace(b"ready", b"retry"))
    assert repair_completely(crowd, deep=False) == {"payload without place": 1, "counter off": 1}
    assert {message.payload for message in crowd.lease(60, n=5, block=5)} == {"ready"}


def test_payload_without_a_place_is_delivered_at_once(crowd, redis_client):
    redis_client.zrem(key("pending"), "pending")
    assert repair_completely(crowd) == {"payload without place": 1}
    assert {message.payload for message in crowd.lease(60, n=5, block=5)} >= {"later"}


def test_message_that_lost_its_lease_entry_can_still_be_acked_late(crowd, redis_client):
    crowd.send_delay_msg("held", id="held")
    (held,) = (one for one in crowd.lease(60, n=5, block=5) if one.id == "held")
    redis_client.zrem(key("unack"), "held")
    assert counts_of(crowd.repair()) == {"payload without place": 1}
    assert held.ack()
    assert crowd.get("held") is None


def test_place_without_payload_is_deleted_and_reported(crowd, redis_client):
    redis_client.hdel(key("messages"), "pending", "ready")
    found = repair_completely(crowd)
    assert found["place without payload"] == 1
    assert found["remains of no message"] == 1
    assert crowd.get("pending") is None
    assert not redis_client.hexists(key("retries"), "pending")


@pytest.mark.parametrize("part", ["retries", "headers", "errors"])
def test_fields_without_a_message_are_deleted(crowd, redis_client, part):
    redis_client.hset(key(part), mapping={"nobody": "3", "nothing": "4"})
    checkup = crowd.examine(deep=True)
    assert ids(checkup) == {"nobody", "nothing"}
    assert repair_completely(crowd) == {"remains of no message": 2}
    assert not redis_client.hexists(key(part), "nobody")


def test_delivery_without_a_message_is_deleted_by_a_light_repair(crowd, redis_client):
    redis_client.hset(key("deliveries"), "nobody", "leased 5 1 7 7 me")
    assert repair_completely(crowd, deep=False) == {"remains of no message": 1}


def test_a_message_with_retries_that_are_no_number_gets_the_default(crowd, redis_client):
    redis_client.hset(key("retries"), "pending", "many")
    assert repair_completely(crowd) == {"unreadable retries": 1}
    assert crowd.get("pending").retries_left == 3


@pytest.mark.parametrize(
    ("name", "value"), [("stale_ready", 5), ("stale_retry", -2), ("backoffs", 4), ("backoffs", "x")]
)
def test_wrong_counters_are_recounted(crowd, redis_client, name, value):
    counts = crowd.counts()
    redis_client.hset(key("meta"), name, value)
    assert counts_of(crowd.repair()) == {"counter off": 1}
    assert crowd.counts() == counts
    assert counts_of(crowd.examine(deep=True)) == {}


def test_only_one_wakeup_is_kept(crowd, redis_client):
    redis_client.delete(key("wake"))
    redis_client.rpush(key("wake"), 1, 1, 1)
    assert repair_completely(crowd, deep=False) == {"wake-ups too many": 2}
    assert redis_client.llen(key("wake")) == 1


def test_partly_deleted_dead_message_is_repaired(crowd, redis_client):
    (entry,) = crowd.dead.list().messages
    redis_client.zrem(key("dead"), entry.entry)
    assert repair_completely(crowd) == {"dead without entry": 1}
    assert crowd.dead.list().messages == [entry]
    redis_client.hdel(key("dead_ids"), "dead")
    assert repair_completely(crowd) == {"dead out of step": 1}
    assert crowd.get("dead") == entry
    redis_client.hdel(key("dead_messages"), entry.entry)
    assert repair_completely(crowd) == {"dead without message": 1}
    assert crowd.counts().dead == 0
    assert crowd.get("dead") is None


def test_result_without_entry_gets_one_until_its_retention_is_over(open_queue, redis_client):
    queue = open_queue(callback=lambda message: "done", retention="1h")
    queue.send_delay_msg("work", id="kept")
    queue.run(burst=True)
    ends = redis_client.zscore(key("completed"), "kept")
    redis_client.delete(key("completed"))
    redis_client.hset(key("results"), "foreign", "no record")
    assert repair_completely(queue) == {"result without entry": 2}
    assert redis_client.zscore(key("completed"), "kept") == ends
    assert redis_client.zscore(key("completed"), "foreign") == 0
    assert queue.result("kept") == "done"


def test_what_another_program_adds_to_the_dead_letter_is_trimmed_like_any_entry(open_queue, redis_client):
    queue = open_queue(dead_max=1, callback=lambda message: False)
    queue.open()
    redis_client.zadd(key("dead"), {"no token": 1, "not-ours": 2, "n:1": 3})
    redis_client.hset(key("dead_messages"), mapping={"not-ours": "no message", "n:1": "no message"})
    assert queue.dead.list().messages == []
    assert queue.dead.redrive("not-ours").redriven == queue.dead.purge("not-ours") == 0
    assert queue.dead.redrive("n:1").redriven == 0

    queue.send_delay_msg("hopeless", retries=0, id="m")
    queue.run(burst=True)

    assert [message.id for message in queue.dead.list().messages] == ["m"]
    assert queue.stats().totals["trimmed"] == 3
    assert queue.dead.purge(all=True) == 1
    assert not redis_client.exists(key("dead"), key("dead_messages"), key("dead_ids"))


def test_dead_message_of_another_program_is_not_shown(queue, redis_client):
    redis_client.zadd(key("dead"), {"n:1": 0})
    redis_client.hset(key("dead_ids"), "n", "1")
    redis_client.hset(key("dead_messages"), "n:1", "no message")
    assert queue.get("n") is None
    assert queue.dead.list().messages == []


def test_unknown_field_is_reported_and_kept(crowd, redis_client):
    redis_client.hset(key("meta"), "colour", "blue")
    checkup = crowd.repair()
    (finding,) = (one for one in checkup.findings if one.kind is FindingKind.FIELD)
    assert (finding.text, finding.mended, checkup.healthy) == ("colour", 0, False)
    assert redis_client.hget(key("meta"), "colour") == b"blue"


@pytest.mark.parametrize("part", ["pending", "ready", "unack", "retries", "deliveries", "messages", "meta"])
def test_deleted_key_loses_no_message_that_has_its_payload(open_queue, redis_client, part):
    queue = open_queue()
    queue.send_many(range(20))
    held = list(queue.lease(60, n=5, block=5))
    queue.send_many(range(20, 30), 60)
    redis_client.delete(key(part))
    queue.repair(deep=True)
    assert counts_of(queue.examine(deep=True)) == {}
    assert queue.counts().living == (0 if part == "messages" else 30)
    if part in ("retries", "meta"):
        assert all(message.ack() for message in held)


def test_rescheduling_by_repair_is_logged(open_queue, redis_client):
    queue = open_queue(events=True)
    queue.send_delay_msg("hello", 60, id="m")
    redis_client.zrem(key("pending"), "m")
    queue.repair(deep=True)
    assert [event.kind for event in queue.events()] == ["sent", "rescheduled"]
    assert queue.stats().totals["repaired"] == 1


# The event log


def set_text(client):
    client.delete(key("events"))
    client.set(key("events"), "a text")


LOG_FAULTS = {
    "another program added entry": lambda client: client.xadd(key("events"), {"not": "ours"}),
    "leaves no higher id": lambda client: client.xadd(key("events"), {"a": 1}, id=f"{2**64 - 1}-0"),
    "is not a stream": set_text,
}


@pytest.mark.parametrize("problem", LOG_FAULTS)
def test_log_that_cannot_be_written_is_reported_and_repaired(open_queue, redis_client, problem):
    if problem == "another program added entry" and NUMBERING == "*":
        pytest.skip("entries that are numbered by time can follow it")
    queue = open_queue(events=True)
    queue.send_many([1, 2])
    offset = max(event.offset for event in queue.events())
    LOG_FAULTS[problem](redis_client)
    (finding,) = log_findings(queue.examine())
    assert finding.text.startswith("cannot be written; ")
    queue.send_many([3, 4])
    queue.cancel(queue.send_delay_msg(5, 60).id)
    assert queue.stats().totals["events_lost"] == 3
    (finding,) = log_findings(queue.examine())
    assert (finding.text.partition(";")[0], finding.count, finding.mended) == ("3 missing", 1, 0)
    assert problem in finding.text

    (finding,) = log_findings(queue.repair())
    assert (finding.count, finding.mended) == (1, 1)
    assert not log_findings(queue.examine())
    queue.send_delay_msg(6, id="after")
    assert "events_lost" not in queue.stats().totals
    assert [event.id for event in queue.events(offset)] == ["after"]


def test_log_that_can_be_written_again_has_its_count_reset(open_queue, redis_client):
    queue = open_queue(events=True)
    queue.send_delay_msg("hello", 60)
    redis_client.execute_command("ACL", "SETUSER", "default", "-xadd")
    try:
        queue.send_delay_msg("hello", 60)
    finally:
        redis_client.execute_command("ACL", "SETUSER", "default", "+xadd")
    (finding,) = log_findings(queue.repair())
    assert finding.text.startswith("1 missing; it can be written now, unless a Redis user lacks +xadd")
    assert not log_findings(queue.examine())


def test_setting_that_is_not_delayqs_is_switched_off(open_queue, redis_client):
    queue = open_queue(events=True)
    queue.open()
    redis_client.hset(key("meta"), mapping={"events": "blue 1000", "events_lost": "\x1b"})
    queue.send_delay_msg("hello", 60)
    (finding,) = log_findings(queue.repair())
    assert finding.text == "some missing; its setting is not one of delayq's: --repair switches it off"
    assert not log_findings(queue.examine())
    assert not redis_client.hexists(key("meta"), "events")


def test_entries_lost_before_the_log_was_switched_off_are_reported(open_queue, redis_client):
    queue = open_queue(events=True)
    queue.open()
    set_text(redis_client)
    queue.send_delay_msg("hello", 60)
    off = open_queue(events=False)
    off.open()
    assert log_findings(off.repair())[0].text == "1 missing; it is off now: --repair resets the count"
    assert not log_findings(off.examine())


def log_findings(checkup):
    return [finding for finding in checkup.findings if finding.kind is FindingKind.EVENTS]


def test_invalid_deep_option_is_refused(open_queue):
    with pytest.raises(ConfigurationError, match="deep"):
        open_queue().repair(deep=1)


DAMAGE = ("pending", "unack", "garbage", "retries", "deliveries")


@pytest.mark.parametrize("seed", range(3))
def test_random_damage_is_repaired_and_every_payload_delivered(open_queue, redis_client, seed):
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

    assert counts_of(queue.examine(deep=True)) == {}
    seen = set()
    queue.callback(lambda message: seen.add(message.payload))
    for id in (one.id for one in queue.list("active").messages):
        redis_client.zadd(key("unack"), {id: 1})  # their leases expire
    queue.run(burst=True)
    dead = {message.payload for message in queue.dead.list().messages}
    assert left <= seen | dead
    assert counts_of(queue.examine(deep=True)) == {}


def repair_beside_load(open_queue, redis_client, messages: int) -> None:
    """Producers and consumers work while structures are damaged and repaired all the time."""
    done, rounds, ghosts = threading.Event(), [], 0
    deliveries: Counter[int] = Counter()
    queue = open_queue(callback=lambda message: deliveries.update([message.payload]), concurrency=4, lease="5s")
    producer, doctor = open_queue(), open_queue()
    queue.start_consume()

    def repair() -> None:
        while not done.is_set():
            rounds.append(counts_of(doctor.repair(deep=len(rounds) % 3 == 0)))

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
    found.pop("counts do not add up", 0)  # a light check between the damage and a deep check
    assert found == {"payload without place": len(lost), "place without payload": ghosts}
    assert counts_of(queue.examine(deep=True)) == {}
    assert queue.counts().living == 0


def test_repair_under_load_loses_and_duplicates_nothing(open_queue, redis_client):
    repair_beside_load(open_queue, redis_client, 3000)


@pytest.mark.torture
def test_long_repair_under_load_loses_and_duplicates_nothing(open_queue, redis_client):
    repair_beside_load(open_queue, redis_client, 200_000)
