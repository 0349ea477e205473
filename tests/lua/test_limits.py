"""A queue has limits for so many names at most, whether they are set or come from callbacks."""

from __future__ import annotations

import pytest

from delayq.errors import ConfigurationError
from delayq.queue.control.limit_calls import MAX_LIMITS, declare_call, limit_call, limits_page_call
from delayq.values.rates import Pace
from tests.support.scripts import KEYS, World, calls, deliver, observe, plant

FULL = World(
    limits={f"name:n{number}": f"{number} 1000 1 0 0 - 0 0 0" for number in range(1, MAX_LIMITS + 1)},
    meta={"limited": "starts", "schema": 2},
)


def test_limit_of_one_name_too_many_is_refused(real_executor):
    plant(real_executor, FULL)
    with pytest.raises(ConfigurationError, match="limits for at most 8000 names and 100 templates: remove some"):
        deliver(real_executor, limit_call(calls, "b", places=1))
    assert deliver(real_executor, calls.close("b", 500), sequence=2) == "0"
    assert observe(real_executor) == FULL


def test_declarations_are_refused_for_too_many_names(real_executor):
    said = World(declared={f"name:n{number}": "1000.000 1 0" for number in range(MAX_LIMITS)})
    for world in (FULL, said):
        real_executor.client.flushall()
        plant(real_executor, world)
        with pytest.raises(ConfigurationError, match="limits for at most 8000 names and 100 templates: remove some"):
            real_executor.call(declare_call(calls, "one-more", pace=Pace(10, 1), places=None))
        assert observe(real_executor) == world


@pytest.mark.parametrize(("running", "seated"), [(5000, True), (5001, False)])
def test_what_runs_takes_places_unless_thousands_do(real_executor, running, seated):
    ids = [f"m{number:04}" for number in range(running)]
    leased = World(
        unack=dict.fromkeys(ids, 30_000),
        deliveries=dict.fromkeys(ids, "leased -5 1 T-9 T-9 w"),
        attributes=dict.fromkeys(ids, "name=a"),
    )
    plant(real_executor, leased)
    deliver(real_executor, limit_call(calls, "a", places=7))
    assert real_executor.client.zcard(KEYS.running) == (running if seated else 0)


def test_limits_are_read_in_pages(real_executor):
    plant(real_executor, FULL)
    cursor, scopes = "0", set()
    while cursor != "0" or not scopes:
        page = real_executor.call(limits_page_call(calls, cursor, limit=500))
        cursor, scopes = page.cursor, scopes | {stored.scope for stored in page.limits}
        assert len(page.limits) < 1500
    assert scopes == set(FULL.limits)


def test_limit_of_the_queue_counts_what_is_leased(real_executor):
    leased = World(unack={"a": 5, "b": 6, "c": 7}, meta={"backoffs": 1})
    for meta, running in (({"backoffs": 1}, 2), ({}, 3)):
        real_executor.client.flushall()
        plant(real_executor, leased.but(limits={"queue": "0 1000 1 9 0 - 0 0 0"}, meta=meta))
        (stored,) = real_executor.call(limits_page_call(calls, "0", limit=500)).limits
        assert (stored.scope, stored.throttled, stored.running) == ("queue", 0, running)


def test_what_is_declared_is_read_with_the_limits_and_after_them(real_executor):
    said = {f"name:n{number}": "1000.000 1 0" for number in range(2, 2000)} | {"queue": "0.000 1 3"}
    limits = {"name:n1": "1 9 1 0 0 - 0 0 0", "name:n2": "2 9 1 0 0 - 0 0 0"}
    plant(real_executor, World(limits=limits, declared=said))
    cursor, found = "", []
    while cursor != "0":
        page = real_executor.call(limits_page_call(calls, cursor or "0", limit=500))
        cursor = page.cursor
        found += page.limits
        assert len(page.limits) < 1500
    assert {one.scope: (bool(one.text), one.declared) for one in found} == {
        scope: (scope in limits, said.get(scope, "")) for scope in {**limits, **said}
    }


def test_a_claim_takes_from_a_hundred_open_lines_and_another_consumer_goes_on(real_executor):
    ids = [f"m{number:03}" for number in range(1, 102)]
    waiting = World(
        throttled={id: (number, -5) for number, id in enumerate(ids, 1)},
        deliveries=dict.fromkeys(ids, "throttled -5 0 0 0 -"),
        retries=dict.fromkeys(ids, 3),
        messages=dict.fromkeys(ids, "x"),
        attributes={id: f"name={id}" for id in ids},
        limits={f"name:{id}": f"{number} 1000 5 0 0 - 0 0 0" for number, id in enumerate(ids, 1)},
        gates={number: number - 200 for number in range(1, 102)},
        meta={"limited": "starts", "schema": 2},
    )
    plant(real_executor, waiting)
    real_executor.client.zadd(KEYS.gates, {"of another program": 0})
    claims = []
    for _ in range(2):
        claim = real_executor.call(calls.ready_to_unack(1000, lease=30_000, consumer_id="me"))
        claims.append(([message.id for message in claim.messages], real_executor.client.llen(KEYS.wake)))
    assert claims == [(ids[:99], 1), (ids[99:], 1)]  # a gate of another program takes the place of a line
    assert real_executor.client.zcard(KEYS.gates) == 0


@pytest.mark.parametrize(("names", "takes"), [(300, [150, 150, 100]), (10, [250, 150])])
def test_a_claim_takes_few_enough_messages_and_limits_to_be_short(executor, names, takes):
    ids = [f"m{number:03}" for number in range(400)]
    plant(
        executor,
        World(
            ready=ids,
            deliveries=dict.fromkeys(ids, "ready -5 0 0 0 -"),
            retries=dict.fromkeys(ids, 3),
            messages=dict.fromkeys(ids, "x"),
            attributes={id: f"name=n{number % names}" for number, id in enumerate(ids)},
            limits={f"name:n{number}": f"{number + 1} 0 1 1000 0 - 0 0 0" for number in range(names)},
            meta={"limited": "running", "schema": 2},
        ),
    )
    claims = []
    while sum(map(len, claims)) < len(ids):
        claim = executor.call(calls.ready_to_unack(1000, lease=30_000, consumer_id="me"))
        claims.append([message.id for message in claim.messages])
        assert claim.left == len(ids) - sum(map(len, claims))
    assert [len(claimed) for claimed in claims] == takes
    assert [id for claimed in claims for id in claimed] == ids
