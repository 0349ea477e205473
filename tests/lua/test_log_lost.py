"""A log that cannot be written stops no call: its entries are counted, and all else is as if the log were off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from delayq.broker.requests import Outgoing
from delayq.broker.transport.executor import Executor
from delayq.errors import ServerError
from tests.lua.tables import every_case, on_both, with_log
from tests.support.scripts import KEYS, LOG, Case, World, calls, observe, plant, without_gaps


def add_foreign(executor: Executor) -> object:
    return executor.client.xadd(KEYS.events, {"kind": "foreign"})


def add_last(executor: Executor) -> object:
    return executor.client.xadd(KEYS.events, {"kind": "foreign"}, id=f"{2**64 - 1}-{2**64 - 1}")


def set_text(executor: Executor) -> object:
    executor.client.delete(KEYS.events)
    return executor.client.set(KEYS.events, "a text")


def spoil_setting(executor: Executor) -> object:
    return executor.client.hset(KEYS.meta, "events", "nonsense")


@contextmanager
def without_right(executor: Executor) -> Iterator[None]:
    """Take away the right to add entries."""
    executor.client.execute_command("ACL", "SETUSER", "default", "-xadd")
    try:
        yield
    finally:
        executor.client.execute_command("ACL", "SETUSER", "default", "+xadd")


def run(executor: Executor, case: Case, *faults: Callable[[Executor], object]) -> World:
    """Run a case with its log on, and with a fault in the log; return all else."""
    executor.client.flushdb()
    plant(executor, case.before.but(meta=case.before.meta | LOG))
    for spoil in faults:
        spoil(executor)
    assert executor.call(case.call) == case.reply
    return observe(executor, without=["events", "ends"])


def lost(executor: Executor, case: Case) -> World:
    """Return the contents after a case of which no entry could be written."""
    run(executor, case)
    entries = max(executor.client.xlen(KEYS.events) - len(case.before.events), 0)
    return case.after.but(events=[], ends=[], meta=case.after.meta | LOG | {"events_lost": entries})


@pytest.mark.faults
@on_both
@every_case(refused=False, some=4)
def test_call_whose_log_cannot_be_written_does_all_else(executor, case: Case):
    case = with_log(case)
    expected = lost(executor, case)
    if case.call.script.name == "forget_events":  # it does nothing else
        with pytest.raises(ServerError):
            run(executor, case, set_text)
    else:
        assert run(executor, case, set_text) == expected


@pytest.mark.faults
@every_case(refused=False, some=4)
def test_user_without_the_right_to_log_does_all_else(real_executor, case: Case):
    case = with_log(case)
    expected = lost(real_executor, case)
    real_executor.client.flushdb()
    plant(real_executor, case.before.but(meta=case.before.meta | LOG))
    with without_right(real_executor):
        assert real_executor.call(case.call) == case.reply
    assert observe(real_executor, without=["events", "ends"]) == expected


@pytest.mark.parametrize("spoil", [pytest.param(add_foreign, marks=without_gaps), add_last, set_text, spoil_setting])
@pytest.mark.faults
def test_entries_that_cannot_be_written_are_counted(executor, spoil):
    plant(executor, World(meta=LOG))
    spoil(executor)
    for id in "abc":
        assert executor.call(calls.send([Outgoing(id, 50, 3, b"m", b"")], replace=False, max_length=None)) == "1"
    assert executor.client.hget(KEYS.meta, "events_lost") == b"3"
    assert executor.client.hget(KEYS.meta, "sent") == b"3"
