"""What the counts of a queue say about its consumers: lag, and whether anyone is at work."""

from __future__ import annotations

from datetime import timedelta

import pytest

from delayq.broker.replies import CountsReply
from delayq.queue.inspecting.counts import stats_of, waiting_text

NOW = 1_700_000_000_000
IDLE = CountsReply(NOW, -1, -1, -1, *[0] * 15, {"token": f"{NOW - 60_000}000", "sent": "7"})

WAITING = [
    ("nothing waits", IDLE, 0, False),
    ("the next is not due", IDLE._replace(next_due=NOW + 1, pending=1), 0, False),
    ("due, and nobody has claimed for a minute", IDLE._replace(oldest_due=NOW - 11_000), 11, True),
    ("due, and nobody has ever claimed", IDLE._replace(oldest_due=NOW - 11_000, meta={}), 11, True),
    ("due for a few ticks only", IDLE._replace(oldest_due=NOW - 10_000), 10, False),
    (
        "due for long, but claims go on",
        IDLE._replace(oldest_due=NOW - 900_000, meta={"token": f"{NOW - 9_000}000"}),
        900,
        False,
    ),
    ("due for long, but a callback is at work", IDLE._replace(oldest_due=NOW - 900_000, held=1), 900, False),
    (
        "due for long, but a worker tells that it runs",
        IDLE._replace(oldest_due=NOW - 900_000, workers=1, heard=1),
        900,
        False,
    ),
    (
        "due for long, but a worker of many queues reported minutes ago",
        IDLE._replace(oldest_due=NOW - 900_000, workers=1),
        900,
        True,
    ),
    ("leases ended, and nobody moved their messages", IDLE._replace(next_deadline=NOW - 11_000), 11, True),
    ("a nack delay that goes on", IDLE._replace(next_deadline=NOW + 11_000, backoff=1), 0, False),
]


@pytest.mark.parametrize(("counted", "lag", "unconsumed"), [pytest.param(*rest, id=name) for name, *rest in WAITING])
def test_waiting_messages_show_lag_and_whether_anyone_consumes(counted, lag, unconsumed):
    stats = stats_of(counted)
    assert (stats.lag, stats.nobody_consumes) == (timedelta(seconds=lag), unconsumed)


def test_last_claim_is_no_total():
    stats = stats_of(IDLE)
    assert stats.last_claim == stats.at - timedelta(seconds=60)
    assert stats.totals == {"sent": 7}
    assert stats_of(IDLE._replace(meta={})).last_claim is None


def test_foreign_field_is_no_total():
    assert stats_of(IDLE._replace(meta={"colour": "blue", "sent": "7"})).totals == {"sent": 7}


def test_text_says_how_many_wait_and_how_long():
    assert waiting_text(stats_of(IDLE._replace(oldest_due=NOW - 1_020_000, overdue=4075))) == (
        "4,075 messages, the first for 17m"
    )
