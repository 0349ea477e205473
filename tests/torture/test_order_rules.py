"""The rule about keys in order accepts what a template allows, whatever faults did, and finds every overtaking."""

import pytest

from delayq.testing.torture.history import LimitRecord
from delayq.testing.torture.rules.checker import report_lines
from delayq.testing.torture.workload import APART_BY, TEMPLATE, key_of
from tests.torture.histories import LEASE, History

A, B, C, D = [id for id in (f"p1-{n}" for n in range(0, 50, APART_BY)) if key_of(id)][:4]
"""Messages of one key."""
OTHER = next(id for id in (f"p2-{n}" for n in range(50)) if key_of(id))
"""A message of another key."""
ONE = LimitRecord(running=1)


def claimed(*ids: str) -> History:
    """Return a history in which these messages have been claimed, one after another."""
    history = History(**{TEMPLATE: ONE}).send(A, B, C, D, OTHER).after(1)
    for token, id in enumerate(ids, 1):
        history.claim(id, token)
    return history


def in_turn(first: str, second: str, *, apart: bool = True) -> History:
    """Return a history of two messages of a key, due in the order A, B: which is claimed first, and which second."""
    history = History(**{TEMPLATE: ONE})
    if apart:
        history.send(A, due=5).send(B, due=7)
    else:
        history.send(B, due=7).send(A, due=5)
    history.after(10).claim(first, 1, due=5 if first == A else 7).settle("ack", first, 1)
    return history.claim(second, 2, due=5 if second == A else 7).settle("ack", second, 2)


ALLOWED = {
    "one after the other": claimed(A).settle("ack", A, 1).claim(B, 2).settle("ack", B, 2).claim(C, 3),
    "one of another key meanwhile": claimed(A, OTHER),
    "one while the ack of the other is under way": claimed(A).settle("ack", A, 1, outcome="unanswered").claim(B, 2),
    "one after the other is dead": claimed(A).settle("reject", A, 1).claim(B, 2),
    "one after the other has spent its retries": claimed(A).settle("nack", A, 1, "2").claim(B, 2),
    "one after the other was asked to stop, and may have ended": claimed(A).cancel(A, "5").claim(B, 2),
    "one after the other was cancelled in its backoff": claimed(A).settle("nack", A, 1).cancel(A).claim(B, 2),
    "the same again after a failure, then the next": claimed(A)
    .settle("nack", A, 1)
    .claim(A, 2)
    .settle("ack", A, 2)
    .claim(B, 3),
    "one whose worker was killed may be dead once its lease is over": claimed(A)
    .fault("kill", process="worker")
    .after(LEASE + 1)
    .claim(B, 2, by="other"),
    "what the server forgot": claimed(A).after(10).fault("power", lost=1).claim(B, 2),
    "one in a queue that was emptied": claimed(A)._call("producer", "purge", "1").claim(B, 2),
    "two while there is no template": History().send(A, B).claim(A, 1).claim(B, 2),
    "by due time": in_turn(A, B),
    "the one that was sent first, though it is due later": in_turn(B, A, apart=False),
    "one that was rescheduled": History(**{TEMPLATE: ONE})
    .send(A, due=5)
    .send(B, due=7)
    .reschedule(A, 9)
    .after(10)
    .claim(B, 1, due=7)
    .settle("ack", B, 1)
    .claim(A, 2, due=9),
}


@pytest.mark.table("history", ALLOWED.values(), ids=ALLOWED.keys())
def test_what_a_template_allows_is_accepted(history):
    result = history.result()
    assert "order" not in result.broken, list(report_lines(result))


FORBIDDEN = {
    "two at a time": (claimed(A, B), f"claimed while {A} has their key"),
    "one that overtakes a failed one": (
        claimed(A).settle("nack", A, 1).claim(B, 2).settle("ack", B, 2).claim(A, 3),
        f"claimed while {A} has their key",
    ),
    "one that overtakes a released one": (
        claimed(A).settle("release", A, 1).claim(B, 2).settle("ack", B, 2).claim(A, 3),
        f"claimed while {A} has their key",
    ),
    "one that overtakes another whose worker was killed": (
        claimed(A)
        .fault("kill", process="worker")
        .after(LEASE + 1)
        .claim(B, 2, by="other")
        .settle("ack", B, 2, by="other")
        .claim(A, 3, by="other"),
        f"claimed while {A} has their key",
    ),
    "one whose cancellation was refused": (
        claimed(A).settle("nack", A, 1).cancel(A, "0").claim(B, 2).claim(A, 3),
        f"claimed while {A} has their key",
    ),
    "the one that is due later first": (in_turn(B, A), f"claimed before {A}, which was sent and is due before it"),
    "the one that is due later first, of one call": (
        History(**{TEMPLATE: ONE})
        ._call("producer", "send", "11", ids=[A, B], dues=[1, 2], retries=[3, 3])
        .after(5)
        .claim(B, 1)
        .settle("ack", B, 1)
        .claim(A, 2),
        f"claimed before {A}",
    ),
}


@pytest.mark.table(("history", "text"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_overtaking_is_found(history, text):
    result = history.result()
    found = [one.text for one in result.violations if one.rule == "order"]
    assert found, list(report_lines(result))
    assert found[0].startswith(text)


def test_some_messages_of_a_run_have_keys_and_share_them():
    keys = [key_of(f"p1-{n}") for n in range(500)]
    assert {"", "k:1-0", "k:1-9"} <= set(keys)
    assert keys.count("k:1-0") > 2
    assert key_of("all-0") == key_of("planted-ready-1") == ""
