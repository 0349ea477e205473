"""The workload: what each message is to become, and what producers do to it."""

from collections import Counter

import pytest

from delayq import Discard, Reject, Retry
from delayq.torture.workload import FATES, decide, deeds, fate_of, payload_of


def payload(name):
    return f"{name} 0 id ".encode()


def test_the_shares_of_the_fates_are_whole():
    assert sum(fate.share for fate in FATES.values()) == 10_000


def test_a_payload_tells_its_fate_and_is_a_function_of_id_and_life():
    assert payload_of("a", 0) == payload_of("a", 0)
    assert len({payload_of(id, life) for id in "abc" for life in range(3)}) == 9
    found = Counter(payload_of(f"id-{n}", 0).split()[0].decode() for n in range(20_000))
    assert found["good"] > 15_000
    assert set(found) == set(FATES)
    assert fate_of(payload_of("a", 0)) in FATES.values()


@pytest.mark.parametrize(
    ("fate", "attempt", "said", "by_hand"),
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
        ("renews", 1, "acked", "extend"),
    ],
)
def test_an_attempt_ends_as_its_fate_says(fate, attempt, said, by_hand):
    act = decide(payload(fate), attempt, number=1, lease=2.0)
    assert (act.said, act.by_hand) == (said, by_hand)


def test_a_release_ends_at_some_time():
    acts = [decide(payload("gives"), 1, number, lease=2.0) for number in range(20)]
    assert {act.by_hand for act in acts} == {"release", ""}


def test_a_long_one_outlasts_its_lease():
    assert decide(payload("long"), 1, 1, lease=2.0).takes > 2.0


@pytest.mark.parametrize(
    ("fate", "raised"), [("flaky", RuntimeError), ("later", Retry), ("wrong", Reject), ("stale", Discard)]
)
def test_an_act_says_so_as_a_callback_does(fate, raised):
    with pytest.raises(raised):
        decide(payload(fate), 1, 1, 2.0).end()


def test_an_act_returns_what_a_callback_does():
    assert decide(payload("good"), 1, 1, 2.0).end() is True
    assert decide(payload("false"), 1, 1, 2.0).end() is False


def done(number, messages=5_000):
    return list(deeds("1/1", number, producers=2, messages=messages, seconds=20.0, batch=10))


def test_producers_share_the_messages_and_do_the_same_again():
    assert done(1) == done(1)
    first = [
        id for number in (1, 2) for deed in done(number) for id in deed.ids if deed.life == 0 and deed.what == "send"
    ]
    times = Counter(first)
    assert 4_800 < len(times) <= 5_000
    twice = {id for id, number in times.items() if number == 2}
    assert twice == {id for id in times if id.startswith("all-")}
    assert len(twice) > 20


def test_everything_that_users_do_is_done():
    kinds = {(deed.what, deed.life) for deed in done(1)}
    assert kinds == {("send", 0), ("send", 1), ("send", 2), ("replace", 1), ("cancel", 0), ("reschedule", 0)}
    assert all(len(deed.ahead) in (0, len(deed.ids)) for deed in done(1))
