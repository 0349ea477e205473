"""How a schedule fires: messages due after their occurrences, and occurrences that would overlap."""

from __future__ import annotations

from datetime import timedelta

import pytest

from delayq import ConfigurationError, Schedule, Snooze
from tests.behaviour.places import everywhere
from tests.support.schedules import HOUR, START, ran

# Messages that are due after their occurrences


@everywhere
def test_jitter_spreads_messages_that_are_due_together(timed, clock):
    names = [f"user-{n}" for n in range(300)]
    timed.schedules.add_many(Schedule(name, every="1h", jitter="5m") for name in names)
    assert timed.schedules.get("user-0").jitter == timedelta(minutes=5)
    assert timed.schedules.get("user-0").next == START + HOUR / 2
    clock.advance(HOUR / 2)
    first = ran(timed)
    waiting = {message.id: message.due for message in timed.list("pending", limit=1000).messages}
    assert len(waiting) >= 290
    assert set(waiting) <= {f"{name}@2026-11-20T08:00:00Z" for name in names}
    late = sorted((due - START - HOUR / 2).total_seconds() for due in waiting.values())
    assert 0 <= late[0] < 10
    assert 290 < late[-1] <= 300
    assert all(40 < sum(60 * n <= one < 60 * (n + 1) for one in late) < 80 for n in range(5))
    clock.advance(timedelta(minutes=5))
    assert sorted([*first, *ran(timed)]) == sorted(f"{name}@2026-11-20T08:00:00Z" for name in names)


def test_jitter_of_an_occurrence_is_the_same_for_every_queue(timed, open_queue, clock):
    dues = []
    for queue in (timed, clock.of(open_queue("other"))):
        queue.schedules.add("sweep", cron="0 8 20 11 *", jitter="1d")
    clock.advance(HOUR / 2)
    for queue in (timed, clock.of(open_queue("other"))):
        assert ran(queue) == []
        (message,) = queue.list("pending").messages
        dues.append(message.due)
    assert dues[0] == dues[1] > clock.now


def test_moved_occurrence_has_no_jitter(timed, clock):
    timed.schedules.add("sweep", every="1h", jitter="1d")
    timed.schedules.move("sweep", START + HOUR / 2, to=START + HOUR / 4)
    clock.advance(HOUR / 4)
    assert ran(timed) == ["sweep@2026-11-20T08:00:00Z"]


@pytest.mark.parametrize("jitter", [-1, "2d", "soon", None, True])
def test_invalid_jitter_is_refused(timed, jitter):
    with pytest.raises(ConfigurationError, match="jitter must"):
        timed.schedules.add("sweep", every="1h", jitter=jitter)
    assert timed.schedules.list() == []


# Occurrences that would overlap


def busy(queue, *ids: str) -> list[str]:
    """Process what is due, and put some messages off by 90 minutes; return the ids of all others."""
    seen = []

    def work(message):
        if message.id in ids and message.lateness < 60:
            raise Snooze("90m")
        seen.append(message.id)

    queue.handlers._callback = None
    queue.callback(work)
    queue.run(burst=True)
    return seen


@everywhere
@pytest.mark.parametrize(("overlap", "at_nine"), [("allow", ["09"]), ("skip", []), ("after", [])])
def test_occurrences_overlap_only_if_they_may(timed, clock, overlap, at_nine):
    timed.schedules.add("sweep", every="1h", overlap=overlap)
    assert timed.schedules.get("sweep").overlap == overlap
    first, *later = (f"sweep@2026-11-20T{hour}:00:00Z" for hour in ("08", "09", "10"))
    clock.advance(HOUR / 2)
    assert busy(timed, first) == []
    clock.advance(HOUR)
    assert [id[17:19] for id in busy(timed, first)] == at_nine
    clock.advance(0.75 * HOUR)
    seen = busy(timed)
    assert seen[0] == first
    clock.advance(HOUR / 4)
    for _ in range(3):  # one waits for the other, and perhaps for the next run
        seen += busy(timed)
    assert seen[1:] == (later if overlap == "after" else later[1:])


@everywhere
def test_occurrence_after_the_end_fires_as_soon_as_that_comes(timed, clock):
    timed.schedules.add("sweep", every="1h", overlap="after", late_after="3h", misfire="skip")
    clock.advance(HOUR / 2)
    first, second, third = (f"sweep@2026-11-20T{hour}:00:00Z" for hour in ("08", "09", "10"))
    assert busy(timed, first) == []
    clock.advance(HOUR)
    assert busy(timed, first) == []
    assert timed.schedules.get("sweep").next == START + 1.5 * HOUR
    clock.advance(HOUR)  # the message has ended, and two occurrences are due: one after the other
    seen = []
    for _ in range(6):
        seen += busy(timed)
        clock.advance(timedelta(seconds=1))
    assert seen == [first, second, third]


@everywhere
def test_missed_occurrences_that_may_not_overlap_fire_one_at_a_time(timed, clock):
    timed.schedules.add("one", every="1h", overlap="skip", misfire=3)
    clock.advance(5 * HOUR)
    timed.callback(lambda message: (_ for _ in ()).throw(Snooze("2h")))
    timed.run(burst=True)
    assert timed.counts().living == 1
    assert timed.schedules.get("one").fired == 1


def test_occurrence_does_not_overlap_one_that_was_moved(timed, clock):
    timed.schedules.add("sweep", every="1h", overlap="skip")
    timed.schedules.move("sweep", START + HOUR / 2, to=START + HOUR / 4)
    clock.advance(HOUR / 4)
    assert busy(timed, "sweep@2026-11-20T08:00:00Z") == []
    clock.advance(1.25 * HOUR)
    busy(timed)
    assert timed.schedules.get("sweep").fired == 1


def test_dead_message_holds_up_no_occurrence(timed, clock):
    timed.schedules.add("sweep", every="1h", overlap="after", retries=0)
    timed.callback(lambda message: False)
    for _ in range(3):
        clock.advance(HOUR)
        timed.run(burst=True)
    assert len(timed.dead.list().messages) == 3


@pytest.mark.parametrize("overlap", ["never", "", None, True, 1, ["skip"]])
def test_invalid_overlap_is_refused(timed, overlap):
    with pytest.raises(ConfigurationError, match="overlap must be 'allow', 'skip' or 'after', not"):
        timed.schedules.add("sweep", every="1h", overlap=overlap)
    assert timed.schedules.list() == []
