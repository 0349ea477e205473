"""Kill: move a message that waits to the dead letter by hand, from where it can be redriven."""

from __future__ import annotations

import pytest

from delayq import MessageFailedError
from tests.behaviour.places import REPLIES, WAITING, bring, everywhere

pytestmark = everywhere


@pytest.mark.parametrize(("state", "attempts"), WAITING.items())
def test_waiting_message_is_killed_and_redriven(queue, state, attempts):
    bring(queue, state, payload={"to": "a"}, headers={"h": "1"}, retries=3, name="mail")

    assert queue.kill("m") == "killed"

    dead = queue.get("m")
    assert (dead.state, dead.reason, dead.attempts, dead.name) == ("dead", "killed", attempts, "mail")
    assert (queue.counts().living, queue.counts().dead, queue.stats().totals["dead"]) == (0, 1, 1)
    assert queue.kill("m") == "dead"
    assert queue.dead.redrive(dead.entry).redriven == 1
    with queue.lease() as message:
        assert (message.payload, message.headers, message.attempt) == ({"to": "a"}, {"h": "1"}, 1)
        assert message.retries_left == 3


@pytest.mark.parametrize(("state", "reply"), REPLIES.items())
def test_kill_returns_the_state_it_leaves_as_it_is(queue, state, reply):
    bring(queue, state)
    before = queue.get("m")

    assert queue.kill("m") == reply
    assert queue.get("m") == before


def test_one_id_can_be_killed_again_and_again_before_it_was_ever_delivered(queue):
    for _ in range(3):
        bring(queue, "pending")
        assert queue.kill("m") == "killed"
        queue.send_delay_msg("hello", "1h", id="m", replace=True)
        assert queue.kill("m") == "killed"
    entries = {message.entry for message in queue.dead.list().messages}
    assert len(entries) == queue.counts().dead == 6


def test_what_waits_to_follow_it_takes_its_place(queue):
    queue.send_delay_msg("first", id="m", retries=3)
    with queue.lease(n=1) as (message,):
        queue.send_delay_msg("second", "1h", id="m", replace="after")
        assert queue.kill("m") == "running"
        message.nack(delay=60)
    assert queue.kill("m") == "killed"
    assert (queue.get("m").payload, queue.get("m").state) == ("second", "pending")
    assert [message.payload for message in queue.dead.list().messages] == ["first"]


def test_whoever_waits_for_its_result_is_told(open_queue):
    queue = open_queue(retention="1h")
    queue.send_delay_msg("hello", "1h", id="m")
    assert queue.kill("m") == "killed"
    with pytest.raises(MessageFailedError, match="killed"):
        queue.result("m", timeout=5)


def test_what_matches_is_killed(open_queue):
    queue = open_queue()
    for n in range(4):
        queue.send_delay_msg(n, "1h", id=f"{n}", name=("mail", "push")[n % 2])
    assert queue.select(name="mail").kill() == {"killed": 2}
    assert queue.select(name="mail").kill() == {}
    assert {message.id for message in queue.dead.list().messages} == {"0", "2"}
    assert queue.counts().pending == 2


def test_what_runs_is_not_killed(open_queue):
    queue = open_queue()
    bring(queue, "active")
    assert queue.select("active").kill() == {"running": 1}
    assert queue.counts().dead == 0
