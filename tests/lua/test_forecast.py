"""`forecast` and `sample_names`: counting what becomes due without reading it."""

from __future__ import annotations

import pytest

from delayq.errors import ServerError
from delayq.queue.inspecting.forecast import MAX_PERIODS, ForecastReply, NamesReply, forecast_call, sample_names_call
from tests.support.scripts import KEYS, NOW, World, calls, observe, plant

START = NOW + 1
WORLD = World(
    pending={"past": -5, "now": 0, "a": 1, "b": 99, "c": 100, "d": 250, "e": 300, "later": 5000},
    unack={"over": -5, "x": 50, "y": 60, "z": 150, "w": 999},
    deliveries={
        "over": "leased -5 1 T-9 T-9 w",
        "x": "backoff -5 1 T-9 T-9 -",
        "y": "leased -5 1 T-9 T-9 w",
        "z": "leased -5 1 T-9 T-9 w",
        "w": "backoff -5 1 T-9 T-9 -",
    },
    limits={"queue": "0 500000 2 0 0 - 0 0 0", "name:a": "1 100 2 0 0 - 0 0 0"},
)


def ends(*offsets: int) -> list[int]:
    return [NOW + offset for offset in offsets]


@pytest.mark.parametrize(
    ("start", "offsets", "expected"),
    [
        (1, (100, 200, 300), ([2, 1, 1], [1, 0, 0], 2)),
        (1, (301,), ([5], [1], 2)),
        (1, (10_000, 20_000), ([6, 0], [2, 0], 2)),
        (100, (200, 300, 10_000), ([1, 1, 2], [0, 0, 1], 1)),
        (100, (200,), ([1], [0], 1)),
        (6000, (7000, 8000), ([0, 0], [0, 0], 0)),
    ],
)
def test_periods_are_counted(executor, start, offsets, expected):
    plant(executor, WORLD)
    reply = executor.call(forecast_call(calls, NOW + start, ends(*offsets)))
    assert reply._replace(limit="") == ForecastReply("", expected[2], len(offsets), *expected[:2])
    assert reply.limit.startswith("0 500000.000 2 0 0 - ")
    assert observe(executor) == WORLD


def test_nothing_is_counted_in_an_empty_queue(executor):
    assert executor.call(forecast_call(calls, START, ends(100, 200))) == ForecastReply("", 0, 2, [0, 0], [0, 0])


def test_entry_without_a_record_counts_as_a_redelivery(executor):
    plant(executor, World(unack={"x": 50, "y": 50}, deliveries={"y": "leased -5 1 T-9 T-9 w"}))
    assert executor.call(forecast_call(calls, START, ends(100))) == ForecastReply("", 1, 1, [0], [1])


@pytest.mark.parametrize(("number", "inspected"), [(999, 2), (1000, 1)])
def test_all_are_told_apart_if_they_are_fewer_than_a_thousand(real_executor, number, inspected):
    ids = [f"m{n:04}" for n in range(number)]
    record = "leased -5 1 T-9 T-9 w"
    plant(real_executor, World(unack=dict.fromkeys(ids, 150), deliveries=dict.fromkeys(ids, record)))
    reply = real_executor.call(forecast_call(calls, START, ends(100, 200)))
    assert reply == ForecastReply("", number, inspected, [0, 0], [0, 0])


def test_a_thousand_leases_are_told_from_backoffs(real_executor):
    ids = [f"m{n:04}" for n in range(1200)]
    records = ("leased -5 1 T-9 T-9 w", "backoff -5 1 T-9 T-9 -")
    world = World(
        unack={id: n + 1 for n, id in enumerate(ids)}, deliveries={id: records[n % 2] for n, id in enumerate(ids)}
    )
    plant(real_executor, world)
    reply = real_executor.call(forecast_call(calls, START, ends(101, 1101, 2001)))
    assert reply == ForecastReply("", 500, 1, [0, 0, 0], [50, 1000 - 450, 100])
    wholly = real_executor.call(forecast_call(calls, NOW + 301, ends(401, 2001)))
    assert wholly == ForecastReply("", 450, 2, [0, 0], [50, 400])


def test_a_call_makes_a_thousand_counts_at_most(real_executor):
    plant(
        real_executor, World(pending={"last": 10_000}, unack={"x": 10_000}, deliveries={"x": "backoff -5 1 T-9 T-9 -"})
    )
    periods = ends(*range(10, 10 * MAX_PERIODS + 1, 10))
    assert len(periods) == MAX_PERIODS
    real_executor.client.config_resetstat()
    real_executor.call(forecast_call(calls, START, periods))
    assert real_executor.client.info("commandstats")["cmdstat_zcount"]["calls"] == 1000
    for start, counts in ((9990, 6), (20_000, 2)):
        real_executor.client.config_resetstat()
        real_executor.call(forecast_call(calls, NOW + start, [NOW + start + n for n in range(5, 3000, 8)]))
        assert real_executor.client.info("commandstats")["cmdstat_zcount"]["calls"] == counts


# Names


def test_names_of_few_messages_are_counted(executor):
    world = WORLD.but(attributes={"past": "name=mail", "a": "name=sms priority=2", "b": "snoozes=1", "later": "name=x"})
    plant(executor, world)
    named = executor.call(sample_names_call(calls, NOW + 300, size=9))
    assert named == NamesReply(6, 6, {"mail": 1, "sms": 1, "": 4})
    assert executor.call(sample_names_call(calls, NOW + 300, size=6)) == named
    assert executor.call(sample_names_call(calls, NOW - 100, size=9)) == NamesReply(0, 0, {})
    assert observe(executor) == world


def test_without_names_none_is_read(executor):
    plant(executor, WORLD)
    assert executor.call(sample_names_call(calls, NOW + 300, size=2)) == NamesReply(6, 6, {"": 6})


def test_sample_is_spread_evenly_over_the_due_times(real_executor):
    ids = [f"m{n:05}" for n in range(20_000)]
    names = {id: f"name=n{n // 2000}" for n, id in enumerate(ids)}
    plant(real_executor, World(pending={id: n for n, id in enumerate(ids)}, attributes=names))
    named = real_executor.call(sample_names_call(calls, NOW + 20_000, size=500))
    assert (named.total, named.sampled, len(named.names)) == (20_000, 500, 10)
    assert set(named.names.values()) <= {49, 50, 51}
    few = real_executor.call(sample_names_call(calls, NOW + 20_000, size=30))
    assert set(few.names.values()) <= {2, 3, 4}


@pytest.mark.parametrize(("number", "size"), [(1000, 3), (22_222, 500)])
def test_sample_goes_in_steps_of_the_golden_ratio(real_executor, number, size):
    ids = [f"m{n:05}" for n in range(number)]
    names = {id: f"name={id}" for id in ids}
    plant(real_executor, World(pending={id: n for n, id in enumerate(ids)}, attributes=names))
    named = real_executor.call(sample_names_call(calls, NOW + number, size=size))
    ranks = [n * 618_034 % 1_000_000 * number // 1_000_000 for n in range(size)]
    assert named == NamesReply(number, size, {ids[rank]: 1 for rank in ranks})


def test_sample_is_smaller_if_attributes_are_large(executor):
    big = " progress=" + "x" * 300_000
    plant(
        executor, World(pending=dict.fromkeys("abcdefgh", 5), attributes={id: f"name={id}{big}" for id in "abcdefgh"})
    )
    named = executor.call(sample_names_call(calls, NOW + 300, size=9))
    assert (named.total, named.sampled) == (8, 4)
    assert set(named.names.values()) == {1}


@pytest.mark.parametrize(("size", "sampled"), [(1 << 19, 2), ((1 << 19) - 1, 3)])
def test_sample_ends_with_the_mebibyte(executor, size, sampled):
    text = "name=a progress=".ljust(size, "x")
    plant(executor, World(pending=dict.fromkeys("abcd", 5), attributes=dict.fromkeys("abcd", text)))
    assert executor.call(sample_names_call(calls, NOW + 300, size=9)) == NamesReply(4, sampled, {"a": sampled})


def test_sample_goes_on_while_a_byte_is_left(executor):
    text = "name=a progress=".ljust((1 << 20) - 1, "x")
    plant(executor, World(pending=dict.fromkeys("ab", 5), attributes={"a": text, "b": "name=b"}))
    assert executor.call(sample_names_call(calls, NOW + 300, size=9)).sampled == 2


@pytest.mark.faults
@pytest.mark.parametrize(
    ("part", "call"),
    [
        ("pending", forecast_call(calls, START, ends(100))),
        ("unack", forecast_call(calls, START, ends(100))),
        ("deliveries", forecast_call(calls, START, ends(100))),
        ("limits", forecast_call(calls, START, ends(100))),
        ("pending", sample_names_call(calls, NOW + 300, size=9)),
        ("attributes", sample_names_call(calls, NOW + 300, size=9)),
    ],
    ids=lambda one: one if isinstance(one, str) else one.script.name,
)
def test_key_of_wrong_type_is_refused(real_executor, part, call):
    plant(real_executor, WORLD)
    real_executor.client.set(getattr(KEYS, part), "a text")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        real_executor.call(call)
