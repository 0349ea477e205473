"""The balance of the demo adds up only if the event log explains every delivery."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from delayq.demo.holidays.holiday_demo import ReminderLog, balance_lines
from delayq.queue.inspecting.event_log import MessageEvent
from delayq.values.times import from_millis

DUE = 1_000_000
ONCE, LATER, AGAIN = "sent delivered acked", "sent delivered nacked delivered acked", "sent delivered expired"
DEAD, DISCARDED = "sent delivered nacked delivered nacked dead", "sent delivered discarded"


def balance(lives, *, killed=None, late=5, left=0, interrupted=False, planned=None, **totals):
    """Return the balance of reminders, given the events of each; `totals` replace what the queue has counted."""
    log = ReminderLog(dict.fromkeys(planned or lives, DUE))
    log.killed = killed
    kinds = [kind for life in lives.values() for kind in life.split()]
    at = from_millis(DUE) + timedelta(milliseconds=late)
    for id, life in lives.items():
        for kind in life.split():
            log.add(MessageEvent(1, 0, kind, at, id, attempt=1, holder="w1"))
    counted = {kind: kinds.count(kind) for kind in kinds} | totals
    return log.balance(SimpleNamespace(totals=counted, counts=SimpleNamespace(living=left)), interrupted=interrupted)


def test_run_without_problems_adds_up():
    lives = {"a": ONCE, "b": LATER, "c": DEAD, "d": DISCARDED, "e": f"{AGAIN} delivered acked"}
    made = balance(lives, killed="w1")
    assert made["adds_up"]
    assert made["planned"] == 5
    ends = ("delivered_once", "delivered_after_failure", "delivered_after_kill", "dead", "discarded")
    assert [made[end] for end in ends] == [1] * 5
    assert (made["early"], made["lost"], made["redelivered"], made["late_ms"]["max"]) == (0, 0, ["e"], 5)


@pytest.mark.parametrize(
    ("lives", "options", "problem"),
    [
        ({"a": ONCE}, {"late": -1}, "1 were delivered before their time"),
        ({"a": ONCE}, {"planned": ["a", "b"]}, "1 were lost"),
        ({"a": "sent delivered"}, {}, "1 were lost"),
        ({"a": ONCE, "b": ONCE}, {"planned": ["a"]}, "others than planned were delivered"),
        ({"a": f"{ONCE} delivered acked"}, {}, "1 were delivered more often than explained"),
        ({"a": "sent delivered delivered acked"}, {}, "1 were delivered more often than explained"),
        ({"a": f"{AGAIN} delivered acked"}, {"killed": "w2"}, "1 were delivered more often than explained"),
        ({"a": ONCE}, {"acked": 2}, "the event log and the counters differ: acked"),
        ({"a": "sent"}, {"left": 1}, "1 were not settled in time"),
    ],
)
def test_problem_is_named(lives, options, problem):
    made = balance(lives, **options)
    assert not made["adds_up"]
    assert problem in made["problems"]


def test_interrupted_run_may_leave_reminders():
    made = balance({"a": ONCE, "b": "sent"}, left=1, interrupted=True)
    assert made["adds_up"]
    assert (made["left"], made["lost"]) == (1, 0)


@pytest.mark.parametrize("left", [1, 0])
def test_balance_fits_80_columns_and_says_whether_it_adds_up(left):
    lines = [*balance_lines(balance({"a": ONCE, "b": "sent"}, left=left, interrupted=True))]
    assert max(map(len, lines)) <= 80
    assert lines[-1] == ("It adds up." if left else "It does not add up: 1 were lost.")
