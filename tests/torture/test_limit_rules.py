"""The rule about limits accepts what a limit allows, whatever faults did, and finds every start over it."""

import pytest

from delayq.testing.torture.history import LimitRecord
from delayq.testing.torture.rules.checker import report_lines
from delayq.testing.torture.workload import LIMIT_RECORDS
from tests.torture.histories import LEASE, History

TWO_RUN = LimitRecord(running=2)
RATE = LimitRecord(interval=10_000, burst=2)
"""100/s."""
LASTING = LEASE + 1


def running(*ids: str) -> History:
    """Return a history in which these messages have been claimed under a limit of two."""
    history = History(slow=TWO_RUN).send(*"abcdefgh").after(1)
    for token, id in enumerate(ids, 1):
        history.claim(id, token, name="slow")
    return history


def started(*after: int) -> History:
    """Return a history of starts under a rate: of each, how long it comes after the one before it (ms)."""
    return go_on(History(mail=RATE).send(*"abcdefgh").after(1), *after)


def go_on(history: History, *after: int) -> History:
    """Add more starts to a history."""
    for ms in after:
        history.after(ms - 1).claim("abcdefgh"[len(history.attempts)], 100 + len(history.attempts), name="mail")
    return history


ALLOWED = {
    "as many as may": running("a", "b"),
    "one after the other has been settled": running("a", "b").settle("ack", "a", 1).claim("c", 3, name="slow"),
    "one after the other has failed": running("a", "b").settle("nack", "b", 2).claim("c", 3, name="slow"),
    "one while the settlement of the other is under way": running("a", "b")
    .settle("ack", "a", 1, outcome="unanswered")
    .claim("c", 3, name="slow"),
    "one after the lease of a killed worker is over": running("a", "b")
    .fault("kill", process="worker")
    .after(LASTING)
    .claim("c", 3, by="other", name="slow"),
    "others of the name that nobody limits": running("a", "b").claim("c", 3, name="good").claim("d", 4),
    "the same message again": running("a", "b").settle("nack", "a", 1).claim("a", 3, name="slow"),
    "what the server forgot": running("a")
    .after(10)
    .claim("b", 2, name="slow")
    .fault("power", lost=5)
    .claim("c", 3, name="slow"),
    "anything after the limits are forgotten": History(slow=TWO_RUN)
    .send(*"abc")
    .fault("flushall", lost=0)
    .claim("a", 1, name="slow")
    .claim("b", 2, name="slow")
    .claim("c", 3, name="slow"),
    "what was claimed before the clock was set forwards and back": running("a", "b")
    .fault("clock", lasting=1, shift=5000)
    .fault("clock", lasting=1, shift=-5000)
    .claim("c", 3, name="slow"),
    "as many at once as the burst": started(1, 1),
    "the burst, and then at its pace": started(1, 1, 9, 10, 10, 10),
    "the burst again after a time without starts": started(1, 1, 9, 30, 1),
    "a claim whose reply was lost and read much later": started(1, 1, 9).claim("d", 200, lasting=30, name="mail"),
    "the burst again after the server forgot it": go_on(started(1, 1).fault("power", lasting=1, lost=1), 1, 1),
    "another in place of one that was returned unstarted": go_on(started(1, 1).settle("release", "b", 101), 1),
    "another in place of one whose return has no reply": go_on(
        started(1, 1).settle("release", "b", 101, outcome="unanswered"), 1
    ),
    "what is held back, once its time is over": History()
    .send("a")
    .close("mail", 20)
    .after(20)
    .claim("a", 1, name="mail"),
    "what began to be claimed before it was held back": History()
    .send("a")
    .close("mail", 20)
    .after(-2)
    .claim("a", 1, name="mail"),
    "others while a name is held back": History().send("a").close("mail", 20).claim("a", 1, name="good"),
    "what is not held back, as there are too many limits": History()
    .send("a")
    .close("mail", 20, "0")
    .claim("a", 1, name="mail"),
    "what nobody knows to be held back": History()
    .send("a")
    .close("mail", 20, outcome="unanswered")
    .claim("a", 1, name="mail"),
    "what is held back no more since the server forgot it": History()
    .send("a")
    .close("mail", 20)
    .fault("power", lasting=1, lost=1)
    .claim("a", 1, name="mail"),
    "what is held back until a time that the clock has reached by being set": History()
    .send("a")
    .close("mail", 20)
    .fault("clock", lasting=1, shift=100)
    .claim("a", 1, name="mail"),
    "one that waited while a place may have been taken": running("a", "b")
    .after(LEASE)
    .claim("c", 3, by="other", name="slow"),
    "one that waited after a fault": running("a", "b")
    .settle("ack", "a", 1)
    .fault("cut", breaks_leases=False)
    .after(LEASE)
    .claim("c", 3, name="slow"),
    "one that waited beside a claim without a reply": running("a", "b")
    .settle("ack", "a", 1)
    .lost_claim()
    .after(LEASE)
    .claim("c", 3, name="slow"),
    "one that waited as its consumers were busy with what was due before": running("a", "b")
    .settle("ack", "a", 1)
    .after(LEASE // 2)
    .claim("d", 4, due=-5)
    .after(LEASE // 2)
    .claim("c", 5, name="slow"),
    "one that waited as what is more urgent started": running("a", "b")
    .settle("ack", "a", 1)
    .send("z", due=100)
    .after(LEASE // 2)
    .claim("z", 4, due=100, name="urgent")
    .after(LEASE // 2)
    .claim("c", 5, name="slow"),
    "the burst again after the clock was set": go_on(started(1, 1).fault("clock", lasting=1, shift=9), 1, 1),
}


@pytest.mark.table("history", ALLOWED.values(), ids=ALLOWED.keys())
def test_starts_within_a_limit_are_accepted(history):
    result = history.result()
    assert "limits" not in result.broken, list(report_lines(result))


FORBIDDEN = {
    "one more than may": (running("a", "b", "c"), "3 of slow run at a time, of 2 at most"),
    "one before a worker that was killed has lost its lease": (
        running("a", "b").fault("kill", process="worker").claim("c", 3, by="other", name="slow"),
        "3 of slow run at a time",
    ),
    "one while a lease is renewed": (
        running("a", "b")
        .after(LEASE - 100)
        .settle("extend", "a", 1, lease=LEASE)
        .settle("extend", "b", 2, lease=LEASE)
        .after(200)
        .claim("c", 3, name="slow"),
        "3 of slow run at a time",
    ),
    "one after the server has forgotten others": (
        running("a", "b").after(10).fault("power", lost=8).claim("c", 3, name="slow"),
        "3 of slow run at a time",
    ),
    "one more before the server forgets": (
        running("a", "b", "c").fault("power", lost=1),
        "3 of slow run at a time",
    ),
    "one that waited though another had failed": (
        running("a", "b").settle("nack", "a", 1).after(LEASE).claim("c", 3, name="slow"),
        "waited 1000 ms though a place of slow was free",
    ),
    "one that waited while what was due later started": (
        running("a", "b")
        .settle("ack", "a", 1)
        .send("z", due=100)
        .after(LEASE // 2)
        .claim("z", 4, due=100)
        .after(LEASE // 2)
        .claim("c", 5, name="slow"),
        "waited",
    ),
    "one more at once than the burst": (started(1, 1, 1), "3 of mail start within 4 ms"),
    "too fast for its pace": (started(*[6] * 8), "5 of mail start"),
    "too fast after the burst": (started(1, 1, 9, 10, 10, 4), "6 of mail start"),
    "another in place of one that was returned after it had started": (
        go_on(started(1, 1).start("b", 101).settle("release", "b", 101), 1),
        "3 of mail start",
    ),
    "another in place of one that was not returned": (
        go_on(started(1, 1).settle("release", "b", 101, "0"), 1),
        "3 of mail start",
    ),
    "one that is held back": (
        History().send("a").close("mail", 20).after(10).claim("a", 1, name="mail"),
        "mail starts while it is closed for 20 ms",
    ),
    "one that was held back already": (
        History().send("a").close("mail", 20, "2").after(10).claim("a", 1, name="mail"),
        "mail starts while it is closed for 20 ms",
    ),
    "too fast after the server forgot": (
        go_on(started(1).fault("power", lost=1), 1, 1, 1),
        "3 of mail start",
    ),
}


@pytest.mark.table(("history", "text"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_start_over_a_limit_is_found(history, text):
    result = history.result()
    assert [one.rule for one in result.violations] == ["limits"], list(report_lines(result))
    assert result.violations[0].text.startswith(text)
    assert result.violations[0].history


def test_limits_that_may_be_lost_are_reported():
    result = History(slow=TWO_RUN).send("a").fault("flushall", lost=0).result()
    assert "the server may have lost the limits: they are checked until then" in result.unchecked


def test_workload_has_a_limit_of_each_kind():
    assert [one.running > 0 for one in LIMIT_RECORDS.values()] == [True, True, False, True]
    assert [one.interval > 0 for one in LIMIT_RECORDS.values()] == [False, False, True, False]
