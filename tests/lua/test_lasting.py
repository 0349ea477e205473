"""Results and settled ids have a TTL, which ends after the last of them: without a consumer they go as a whole."""

from __future__ import annotations

import pytest

from delayq.broker.requests import Outgoing
from delayq.broker.results import Completed
from tests.lua.cases.dead_import import line, put
from tests.lua.cases.states import LEASED, remembering
from tests.lua.tables import every_case, on_both
from tests.support.scripts import KEYS, NOW, Case, Kept, T, World, at, calls, deliver, observe, plant

HOUR = 3_600_000
DAY = 24 * HOUR
KEPT = Kept("returned", 2, -5, 0, "T-7", "7")


def left(executor, *keys: str) -> list[int]:
    """Return how long keys last (ms): -1 for ever, -2 for one that is not there."""
    return [executor.client.pttl(key) for key in keys]


def lasts(executor, key: str, end: int) -> bool:
    """Return whether a key goes one to two hours after an end (ms from `NOW`); a test may take a minute."""
    return end + HOUR - 60_000 <= left(executor, key)[0] <= end + 2 * HOUR + 1000


def complete(id: str, retention: int) -> Completed:
    return Completed(id, T - 7, str(retention), "returned", b"", "", b"7")


def leased(*ids: str) -> World:
    worlds = [
        World(
            unack={id: 30_000},
            retries={id: 1},
            messages={id: "A"},
            deliveries={id: "leased -5 2 T-9 T-7 w"},
        )
        for id in ids
    ]
    return sum(worlds[1:], worlds[0])


def ends_of_done(world: World) -> int:
    """Return when the last settled id of a world is not held any more, in ms from `NOW`."""
    window = int(str(world.meta.get("dedupe", "0")).split()[0])
    return max(int(score) if score % 1 else int(score) + window for score in world.done.values())


@on_both
@every_case(refused=False, some=4)
def test_what_a_script_adds_lasts_until_its_end(executor, case: Case):
    plant(executor, case.before)
    deliver(executor, case.call)
    before, after = case.before, case.after
    if after.done.items() - before.done.items():
        assert left(executor, KEYS.done)[0] >= ends_of_done(after) + HOUR - 60_000
    if after.completed.items() - before.completed.items():
        results, index = left(executor, KEYS.results, KEYS.completed)
        assert results >= index >= max(after.completed.values()) + HOUR - 60_000
    others = {key.decode() for key in executor.client.scan_iter()} - {KEYS.done, KEYS.completed, KEYS.results}
    assert {executor.client.pttl(key) for key in others} <= {-1}


def test_results_and_their_index_go_together_after_the_last(executor):
    plant(executor, leased("a", "b", "c"))
    for id, retention, last in (("a", HOUR, HOUR), ("b", DAY, DAY), ("c", 1000, DAY)):
        assert executor.call(calls.complete([complete(id, retention)])) == "1"
        results, index = left(executor, KEYS.results, KEYS.completed)
        assert lasts(executor, KEYS.completed, last)
        assert 0 <= results - index < 60_000


@pytest.mark.parametrize(("minutes", "renews"), [(50, False), (70, True)])
def test_ttl_is_renewed_after_an_hour(executor, minutes, renews):
    plant(executor, leased("a", "b") + World(meta={"dedupe": f"{DAY} 100"}))
    executor.call(calls.complete([complete("a", DAY)]))
    keys = KEYS.done, KEYS.completed, KEYS.results
    for key, ttl in zip(keys, left(executor, *keys), strict=True):
        executor.client.pexpire(key, ttl - minutes * 60_000)
    before = left(executor, *keys)
    executor.call(at(minutes * 60_000).complete([complete("b", DAY)]))
    assert [after > ttl for after, ttl in zip(left(executor, *keys), before, strict=True)] == [renews] * 3


def test_settled_ids_last_for_the_window_and_for_ends_of_their_own(executor):
    plant(executor, LEASED + World(meta={"dedupe": f"{HOUR} 100"}))
    assert executor.call(calls.ack([("a", T - 7)])) == "1"
    assert lasts(executor, KEYS.done, HOUR)
    held = Outgoing("b", 0, 3, b"B", b"", f"unique_for={DAY}".encode())
    executor.call(calls.send([held], max_length=None, replace=False))
    assert lasts(executor, KEYS.done, DAY + HOUR)  # the window counts for every id


LONG = f"unique_after={DAY}".encode()
LONGER = {
    "ack": calls.ack([("a", T - 7), ("b", T - 7)]),
    "send": calls.send(
        [Outgoing(id, 0, 3, b"X", b"", b"unique_for=%d" % span) for id, span in (("x", DAY), ("y", 1))],
        max_length=None,
        replace=False,
    ),
    "dead_import": put(line("x", attributes=LONG), line("y")),
}


@pytest.mark.parametrize("script", LONGER)
def test_longest_end_of_a_call_counts(executor, script):
    held = leased("a", "b").but(attributes={"a": LONG.decode()}, done={"z": 1000.5}, meta={"unique": 1, "schema": 2})
    plant(executor, held)
    executor.client.pexpire(KEYS.done, 2 * HOUR)
    executor.call(LONGER[script])
    assert lasts(executor, KEYS.done, DAY)


def test_shorter_end_of_its_own_leaves_what_the_window_holds(executor):
    plant(executor, remembering(DAY, z=0))
    executor.call(calls.send([Outgoing("x", 0, 3, b"X", b"", b"unique_for=1")], max_length=None, replace=False))
    assert lasts(executor, KEYS.done, DAY)


@pytest.mark.parametrize("window", [2 * DAY, HOUR // 2], ids=["wider", "narrower"])
def test_another_window_never_lets_settled_ids_go_earlier(executor, window):
    plant(executor, LEASED + World(meta={"dedupe": f"{HOUR} 100"}))
    executor.call(calls.ack([("a", T - 7)]))
    executor.call(calls.configure(events=None, dedupe_window=window, dedupe_max=None))
    assert lasts(executor, KEYS.done, max(window, HOUR))
    assert observe(executor).done == {"a": 0}


def test_windows_that_change_back_and_forth_add_nothing(executor):
    plant(executor, LEASED + World(meta={"dedupe": f"{HOUR} 100"}))
    executor.call(calls.ack([("a", T - 7)]))
    for window in (DAY, HOUR) * 5:
        executor.call(calls.configure(events=None, dedupe_window=window, dedupe_max=None))
    assert lasts(executor, KEYS.done, DAY)


# What has no TTL yet: from an earlier delayq, or after another program


STORED = remembering(HOUR, z=-5) + World(completed={"z": DAY}, results={"z": KEPT})


def collect(executor) -> None:
    executor.call(calls.collect_garbage(100, dead_max=9, dead_ttl=DAY, slot_ttl=DAY))


def test_tick_of_a_consumer_gives_a_ttl(executor):
    plant(executor, STORED)
    collect(executor)
    assert lasts(executor, KEYS.done, HOUR)
    assert lasts(executor, KEYS.completed, DAY)
    assert lasts(executor, KEYS.results, DAY)
    world = observe(executor)
    assert (world.done, world.completed, world.results) == (STORED.done, STORED.completed, STORED.results)


def test_next_write_gives_a_ttl_after_what_is_there(executor):
    plant(executor, STORED + leased("a"))
    assert executor.call(calls.complete([complete("a", 1000)])) == "1"
    assert lasts(executor, KEYS.done, HOUR)
    assert lasts(executor, KEYS.completed, DAY)
    assert lasts(executor, KEYS.results, DAY)


def test_window_that_is_set_gives_a_ttl(executor):
    plant(executor, STORED)
    executor.call(calls.configure(events=None, dedupe_window=DAY, dedupe_max=None))
    assert lasts(executor, KEYS.done, DAY)


def test_tick_lets_last_what_was_added_without_a_longer_ttl(executor):
    plant(executor, STORED)
    for key in (KEYS.done, KEYS.completed, KEYS.results):
        executor.client.pexpire(key, HOUR)
    executor.client.zadd(KEYS.done, {"y": NOW + DAY})
    collect(executor)
    assert lasts(executor, KEYS.done, DAY + HOUR)
    assert lasts(executor, KEYS.completed, DAY)
    assert lasts(executor, KEYS.results, DAY)


@pytest.mark.parametrize("alone", ["completed", "results"])
def test_key_that_was_made_anew_gets_the_ttl_of_the_other(executor, alone):
    plant(executor, STORED)
    collect(executor)
    executor.client.persist(getattr(KEYS, alone))
    collect(executor)
    assert lasts(executor, KEYS.completed, DAY)
    assert lasts(executor, KEYS.results, DAY)


@pytest.mark.parametrize("score", ["+inf", "-inf", "5", "1e300"])
def test_scores_of_another_program_let_nothing_go_at_once(executor, score):
    plant(executor, STORED + leased("a"))
    executor.client.delete(KEYS.completed)
    executor.client.zadd(KEYS.completed, {"z": score})
    executor.call(calls.complete([complete("a", 1000)]))
    assert left(executor, KEYS.completed)[0] > HOUR
    assert left(executor, KEYS.results)[0] > HOUR


# What it costs


def test_message_without_result_and_window_costs_no_command_more(real_executor):
    asked = ("pttl", "pexpire")
    real_executor.client.config_resetstat()
    plant(real_executor, LEASED)
    real_executor.call(calls.ack([("a", T - 7)]))
    real_executor.call(calls.send([Outgoing("b", 0, 3, b"B", b"")], max_length=None, replace=False))
    collect(real_executor)
    stats = real_executor.client.info("commandstats")
    assert not [name for name in asked if stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]]


def test_without_the_rights_to_set_a_ttl_messages_are_settled(real_executor):
    plant(real_executor, LEASED + World(meta={"dedupe": f"{HOUR} 100"}))
    for refused in ("-pttl", "-pexpire"):
        real_executor.client.execute_command("ACL", "SETUSER", "default", "+@all", refused)
        try:
            real_executor.call(calls.complete([complete("a", 1000)]))
        finally:
            real_executor.client.execute_command("ACL", "SETUSER", "default", "+@all")
        assert left(real_executor, KEYS.done, KEYS.completed, KEYS.results) == [-1, -1, -1]
    assert observe(real_executor).completed == {"a": 1000}
