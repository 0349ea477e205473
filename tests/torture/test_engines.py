"""The rules judge what an engine promises, and bite: told histories of streams and work queues, right and wrong."""

import pytest

from delayq.torture.breach import RULES
from delayq.torture.checker import tell
from delayq.torture.promises import PROMISES
from tests.torture.tale import SERVER, ItemTale, Tale


def stream():
    return Tale("streams")


RIGHT = {
    "of a stream, delivered once": stream().send("a").claim("a", 1).settle("ack", "a", 1).finish(),
    "of a stream, for a time nobody asked for": stream().send("a").claim("a", 1, due=-9).settle("ack", "a", 1).finish(),
    "of a stream, given back and delivered under the same token": stream()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .settle("release", "a", 1)
    .claim("a", 1, attempt=1)
    .start("a", 1)
    .settle("ack", "a", 1)
    .finish(),
    "of a stream, dead and sent again": stream()
    .send("a", retries=0)
    .claim("a", 1)
    .settle("nack", "a", 1, "2")
    .redrive("a", 0)
    .claim("a", 3)
    .settle("ack", "a", 3)
    .finish(),
    "of a stream, a first attempt that nobody saw": stream().send("a").claim("a", 2, attempt=2).settle("ack", "a", 2),
    "an item, completed": ItemTale().add("a").lease("a", 1).start("a", 1).complete("a").finish(),
    "an item, completed late": ItemTale()
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
    "an item, added again while it was there": ItemTale().add("a").add("a", digits="0").lease("a", 1).complete("a"),
    "an item, added in doubt and then for sure": ItemTale()
    .add("a", outcome="unknown")
    .add("a", digits="0")
    .lease("a", 1)
    .complete("a")
    .finish(),
    "an item, completed in doubt": ItemTale().add("a").lease("a", 1).complete("a", outcome="unknown").finish(),
    "an item, completed in doubt and then for sure": ItemTale()
    .add("a")
    .lease("a", 1)
    .complete("a", outcome="unknown")
    .complete("a", "0")
    .finish(),
    "an item, delivered as often as workers die": ItemTale()
    .add("a")
    .lease("a", 1)
    .after(1000)
    .lease("a", 2)
    .after(1000)
    .lease("a", 3)
    .complete("a")
    .finish(),
    "a later life of an item, completed by who had the former": ItemTale()
    .add("a")
    .lease("a", 1)
    .after(1000)
    .lease("a", 2, by="other")
    .complete("a", by="other")
    .add("a")
    .complete("a")
    .finish(),
    "an item whose second lease was asked for before the first and given after it": ItemTale()
    .add("a")
    .lease("a", 1, lasting=1500)
    .lease("a", 2, by="other")
    .complete("a")
    .finish(),
    "an item, after the clock was set": ItemTale()
    .add("a")
    .lease("a", 1)
    .fault("clock", shift=5000)
    .lease("a", 2, by="other")
    .complete("a")
    .finish(),
}


@pytest.mark.parametrize("tale", RIGHT.values(), ids=RIGHT.keys())
def test_what_is_right_is_found_right(tale):
    verdict = tale.verdict()
    assert verdict.right, list(tell(verdict))


WRONG = {
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
    ("leases", "a token of a stream, twice though nobody gave it back"): stream()
    .send("a")
    .claim("a", 1)
    .after(2000)
    .claim("a", 1, by="other"),
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
    ("doubt", "of a stream, new though it lived"): stream().send("a").send("a").finish(),
    ("liveness", "of a stream, left to lie"): stream().send("a").after(5000).finish(living=[("a", "active", SERVER)]),
    ("leftovers", "an entry of a stream, left behind"): stream().finish(leftovers=["a is settled, and left"]),
    ("duplicates", "of a stream, begun twice under one token"): stream()
    .send("a")
    .claim("a", 1)
    .start("a", 1)
    .start("a", 1),
    ("conservation", "an item, lost"): ItemTale().add("a").lease("a", 1).finish(),
    ("conservation", "an item, completed by two at a time"): ItemTale()
    .add("a")
    .lease("a", 1)
    .complete("a")
    .complete("a", by="other")
    .finish(),
    ("provenance", "an item, with other data"): ItemTale().add("a").lease("a", 1, payload="ffff"),
    ("bounded deliveries", "an item, leased after it was completed"): ItemTale()
    .add("a")
    .lease("a", 1)
    .complete("a")
    .lease("a", 2),
    ("leases", "an item, leased by two at a time"): ItemTale().add("a").lease("a", 1).after(900).lease("a", 2),
    ("fencing", "an item, completed twice"): ItemTale().add("a").lease("a", 1).complete("a").complete("a"),
    ("doubt", "an item, added though it was there"): ItemTale().add("a").add("a").finish(),
    ("doubt", "some items of one transaction"): ItemTale()
    .add("a", "b", outcome="unknown")
    .lease("a", 1)
    .complete("a")
    .finish(),
    ("liveness", "an item, left to lie"): ItemTale().add("a").finish(late=5000, living=[("a", "ready", 0)]),
    ("leftovers", "an item in neither list"): ItemTale().finish(leftovers=["a is an item in neither list"]),
    ("duplicates", "an item, begun again for no reason"): ItemTale()
    .add("a")
    .lease("a", 1)
    .start("a", 1)
    .after(1000)
    .lease("a", 2)
    .start("a", 2),
}


@pytest.mark.parametrize(
    ("rule", "tale"), [(rule, tale) for (rule, _), tale in WRONG.items()], ids=map(" - ".join, WRONG)
)
def test_what_is_wrong_is_found_wrong(rule, tale):
    verdict = tale.verdict()
    assert rule in verdict.broken, list(tell(verdict))


@pytest.mark.parametrize(("engine", "kind"), [("streams", Tale), ("workqueue", ItemTale)])
def test_every_rule_that_an_engine_has_is_shown_to_bite(engine, kind):
    judged = set(RULES) - PROMISES[engine].unjudged.keys()
    bitten = {rule for (rule, _), tale in WRONG.items() if type(tale) is kind}
    assert bitten == judged


def test_what_has_no_meaning_is_said_and_not_judged():
    lines = list(tell(ItemTale().add("a").lease("a", 1).complete("a").finish().verdict()))
    assert "without a meaning here is never early: a work queue has no due times" in lines
    assert lines[-1] == "right: all nine rules hold"
