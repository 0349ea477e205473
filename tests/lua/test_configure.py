"""`configure`: the event log and the dedupe window are switched for all processes of a queue."""

from __future__ import annotations

import pytest

from delayq.config import read_settings
from delayq.errors import ServerError
from delayq.executor import open_executor
from tests.support.scripts import KEYS, World, calls, observe, plant, without_gaps


def configure(executor, events=None, window=None, most=100):
    assert executor.call(calls.configure(events=events, dedupe_window=window, dedupe_max=most)) is True
    return observe(executor)


def test_nothing_is_switched_on_by_itself(executor):
    assert configure(executor) == World()


@without_gaps
def test_each_is_switched_on_and_off_alone(executor):
    assert configure(executor, events=2000) == World(meta={"events": "0-* 2000"})
    assert configure(executor, window=500) == World(meta={"events": "0-* 2000", "dedupe": "500 100"})
    assert configure(executor, events=3000) == World(meta={"events": "0-* 3000", "dedupe": "500 100"})
    assert configure(executor, window=700, most=8) == World(meta={"events": "0-* 3000", "dedupe": "700 8"})
    assert configure(executor, events=0) == World(meta={"dedupe": "700 8"})
    assert configure(executor, window=0) == World()


@without_gaps
def test_both_are_switched_in_one_call(executor):
    assert configure(executor, 2000, 500) == World(meta={"events": "0-* 2000", "dedupe": "500 100"})
    assert configure(executor, 0, 0) == World()


@without_gaps
def test_it_can_be_run_again(executor):
    for _ in range(3):
        assert configure(executor, 2000, 500) == World(meta={"events": "0-* 2000", "dedupe": "500 100"})


def test_it_answers_1(executor):
    call = calls.configure(events=2000, dedupe_window=500, dedupe_max=100)
    assert executor.client.eval(call.script.text, len(call.keys), *call.keys, *call.args) == 1


@without_gaps
def test_the_rest_of_meta_stays(executor):
    plant(executor, World(meta={"token": "T-3", "sent": 8}))
    assert configure(executor, 2000, 500).meta == {"token": "T-3", "sent": 8, "events": "0-* 2000", "dedupe": "500 100"}
    assert configure(executor, 0, 0).meta == {"token": "T-3", "sent": 8}


def test_a_window_of_none_forgets_the_settled_and_another_keeps_them(executor):
    settled = World(meta={"dedupe": "500 100"}, done={"a": -5, "b": -9})
    plant(executor, settled)
    assert configure(executor, events=None, window=50) == settled.but(meta={"dedupe": "50 100"})
    assert configure(executor, window=0) == World()


def test_switching_the_log_off_leaves_what_it_holds(executor):
    written = World(meta={"events": "0-* 2000"}, events=["acked 0; ids a; tokens T-7"])
    plant(executor, written)
    assert configure(executor, events=0) == written.but(meta={})
    assert configure(executor, events=2000) == written


# How entries are numbered


@pytest.mark.parametrize(("ids", "numbering"), [(["0-1", "0-2"], "0-* 2000"), (["1700000000000-0"], "* 2000")])
def test_a_log_goes_on_as_it_began(executor, ids, numbering):
    for id in ids:
        executor.client.xadd(KEYS.events, {"kind": "acked"}, id=id)
    executor.call(calls.configure(events=2000, dedupe_window=None, dedupe_max=1))
    assert executor.client.hget(KEYS.meta, "events") == numbering.encode()
    assert executor.client.xlen(KEYS.events) == len(ids)
    executor.client.xtrim(KEYS.events, maxlen=0)
    executor.call(calls.configure(events=2000, dedupe_window=None, dedupe_max=1))
    assert executor.client.hget(KEYS.meta, "events") == numbering.encode()
    assert executor.client.xlen(KEYS.events) == 0


# When it goes wrong


@pytest.mark.faults
@pytest.mark.parametrize(
    ("part", "switched"),
    [
        ("events", (2000, None)),
        ("events", (2000, 500)),
        ("done", (None, 500)),
        ("done", (2000, 500)),
        ("done", (0, 500)),
    ],
)
def test_a_key_of_another_type_is_refused_before_the_first_write(executor, part, switched):
    before = World(meta={"sent": 8, "events": "0-* 1000"})
    plant(executor, before)
    executor.client.set(getattr(KEYS, part), "a text")
    events, window = switched
    with pytest.raises(ServerError, match="WRONGTYPE"):
        executor.call(calls.configure(events=events, dedupe_window=window, dedupe_max=7))
    assert observe(executor, without=[part]) == before
    assert executor.client.get(getattr(KEYS, part)) == b"a text"


@pytest.mark.faults
def test_meta_of_another_type_is_refused(executor):
    executor.client.set(KEYS.meta, "a text")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        executor.call(calls.configure(events=0, dedupe_window=0, dedupe_max=7))


@pytest.mark.faults
def test_what_a_foreign_key_makes_unusable_can_be_switched_off(executor):
    plant(executor, World(meta={"events": "0-* 1000", "dedupe": "500 100"}))
    executor.client.set(KEYS.events, "a text")
    executor.client.set(KEYS.done, "a text")
    executor.call(calls.configure(events=0, dedupe_window=0, dedupe_max=7))
    assert observe(executor, without=["events"]) == World()
    assert executor.client.get(KEYS.events) == b"a text"


@pytest.mark.faults
def test_what_a_foreign_key_makes_unusable_is_nothing_to_a_call_that_leaves_it_as_it_is(executor):
    executor.client.set(KEYS.events, "a text")
    assert executor.call(calls.configure(events=None, dedupe_window=500, dedupe_max=7)) is True
    executor.client.set(KEYS.done, "a text")
    assert executor.call(calls.configure(events=None, dedupe_window=None, dedupe_max=7)) is True
    assert observe(executor, without=["events", "done"]) == World(meta={"dedupe": "500 7"})


@without_gaps
@pytest.mark.faults
def test_a_full_redis_can_be_configured_so_that_its_workers_can_start(start_redis):
    executor = open_executor({"url": start_redis().url}, read_settings({"deadline": 0.001}))
    plant(executor, World(pending={"a": 5}))
    executor.client.script_load(calls.configure(events=0, dedupe_window=0, dedupe_max=7).script.text)
    executor.client.config_set("maxmemory", "1")
    executor.call(calls.configure(events=2000, dedupe_window=500, dedupe_max=7))
    executor.client.config_set("maxmemory", "0")
    assert observe(executor) == World(pending={"a": 5}, meta={"events": "0-* 2000", "dedupe": "500 7"})
    executor.close()
