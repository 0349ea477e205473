"""`configure`: the event log and the dedupe window are switched for all processes of a queue."""

from __future__ import annotations

import pytest

from delayq.broker.transport.executor import open_executor
from delayq.errors import ServerError
from delayq.options import read_settings
from tests.support.scripts import KEYS, World, calls, observe, plant, without_gaps


def configure(executor, events=None, window=None, most=100):
    assert executor.call(calls.configure(events=events, dedupe_window=window, dedupe_max=most)) is True
    return observe(executor)


def test_log_and_window_are_off_by_default(executor):
    assert configure(executor) == World()


@without_gaps
def test_log_and_window_are_switched_separately(executor):
    assert configure(executor, events=2000) == World(meta={"events": "0-* 2000"})
    assert configure(executor, window=500) == World(meta={"events": "0-* 2000", "dedupe": "500 100"})
    assert configure(executor, events=3000) == World(meta={"events": "0-* 3000", "dedupe": "500 100"})
    assert configure(executor, window=700, most=8) == World(meta={"events": "0-* 3000", "dedupe": "700 8"})
    assert configure(executor, events=0) == World(meta={"dedupe": "700 8"})
    assert configure(executor, window=0) == World()


def test_window_without_a_number_of_ids_keeps_that_of_the_queue(executor):
    assert configure(executor, window=500, most=None) == World(meta={"dedupe": "500 1000000"})
    assert configure(executor, window=500, most=8) == World(meta={"dedupe": "500 8"})
    assert configure(executor, window=700, most=None) == World(meta={"dedupe": "700 8"})


def test_settled_ids_with_ends_of_their_own_stay_without_a_window(executor):
    plant(executor, World(meta={"dedupe": "500 100", "unique": 1}, done={"a": -5}))
    assert configure(executor, window=0) == World(meta={"unique": 1}, done={"a": -5})


@without_gaps
def test_both_are_switched_in_one_call(executor):
    assert configure(executor, 2000, 500) == World(meta={"events": "0-* 2000", "dedupe": "500 100"})
    assert configure(executor, 0, 0) == World()


@without_gaps
def test_configure_can_be_repeated(executor):
    for _ in range(3):
        assert configure(executor, 2000, 500) == World(meta={"events": "0-* 2000", "dedupe": "500 100"})


def test_configure_returns_1(executor):
    call = calls.configure(events=2000, dedupe_window=500, dedupe_max=100)
    assert executor.client.eval(call.script.text, len(call.keys), *call.keys, *call.args) == 1


@without_gaps
def test_configure_keeps_other_fields_of_meta(executor):
    plant(executor, World(meta={"token": "T-3", "sent": 8}))
    assert configure(executor, 2000, 500).meta == {"token": "T-3", "sent": 8, "events": "0-* 2000", "dedupe": "500 100"}
    assert configure(executor, 0, 0).meta == {"token": "T-3", "sent": 8}


def test_window_of_zero_forgets_settled_ids_and_another_keeps_them(executor):
    settled = World(meta={"dedupe": "500 100"}, done={"a": -5, "b": -9})
    plant(executor, settled)
    assert configure(executor, events=None, window=50) == settled.but(meta={"dedupe": "50 100"})
    assert configure(executor, window=0) == World()


def test_switching_the_log_off_keeps_its_entries(executor):
    written = World(meta={"events": "0-* 2000"}, events=["acked 0; ids a; tokens T-7"])
    plant(executor, written)
    assert configure(executor, events=0) == written.but(meta={})
    assert configure(executor, events=2000) == written


# How entries are numbered


@pytest.mark.parametrize(("ids", "numbering"), [(["0-1", "0-2"], "0-* 2000"), (["1700000000000-0"], "* 2000")])
def test_log_keeps_its_numbering(executor, ids, numbering):
    for id in ids:
        executor.client.xadd(KEYS.events, {"kind": "acked"}, id=id)
    executor.call(calls.configure(events=2000, dedupe_window=None, dedupe_max=1))
    assert executor.client.hget(KEYS.meta, "events") == numbering.encode()
    assert executor.client.xlen(KEYS.events) == len(ids)
    executor.client.xtrim(KEYS.events, maxlen=0)
    executor.call(calls.configure(events=2000, dedupe_window=None, dedupe_max=1))
    assert executor.client.hget(KEYS.meta, "events") == numbering.encode()
    assert executor.client.xlen(KEYS.events) == 0


# Errors


@pytest.mark.faults
@pytest.mark.parametrize(
    "switched",
    [
        (None, 500),
        (2000, 500),
        (0, 500),
    ],
)
def test_window_of_wrong_type_is_refused_before_the_first_write(executor, switched):
    before = World(meta={"sent": 8, "events": "0-* 1000"})
    plant(executor, before)
    executor.client.set(KEYS.done, "a text")
    events, window = switched
    with pytest.raises(ServerError, match="WRONGTYPE"):
        executor.call(calls.configure(events=events, dedupe_window=window, dedupe_max=7))
    assert observe(executor, without=["done"]) == before
    assert executor.client.get(KEYS.done) == b"a text"


@pytest.mark.faults
def test_log_of_wrong_type_does_not_keep_a_queue_from_opening(executor):
    executor.client.set(KEYS.events, "a text")
    assert executor.call(calls.configure(events=2000, dedupe_window=500, dedupe_max=100)) is True
    assert observe(executor, without=["events"]) == World(meta={"events": "* 2000", "dedupe": "500 100"})
    assert executor.client.get(KEYS.events) == b"a text"


@without_gaps
@pytest.mark.faults
def test_log_with_a_foreign_entry_continues_after_it(executor):
    configure(executor, 2000)
    executor.client.xadd(KEYS.events, {"kind": "foreign"})
    executor.call(calls.configure(events=2000, dedupe_window=None, dedupe_max=1))
    assert executor.client.hget(KEYS.meta, "events") == b"* 2000"


@pytest.mark.faults
def test_meta_of_wrong_type_is_refused(executor):
    executor.client.set(KEYS.meta, "a text")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        executor.call(calls.configure(events=0, dedupe_window=0, dedupe_max=7))


@pytest.mark.faults
def test_log_and_window_with_keys_of_wrong_type_can_be_switched_off(executor):
    plant(executor, World(meta={"events": "0-* 1000", "dedupe": "500 100"}))
    executor.client.set(KEYS.events, "a text")
    executor.client.set(KEYS.done, "a text")
    executor.call(calls.configure(events=0, dedupe_window=0, dedupe_max=7))
    assert observe(executor, without=["events"]) == World()
    assert executor.client.get(KEYS.events) == b"a text"


@pytest.mark.faults
def test_key_of_wrong_type_is_ignored_if_its_feature_is_not_switched(executor):
    executor.client.set(KEYS.events, "a text")
    assert executor.call(calls.configure(events=None, dedupe_window=500, dedupe_max=7)) is True
    executor.client.set(KEYS.done, "a text")
    assert executor.call(calls.configure(events=None, dedupe_window=None, dedupe_max=7)) is True
    assert observe(executor, without=["events", "done"]) == World(meta={"dedupe": "500 7"})


@without_gaps
@pytest.mark.faults
def test_full_redis_can_be_configured(start_redis):
    executor = open_executor({"url": start_redis().url}, read_settings({"deadline": 0.001}))
    plant(executor, World(pending={"a": 5}))
    executor.client.script_load(calls.configure(events=0, dedupe_window=0, dedupe_max=7).script.text)
    executor.client.config_set("maxmemory", "1")
    executor.call(calls.configure(events=2000, dedupe_window=500, dedupe_max=7))
    executor.client.config_set("maxmemory", "0")
    assert observe(executor) == World(pending={"a": 5}, meta={"events": "0-* 2000", "dedupe": "500 7"})
    executor.close()


def test_step_of_priorities_is_set_by_itself_and_kept(executor):
    def step(ms=None):
        executor.call(calls.configure(events=None, dedupe_window=None, dedupe_max=1, priority_step=ms))
        return observe(executor)

    assert step() == World()
    assert step(7) == step() == World(meta={"priority_step": 7})
    assert step(9) == World(meta={"priority_step": 9})


def test_limits_of_the_dead_letter_are_set_separately_and_kept(executor):
    def limit(*dead, events=None):
        executor.call(calls.configure(events=events, dedupe_window=None, dedupe_max=1, dead=dead))
        return executor.client.hmget(KEYS.meta, "dead_max", "dead_ttl")

    assert limit(7, None) == [b"7", None]
    assert limit(None, 50, events=0) == [b"7", b"50"]
    assert limit(0, 9) == [b"0", b"9"]
    assert limit(None, None) == [b"0", b"9"]
    assert configure(executor, window=0).meta["dead_ttl"] == 9


def test_the_objective_for_lateness_is_set_left_and_removed(executor):
    def configured(slo):
        options = {"events": None, "dedupe_window": None, "dedupe_max": None}
        executor.call(calls.configure(**options, lateness_slo=slo))
        return executor.client.hget(KEYS.meta, "lateness_slo")

    assert configured(None) is None
    assert configured("99% within 1s") == configured(None) == b"99% within 1s"
    assert configured("90% within 1m") == b"90% within 1m"
    assert configured("off") is None


def test_the_hidden_values_are_set_left_and_removed(executor):
    def configured(redact):
        options = {"events": None, "dedupe_window": None, "dedupe_max": None}
        executor.call(calls.configure(**options, redact=redact))
        return executor.call(calls.redact_paths())

    assert configured(None) == []
    assert configured(["card.number", "*.email"]) == configured(None) == ["card.number", "*.email"]
    assert configured(["a"]) == ["a"]
    assert configured([]) == []
    assert not executor.client.hexists(KEYS.meta, "redact")
