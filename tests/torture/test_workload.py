"""The workload: behaviour of callbacks, and actions of producers."""

from collections import Counter
from types import SimpleNamespace

import pytest

from delayq import Discard, Reject, Retry
from delayq.testing.torture.workload import (
    BREAKERS,
    OUTAGE,
    OUTAGE_EVERY,
    PROFILES,
    actions,
    behavior_of,
    payload_of,
    profile_name,
    profile_of,
)


def payload(name):
    return f"{name} 0 id ".encode()


def test_shares_of_the_profiles_add_up():
    assert sum(profile.share for profile in PROFILES.values()) == 10_000


def test_payload_names_its_profile_and_depends_only_on_id_and_life():
    assert payload_of("a", 0) == payload_of("a", 0)
    assert len({payload_of(id, life) for id in "abc" for life in range(3)}) == 9
    found = Counter(payload_of(f"id-{n}", 0).split()[0].decode() for n in range(20_000))
    assert found["good"] > 14_000
    assert set(found) == set(PROFILES)
    assert profile_of(payload_of("a", 0)) in PROFILES.values()


@pytest.mark.table(
    ("profile", "attempt", "outcome", "method"),
    [
        ("good", 1, "acked", ""),
        ("flaky", 1, "failed", ""),
        ("flaky", 2, "acked", ""),
        ("doomed", 9, "failed", ""),
        ("wrong", 1, "rejected", ""),
        ("stale", 1, "discarded", ""),
        ("hand", 1, "acked", "ack"),
        ("nacks", 1, "failed", "nack"),
        ("nacks", 2, "acked", ""),
        ("insists", 1, "failed", "nack"),
        ("insists", 2, "acked", ""),
        ("echoes", 1, "acked", "ack"),
        ("renews", 1, "acked", "extend"),
    ],
)
def test_profile_decides_the_outcome_of_an_attempt(profile, attempt, outcome, method):
    behavior = behavior_of(payload(profile), attempt, number=1, lease=2.0)
    assert (behavior.outcome, behavior.method) == (outcome, method)


def test_callbacks_that_are_late_settle_a_second_time():
    late = [name for name in PROFILES if behavior_of(payload(name), 1, 1, 2.0).repeats]
    assert late == ["echoes", "insists"]
    assert not behavior_of(payload("insists"), 2, 1, 2.0).repeats


def test_callbacks_of_the_name_with_a_breaker_fail_together_during_outages():
    (name,) = BREAKERS
    outcomes = [behavior_of(payload(name), 1, at, 2.0).outcome for at in (0, OUTAGE - 1, OUTAGE, OUTAGE_EVERY - 1)]
    assert outcomes == ["failed", "failed", "acked", "acked"]
    assert behavior_of(payload(name), 9, OUTAGE_EVERY, 2.0).outcome == "failed"
    with pytest.raises(RuntimeError):
        behavior_of(payload(name), 1, 0, 2.0).finish()


def test_message_is_not_released_for_ever():
    behaviors = [behavior_of(payload("gives"), 1, number, lease=2.0) for number in range(20)]
    assert {behavior.method for behavior in behaviors} == {"release", ""}


def test_long_callback_takes_longer_than_its_lease():
    assert behavior_of(payload("long"), 1, 1, lease=2.0).takes > 2.0


@pytest.mark.parametrize(
    ("profile", "raised"), [("flaky", RuntimeError), ("later", Retry), ("wrong", Reject), ("stale", Discard)]
)
def test_profile_decides_the_exception_of_a_callback(profile, raised):
    with pytest.raises(raised):
        behavior_of(payload(profile), 1, 1, 2.0).finish()


def test_profile_decides_the_result_of_a_callback():
    assert behavior_of(payload("good"), 1, 1, 2.0).finish() is True
    assert behavior_of(payload("false"), 1, 1, 2.0).finish() is False


def done(number, messages=5_000):
    task = SimpleNamespace(seed="1/1", number=number, producers=2, messages=messages, seconds=20.0, batch=10)
    return list(actions(task))


def test_producers_share_the_messages_and_repeat_the_same_actions():
    assert done(1) == done(1)
    first = [
        id
        for number in (1, 2)
        for action in done(number)
        for id in action.ids
        if action.life == 0 and action.what == "send"
    ]
    times = Counter(first)
    assert 4_800 < len(times) <= 5_000
    twice = {id for id, number in times.items() if number == 2}
    assert twice == {id for id in times if id.startswith("all-")}
    assert len(twice) > 20


def test_all_kinds_of_actions_occur():
    echoes = [action for action in done(1) if action.life > 2]
    assert echoes
    assert {profile_name(payload_of(one.ids[0], one.life)) for one in echoes} == {"echoes"}
    kinds = {(action.what, action.life) for action in done(1) if action not in echoes}
    idle = {("cancel", 0), ("reschedule", 0)}
    assert kinds == {("send", 0), ("send", 1), ("send", 2), ("replace", 1), ("follow", 1), ("stop", 0), *idle}
    assert all(len(action.ahead) in (0, len(action.ids)) for action in done(1))
