"""The checker says yes to what is right and no to what is wrong, rule by rule, and shows the least that is needed."""

from pathlib import Path

import pytest

from delayq.torture.breach import RULES
from delayq.torture.checker import check, tell
from delayq.torture.history import HistoryError
from tests.torture.tale import SERVER, Tale, delivered

RIGHT = {
    "delivered once": delivered(),
    "failed, then done": Tale()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .end("a", 1, "failed")
    .settle("nack", "a", 1)
    .claim("a", 2)
    .start("a", 2)
    .end("a", 2)
    .settle("ack", "a", 2)
    .finish(counters={"sent": 1, "nacked": 1, "acked": 1}),
    "still waiting": Tale()
    .send("a", due=60_000)
    .finish(counters={"sent": 1}, living=[("a", "pending", SERVER + 60_000)]),
    "dead after its retries": Tale()
    .send("a", retries=0)
    .claim("a", 1)
    .settle("nack", "a", 1, "2")
    .finish(counters={"sent": 1, "nacked": 1}, dead=[("a", 1, 1, 0, "retries spent")]),
    "cancelled": Tale().send("a", due=500).cancel("a").finish(counters={"sent": 1, "cancelled": 1}),
    "a send in doubt that was not carried out": Tale().send("a", outcome="unanswered").finish(counters={}),
    "a send in doubt that was carried out": Tale()
    .send("a", outcome="unanswered")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "an ack in doubt that was carried out": Tale()
    .send("a")
    .claim("a", 1)
    .settle("ack", "a", 1, outcome="unanswered")
    .finish(counters={"sent": 1, "acked": 1}),
    "delivered again after the worker was killed": Tale()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .fault("kill", process="worker")
    .after(1000)
    .claim("a", 2, by="other")
    .start("a", 2, by="other")
    .settle("ack", "a", 2, by="other")
    .finish(counters={"sent": 1, "acked": 1}),
    "a claim nobody heard, then the next attempt": Tale()
    .send("a")
    .lost_claim()
    .after(1000)
    .claim("a", 2, by="other", attempt=2)
    .settle("ack", "a", 2, by="other")
    .finish(counters={"sent": 1, "acked": 1}),
    "two lives": Tale()
    .send("a")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .send("a")
    .claim("a", 2)
    .settle("ack", "a", 2)
    .finish(counters={"sent": 2, "acked": 2}),
    "replaced": Tale()
    .send("a", due=500)
    .send("a", due=0, replace=True, digits="2")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "rescheduled": Tale()
    .send("a", due=5000)
    .reschedule("a", 0)
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "released and delivered with the same number": Tale()
    .send("a")
    .claim("a", 1)
    .settle("release", "a", 1)
    .claim("a", 2, by="other", attempt=1)
    .settle("ack", "a", 2, by="other")
    .finish(counters={"sent": 1, "acked": 1}),
    "redriven": Tale()
    .send("a", retries=0)
    .claim("a", 1)
    .settle("nack", "a", 1, "2")
    .redrive("a", 1)
    .claim("a", 2, due=3)
    .settle("ack", "a", 2)
    .finish(counters={"sent": 1, "nacked": 1, "acked": 1}),
    "a lease renewed by heartbeat": Tale()
    .send("a")
    .claim("a", 1)
    .after(900)
    .settle("extend", "a", 1, lease=1000)
    .after(900)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "a send the server forgot": Tale().after(1).send("a").fault("power", lost=1).finish(counters={}),
    "an ack the server forgot": Tale()
    .send("a")
    .after(5000)
    .claim("a", 1)
    .start("a", 1)
    .settle("ack", "a", 1)
    .fault("power", lost=5000)
    .claim("a", 2)
    .start("a", 2)
    .settle("ack", "a", 2)
    .finish(counters={"sent": 1, "acked": 1}),
}


@pytest.mark.parametrize("tale", RIGHT.values(), ids=RIGHT.keys())
def test_what_is_right_is_found_right(tale):
    verdict = tale.verdict()
    assert verdict.right, list(tell(verdict))


WRONG = {
    ("conservation", "lost after its send had returned"): Tale().send("a").finish(counters={"sent": 1}),
    ("conservation", "lost in its second life"): Tale()
    .send("a")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .send("a")
    .finish(counters={"sent": 2, "acked": 1}),
    ("conservation", "lives on after its ack"): Tale()
    .send("a")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}, living=[("a", "retry", SERVER)]),
    ("conservation", "cancelled and acked"): Tale()
    .send("a")
    .claim("a", 1)
    .cancel("a")
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "cancelled": 1, "acked": 1}),
    ("conservation", "lost, and not by the fault before it"): Tale()
    .after(1)
    .fault("power", lost=1)
    .send("a")
    .finish(counters={"sent": 1}),
    ("provenance", "never sent"): Tale().claim("a", 1).settle("ack", "a", 1),
    ("provenance", "another payload"): Tale().send("a").claim("a", 1, payload="ffff").settle("ack", "a", 1),
    ("never early", "claimed a millisecond early"): Tale().send("a", due=500).after(498).claim("a", 1, due=500),
    ("never early", "begun early"): Tale().send("a").claim("a", 1).start("a", 1, server=-1),
    ("never early", "due when nobody asked"): Tale().send("a", due=5).after(99).claim("a", 1, due=7),
    ("never early", "due as before it was rescheduled"): Tale()
    .send("a")
    .reschedule("a", 9000)
    .claim("a", 1, due=0)
    .settle("ack", "a", 1),
    ("bounded deliveries", "more attempts than retries allow"): Tale().send("a", retries=0).claim("a", 1, attempt=2),
    ("bounded deliveries", "an attempt that was not charged"): Tale()
    .send("a")
    .claim("a", 1)
    .settle("nack", "a", 1)
    .claim("a", 2, attempt=1),
    ("bounded deliveries", "charged twice"): Tale()
    .send("a")
    .claim("a", 1)
    .settle("nack", "a", 1)
    .claim("a", 2, attempt=3),
    ("bounded deliveries", "delivered after its ack"): Tale()
    .send("a")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .claim("a", 2),
    ("bounded deliveries", "delivered after it was cancelled"): Tale().send("a").cancel("a").claim("a", 1),
    ("leases", "a token twice"): Tale().send("a").claim("a", 1).claim("a", 1, by="other"),
    ("leases", "tokens fall"): Tale().send("a").claim("a", 2).settle("nack", "a", 2).claim("a", 1),
    ("leases", "two at a time"): Tale().send("a").claim("a", 1).claim("a", 2, by="other"),
    ("leases", "two at a time, the first renewed"): Tale()
    .send("a")
    .claim("a", 1)
    .after(900)
    .settle("extend", "a", 1, lease=1000)
    .after(500)
    .claim("a", 2, by="other"),
    ("fencing", "a nack under an old token"): Tale()
    .send("a")
    .claim("a", 1)
    .after(1000)
    .claim("a", 2, by="other")
    .settle("nack", "a", 1),
    ("fencing", "an ack from an earlier life"): Tale()
    .send("a")
    .claim("a", 1)
    .cancel("a", outcome="unanswered")
    .send("a")
    .settle("ack", "a", 1),
    ("fencing", "two acks"): Tale().send("a").claim("a", 1).settle("ack", "a", 1).settle("ack", "a", 1),
    ("dead letter", "dead before its time"): Tale()
    .send("a", retries=3)
    .claim("a", 1)
    .settle("nack", "a", 1)
    .finish(counters={"sent": 1, "nacked": 1}, dead=[("a", 1, 1, 3, "retries spent")]),
    ("counters", "an ack too few"): Tale().send("a").claim("a", 1).settle("ack", "a", 1).finish(counters={"sent": 1}),
    ("doubt", "sent anew while it lived"): Tale().send("a").send("a").finish(counters={"sent": 2}),
    ("doubt", "a call carried out in part"): Tale()
    .send("a", "b", outcome="unanswered")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    ("liveness", "due and not delivered"): Tale()
    .send("a")
    .after(5000)
    .finish(counters={"sent": 1}, living=[("a", "ready", SERVER)]),
    ("leftovers", "a field of no message"): delivered("b").finish(leftovers=["headers: a is no message"]),
    ("duplicates", "begun again for no reason"): Tale()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .after(1000)
    .claim("a", 2, by="other")
    .start("a", 2, by="other"),
    ("duplicates", "begun twice under one token"): Tale().send("a").claim("a", 1).start("a", 1).start("a", 1),
    ("duplicates", "by a reply that was dropped"): Tale()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .fault("replies", breaks_leases=False)
    .after(1000)
    .claim("a", 2, by="other")
    .start("a", 2, by="other"),
    ("duplicates", "by a fault of another"): Tale()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .fault("kill", process="other")
    .after(1000)
    .claim("a", 2)
    .start("a", 2),
}


@pytest.mark.parametrize(
    ("rule", "tale"), [(rule, tale) for (rule, _), tale in WRONG.items()], ids=map(" - ".join, WRONG)
)
def test_what_is_wrong_is_found_wrong(rule, tale):
    verdict = tale.verdict()
    assert rule in verdict.broken, list(tell(verdict))


def test_every_rule_is_shown_to_bite():
    assert {rule for rule, _ in WRONG} == set(RULES)


def test_the_slice_shows_the_message_and_nothing_of_others():
    tale = Tale()
    for id in "bcd":
        tale.send(id).claim(id, 1).settle("ack", id, 1)
    tale.send("a").claim("a", 1).settle("ack", "a", 1).after(5).claim("a", 2)
    (violation,) = tale.verdict().violations
    assert (violation.rule, violation.number, violation.id) == ("bounded deliveries", 4, "a")
    assert [line.split(" → ")[0].split()[4:6] for line in violation.history] == [["ack", "a"], ["claim", "a"]]


def test_the_slice_shows_the_faults_that_came_between():
    tale = Tale().send("a").claim("a", 1).start("a", 1).fault("kill", process="other").after(1000).claim("a", 2)
    (violation,) = tale.start("a", 2).verdict().violations
    assert any("other" in line and "fault: kill" in line for line in violation.history)


def test_a_duplicate_is_laid_to_its_fault():
    verdict = RIGHT["delivered again after the worker was killed"].verdict()
    assert (verdict.duplicates, verdict.explained, verdict.faults) == (1, {"kill": 1}, {"kill": 1})


def test_many_violations_are_counted_and_few_are_told():
    tale = Tale()
    for number in range(10):
        tale.send(f"m{number}")
    verdict = tale.finish(counters={"sent": 10}).verdict()
    assert verdict.broken == {"conservation": 10}
    assert len(verdict.violations) == 3
    assert list(tell(verdict))[-1] == "broken: conservation 10"


def test_what_cannot_be_checked_is_said():
    text = "\n".join(tell(Tale().send("a").verdict()))
    assert "no final scan" in text
    assert text.endswith("right, as far as it was checked")


def test_no_history_is_an_error(tmp_path):
    with pytest.raises(HistoryError, match="no history there"):
        check([tmp_path])
    with pytest.raises(HistoryError, match="no history there"):
        check([Path(tmp_path / "none.jsonl")])
