"""`queue.why`: why a message waits, or why a queue gives out nothing."""

from __future__ import annotations

import pytest

from delayq import Breaker, ConfigurationError, NewMessage, RateLimited, Reason, Why
from tests.behaviour.places import ID, bring, everywhere
from tests.support.waiting import wait_until


def kinds(why: Why) -> list[str]:
    return [reason.kind for reason in why.reasons]


def first(why: Why, kind: str) -> Reason:
    return next(reason for reason in why.reasons if reason.kind == kind)


@everywhere
@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        ("pending", "due", "it is due at 20"),
        ("ready", "busy", "waiting for a free consumer: 1 message"),
        ("active", "held", "attempt 1, leased until"),
        ("backoff", "retry", "after the error busy"),
        ("retry", "retry", "delivered again"),
        ("dead", "dead", "no such user"),
        ("acked", "unknown", "never sent, or is done"),
        ("gone", "unknown", "never sent, or is done"),
    ],
)
def test_each_state_has_its_reason(queue, state, kind, words):
    bring(queue, state)
    found = queue.why(ID)
    assert found.id == ID
    assert found.state == (None if kind == "unknown" else state)
    assert words in first(found, kind).text


def test_due_time_and_lease_are_given_as_times(queue):
    bring(queue, "pending")
    assert first(queue.why(ID), "due").until == queue.get(ID).due
    queue.reschedule(ID, 0)
    assert [message.id for message in queue.lease("60s", n=1)] == [ID]
    assert first(queue.why(ID), "held").until == queue.get(ID).deadline


@everywhere
def test_pause_of_the_queue_is_told_with_its_reason_and_end(queue):
    pause = queue.pause("1h", reason="maintenance")
    queue.send_delay_msg(1, id="due")
    queue.send_delay_msg(1, "2h", id="later")
    reason = first(queue.why("due"), "paused")
    assert reason.text.startswith("the queue is paused until ")
    assert reason.text.endswith(": maintenance")
    assert reason.until == pause.until
    assert "paused" not in kinds(queue.why("later"))  # it has ended by then
    assert "paused" in kinds(queue.why())


@everywhere
def test_pause_of_a_name_is_told(queue):
    queue.pause(name="mail", reason="no relay")
    queue.send_delay_msg(1, id=ID, name="mail")
    assert [*queue.lease(n=1)] == []
    found = queue.why(ID)
    assert first(found, "name paused").text == "the name mail is paused until it is resumed: no relay"
    assert first(found, "name paused").name == "mail"
    text = first(queue.why(), "name paused").text
    assert text == "1 message is held back: the name mail is paused until it is resumed: no relay"


@everywhere
def test_rate_is_told_with_its_next_start(queue):
    queue.limits.set("mail", rate_limit="10/m", burst=1)
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(3)])
    assert len([*queue.lease(n=3)]) == 1
    found = queue.why("m1")
    reason = first(found, "rate")
    assert reason.text.startswith("the rate of mail is 10/m: the next starts at ")
    assert reason.text.endswith(", and 2 messages of it wait")
    assert 0 < (reason.until - found.at).total_seconds() < 6.1
    assert first(queue.why(), "rate").text.startswith("2 messages are held back: the rate of mail")


def test_message_starts_when_its_rate_says(open_queue):
    queue = open_queue()
    queue.limits.set("mail", rate_limit="2/s", burst=1)
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(2)])
    assert [message.id for message in queue.lease(n=2)] == ["m0"]
    until = first(queue.why("m1"), "rate").until
    wait_until(lambda: [message.id for message in queue.lease(n=2)] == ["m1"])
    assert queue.stats().last_claim >= until


@everywhere
def test_places_that_are_taken_are_told_with_their_ids(queue):
    queue.limits.set("mail", running=2)
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(3)])
    assert len([*queue.lease(n=3)]) == 2
    reason = first(queue.why("m2"), "running")
    assert reason.text == "2 of 2 places of mail are taken, by m0, m1"
    assert set(reason.ids) == {"m0", "m1"}


@everywhere
def test_limit_of_the_queue_is_told(queue):
    queue.limits.set(running=1)
    queue.send_many([NewMessage(n, id=f"m{n}") for n in range(2)])
    assert [message.id for message in queue.lease(n=2)] == ["m0"]
    assert first(queue.why("m1"), "running").text == "1 of 1 places of the queue are taken"
    assert kinds(queue.why()) == ["running", "held"]


def test_name_that_a_callback_has_closed_is_told(open_queue):
    def send(message):
        raise RateLimited("1h")

    queue = open_queue(callback=send)
    queue.send_delay_msg(0, id="m0", name="mail")
    queue.start_consume()
    wait_until(lambda: any(limit.closed_until for limit in queue.limits.list()))
    queue.send_delay_msg(1, id="m1", name="mail")
    wait_until(lambda: queue.get("m1").state == "throttled")
    assert first(queue.why("m1"), "closed").text.startswith(
        "a callback of mail has raised RateLimited: none starts until"
    )


def test_tripped_breaker_is_told(open_queue):
    def send(message):
        raise OSError("down")

    queue = open_queue(callback=send, breaker=Breaker(share=1, of=1, pause="1h"), prefetch=0, nack_delay="1h")
    queue.send_many([NewMessage(n, id=f"m{n}") for n in range(3)])
    queue.start_consume()
    wait_until(lambda: any(limit.tripped_until for limit in queue.limits.list()))
    reason = first(queue.why(), "tripped")
    assert reason.text.startswith("the breaker of the queue is tripped until ")
    assert reason.until is not None


@everywhere
def test_higher_rank_is_told(queue):
    queue.send_delay_msg(1, id="low")
    queue.send_many([NewMessage(n, id=f"high{n}", priority=5) for n in range(3)])
    queue.send_delay_msg(1, id="first", priority=9)
    assert [message.id for message in queue.lease(n=1)] == ["first"]
    assert first(queue.why("low"), "rank").text == "it waits behind 3 messages of higher rank, by priority"


@everywhere
def test_debounced_message_waits_for_quiet(queue):
    queue.send_delay_msg(1, id=ID, debounce="1h")
    reason = first(queue.why(ID), "debounced")
    assert "it waits for quiet until " in reason.text
    assert reason.until == queue.get(ID).due


def test_successor_and_holder_are_told(open_queue, busy, gate):
    queue = open_queue(callback=busy)
    queue.send_delay_msg("running", id=ID)
    queue.start_consume()
    wait_until(lambda: busy.seen)
    queue.send_delay_msg("next", id=ID, replace="after")
    found = queue.why(ID)
    assert kinds(found) == ["held", "followed"]
    (worker,) = queue.workers()
    assert f"({worker.host}, process {worker.pid})" in first(found, "held").text
    gate.set()


def test_name_that_no_function_takes_is_told(open_queue):
    queue = open_queue()
    queue.on("invoice.")(print)
    queue.send_delay_msg(1, id=ID, name="letter.sent")
    queue.run(burst=True)
    text = first(queue.why(ID), "unhandled").text
    assert text.startswith("it came back 1 time, since no function of the workers takes letter.sent; the next time is ")


@everywhere
def test_nobody_who_consumes_is_told(open_queue):
    queue = open_queue()
    queue.send_delay_msg(1, id=ID)
    assert first(queue.why(ID), "nobody").text == "nobody consumes this queue: nothing was ever claimed"
    assert kinds(queue.why()) == ["nobody"]


def test_expired_lease_that_nobody_has_seen_is_told(queue):
    queue.send_delay_msg(1, id=ID)
    (message,) = queue.lease("100ms", n=1)
    wait_until(lambda: queue.stats().at > queue.get(ID).deadline)
    assert kinds(queue.why(ID)) == ["held", "lease expired"]
    assert "lease expired" in kinds(queue.why())
    assert message.id == ID


@everywhere
def test_kept_result_is_told(queue):
    queue.send_delay_msg(1, id=ID, retention="1h")
    (message,) = queue.lease(n=1)
    message.ack()
    found = queue.why(ID)
    assert found.state == "completed"
    assert first(found, "done").until == queue.get(ID).kept_until


@everywhere
@pytest.mark.parametrize("how", ["window", "asked"])
def test_settled_id_that_is_held_is_told(open_queue, how):
    queue = open_queue(**({"dedupe_window": "1h"} if how == "window" else {}))
    queue.send_delay_msg(1, id=ID, **({"unique_for": "1h"} if how == "asked" else {}))
    (message,) = queue.lease(n=1)
    message.ack()
    found = queue.why(ID)
    assert (found.state, kinds(found)) == (None, ["settled"])
    assert 3500 < (found.reasons[0].until - found.at).total_seconds() <= 3600


@everywhere
def test_queue_says_what_it_waits_for(queue):
    assert kinds(queue.why()) == ["empty"]
    queue.send_delay_msg(1, "1h", id=ID)
    reason = first(queue.why(), "due")
    assert reason.text.startswith("1 message is not due yet: the next is at ")
    assert reason.until == queue.get(ID).due


@pytest.mark.parametrize("id", ["", "a b", "x" * 129, 7])
def test_refuses_what_is_no_id(queue, id):
    with pytest.raises(ConfigurationError):
        queue.why(id)


def test_reads_in_two_round_trips_and_changes_nothing(queue, redis_client):
    queue.limits.set("mail", running=1)
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(2)])
    assert len([*queue.lease(n=2)]) == 1
    queue.why("m1")  # which loads the scripts
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter()}
    read = redis_client.info("stats")["total_reads_processed"]
    assert first(queue.why("m1"), "running")
    assert redis_client.info("stats")["total_reads_processed"] - read - 1 == 2
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter()} == before
