"""What no function of a process takes is left to others for `unknown_for`, counted by its own returns."""

from __future__ import annotations

import pytest

from delayq import Snooze, State
from delayq.testing import Clock, ruling


@pytest.fixture
def clock():
    with ruling(Clock()) as made:
        yield made


@pytest.fixture
def old_and_new(open_queue):
    """An old and a new version of a program, and what the functions of both have done."""

    def make(**options):
        old, new = open_queue("q", **options), open_queue("q", **options)
        done: list[object] = []
        old.task(name="greet")(lambda user: done.append(("old", user)))
        new.task(name="remind")(lambda user: done.append(("new", user)))
        new.task(name="greet")(lambda user, *, polite=False: done.append(("new", user, polite)))
        return old, new, done

    return make


def _meet(queue, clock, times=1):
    """Let a worker of `queue` meet its message; return the states in which it leaves it, meeting by meeting."""
    states = []
    for _ in range(times):
        queue.run(burst=True)
        states.append(found.state if (found := queue.get("m")) else None)
        clock.advance("5s")
    return states


@pytest.mark.parametrize(
    ("name", "payload", "expected"),
    [("remind", {"user": 1}, ("new", 1)), ("greet", {"user": 1, "polite": True}, ("new", 1, True))],
    ids=["name", "arguments"],
)
def test_old_code_kills_nothing_that_is_overdue(old_and_new, clock, name, payload, expected):
    old, new, done = old_and_new()
    old.send_delay_msg(payload, name=name, id="m")
    clock.advance("2h")  # as after a pause, an outage or a backlog

    assert _meet(old, clock, 2) == [State.BACKOFF, State.BACKOFF]
    clock.advance("3h")  # nobody meets it meanwhile
    assert _meet(old, clock) == [State.BACKOFF]
    assert _meet(new, clock) == [None]

    assert done == [expected]
    assert old.counts().dead == 0


@pytest.mark.parametrize(
    ("name", "payload", "reason"),
    [
        ("remind", {"user": 1}, "NoCallbackError: no handler for messages with the name remind"),
        ("greet", {}, "UndecodableError: task greet does not take the arguments of this message"),
        (None, 1, "NoCallbackError: no handler for this message"),
    ],
    ids=["name", "arguments", "neither"],
)
def test_what_only_old_code_meets_is_dead_after_as_many_returns(old_and_new, clock, name, payload, reason):
    old, _, done = old_and_new(unknown_for="10s")
    old.send_delay_msg(payload, name=name, id="m")
    clock.advance("2h")
    assert _meet(old, clock, 3) == [State.BACKOFF, State.BACKOFF, State.DEAD]
    (dead,) = old.dead.list().messages
    assert dead.reason.startswith(reason)
    assert not done

    old.dead.redrive("m")  # a life of its own
    assert _meet(old, clock, 3) == [State.BACKOFF, State.BACKOFF, State.DEAD]


def test_a_snooze_begins_the_count_anew(open_queue, old_and_new, clock):
    old, _, _ = old_and_new(unknown_for="10s")
    other = open_queue("q")

    @other.on("remind")
    def wait(message):
        raise Snooze("5s")

    old.send_delay_msg({"user": 1}, name="remind", id="m")
    assert _meet(old, clock, 2) == [State.BACKOFF, State.BACKOFF]
    assert _meet(other, clock) == [State.BACKOFF]
    assert old.get("m").snoozes == 1
    assert _meet(old, clock, 3) == [State.BACKOFF, State.BACKOFF, State.DEAD]
