"""Rules with skipped and moved occurrences, beside a plain list of what should be due."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq.schedules.cron import Cron
from delayq.schedules.recurring.changed_rule import ChangedRule
from delayq.schedules.recurring.timetable import Timetable
from delayq.schedules.rules import Interval

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = 1_800_000_000_000 // DAY * DAY

RULES = (Interval(HOUR), Interval(7 * MINUTE, 5), Cron("0 */2 * * *", "Europe/Berlin"), Cron("30 9 * * *"))
TIMES = st.integers(NOW, NOW + DAY) | st.integers(0, 48).map(lambda half: NOW + half * HOUR // 2)
"""Any times, and often those of occurrences."""
BOUNDS = st.none() | TIMES


def occurrences(rule, since, until):
    """All occurrences of a plain rule from a time up to another."""
    found, at = [], rule.after(since - 1)
    while at is not None and at <= until:
        found.append(at)
        at = rule.after(at)
    return found


@st.composite
def changed_rules(draw):
    """A rule, its start and end, and changes of some of its occurrences, and of times that it does not have."""
    rule, start, end = draw(st.sampled_from(RULES)), draw(BOUNDS), draw(BOUNDS)
    own = st.sampled_from(occurrences(rule, NOW, NOW + DAY))
    changes = draw(st.dictionaries(own | TIMES, st.none() | TIMES | own, max_size=12))
    return rule, start, end, changes


def expected(rule, start, end, changes):
    """Every due time within three days, with the time that the rule gives it."""
    own = occurrences(rule, NOW - DAY if start is None else start, NOW + 2 * DAY if end is None else end)
    dues = {time: time for time in own if time not in changes}
    for time, origin in sorted((time, origin) for origin, time in changes.items() if time is not None):
        if origin in own:
            due = time
            while due in dues:
                due += 1
            dues[due] = origin
    return dues


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(changed_rules())
def test_changed_rule_has_the_occurrences_of_a_plain_list(drawn):
    rule, start, end, changes = drawn
    changed, dues = ChangedRule(rule, start, end, changes), expected(rule, start, end, changes)
    between = [due for due in sorted(dues) if NOW - DAY <= due < NOW + 2 * DAY]
    assert changed.between(NOW - DAY, NOW + 2 * DAY, 10_000) == between
    assert {due: changed.origin(due) for due in between} == {due: dues[due] for due in between}
    for origin in {*changes, *dues.values()}:
        if changed.has(origin):
            assert changed.due(origin) == next((due for due, known in dues.items() if known == origin), None)
    backward, at = [], changed.up_to(NOW + 2 * DAY - 1)
    while at is not None and at >= NOW - DAY:
        backward.append(at)
        at = changed.up_to(at - 1)
    assert backward[::-1] == between


@settings(max_examples=200, deadline=None)
@given(changed_rules(), st.lists(st.integers(0, 5 * HOUR), max_size=12), st.sampled_from([0, 1, 1000]), st.data())
def test_consumers_fire_each_occurrence_once_however_late(drawn, waits, makes_up, data):
    rule, start, end, changes = drawn
    changed, dues = ChangedRule(rule, start, end, changes), expected(rule, start, end, changes)
    timetable = Timetable(changed, makes_up=makes_up)
    fired, now, at = [], NOW - 1, timetable.after(NOW - 1)
    for wait in [*waits, 0]:
        now += wait
        if at is not None and at <= now + 100:
            due = timetable.due(at, now, ahead=100, limit=data.draw(st.integers(1, 20)))
            assert due.times or makes_up < 1000
            fired += due.times
            at = due.next
    upcoming = at if at is not None else now + 3 * DAY
    possible = [due for due in sorted(dues) if NOW <= due < upcoming]
    assert fired == sorted(set(fired))  # in order, and none twice
    assert set(fired) <= set(possible)
    if makes_up == 1000:
        assert fired == possible


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(changed_rules(), TIMES)
def test_kept_changes_give_the_same_occurrences_from_then_on(drawn, horizon):
    rule, start, end, changes = drawn
    before = ChangedRule(rule, start, end, changes)
    kept = before.kept(horizon)
    after = ChangedRule(rule, start, end, kept)
    assert set(kept) <= set(changes)
    assert all(max(origin, before.due(origin) or 0) > horizon for origin in kept)
    origins = [
        [rule.origin(due) for due in rule.between(horizon + 1, NOW + 2 * DAY, 10_000)] for rule in (before, after)
    ]
    assert origins[0] == origins[1]


def test_lateness_is_judged_by_the_gap_of_the_rule():
    nine, ten = NOW + 9 * HOUR, NOW + 10 * HOUR
    changed = ChangedRule(Interval(HOUR), None, None, {nine: ten})
    timetable = Timetable(changed, makes_up=1)
    assert changed.between(ten, ten + HOUR, 9) == [ten, ten + 1]  # not at the same time, and neither is lost
    assert timetable.due(ten, ten + 30_000).times == [ten, ten + 1]
    assert timetable.due(ten, ten + 90_000).times == [ten + 1]  # both were missed


def test_a_thousand_skipped_occurrences_are_passed_quickly():
    rule = Cron("0 9 * * *", "Europe/Berlin")
    days = occurrences(rule, NOW, NOW + 1000 * DAY)
    changed = ChangedRule(rule, None, None, dict.fromkeys(days))
    assert changed.after(NOW) > days[-1]
    assert changed.up_to(days[-1]) < NOW
