"""The rule about breakers accepts their trials whatever faults did, and finds every other start."""

import pytest

from delayq.testing.torture.rules.checker import report_lines
from tests.torture.histories import History

PAUSE = 50


def tripped(name: str = "mail", *claimed_after: int) -> History:
    """Return a history of claims after a breaker has tripped: how long each comes after the one before (ms)."""
    return go_on(History().send(*"abcdefgh").after(1).breaks(name, PAUSE), *claimed_after)


def go_on(history: History, *after: int) -> History:
    """Add more claims to a history."""
    for ms in after:
        history.after(ms - 1).claim("abcdefgh"[len(history.attempts)], 100 + len(history.attempts), name="mail")
    return history


ALLOWED = {
    "the trials, and then all": tripped("mail", PAUSE, PAUSE, PAUSE, 1, 1),
    "the trials of the queue, and then all": tripped("", PAUSE, PAUSE, PAUSE, 1, 1),
    "others while a name has tripped": tripped().claim("a", 1, name="good").claim("b", 2),
    "all once the trial has succeeded": go_on(tripped("mail", PAUSE).breaks("mail", 0), 1, 1),
    "all once somebody has resumed it": go_on(tripped().breaks("mail", 0), 1, 1, 1),
    "all, if nobody knows whether it has been resumed": go_on(tripped().breaks("mail", 0, outcome="unanswered"), 1, 1),
    "what began to be claimed before it had tripped": tripped().after(-2).claim("a", 1, name="mail"),
    "all, if it could not trip": go_on(History().send("a", "b").breaks("mail", PAUSE, "0"), 1, 1),
    "all, if nobody knows whether it has tripped": go_on(
        History().send("a", "b").breaks("mail", PAUSE, outcome="unanswered"), 1, 1
    ),
    "all once the server has forgotten it": go_on(tripped().fault("power", lasting=1, lost=1), 1, 1),
    "the trial again that the server has forgotten": go_on(
        tripped("mail", PAUSE).fault("power", lasting=1, lost=PAUSE), 1
    ),
    "all once the clock was set": go_on(tripped().fault("clock", lasting=1, shift=100), 1, 1),
    "all after two claims without a reply, which may have been the trials": go_on(
        tripped().after(PAUSE).lost_claim().after(PAUSE).lost_claim().after(PAUSE), 1, 1, 1
    ),
    "all after claims under way when it tripped, which may have been the trials": go_on(
        tripped()
        .after(-2)
        .claim("a", 1, lasting=PAUSE + 2, name="mail")
        .after(-1)
        .claim("b", 2, lasting=2 * PAUSE + 2, name="mail")
        .after(3 * PAUSE),
        1,
        1,
    ),
    "a trial whose reply was lost and read much later": tripped()
    .after(PAUSE)
    .claim("a", 1, lasting=PAUSE + 5, now=2 * PAUSE + 5, name="mail")
    .after(PAUSE + 2)
    .claim("b", 2, name="mail"),
    "all after a shorter pause has replaced it": go_on(tripped().breaks("mail", 5), 6),
}


@pytest.mark.table("history", ALLOWED.values(), ids=ALLOWED.keys())
def test_trials_of_a_breaker_are_accepted(history):
    result = history.result()
    assert "breakers" not in result.broken, list(report_lines(result))


FORBIDDEN = {
    "one in the pause of its name": (tripped("mail", 2), "within 50 ms after the breaker of mail has tripped"),
    "one at the end of the pause": (tripped("mail", PAUSE - 5), "after the breaker of mail has tripped"),
    "one in the pause of the queue": (tripped("", 2), "within 50 ms after the breaker of the queue has tripped"),
    "one of no name in the pause of the queue": (
        tripped("").claim("a", 1),
        "after the breaker of the queue has tripped",
    ),
    "two trials at once": (tripped("mail", PAUSE, 1), "claimed within 50 ms after the trial of mail, a"),
    "two trials of the queue at once": (tripped("", PAUSE, 1), "claimed within 50 ms after the trial of the queue, a"),
    "all after the second trial": (tripped("mail", PAUSE, PAUSE, 1), "claimed within 50 ms after the trial of mail, b"),
    "one in the pause after a trial that has failed": (
        go_on(tripped("mail", PAUSE).breaks("mail", PAUSE), 1),
        "after the breaker of mail has tripped",
    ),
    "one in the pause though a trial of another name has succeeded": (
        go_on(tripped().breaks("good", 0), 1),
        "after the breaker of mail has tripped",
    ),
    "one in the pause though nothing was there to resume": (
        go_on(tripped().breaks("mail", 0, "2"), 1),
        "after the breaker of mail has tripped",
    ),
    "two trials at once though a claim has no reply": (
        go_on(tripped().lost_claim(), PAUSE, 1),
        "claimed within 50 ms after the trial of mail, a",
    ),
    "one in the pause after the server has forgotten others": (
        go_on(History().send("a", "b").fault("power", lost=1).breaks("mail", PAUSE), 1),
        "after the breaker of mail has tripped",
    ),
}


@pytest.mark.table(("history", "text"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_start_while_a_breaker_has_tripped_is_found(history, text):
    result = history.result()
    assert set(result.broken) == {"breakers"}, list(report_lines(result))
    assert text in result.violations[0].text
    assert result.violations[0].history
