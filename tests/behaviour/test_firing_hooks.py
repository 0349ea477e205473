"""Hooks before a schedule fires: what a program skips, and what it changes."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from delayq import ConfigurationError
from tests.behaviour.places import everywhere
from tests.support.schedules import HOUR, START, ran


@everywhere
def test_hook_changes_payload_and_headers_of_each_occurrence(timed, clock):
    seen = []
    timed.callback(lambda message: seen.append((message.payload, message.headers["tenant"])))
    timed.schedules.add("report", every="1h", payload={"n": 0}, headers={"tenant": "a"}, misfire=3)

    @timed.hooks.before_fire
    def decide(firing):
        assert (firing.queue, firing.schedule, firing.headers) == ("reminders", "report", {"tenant": "a"})
        firing.payload["n"] = firing.due.hour
        firing.headers["tenant"] = "b"

    clock.advance(4 * HOUR)
    timed.run(burst=True)
    hours = [(START + HOUR / 2 + number * HOUR).hour for number in (1, 2, 3)]
    assert seen == [({"n": hour}, "b") for hour in hours]
    assert timed.schedules.get("report").fired == 3


@everywhere
def test_hook_skips_an_occurrence_which_does_not_count(timed, clock, caplog):
    timed.schedules.add("report", every="1h", payload=1, count=2)
    skipped = []

    @timed.hooks.before_fire
    def closed(firing):
        if not skipped:
            skipped.append(firing.due)
            firing.skip("the office is closed")

    @timed.hooks.before_fire
    def never_asked_of_what_is_skipped(firing):
        assert firing.due not in skipped

    with caplog.at_level(logging.INFO, "delayq.schedules"):
        clock.advance(HOUR / 2)
        assert ran(timed) == []
    assert "schedule report skips 2026-11-20 08:00:00+00:00: the office is closed" in caplog.text
    for hour in (9, 10):
        clock.advance(HOUR)
        assert ran(timed) == [f"report@2026-11-20T{hour:02}:00:00Z"]
    clock.advance(HOUR)
    assert ran(timed) == []


@everywhere
def test_hook_that_raises_keeps_the_occurrence_until_it_does_not(timed, clock, caplog):
    timed.schedules.add("report", every="1h", payload=1)
    fails = [True]

    @timed.hooks.before_fire
    def decide(firing):
        if fails:
            raise ValueError("no stock known")

    clock.advance(HOUR / 2)
    assert ran(timed) == []
    assert "schedule report cannot be fired here: no stock known" in caplog.text
    fails.clear()
    clock.advance(timedelta(seconds=2))
    assert ran(timed) == ["report@2026-11-20T08:00:00Z"]


def test_other_kinds_of_hooks_are_refused(timed):
    async def late(firing):
        return None

    for hook in (late, 7):
        with pytest.raises(ConfigurationError, match="before_fire takes a plain function"):
            timed.hooks.before_fire(hook)
