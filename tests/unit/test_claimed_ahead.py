"""What is claimed before it is due never starts early by the server's clock, whatever the clocks do."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from delayq.broker.replies import ClaimReply, TurnReply
from delayq.worker.delivery.disposition import Disposition
from delayq.worker.parts.ahead import SLEW, ClaimedAhead
from tests.support.loop_harness import SERVER, claimed

Clock = Callable[[float], float]
"""What a clock shows (seconds) at a true time (seconds)."""


class Turns:
    """Stands for the loop: notes what starts, and what goes back."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.returned: dict[str, int | None] = {}

    def take_up(self, deliveries: list[Any]) -> None:
        self.started += [one.claimed.id for one in deliveries]

    def settle(self, completions: list[Any]) -> None:
        for (delivery,), disposition, _, delay, _ in completions:
            assert disposition is Disposition.RELEASE
            self.returned[delivery.claimed.id] = delay


class Part:
    """The part, with the number of messages that count as held."""

    def __init__(self) -> None:
        self.held, self.turns = 0, Turns()
        in_flight: Any = SimpleNamespace(hold=self._hold)
        calls: Any = SimpleNamespace(
            capabilities=SimpleNamespace(has=lambda _: True), is_withdrawn=lambda ids: ("is_withdrawn", ids)
        )
        self.part = ClaimedAhead(calls, in_flight)
        self.part.connect(self.turns)  # type: ignore[arg-type]

    def _hold(self, number: int) -> None:
        self.held += number

    def claim(self, micros: int, now: float, **dues: int) -> ClaimReply:
        """Give it a reply of the server's time, which arrives at a local time; dues in ms from `SERVER`."""
        reply = claimed(*dues)
        for one in reply.messages:
            one.due = SERVER + dues[one.id]
        reply = reply._replace(now=micros // 1000)
        return self.part.hold(TurnReply("", reply, micros), reply, now + 30, now)


def ticking(speed: float = 1.0, begin: float = 0.0) -> Clock:
    return lambda true: begin + true * speed


def set_by(clock: Clock, at: float, by: float) -> Clock:
    """Return a clock that somebody sets at a true time."""
    return lambda true: clock(true) + (by if true >= at else 0)


def suspended(clock: Clock, at: float, by: float) -> Clock:
    """Return a clock that stands still for a while."""
    return lambda true: clock(true - min(max(true - at, 0), by))


SERVER_CLOCK = ticking(begin=SERVER / 1000)
FAST, SLOW = 1 + SLEW / 2, 1 - SLEW / 2
"""Speeds that differ from each other by no more than the part allows."""
CLOCKS: dict[str, tuple[Clock, Clock]] = {
    "same": (SERVER_CLOCK, ticking(begin=7)),
    "server faster": (ticking(FAST, SERVER / 1000), ticking(SLOW)),
    "server slower": (ticking(SLOW, SERVER / 1000), ticking(FAST)),
    "process suspended": (SERVER_CLOCK, suspended(ticking(), 0.01, 5)),
    "server set forward": (set_by(SERVER_CLOCK, 0.01, 60), ticking()),
}


def true_time(clock: Clock, shows: float) -> float:
    """Return the first true time at which a clock shows a time."""
    low, high = 0.0, 100.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if clock(middle) >= shows else (middle, high)
    return high


@pytest.mark.parametrize("name", CLOCKS)
@pytest.mark.parametrize("reply_takes", [0.0, 0.003, 0.5])
@pytest.mark.parametrize("due", [1, 25, 1000])
def test_nothing_starts_early(name, reply_takes, due):
    server, local = CLOCKS[name]
    part, executed = Part(), 0.0001
    part.claim(math.floor(server(executed) * 1e6), local(executed + reply_takes), a=due)
    start = part.part.next_at(0)
    part.part.look(start - 1e-9)
    assert part.turns.started == []
    part.part.look(start)
    assert part.turns.started == ["a"]
    early = SERVER / 1000 + due / 1000 - server(true_time(local, start))
    assert early <= 2e-6  # what a float can tell of the time since 1970
    if name == "same":
        assert early >= -(reply_takes + 2 * SLEW * due / 1000 + 0.0001)


def test_a_server_whose_clock_is_set_back_makes_nothing_wait_longer():
    part = Part()
    part.claim(SERVER * 1000, 5.0, a=20)
    assert part.part.next_at(0) == pytest.approx(5.0 + 0.02 * (1 + SLEW))
    part.claim((SERVER - 60_000) * 1000, 5.01, b=-59_990)  # by the clock as it is now
    assert part.part.next_at(0) == pytest.approx(5.02, abs=1e-4)
    part.part.look(5.0201)
    assert part.turns.started == ["b", "a"]


def test_a_fraction_of_a_millisecond_counts():
    part = Part()
    reply = part.claim(SERVER * 1000 + 999, 5.0, a=0, b=1)
    assert [one.id for one in reply.messages] == ["a"]
    assert part.part.next_at(0) == pytest.approx(5.000001, abs=1e-7)


def test_what_is_due_is_not_held():
    part = Part()
    reply = part.claim(SERVER * 1000, 5.0, a=-5, b=0, c=1, d=2)
    assert ([one.id for one in reply.messages], part.held) == (["a", "b"], 2)
    part.part.look(5.01)
    assert (part.turns.started, part.held, part.part.next_at(0)) == (["c", "d"], 0, math.inf)


def test_several_claims_start_in_the_order_of_their_due_times():
    part = Part()
    part.claim(SERVER * 1000, 5.0, a=10, b=20)
    part.claim(SERVER * 1000 + 5000, 5.005, c=9, d=21)
    part.part.look(6.0)
    assert part.turns.started == ["c", "a", "b", "d"]


def test_what_starts_together_starts_in_the_order_of_the_claim():
    part = Part()
    part.claim(SERVER * 1000, 5.0, a=10, b=10, c=10)
    part.part.look(6.0)
    assert part.turns.started == ["a", "b", "c"]


def test_what_goes_back_waits_for_the_rest_of_its_time():
    part = Part()
    part.claim(SERVER * 1000, 5.0, a=10, b=20)
    part.part.look(5.004)
    part.part.release()
    assert part.turns.returned == {"a": 7, "b": 17}
    assert (part.held, part.part.next_at(0)) == (0, math.inf)
    part.part.look(9.0)
    assert part.turns.started == []


def test_a_process_that_was_suspended_beyond_the_lease_starts_nothing_by_itself():
    """It hands the message over with the end of its lease: a runner gives back what is over."""
    part = Part()
    taken: list[Any] = []
    part.turns.take_up = taken.extend  # type: ignore[method-assign]
    part.claim(SERVER * 1000, 5.0, a=10)
    part.part.look(100.0)
    assert taken[0].deadline == 35.0


def test_it_looks_once_after_a_wakeup_whether_what_it_holds_is_asked_for():
    part = Part()
    part.part.on_woken()
    assert list(part.part.plan(0)) == []
    part.claim(SERVER * 1000, 5.0, a=10)
    part.part.on_woken()
    assert part.part.next_at(0) == -math.inf
    ((call, read),) = part.part.plan(0)
    assert call == ("is_withdrawn", ["a"])
    assert list(part.part.plan(0)) == []
    read(False)
    assert part.held == 1
    read(True)
    assert (part.held, part.turns.returned.keys()) == (0, {"a"})
