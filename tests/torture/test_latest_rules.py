"""The rule about `after_outage` accepts what is started and missed rightly, and finds what is not."""

import pytest

from delayq.testing.torture.rules.checker import report_lines
from tests.torture.histories import History


def sent() -> History:
    """Return a history of two messages with one prefix, of which the second is due 5 ms later; both are due at once."""
    return History().send("r:1").send("r:2", due=5).after(10)


def started(id: str, token: int, *, history: History | None = None, due: int = 0) -> History:
    """Add the claim and the start of a message."""
    return (history or sent()).claim(id, token, due=due).start(id, token)


def both(first: History, second: str = "r:1", due: int = 0) -> History:
    """Start another message after the first."""
    return started(second, 9, history=first, due=due)


ALLOWED = {
    "the latest, and the other is missed": started("r:2", 1, due=5).claim("r:1", 2).miss("r:1", 2),
    "the latest, and the other is dropped": started("r:2", 1, due=5).claim("r:1", 2).miss("r:1", 2, dropped=True),
    "what is missed while the latest waits": sent().claim("r:1", 1).miss("r:1", 1),
    "what is missed after the latest was cancelled": sent().cancel("r:2").claim("r:1", 1).miss("r:1", 1),
    "each when it is due": both(
        started("r:1", 1, history=History().send("r:1").send("r:2", due=50)).after(50), "r:2", 50
    ),
    "both, if they are due at the same time": both(
        started("r:1", 1, history=History().send("r:1").send("r:2").after(10)), "r:2"
    ),
    "both, if they were claimed before either had started": sent()
    .claim("r:1", 1)
    .claim("r:2", 2, due=5)
    .start("r:2", 2),
    "those of other prefixes": both(
        started("q:2", 1, history=History().send("r:1").send("q:2", due=5).after(10), due=5)
    ),
    "those without a prefix": started("b", 2, history=started("a", 1, history=History().send("a", "b").after(9))),
    "the earlier one, if the latest may be cancelled": both(sent().cancel("r:2", outcome="unanswered")),
    "the earlier one, if the latest may have another due time": both(
        sent().reschedule("r:2", 90, outcome="unanswered")
    ),
    "the earlier one, if the latest may never have been sent": both(
        History().send("r:1").send("r:2", due=5, outcome="unanswered").after(10)
    ),
    "the earlier one, once the server has forgotten that the latest has started": both(
        started("r:2", 1, due=5).fault("power", lasting=1, lost=9).after(1)
    ),
    "the earlier one, as the clock was set back": sent()
    .claim("r:1", 1)
    .fault("clock", lasting=1, shift=-100)
    .start("r:1", 1),
    "the earlier one, until the clock is as late as before it was set back": started("r:2", 1, due=5)
    .fault("clock", lasting=1, shift=-100)
    .after(50)
    .claim("r:1", 2)
    .start("r:1", 2),
    "a redriven one": both(
        started("r:2", 1, due=5).claim("r:1", 2).miss("r:1", 2).redrive("r:1", 2),
    ),
    "the earlier one after a redriven one": both(
        started("r:2", 3, history=sent().claim("r:2", 1, due=5).settle("reject", "r:2", 1).redrive("r:2", 1), due=5)
    ),
    "what is missed as it was moved to a time before that at which it has started": started("r:2", 1, due=5)
    .settle("nack", "r:2", 1)
    .reschedule("r:2", 2)
    .claim("r:2", 2, due=2)
    .miss("r:2", 2),
}


@pytest.mark.table("history", ALLOWED.values(), ids=ALLOWED.keys())
def test_latest_message_is_accepted(history):
    result = history.result()
    assert "latest" not in result.broken, list(report_lines(result))


FORBIDDEN = {
    "one long after the clock was set back": (
        both(started("r:2", 1, due=5).fault("clock", lasting=1, shift=-100).after(100)),
        "started after r:2",
    ),
    "an earlier one after the latest": (both(started("r:2", 1, due=5)), "started after r:2, which was due 5 ms later"),
    "an earlier one after the latest has ended": (
        both(started("r:2", 1, due=5).settle("ack", "r:2", 1)),
        "started after r:2, which was due 5 ms later",
    ),
    "an earlier one that has started before": (
        both(
            started("r:2", 2, history=started("r:1", 1, history=sent()).settle("nack", "r:1", 1), due=5).settle(
                "ack", "r:2", 2
            )
        ),
        "started after r:2",
    ),
    "an earlier one while the latest waits": (
        started("r:1", 1, history=sent()),
        "started while r:2 waited, which was due 5 ms later",
    ),
    "an earlier one while the latest is leased": (
        started("r:1", 2, history=sent().claim("r:2", 1, due=5)),
        "started while r:2 waited, which was due 5 ms later",
    ),
    "the latest, missed": (sent().claim("r:2", 1, due=5).miss("r:2", 1), "missed, though nothing of its prefix"),
    "the latest, dropped": (
        sent().claim("r:2", 1, due=5).miss("r:2", 1, dropped=True),
        "missed, though nothing of its prefix",
    ),
    "one that is missed for one that is not due yet": (
        History().send("r:1").send("r:2", due=50).after(10).claim("r:1", 1).miss("r:1", 1),
        "missed, though nothing of its prefix",
    ),
    "one that is missed for one of another prefix": (
        History().send("r:1").send("q:2", due=5).after(10).claim("r:1", 1).miss("r:1", 1),
        "missed, though nothing of its prefix",
    ),
}


@pytest.mark.table(("history", "text"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_other_message_than_the_latest_is_found(history, text):
    result = history.result()
    assert set(result.broken) <= {"latest", "bounded deliveries"}, list(report_lines(result))
    assert [one.text for one in result.violations if one.rule == "latest" and one.text.startswith(text) and one.history]
