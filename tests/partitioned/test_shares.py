"""What each partition gets of a limit, by numbers alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from delayq.queue.sharing.shares import NO_SHARE, Seen, Share, differs, share_out

NOW = 1_800_000_000_000
RATE = Share(10_000.0, 11)  # 100/s


def shared(whole: Share, seen: list[Seen]) -> list[Share]:
    return share_out(whole, seen, NOW, seconds=0.5).shares


def rates(shares: list[Share]) -> list[float]:
    return [0.0 if one.is_closed else 1e6 / one.interval for one in shares]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param([(0, 0)] * 4, [25] * 4, id="nothing waits: evenly"),
        pytest.param([(1000, 0), (0, 0), (0, 0), (0, 0)], [100, 0, 0, 0], id="one waits: all of it"),
        pytest.param([(300, 0), (100, 0), (0, 0), (0, 0)], [75, 25, 0, 0], id="by what waits"),
        pytest.param([(300, 0), (100, 0), (0, 50), (0, 0)], [75, 25, 0, 0], id="more waits than may start"),
        pytest.param([(20, 0), (10, 0), (0, 20), (0, 0)], [40, 20, 40, 0], id="also for what comes"),
        pytest.param([(0, 30), (0, 0), (0, 0), (0, 0)], [70, 10, 10, 10], id="the rest evenly"),
        pytest.param([(0, 50), (0, 50), (0, 0), (0, 0)], [50, 50, 0, 0], id="as it has come"),
    ],
)
def test_a_rate_is_shared_out_by_demand(seen, expected):
    found = shared(RATE, [Seen(Share(), waiting, started=started) for waiting, started in seen])
    assert rates(found) == pytest.approx(expected, rel=0.001)


def test_a_rate_that_moves_starts_when_the_next_was_to_start():
    before = Share(10_000_000.0, 1, next_start=NOW * 1000 + 7_000_000.0)  # 6 a minute, and one has just started
    seen = [Seen(before), Seen(NO_SHARE, 5, oldest=2), Seen(NO_SHARE, 5, oldest=1)]
    first, second, third = shared(Share(10_000_000.0, 1), seen)
    assert first == NO_SHARE
    assert third.opens == NOW * 1000 + 7_000_000
    assert second.opens == NOW * 1000 + 17_000_000


def test_a_burst_that_was_used_is_not_given_again():
    used = Share(10_000.0, 1000, next_start=NOW * 1000 + 9_995_000.0)
    _, second = shared(Share(10_000.0, 1000), [Seen(used), Seen(NO_SHARE, 5000)])
    assert second.burst == 1000
    assert second.opens == NOW * 1000 + 5000


def test_small_changes_of_rates_are_not_stored():
    stored = [Seen(Share(20_000.0, 5)), Seen(Share(20_000.0, 5))]
    assert not differs(stored, [Share(20_500.0, 5), Share(19_500.0, 5)])
    assert differs(stored, [Share(21_500.0, 5), Share(18_700.0, 5)])
    assert differs(stored, [NO_SHARE, Share(10_000.0, 11)])


@pytest.mark.parametrize(
    ("number", "seen", "expected"),
    [
        (8, [(0, 0)] * 4, [2, 2, 2, 2]),
        (2, [(0, 0)] * 4, [1, 1, 0, 0]),
        (5, [(9, 0), (0, 0), (0, 0), (0, 0)], [5, 0, 0, 0]),
        (4, [(90, 0), (5, 0), (5, 0), (0, 0)], [2, 1, 1, 0]),
        (1, [(90, 0), (5, 0), (0, 0), (0, 0)], [1, 0, 0, 0]),
    ],
)
def test_places_are_shared_out_by_what_waits_and_runs(number, seen, expected):
    made = shared(Share(places=number), [Seen(Share(), waiting, active) for waiting, active in seen])
    assert [one.places for one in made] == expected
    assert [one.is_closed for one in made] == [places == 0 for places in expected]


def test_places_are_given_once_others_have_given_them_up():
    whole = Share(places=4)
    seen = [Seen(Share(places=4), active=3), Seen(NO_SHARE, 9, oldest=1)]
    made = share_out(whole, seen, NOW, seconds=0.5)
    assert made.is_short
    assert [one.places for one in made.shares] == [1, 0]
    seen = [Seen(made.shares[0], active=3), Seen(NO_SHARE, 9, oldest=1)]
    assert [one.places for one in share_out(whole, seen, NOW, seconds=0.5).shares] == [1, 1]


def test_places_of_partitions_that_do_not_answer_are_kept():
    made = share_out(Share(places=4), [Seen(Share(), 9)], NOW, seconds=0.5, kept=3)
    assert [one.places for one in made.shares] == [1]


@dataclass
class Simulated:
    """A partition that starts what its share allows."""

    waiting: int = 0
    active: int = 0
    share: Share = field(default=NO_SHARE)

    def start(self) -> None:
        if not self.share.is_closed:
            number = min(self.waiting, max(0, self.share.places - self.active))
            self.waiting, self.active = self.waiting - number, self.active + number


@pytest.mark.parametrize("seed", range(20))
def test_no_more_run_than_the_whole_allows_whatever_comes(seed):
    draw = random.Random(seed)
    places, partitions = draw.randint(1, 12), [Simulated() for _ in range(draw.randint(2, 9))]
    for _ in range(300):
        one = draw.choice(partitions)
        one.waiting += draw.choice([0, 0, 1, 5, 50])
        one.active -= draw.randint(0, one.active)
        seen = [Seen(one.share, one.waiting, one.active) for one in partitions]
        for other in partitions:  # between what is read and what is stored
            other.start()
        for other, share in zip(
            partitions, share_out(Share(places=places), seen, NOW, seconds=0.5).shares, strict=True
        ):
            other.share = share
            draw.choice(partitions).start()
        assert sum(other.active for other in partitions) <= places
    for one in partitions:
        one.waiting = min(one.waiting, 50)
    for _ in range(2000):  # and all of it starts in the end
        for other in partitions:
            other.start()
            other.active = 0
        seen = [Seen(one.share, one.waiting, one.active) for one in partitions]
        for other, share in zip(
            partitions, share_out(Share(places=places), seen, NOW, seconds=0.5).shares, strict=True
        ):
            other.share = share
    assert sum(other.waiting for other in partitions) == 0
