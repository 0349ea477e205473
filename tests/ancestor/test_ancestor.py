"""The checker finds each known defect of the ancestor, and no defect of delayq in the same scenarios."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from delayq.testing.torture.rules.checker import CheckResult
from tests.ancestor.sides import Ancient, Modern
from tests.ancestor.world import LEASE, World

pytestmark = pytest.mark.faults

HOUR = 3_600_000
MANY = [f"m{number}" for number in range(8000)]


def torn_send(world: World) -> None:
    """A producer is killed when the payload is stored, and the id is not."""
    with world.one.killed_at(1):
        world.one.send("a")


def torn_send_later(world: World) -> None:
    """A producer is killed when payload and retries are stored, and the id is not."""
    with world.one.killed_at(2):
        world.one.send("a")


def due_within_the_second(world: World) -> None:
    """A message is due at the end of a second that has begun."""
    world.one.send("a", delay=900)
    world.pass_time(100)
    world.two.tick()


def outage(world: World) -> None:
    """Nobody consumes for longer than a payload lives."""
    world.one.send("a", delay=1000)
    world.pass_time(2 * HOUR)


def late_nack(world: World) -> None:
    """A consumer stops for longer than its lease, and nacks what another has finished meanwhile."""
    take_over(world)
    world.two.ack("a")
    world.one.nack("a")


def take_over(world: World) -> None:
    """Have `one` stop in a callback for longer than its lease, and `two` run it meanwhile."""
    world.one.send("a")
    world.one.promote()
    assert world.one.fetch() == ["a"]
    world.one.run("a")
    with world.freezing(world.one):
        world.pass_time(LEASE + 1000)
        world.two.look_after()
        assert world.two.fetch() == ["a"]
        world.two.run("a")


def late_nack_and_others(world: World) -> None:
    """The same, and a message besides whose callback failed."""
    late_nack(world)
    world.failing.add("b")
    world.two.send("b")
    world.two.promote()
    world.two.fetch()
    world.two.run("b")
    world.two.nack("b")
    world.failing.clear()


def late_nack_of_what_runs(world: World) -> None:
    """A consumer stops for longer than its lease, and nacks what another is at work on."""
    take_over(world)
    world.one.nack("a")
    world.one.look_after()
    if world.one.fetch():
        world.one.run("a")
        world.one.ack("a")
    world.two.ack("a")


def late_ack(world: World) -> None:
    """A consumer stops for longer than its lease, and acks what another has acked."""
    take_over(world)
    world.two.ack("a")
    world.one.ack("a")


def slow_callbacks(world: World) -> None:
    """A consumer takes three messages into its buffer, and their callbacks together take longer than a lease."""
    world.one.send("a", "b", "c")
    world.one.promote()
    world.takes = 1100
    for id in world.one.fetch(3):
        world.one.run(id)
        world.one.ack(id)
        world.two.look_after()
        for other in world.two.fetch(3):
            world.two.run(other)


def always_failing(world: World) -> None:
    """A callback fails as often as it may."""
    world.failing.add("a")
    world.one.send("a", retries=2)


def lost_reply(world: World) -> None:
    """The reply to a claim of a message without retries is lost."""
    world.one.send("a", retries=0)
    world.one.fetch()  # nothing, but from now on the server knows the scripts
    world.one.promote()
    world.one.wire.lose_at = 1
    for id in world.one.fetch():
        world.one.run(id)
        world.one.ack(id)


def torn_ack(world: World) -> None:
    """A consumer is killed right after the first command of its ack."""
    world.one.send("a")
    world.one.promote()
    world.one.fetch()
    world.one.run("a")
    with world.one.killed_at(1):
        world.one.ack("a")


def torn_ack_and_late_nack(world: World) -> None:
    """The connection breaks within an ack, and then comes the nack of a consumer that had stopped."""
    take_over(world)
    world.two.wire.lose_at = 2
    world.two.ack("a")
    world.one.nack("a")


def burst(world: World) -> None:
    """As many messages are due at once as Lua cannot unpack."""
    world.one.send(*MANY)


class Defect(NamedTuple):
    """A scenario, the rules that the ancestor breaks in it, the main one first, and the affected message."""

    scenario: Callable[[World], None]
    rules: tuple[str, ...]
    id: str = "a"


DEFECTS = {
    "a send that is no unit": Defect(torn_send, ("leftovers",)),
    "a send that is no unit, later": Defect(torn_send_later, ("leftovers",)),
    "whole seconds": Defect(due_within_the_second, ("never early",)),
    "payloads that expire": Defect(outage, ("conservation", "leases")),
    "a nack that raises the dead": Defect(late_nack, ("fencing", "leftovers")),
    "an id that stops all others": Defect(late_nack_and_others, ("liveness", "fencing", "leftovers"), "b"),
    "a nack of another's delivery": Defect(late_nack_of_what_runs, ("leases", "fencing", "duplicates", "conservation")),
    "an ack of another's delivery": Defect(late_ack, ("fencing", "conservation")),
    "leases that begin in the buffer": Defect(slow_callbacks, ("duplicates", "leases"), "c"),
    "silence at the end of the retries": Defect(always_failing, ("conservation",)),
    "orphans of a failed fetch": Defect(lost_reply, ("conservation",)),
    "an ack that is no unit": Defect(torn_ack, ("leftovers",)),
    "an ack that is not told of its failure": Defect(
        torn_ack_and_late_nack, ("bounded deliveries", "fencing", "leases")
    ),
    "more at once than fits": Defect(burst, ("liveness",), "m0"),
}
LONG = {"more at once than fits"}
EACH = pytest.mark.parametrize(
    "defect",
    [pytest.param(one, id=name, marks=pytest.mark.torture if name in LONG else ()) for name, one in DEFECTS.items()],
)


def play(kind: type[Ancient | Modern], scenario: Callable[[World], None], url: str, folder: Path) -> CheckResult:
    with World(kind, url, folder) as world:
        scenario(world)
        return world.finish()


@EACH
def test_defect_of_the_ancestor_is_found(defect, redis_url, tmp_path):
    verdict = play(Ancient, defect.scenario, redis_url, tmp_path)
    assert verdict.broken.keys() == set(defect.rules)
    shown = [one for one in verdict.violations if one.rule == defect.rules[0]]
    if defect.rules[0] == "leftovers":  # which are no one's
        assert any(f" {defect.id} " in f" {one.text} " for one in shown)
    else:
        assert any(one.id == defect.id and any(f" {one.id} " in line for line in one.history) for one in shown)


@EACH
def test_delayq_does_not_have_the_defect(defect, redis_url, tmp_path):
    verdict = play(Modern, defect.scenario, redis_url, tmp_path)
    assert verdict.right, verdict
    assert verdict.unchecked == []


@pytest.mark.parametrize("kind", [Ancient, Modern])
def test_checker_finds_nothing_in_a_correct_run(kind, redis_url, tmp_path):
    """So the checker finds the defects, and not just the ancestor."""

    def quiet(world: World) -> None:
        world.failing.add("b")
        world.one.send("a", "b", "c", delay=3000)
        world.pass_time(3000)
        world.one.tick()
        world.failing.clear()

    verdict = play(kind, quiet, redis_url, tmp_path)
    assert verdict.right, verdict
    assert (verdict.messages, verdict.settled) == (3, 3)
    assert verdict.starts > 3
