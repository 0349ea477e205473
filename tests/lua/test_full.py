"""A full Redis refuses new messages; calls that free memory or move messages still work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from delayq.broker.transport.executor import Executor, open_executor
from delayq.bulk.cold.cold_calls import give_up_call
from delayq.errors import QueueFullError
from delayq.options import read_settings
from tests.lua.tables import TABLES
from tests.support.scripts import NOW, Case, World, calls, deliver, observe, observe_replies, plant

pytestmark = pytest.mark.faults
ADDING = {
    "send",
    "send_one",
    "debounce",
    "collect",
    "dead_import",
    "move_in",
    "deaths_in",
    "schedules_in",
    "stage",
}
"""Scripts that a full Redis refuses whatever they are given."""


@contextmanager
def full(executor: Executor) -> Iterator[None]:
    executor.client.config_set("maxmemory", "1")
    yield
    executor.client.config_set("maxmemory", "0")


@pytest.fixture
def executor(start_redis):
    opened = open_executor({"url": start_redis().url}, read_settings({"deadline": 0.001}))
    yield opened
    opened.close()


def adds(case: Case) -> bool:
    """Return whether a call stores something new: a message or the definition of a schedule."""
    name, before, after = case.call.script.name, case.before, case.after
    if name == "schedule_put":
        return before.schedule_specs != after.schedule_specs
    if name == "edit" and case.reply == "1":
        parts = ((one.messages, one.headers, one.attributes) for one in (after, before))
        return any(new.items() - old.items() for new, old in zip(*parts, strict=True))
    return name in ADDING or (name in ("fire", "restore") and before.messages != after.messages)


@pytest.mark.long
@pytest.mark.parametrize("script", [*sorted(ADDING), "edit", "fire", "restore", "schedule_put"])
def test_calls_that_store_something_new_are_refused_completely(executor, script):
    executor.client.script_load(TABLES[script][0].call.script.text)
    for case in filter(adds, TABLES[script]):
        executor.client.flushdb()
        plant(executor, case.before)
        with full(executor), pytest.raises(QueueFullError):
            executor.call(case.call)
        assert (case.name, observe(executor)) == (case.name, case.before)
        assert not observe_replies(executor)


@pytest.mark.parametrize("script", sorted(TABLES.keys() - ADDING))
def test_all_other_calls_are_executed(executor, script):
    for case in (case for case in TABLES[script] if not adds(case)):
        executor.client.flushdb()
        plant(executor, case.before)
        with full(executor):
            (reply,) = executor.run([case.call])
        assert isinstance(reply, case.reply) if isinstance(case.reply, type) else reply == case.reply, case.name
        assert (case.name, observe(executor)) == (case.name, case.after)


def test_file_of_the_cold_tier_is_given_up(executor):
    with full(executor):
        assert executor.call(give_up_call(calls, "x")) == f"void {NOW}"
    assert observe(executor) == World(cold={"moved x": f"void {NOW}"})


@pytest.mark.parametrize("script", sorted(TABLES))
def test_repeated_call_gets_its_reply_again(executor, script):
    def answered_twice(case: Case):
        plant(executor, case.before)
        reply = deliver(executor, case.call)
        with full(executor):
            return reply, deliver(executor, case.call)

    for case in TABLES[script]:
        if not isinstance(case.reply, type):
            executor.client.flushdb()
            assert (case.name, *answered_twice(case)) == (case.name, case.reply, case.reply)
            assert (case.name, observe(executor)) == (case.name, case.after)
