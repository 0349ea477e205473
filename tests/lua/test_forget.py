"""`forget` and `kept_ids`: what would be forgotten is counted, and what is reserved or gathered is read in pages."""

from __future__ import annotations

import pytest

from delayq.queue.sweeps.forgetting import ForgetReply, forget_call, kept_ids_call
from tests.lua.cases.forget import CASES
from tests.lua.tables import on_both
from tests.support.scripts import Case, T, World, calls, deliver, observe, observe_replies, plant


@on_both
@pytest.mark.table("case", [case for case in CASES if "3" not in case.reply.statuses], ids=lambda case: case.name)
def test_dry_run_counts_the_same_and_changes_nothing(executor, case: Case):
    plant(executor, case.before)
    assert deliver(executor, forget_call(calls, case.call.args[2:], fix=False)) == case.reply
    assert observe(executor) == case.before
    assert not observe_replies(executor)


def test_dry_run_counts_more_than_a_thousand_deaths_at_once(executor):
    (case,) = (case for case in CASES if case.name == "more than a thousand deaths")
    plant(executor, case.before)
    assert deliver(executor, forget_call(calls, ["a"], fix=False)) == ForgetReply("1", 0, 1002, 1, 0)
    assert deliver(executor, forget_call(calls, ["b", "a"], fix=False)) == ForgetReply("11", 0, 1002, 2, 0)


@on_both
@pytest.mark.parametrize("count", [0, 3, 3000])
def test_reserved_ids_are_read_in_pages(executor, count):
    ids = [f"id-{n}" for n in range(count)]
    plant(executor, World(done=dict.fromkeys(ids, -5)))
    found, cursor, pages = [], "", 0
    while cursor != "0":
        cursor, *page = executor.call(kept_ids_call(calls, "done", cursor or "0"))
        found += page
        pages += 1
    assert set(found) == set(ids)
    assert pages <= max(1, count // 100)


def test_payloads_of_groups_are_read_as_they_fit(executor):
    plant(executor, World(gathered={f"{id} {n}": "x" * 600_000 for id in "ab" for n in range(4)}))
    found, cursor, pages = [], "", 0
    while cursor != "0":
        cursor, *page = executor.call(kept_ids_call(calls, "gathered", cursor or "0"))
        found += page
        pages += 1
    assert set(found) == {f"{id}\n{T}\n{n}" for id in "ab" for n in range(4)}
    assert pages > 1
