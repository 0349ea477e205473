"""The checker accepts valid histories, and reports the violated rule of invalid ones with the shortest evidence."""

from pathlib import Path

import pytest

from delayq.testing.torture.history import HistoryError, LimitRecord, digest
from delayq.testing.torture.rules.checker import RULES, check, report_lines
from delayq.testing.torture.workload import TEMPLATE
from tests.torture.histories import LEASE, SERVER, History, delivered

NAMED, OTHER = digest(b"payload", "remind"), digest(b"payload", "invoice")


def followed() -> History:
    """A message that another has followed since its callback began."""
    started = History().send("a").claim("a", 1).start("a", 1).end("a", 1)
    return started.send("a", replace=True, statuses="6", payload=NAMED)


def asked_to_stop() -> History:
    """A message whose callback was asked to stop."""
    return History().send("a").claim("a", 1).start("a", 1).cancel("a", "5")


def killed(*, reported: bool, retries: int = 3) -> History:
    """A message whose consumer died, and whose lease has expired; perhaps its start was reported before."""
    history = History().send("a", retries=retries).claim("a", 1, left=retries).start("a", 1)
    if reported:
        history.report_start("a", 1)
    return history.fault("kill", process="worker").after(LEASE)


VALID = {
    "delivered once": delivered(),
    "failed, then done": History()
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
    "still waiting": History()
    .send("a", due=60_000)
    .finish(counters={"sent": 1}, living=[("a", "pending", SERVER + 60_000)]),
    "dead after its retries": History()
    .send("a", retries=0)
    .claim("a", 1)
    .start("a", 1)
    .settle("nack", "a", 1, "2")
    .finish(counters={"sent": 1, "nacked": 1}, dead=[("a", 1, 1, 0, "retries spent")]),
    "cancelled": History().send("a", due=500).cancel("a").finish(counters={"sent": 1, "cancelled": 1}),
    "asked to stop, and cancelled when it failed": asked_to_stop()
    .settle("nack", "a", 1, "2")
    .finish(counters={"sent": 1, "cancelled": 1}),
    "asked to stop, and done nevertheless": asked_to_stop()
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "asked to stop, and sent again when it was cancelled": asked_to_stop()
    .settle("release", "a", 1, "2")
    .send("a")
    .claim("a", 2)
    .settle("ack", "a", 2)
    .finish(counters={"sent": 2, "acked": 1, "cancelled": 1}),
    "frozen before its callback, which is told that its lease has ended": History()
    .send("a")
    .claim("a", 1)
    .fault("stop", process="worker", lasting=LEASE + 1)
    .start("a", 1, lost=True)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "cancelled with what waited for its end": followed()
    .cancel("a", "4")
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "what waited for its end, and ran before the cancellation": followed()
    .settle("ack", "a", 1)
    .claim("a", 2, attempt=1, payload=NAMED)
    .cancel("a", "5")
    .settle("ack", "a", 2)
    .finish(counters={"sent": 2, "acked": 2}),
    "told of what was sent before": History()
    .send("a")
    .send("a", statuses="0")
    .told("a", "a", "0")
    .told("a", "a", "1")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "a send of unknown outcome that was not carried out": History().send("a", outcome="unanswered").finish(counters={}),
    "a send of unknown outcome that was carried out": History()
    .send("a", outcome="unanswered")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "an ack of unknown outcome that was carried out": History()
    .send("a")
    .claim("a", 1)
    .settle("ack", "a", 1, outcome="unanswered")
    .finish(counters={"sent": 1, "acked": 1}),
    "delivered again after the worker was killed": History()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .fault("kill", process="worker")
    .after(1000)
    .claim("a", 2, by="other")
    .start("a", 2, by="other")
    .settle("ack", "a", 2, by="other")
    .finish(counters={"sent": 1, "acked": 1}),
    "what waited for it is delivered once after it": followed()
    .settle("ack", "a", 1)
    .claim("a", 2, attempt=1, payload=NAMED)
    .start("a", 2)
    .settle("ack", "a", 2)
    .finish(counters={"sent": 2, "acked": 2}),
    "what waited was cancelled": followed()
    .cancel("a", "4")
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "what waited was replaced by what waits still": followed()
    .send("a", replace=True, statuses="6", due=60_000)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 2, "acked": 1}, living=[("a", "pending", SERVER + 60_000)]),
    "something else has planted a message": History()
    .claim("planted-messages-1", 1)
    .settle("ack", "planted-messages-1", 1)
    .finish(counters={"acked": 1}),
    "a claim whose reply was lost, then the next attempt": History()
    .send("a")
    .lost_claim()
    .after(1000)
    .claim("a", 2, by="other", attempt=2)
    .settle("ack", "a", 2, by="other")
    .finish(counters={"sent": 1, "acked": 1}),
    "claimed while other names are paused": History()
    .send("a", "b")
    .fault("pause-name", breaks_leases=False, name="good")
    .after(-8)
    .claim("a", 1, name="slow")
    .claim("b", 2)
    .settle("ack", "a", 1)
    .settle("ack", "b", 2),
    "claimed as the pause began, and after it": History()
    .send("a", "b")
    .fault("pause", breaks_leases=False)
    .after(-10)
    .claim("a", 1)
    .after(9)
    .claim("b", 2)
    .settle("ack", "a", 1)
    .settle("ack", "b", 2)
    .finish(counters={"sent": 2, "acked": 2}),
    "rejected, sent again, and redriven after that": History()
    .send("a")
    .claim("a", 1)
    .settle("reject", "a", 1)
    .send("a")
    .claim("a", 2)
    .settle("ack", "a", 2)
    .redrive("a", 1)
    .claim("a", 3)
    .settle("ack", "a", 3)
    .finish(counters={"sent": 2, "acked": 2}),
    "two lives": History()
    .send("a")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .send("a")
    .claim("a", 2)
    .settle("ack", "a", 2)
    .finish(counters={"sent": 2, "acked": 2}),
    "replaced": History()
    .send("a", due=500)
    .send("a", due=0, replace=True, statuses="2")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "rescheduled": History()
    .send("a", due=5000)
    .reschedule("a", 0)
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "released and delivered with the same number": History()
    .send("a")
    .claim("a", 1)
    .settle("release", "a", 1)
    .claim("a", 2, by="other", attempt=1)
    .settle("ack", "a", 2, by="other")
    .finish(counters={"sent": 1, "acked": 1}),
    "redriven": History()
    .send("a", retries=0)
    .claim("a", 1)
    .start("a", 1)
    .settle("nack", "a", 1, "2")
    .redrive("a", 1)
    .claim("a", 2, due=3)
    .settle("ack", "a", 2)
    .finish(counters={"sent": 1, "nacked": 1, "acked": 1}),
    "an expired lease that is charged, as its start was reported": killed(reported=True)
    .claim("a", 2, by="other", left=2)
    .settle("ack", "a", 2, by="other")
    .finish(counters={"sent": 1, "acked": 1}),
    "expired leases that are not charged, as no start was reported": killed(reported=False)
    .claim("a", 2, by="other", attempt=1, left=3)
    .report_start("a", 2, "0", by="other")
    .after(LEASE)
    .fault("kill", process="other")
    .claim("a", 3, attempt=1, left=3)
    .settle("ack", "a", 3)
    .finish(counters={"sent": 1, "acked": 1}),
    "an expired lease that may be charged, as nobody knows whether its start was reported": killed(reported=False)
    .report_start("a", 1, outcome="unanswered")
    .claim("a", 2, by="other", attempt=1, left=3)
    .settle("ack", "a", 2, by="other")
    .finish(counters={"sent": 1, "acked": 1}),
    "started, and returned uncharged by a stop": History()
    .send("a")
    .claim("a", 1, left=3)
    .start("a", 1)
    .report_start("a", 1)
    .settle("release", "a", 1)
    .claim("a", 2, attempt=1, left=3)
    .settle("ack", "a", 2)
    .finish(counters={"sent": 1, "acked": 1}),
    "dead by leases that expired": killed(reported=True, retries=1)
    .claim("a", 2, by="other", left=0)
    .start("a", 2, by="other")
    .report_start("a", 2, by="other")
    .finish(late=LEASE, counters={"sent": 1}, dead=[("a", 2, 2, 1, "retries spent")]),
    "sent again with other retries": History()
    .send("a", retries=3)
    .claim("a", 1, left=3)
    .settle("nack", "a", 1)
    .send("a", retries=5, replace=True, statuses="2")
    .claim("a", 2, left=5)
    .settle("ack", "a", 2)
    .finish(counters={"sent": 1, "nacked": 1, "acked": 1}),
    "a lease renewed by heartbeat": History()
    .send("a")
    .claim("a", 1)
    .after(900)
    .settle("extend", "a", 1, lease=1000)
    .after(900)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    "a send the server forgot": History().after(1).send("a").fault("power", lost=1).finish(counters={}),
    "an ack the server forgot": History()
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


@pytest.mark.table("history", VALID.values(), ids=VALID.keys())
def test_valid_history_is_accepted(history):
    result = history.result()
    assert result.right, list(report_lines(result))


INVALID = {
    ("conservation", "lost after its send had returned"): History().send("a").finish(counters={"sent": 1}),
    ("conservation", "lost in its second life"): History()
    .send("a")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .send("a")
    .finish(counters={"sent": 2, "acked": 1}),
    ("conservation", "still in the queue after its ack"): History()
    .send("a")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}, living=[("a", "retry", SERVER)]),
    ("conservation", "cancelled and acked"): History()
    .send("a")
    .claim("a", 1)
    .cancel("a")
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "cancelled": 1, "acked": 1}),
    ("conservation", "lost, and not by the fault before it"): History()
    .after(1)
    .fault("power", lost=1)
    .send("a")
    .finish(counters={"sent": 1}),
    ("bounded deliveries", "delivered again after it was asked to stop"): asked_to_stop()
    .after(LEASE)
    .claim("a", 2, by="other", attempt=1)
    .settle("ack", "a", 2, by="other")
    .finish(counters={"sent": 1, "acked": 1}),
    ("conservation", "what waited for its end is lost"): followed()
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    ("conservation", "what waited for its end came twice"): followed()
    .settle("ack", "a", 1)
    .claim("a", 2, attempt=1, payload=NAMED)
    .settle("ack", "a", 2)
    .claim("a", 3, attempt=1, payload=NAMED)
    .settle("ack", "a", 3)
    .finish(counters={"sent": 2, "acked": 3}),
    ("bounded deliveries", "what waited for its end came though both were cancelled"): followed()
    .cancel("a", "4")
    .settle("ack", "a", 1)
    .claim("a", 2, attempt=1, payload=NAMED)
    .settle("ack", "a", 2)
    .finish(counters={"sent": 2, "acked": 2}),
    ("leases", "delivered again though nothing had happened to its consumer"): History()
    .send("a")
    .claim("a", 1)
    .fault("replies", breaks_leases=False)
    .after(LEASE)
    .claim("a", 2, by="other", attempt=1)
    .settle("ack", "a", 2, by="other"),
    ("leases", "not told that its lease had ended"): History()
    .send("a")
    .claim("a", 1)
    .fault("stop", process="worker", lasting=LEASE + 1)
    .start("a", 1),
    ("leases", "started after the end of its lease"): History()
    .send("a")
    .claim("a", 1)
    .after(LEASE)
    .start("a", 1, lost=True),
    ("leases", "started after the end of its lease, as the second of its thread"): History()
    .send(*"ab")
    .claim("a", 1)
    .claim("b", 2)
    .fault("stop", process="worker", lasting=LEASE + 1)
    .start("a", 1, lost=True)
    .start("b", 2, lost=True),
    ("answers", "told of another message"): History().send("a").told("a", "b", "1"),
    ("answers", "told what no call was answered"): History().send("a").told("a", "a", "0"),
    ("provenance", "under another name"): History().send("a", payload=NAMED).claim("a", 1, payload=OTHER),
    ("provenance", "never sent"): History().claim("a", 1).settle("ack", "a", 1),
    ("provenance", "another payload"): History().send("a").claim("a", 1, payload="ffff").settle("ack", "a", 1),
    ("never early", "claimed a millisecond early"): History().send("a", due=500).after(498).claim("a", 1, due=500),
    ("never early", "claimed earlier than its consumer may hold it"): History()
    .send("a", due=500)
    .after(473)
    .claim("a", 1, due=500, ahead=25),
    ("never early", "started as soon as it was claimed"): History()
    .send("a", due=500)
    .after(480)
    .claim("a", 1, due=500, ahead=25)
    .start("a", 1),
    ("never early", "started early"): History().send("a").claim("a", 1).start("a", 1, server=-1),
    ("never early", "due at a time that was never requested"): History()
    .send("a", due=5)
    .after(99)
    .claim("a", 1, due=7),
    ("never early", "due as before it was rescheduled"): History()
    .send("a")
    .reschedule("a", 9000)
    .claim("a", 1, due=0)
    .settle("ack", "a", 1),
    ("bounded deliveries", "more attempts than retries allow"): History().send("a", retries=0).claim("a", 1, attempt=2),
    ("bounded deliveries", "an attempt that was not charged"): History()
    .send("a")
    .claim("a", 1)
    .settle("nack", "a", 1)
    .claim("a", 2, attempt=1),
    ("bounded deliveries", "charged twice"): History()
    .send("a")
    .claim("a", 1)
    .settle("nack", "a", 1)
    .claim("a", 2, attempt=3),
    ("bounded deliveries", "charged though released, as a stop does with what it cuts off"): History()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .settle("release", "a", 1)
    .claim("a", 2, attempt=2),
    ("bounded deliveries", "charged without having started"): History()
    .send("a", retries=1)
    .claim("a", 1)
    .start("a", 1)
    .after(LEASE)
    .claim("a", 2)
    .finish(late=LEASE, dead=[("a", 2, 2, 1, "retries spent")]),
    ("bounded deliveries", "an expired lease that costs no retry"): killed(reported=True)
    .claim("a", 2, by="other", left=3)
    .settle("ack", "a", 2, by="other"),
    ("bounded deliveries", "an expired lease that costs two retries"): killed(reported=True)
    .claim("a", 2, by="other", left=1)
    .settle("ack", "a", 2, by="other"),
    ("bounded deliveries", "a retry too many though no lease expired"): History().send("a").claim("a", 1, left=4),
    ("bounded deliveries", "an expired lease that is not counted, though its start was reported"): killed(reported=True)
    .claim("a", 2, by="other", attempt=1, left=3)
    .settle("ack", "a", 2, by="other"),
    ("bounded deliveries", "the same beside a claim without a reply"): killed(reported=True)
    .lost_claim()
    .claim("a", 3, by="other", attempt=1, left=3)
    .settle("ack", "a", 3, by="other"),
    ("fencing", "a start reported under an old token"): killed(reported=False)
    .claim("a", 2, by="other")
    .report_start("a", 1),
    ("bounded deliveries", "delivered after its ack"): History()
    .send("a")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .claim("a", 2),
    ("bounded deliveries", "delivered after it was cancelled"): History().send("a").cancel("a").claim("a", 1),
    ("leases", "a token twice"): History().send("a").claim("a", 1).claim("a", 1, by="other"),
    ("leases", "tokens fall"): History().send("a").claim("a", 2).settle("nack", "a", 2).claim("a", 1),
    ("leases", "two at a time"): History().send("a").claim("a", 1).claim("a", 2, by="other"),
    ("leases", "two at a time, the first renewed"): History()
    .send("a")
    .claim("a", 1)
    .after(900)
    .settle("extend", "a", 1, lease=1000)
    .after(500)
    .claim("a", 2, by="other"),
    ("fencing", "a nack under an old token"): History()
    .send("a")
    .claim("a", 1)
    .after(1000)
    .claim("a", 2, by="other")
    .settle("nack", "a", 1),
    ("fencing", "an ack from an earlier life"): History()
    .send("a")
    .claim("a", 1)
    .cancel("a", outcome="unanswered")
    .send("a")
    .settle("ack", "a", 1),
    ("fencing", "two acks"): History().send("a").claim("a", 1).settle("ack", "a", 1).settle("ack", "a", 1),
    ("dead letter", "dead before its time"): History()
    .send("a", retries=3)
    .claim("a", 1)
    .start("a", 1)
    .settle("nack", "a", 1)
    .finish(counters={"sent": 1, "nacked": 1}, dead=[("a", 1, 1, 3, "retries spent")]),
    ("counters", "an ack too few"): History()
    .send("a")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1}),
    ("doubt", "reported as new while it existed"): History().send("a").send("a").finish(counters={"sent": 2}),
    ("doubt", "a call carried out in part"): History()
    .send("a", "b", outcome="unanswered")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(counters={"sent": 1, "acked": 1}),
    ("leases", "a token issued again after everything was lost"): History()
    .send("a")
    .claim("a", 2)
    .after(1)
    .fault("flushall", lost=1)
    .after(1)
    .send("a")
    .claim("a", 1, by="other"),
    ("liveness", "due and not delivered"): History()
    .send("a")
    .after(5000)
    .finish(counters={"sent": 1}, living=[("a", "ready", SERVER)]),
    ("leftovers", "a field of no message"): delivered("b").finish(leftovers=["headers: a is no message"]),
    ("pauses", "claimed in a pause"): History()
    .send("a")
    .fault("pause", breaks_leases=False)
    .after(-8)
    .claim("a", 1)
    .settle("ack", "a", 1),
    ("pauses", "claimed while its name is paused"): History()
    .send("a")
    .fault("pause-name", breaks_leases=False, name="good")
    .after(-8)
    .claim("a", 1, name="good")
    .settle("ack", "a", 1),
    ("limits", "more than may run at a time"): History(slow=LimitRecord(running=1))
    .send("a", "b")
    .claim("a", 1, name="slow")
    .claim("b", 2, name="slow"),
    ("breakers", "claimed though the breaker has tripped"): History().send("a").breaks("", 50).claim("a", 1),
    ("order", "claimed while another has its key"): History(**{TEMPLATE: LimitRecord(running=1)})
    .send("p1-0", "p1-5")
    .claim("p1-0", 1)
    .claim("p1-5", 2),
    ("duplicates", "started again without a fault"): History()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .after(1000)
    .claim("a", 2, by="other")
    .start("a", 2, by="other"),
    ("duplicates", "started twice under one token"): History().send("a").claim("a", 1).start("a", 1).start("a", 1),
    ("duplicates", "by a reply that was dropped"): History()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .fault("replies", breaks_leases=False)
    .after(1000)
    .claim("a", 2, by="other")
    .start("a", 2, by="other"),
    ("duplicates", "by a fault of another"): History()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .fault("kill", process="other")
    .after(1000)
    .claim("a", 2)
    .start("a", 2),
}


@pytest.mark.table(
    ("rule", "history"), [(rule, history) for (rule, _), history in INVALID.items()], ids=map(" - ".join, INVALID)
)
def test_invalid_history_violates_its_rule(rule, history):
    result = history.result()
    assert rule in result.broken, list(report_lines(result))


def test_every_rule_has_an_invalid_history():
    assert {rule for rule, _ in INVALID} == set(RULES)


def test_evidence_contains_only_the_message():
    history = History()
    for id in "bcd":
        history.send(id).claim(id, 1).settle("ack", id, 1)
    history.send("a").claim("a", 1).settle("ack", "a", 1).after(5).claim("a", 2)
    (violation,) = history.result().violations
    assert (violation.rule, violation.number, violation.id) == ("bounded deliveries", 4, "a")
    assert [line.split(" → ")[0].split()[4:6] for line in violation.history] == [["ack", "a"], ["claim", "a"]]


def test_evidence_contains_the_faults_in_between():
    history = History().send("a").claim("a", 1).start("a", 1).fault("kill", process="other").after(1000).claim("a", 2)
    leases, duplicates = history.start("a", 2).result().violations
    assert [leases.rule, duplicates.rule] == ["leases", "duplicates"]
    violation = duplicates
    assert any("other" in line and "fault: kill" in line for line in violation.history)


def test_duplicate_is_explained_by_its_fault():
    result = VALID["delivered again after the worker was killed"].result()
    assert (result.duplicates, result.explained, result.faults) == (1, {"kill": 1}, {"kill": 1})


def test_all_violations_are_counted_but_few_are_shown():
    history = History()
    for number in range(10):
        history.send(f"m{number}")
    result = history.finish(counters={"sent": 10}).result()
    assert result.broken == {"conservation": 10}
    assert len(result.violations) == 3
    assert list(report_lines(result))[-1] == "broken: conservation 10"


def test_unchecked_rules_are_reported():
    text = "\n".join(report_lines(History().send("a").result()))
    assert "no final scan" in text
    assert text.endswith("right, as far as it was checked")


def test_missing_history_is_an_error(tmp_path):
    with pytest.raises(HistoryError, match="no history"):
        check([tmp_path])
    with pytest.raises(HistoryError, match="no history"):
        check([Path(tmp_path / "none.jsonl")])
