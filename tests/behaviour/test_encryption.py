"""Encrypted payloads: they are delivered as they were sent, and only to the queue and the keys they were sent for."""

from __future__ import annotations

import pytest
import redis

from delayq import Encrypted, NewMessage, Retry
from tests.behaviour.places import everywhere

KEYS = {"2026": bytes(range(32)), "2025": bytes(16)}
CODEC = Encrypted(KEYS)
CARD = {"card": {"number": "4111"}}


def stored(url):
    """Return everything that Redis holds, as one text of bytes."""
    with redis.Redis.from_url(url) as client:
        found = [client.dump(key) for key in client.scan_iter()]
    return b"".join(found)


def deliver(queue):
    """Run the queue; return the payloads that its callback got."""
    seen = []
    queue.callback(lambda message: seen.append(message.payload))
    queue.run(burst=True)
    return seen


def test_redis_never_sees_what_is_sent_returned_or_reported(open_queue, url):
    queue = open_queue(codec=CODEC, retention="1h")

    def pay(message):
        message.report("halfway 4111")
        return {"receipt": "4111"}

    queue.callback(pay)
    queue.send_delay_msg(CARD, id="m", headers={"shop": "a"})
    queue.send_many([CARD, NewMessage(CARD, id="n")])
    queue.send_delay_msg(CARD, "1h", id="later", replace="after")
    assert b"4111" not in stored(url)
    queue.run(burst=True)
    assert queue.result("m") == {"receipt": "4111"}
    assert queue.get("later").payload == CARD
    assert b"4111" not in stored(url)


def test_results_and_progress_are_read_with_the_key_only(open_queue):
    queue = open_queue(codec=CODEC, retention="1h", callback=lambda message: message.report("half") and "done")
    queue.send_delay_msg(CARD, id="m")
    queue.run(burst=True)
    assert queue.result("m") == queue.get("m").result == "done"
    assert isinstance(open_queue(codec="bytes").get("m").result, bytes)


@everywhere
def test_tasks_batches_and_typed_payloads_work_as_ever(open_queue):
    queue, seen = open_queue(codec=CODEC), []

    @queue.task
    def remind(user, text=""):
        seen.append((user, text))

    remind.send(42, text="dentist")
    queue.run(burst=True)
    typed = open_queue("typed", codec=CODEC, payload_type=int)
    typed.send_many([1, 2])
    typed.batch_callback(lambda messages: seen.extend(message.payload for message in messages))
    typed.run(burst=True)
    assert sorted(seen, key=str) == [(42, "dentist"), 1, 2]


def test_a_successor_is_decoded_when_its_turn_comes(open_queue):
    queue = open_queue(codec=CODEC)
    seen = []

    def work(message):
        seen.append(message.payload)
        if message.payload == 1:
            queue.send_delay_msg(2, id="m", replace="after")

    queue.callback(work)
    queue.send_delay_msg(1, id="m")
    queue.run(burst=True)
    assert seen == [1, 2]


@pytest.mark.parametrize("how", ["key", "cut", "moved", "plain"])
def test_what_cannot_be_decrypted_goes_to_the_dead_letter_and_the_worker_lives(open_queue, url, how):
    good, raw = open_queue(codec=CODEC), open_queue(codec="bytes")
    sealed = {
        "key": Encrypted({"2026": bytes(32)}).for_queue("reminders").encode(CARD),
        "cut": CODEC.for_queue("reminders").encode(CARD)[:-1],
        "moved": CODEC.for_queue("other").encode(CARD),
        "plain": b'{"card":1}',
    }
    raw.send_delay_msg(sealed[how], id="bad", retries=0)
    good.send_delay_msg(CARD, id="good")
    assert deliver(good) == [CARD]
    (dead,) = good.dead.list().messages
    assert dead.reason.startswith("undecodable: ")
    assert dead.payload == sealed[how]
    assert "4111" not in dead.reason


def test_a_worker_with_the_new_key_decodes_what_was_sent_with_the_old_one(open_queue):
    open_queue(codec=Encrypted({"2025": KEYS["2025"]})).send_delay_msg(CARD)
    assert deliver(open_queue(codec=CODEC)) == [CARD]


def test_equal_payloads_are_unique_and_their_id_tells_nothing_without_the_key(open_queue):
    queue = open_queue(codec=CODEC)
    first, again = (queue.send_delay_msg(CARD, "1h", unique="payload") for _ in range(2))
    assert first.id == again.id
    assert (first.status, again.status) == ("new", "exists")
    guess = open_queue("reminders", codec=Encrypted({"2026": bytes(32)})).send_delay_msg(CARD, "1h", unique="payload")
    plain = open_queue("reminders").send_delay_msg(CARD, "1h", unique="payload")
    assert len({first.id, guess.id, plain.id}) == 3


def test_a_redrive_can_give_another_payload(open_queue):
    queue = open_queue(codec=CODEC)
    queue.send_delay_msg({"to": "a"}, id="m", retries=0)
    queue.callback(lambda message: message.payload["to"] == "b")
    queue.run(burst=True)
    queue.dead.redrive(payloads={"m": {"to": "b"}})
    assert queue.get("m").payload == {"to": "b"}
    queue.run(burst=True)
    assert queue.get("m") is None


def test_schedules_stay_as_they_are_when_they_are_declared_again(open_queue):
    queue, options = open_queue(codec=CODEC), {"every": "1h", "payload": CARD}
    assert queue.schedules.add("s", **options) == "new"
    assert open_queue(codec=CODEC).schedules.add("s", **options) == "unchanged"
    queue.schedules.run_now("s")
    assert deliver(queue) == [CARD]
    assert queue.schedules.get("s").payload == CARD


def test_a_worker_of_many_queues_decodes_each_with_its_own_name(face, open_queue):
    like, seen = open_queue("card-0", codec=CODEC), []

    @like.every("1h", payload={"declared": True})
    def hourly(message):
        seen.append(message.payload)

    like.callback(lambda message: seen.append(message.payload))
    other = open_queue("card-1", codec=CODEC)
    other.send_delay_msg(CARD)
    like.send_delay_msg({"n": 0})
    worker = face.matching("card-*", like)
    worker.run(burst=True)
    other.schedules.run_now("hourly")
    face.matching("card-*", like).run(burst=True)
    assert sorted(seen, key=str) == [CARD, {"declared": True}, {"n": 0}]


def test_failures_are_retried_with_the_same_payload(open_queue):
    queue, seen = open_queue(codec=CODEC), []

    def work(message):
        seen.append(message.payload)
        if len(seen) == 1:
            raise Retry("later", delay="50ms")

    queue.callback(work)
    queue.send_delay_msg(CARD)
    queue.run(burst=True)
    assert seen == [CARD, CARD]
