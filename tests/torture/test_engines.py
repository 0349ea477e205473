"""The rules check what each engine guarantees: valid and invalid histories of streams and work queues."""

import pytest

from delayq.testing.torture.rules.checker import RULES, report_lines
from delayq.testing.torture.rules.engine_guarantees import GUARANTEES
from tests.torture.histories import SERVER, History, ItemHistory


def stream():
    return History("streams")


VALID = {
    "of a stream, delivered once": stream().send("a").claim("a", 1).settle("ack", "a", 1).finish(),
    "of a stream, due at a time that was never requested": stream()
    .send("a")
    .claim("a", 1, due=-9)
    .settle("ack", "a", 1)
    .finish(),
    "of a stream, released and delivered as the same attempt": stream()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .settle("release", "a", 1)
    .claim("a", 2, attempt=1)
    .start("a", 2)
    .settle("ack", "a", 2)
    .finish(),
    "of a stream, dead and sent again": stream()
    .send("a", retries=0)
    .claim("a", 1)
    .settle("nack", "a", 1, "2")
    .redrive("a", 0)
    .claim("a", 3)
    .settle("ack", "a", 3)
    .finish(),
    "of a stream, a lost first attempt": stream().send("a").claim("a", 2, attempt=2).settle("ack", "a", 2),
    "an item, completed": ItemHistory().add("a").lease("a", 1).start("a", 1).complete("a").finish(),
    "an item, completed late": ItemHistory()
    .add("a")
    .lease("a", 1)
    .start("a", 1)
    .end("a", 1, "failed")
    .after(1200)
    .lease("a", 2, by="other")
    .start("a", 2, by="other")
    .complete("a")
    .complete("a", "0", by="other")
    .finish(),
    "an item whose first worker was killed after the end of its lease": ItemHistory()
    .add("a")
    .lease("a", 1)
    .start("a", 1)
    .after(1000)
    .lease("a", 2, by="other")
    .start("a", 2, by="other")
    .fault("kill", process="worker")
    .complete("a", by="other")
    .finish(),
    "an item, added again while it was there": ItemHistory()
    .add("a")
    .add("a", statuses="0")
    .lease("a", 1)
    .complete("a"),
    "an item, added with an unknown and then a known outcome": ItemHistory()
    .add("a", outcome="unknown")
    .add("a", statuses="0")
    .lease("a", 1)
    .complete("a")
    .finish(),
    "an item, completed with an unknown outcome": ItemHistory()
    .add("a")
    .lease("a", 1)
    .complete("a", outcome="unknown")
    .finish(),
    "an item, completed with an unknown and then a known outcome": ItemHistory()
    .add("a")
    .lease("a", 1)
    .complete("a", outcome="unknown")
    .complete("a", "0")
    .finish(),
    "an item, delivered as often as workers die": ItemHistory()
    .add("a")
    .lease("a", 1)
    .after(1000)
    .lease("a", 2)
    .after(1000)
    .lease("a", 3)
    .complete("a")
    .finish(),
    "a later life of an item, completed by the holder of the previous one": ItemHistory()
    .add("a")
    .lease("a", 1)
    .after(1000)
    .lease("a", 2, by="other")
    .complete("a", by="other")
    .add("a")
    .complete("a")
    .finish(),
    "an item whose second lease was requested before the first and granted after it": ItemHistory()
    .add("a")
    .lease("a", 1, lasting=1500)
    .lease("a", 2, by="other")
    .complete("a")
    .finish(),
    "an item, after the clock was set": ItemHistory()
    .add("a")
    .lease("a", 1)
    .fault("clock", shift=5000)
    .lease("a", 2, by="other")
    .complete("a")
    .finish(),
}


@pytest.mark.table("history", VALID.values(), ids=VALID.keys())
def test_valid_history_is_accepted(history):
    result = history.result()
    assert result.right, list(report_lines(result))


INVALID = {
    ("conservation", "a message of a stream, lost"): stream().send("a").finish(),
    ("conservation", "a message of a stream, acked and left"): stream()
    .send("a")
    .claim("a", 1)
    .settle("ack", "a", 1)
    .finish(living=[("a", "ready", SERVER)]),
    ("provenance", "a message of a stream, never sent"): stream().claim("a", 1),
    ("bounded deliveries", "a message of a stream, not charged"): stream()
    .send("a")
    .claim("a", 1)
    .settle("nack", "a", 1)
    .claim("a", 2, attempt=1),
    ("leases", "a token of a stream, twice without a release"): stream()
    .send("a")
    .claim("a", 1)
    .after(2000)
    .claim("a", 1, by="other"),
    ("leases", "a token of a stream, once more than it was given back"): stream()
    .send("a")
    .claim("a", 1)
    .settle("release", "a", 1)
    .claim("a", 1, attempt=1)
    .after(2000)
    .claim("a", 1, attempt=1, by="other"),
    ("leases", "a message of a stream, two at a time"): stream().send("a").claim("a", 1).claim("a", 2, by="other"),
    ("fencing", "a nack on a stream under an old token"): stream()
    .send("a")
    .claim("a", 1)
    .after(1000)
    .claim("a", 2, by="other")
    .settle("nack", "a", 1),
    ("dead letter", "dead of a stream before its time"): stream()
    .send("a", retries=3)
    .claim("a", 1)
    .settle("nack", "a", 1)
    .finish(dead=[("a", 0, 1, 3, "retries spent")]),
    ("doubt", "of a stream, reported as new while it existed"): stream().send("a").send("a").finish(),
    ("liveness", "of a stream, not delivered"): stream().send("a").after(5000).finish(living=[("a", "active", SERVER)]),
    ("leftovers", "an entry of a stream, left behind"): stream().finish(leftovers=["a is settled, and left"]),
    ("duplicates", "of a stream, started twice under one token"): stream()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .start("a", 1),
    ("duplicates", "of a stream, given back once and begun three times"): stream()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .settle("release", "a", 1)
    .claim("a", 1, attempt=1)
    .start("a", 1)
    .start("a", 1),
    ("conservation", "an item, lost"): ItemHistory().add("a").lease("a", 1).finish(),
    ("conservation", "an item, completed by two at a time"): ItemHistory()
    .add("a")
    .lease("a", 1)
    .complete("a")
    .complete("a", by="other")
    .finish(),
    ("provenance", "an item, with other data"): ItemHistory().add("a").lease("a", 1, payload="ffff"),
    ("bounded deliveries", "an item, leased after it was completed"): ItemHistory()
    .add("a")
    .lease("a", 1)
    .complete("a")
    .lease("a", 2),
    ("leases", "an item, leased by two at a time"): ItemHistory().add("a").lease("a", 1).after(900).lease("a", 2),
    ("fencing", "an item, completed twice"): ItemHistory().add("a").lease("a", 1).complete("a").complete("a"),
    ("doubt", "an item, added though it was there"): ItemHistory().add("a").add("a").finish(),
    ("doubt", "some items of one transaction"): ItemHistory()
    .add("a", "b", outcome="unknown")
    .lease("a", 1)
    .complete("a")
    .finish(),
    ("liveness", "an item, not delivered"): ItemHistory().add("a").finish(late=5000, living=[("a", "ready", 0)]),
    ("leftovers", "an item in neither list"): ItemHistory().finish(leftovers=["a is an item in neither list"]),
    ("duplicates", "an item, started again without a fault"): ItemHistory()
    .add("a")
    .lease("a", 1)
    .start("a", 1)
    .after(1000)
    .lease("a", 2)
    .start("a", 2),
}


@pytest.mark.table(
    ("rule", "history"), [(rule, history) for (rule, _), history in INVALID.items()], ids=map(" - ".join, INVALID)
)
def test_invalid_history_violates_its_rule(rule, history):
    result = history.result()
    assert rule in result.broken, list(report_lines(result))


@pytest.mark.parametrize(("engine", "kind"), [("streams", History), ("workqueue", ItemHistory)])
def test_every_rule_of_an_engine_has_an_invalid_history(engine, kind):
    applicable = set(RULES) - GUARANTEES[engine].inapplicable_rules.keys()
    tested = {rule for (rule, _), history in INVALID.items() if type(history) is kind}
    assert tested == applicable


def test_rules_that_do_not_apply_are_named_and_not_checked():
    lines = list(report_lines(ItemHistory().add("a").lease("a", 1).complete("a").finish().result()))
    assert "does not apply: never early: a work queue has no due times" in lines
    assert lines[-1] == "right: all 9 rules hold"
