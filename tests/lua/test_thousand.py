"""Every script handles a thousand ids, the maximum of one call."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from delayq.broker.calls import Debounced
from delayq.broker.message.ids import new_id
from delayq.broker.message.same_id import Debounce
from delayq.broker.partition_calls import (
    SentOff,
    deaths_in_call,
    deaths_out_call,
    move_in_call,
    move_out_call,
    schedules_in_call,
    schedules_out_call,
)
from delayq.broker.replies import ClaimedMessage, ClaimReply, CollectReply, ExpireReply, PromoteReply, TurnReply
from delayq.broker.requests import Failure, Outgoing, Receipt, Rejection, Release
from delayq.broker.results import Completed
from delayq.broker.scripts import MAX_IDS
from delayq.broker.staged import CommitReply, StageReply, commit_staged_call
from delayq.bulk.cold.cold_calls import ColdRow, restore_call, spill_call
from delayq.bulk.import_messages import ImportedDeath, dead_import_call
from delayq.queue.repairing.repair import recount_call, repair_call, repair_dead_call
from delayq.queue.results.result_waits import await_ends_call
from delayq.queue.sending.collecting import collect_call
from delayq.queue.sweeps.forgetting import ForgetReply, forget_call, forget_events_call
from delayq.queue.sweeps.rekeying import rekey_call
from delayq.schedules.calls import ScheduleFire, SchedulePut, fire_call, schedule_put_call, schedule_remove_call
from delayq.worker.delivery.joining import Joined, join_call
from tests.lua.cases.moving import SOURCE, TARGET, arrived, message, packed, sent_off
from tests.lua.cases.ready_to_unack import LEASE
from tests.lua.cases.stage import BEGUN, readers, stage
from tests.lua.tables import MUTATING
from tests.support.scripts import ANYWHERE, LOG, NOW, Case, Dead, Kept, T, World, calls, deliver, observe, plant

on_each = pytest.mark.parametrize(
    "executor", ["redis", "embedded, sample", pytest.param("embedded", marks=pytest.mark.torture)], indirect=True
)
IDS = sorted(new_id() for _ in range(MAX_IDS))
ENTRIES = [f"{id}:{T - 7}" for id in IDS]
RECEIPTS = [Receipt(id, T - 7) for id in IDS]


def each(value: Any) -> dict[str, Any]:
    return dict.fromkeys(IDS, value)


def sent(**places: Any) -> World:
    return World(messages=each("m"), retries=each(2), headers=each("h")).but(**places)


def delivered(state: str, **places: Any) -> World:
    return sent(deliveries=each(f"{state} -5 1 T-7 T-7 w"), errors=each("e")).but(**places)


PENDING = sent(pending=each(-5))
READY = delivered("ready", ready=IDS)
LEASED = delivered("leased", unack=each(-5))
BACKOFF = delivered("backoff", unack=each(-5), meta={"backoffs": MAX_IDS})
RETRY = delivered("retry", retry=IDS)
RANKS = {"priority_step": 60_000}
PRIOR = delivered("ranked", ranked=each(-60_005), attributes=each("priority=1"), meta=RANKS)
GARBAGE = delivered("garbage", garbage=set(IDS), retries=each(0))


def dead(died: int, reason: str, retries: int, error: str = "e") -> World:
    return World(
        dead={f"{id}:T-7": died for id in IDS},
        dead_messages={f"{id}:T-7": Dead(1, retries, -5, died, reason, error, "h", "m") for id in IDS},
        dead_ids=each("T-7"),
    )


def claimed_new() -> tuple[ClaimReply, World]:
    deliveries = [ClaimedMessage(id, T + n, b"m", 2, NOW - 5, 1, b"h") for n, id in enumerate(IDS)]
    after = sent(
        unack=each(100),
        deliveries={id: f"leased -5 1 T+{n} T+{n} me" for n, id in enumerate(IDS)},
        meta={"token": f"T+{MAX_IDS - 1}", "delivered": MAX_IDS},
    )
    return ClaimReply(NOW, NOW + 100, 0, deliveries, next_deadline=NOW + 100), after


def claimed(retrying: bool) -> tuple[ClaimReply, World]:
    deliveries = [ClaimedMessage(id, T + n, b"m", 2, NOW - 5, 2, b"h") for n, id in enumerate(IDS)]
    after = delivered(
        "leased",
        unack=each(100),
        deliveries={id: f"leased -5 2 T-7 T+{n} me" for n, id in enumerate(IDS)},
        meta={"token": f"T+{MAX_IDS - 1}", "delivered": MAX_IDS},
    )
    return ClaimReply(NOW, NOW + 100, 0, deliveries), after


def claimed_by_rank() -> tuple[ClaimReply, World]:
    reply, after = claimed(False)
    prior = [msgspec.structs.replace(one, attributes=b"priority=1") for one in reply.messages]
    return reply._replace(messages=prior), after.but(attributes=each("priority=1"), meta=RANKS | after.meta)


def statuses(status: int) -> str:
    return str(status) * MAX_IDS


OUT = [Outgoing(id, 50, 2, b"m", b"h") for id in IDS]
KEPT = Kept("returned", 1, -5, 0, "T-7", "7", attributes="retention=50")
FAILURES = [Failure(*receipt, 50, "boom") for receipt in RECEIPTS]
REJECTIONS = [Rejection(*receipt, "no", "") for receipt in RECEIPTS]
NEW = sent(pending=each(50))
AGAIN = delivered("pending", pending=each(50), deliveries=each("pending 50 1 T-7 T-7 w"))
FAILED = delivered("backoff", unack=each(50), retries=each(1), errors=each("boom"))
EXPIRED = {"errors": each("lease expired"), "meta": {"expired": MAX_IDS}}
STAGED = "; ".join(f"22 T+{n} -5 2 2 1 1 0" for n in range(MAX_IDS)) + "|" + "".join(IDS)
COMMITTED = "; ".join(["22 T-7 -5 1 2 1 1 0"] * MAX_IDS) + "|" + "".join(IDS)
CLAIM = calls.ready_to_unack(MAX_IDS, lease=100, consumer_id="me")
DUE_CLAIM = calls.pending_to_unack(MAX_IDS, lease=100, consumer_id="me")
TURN = calls.turn(MAX_IDS, ahead=0, lease=100, consumer_id="me")
COLLECT = calls.collect_garbage(limit=MAX_IDS, dead_max=5000, dead_ttl=50, slot_ttl=50)
COLLECT_NAMED = calls.collect_garbage(limit=MAX_IDS, dead_max=5000, dead_ttl=50, slot_ttl=50, ids=IDS)
TRIM = calls.collect_garbage(limit=MAX_IDS, dead_max=0, dead_ttl=50, slot_ttl=50)
PLACINGS = [SchedulePut(id, "0", NOW + 50, 0, b"{}") for id in IDS]
FIRINGS = [ScheduleFire(id, str(T), NOW + 50, NOW - 5, 2, b"m", b"h", f"{id} {NOW - 5}") for id in IDS]
ALL_SENT_OFF = SentOff(statuses(1), [T])
OUT_OF_PENDING = "".join(message(id, NOW - 5, payload="m", headers="h", text="") for id in IDS)
PACKED_DEATHS = "".join(packed(entry, NOW - 5, f"1 2 {NOW - 5} {NOW - 5} 2 1 1\nnoehm") for entry in ENTRIES)
PACKED_SCHEDULES = "".join(packed(id, NOW + 50, "{}", f"{T} 0 0 0") for id in IDS)
OCCURRENCES = " ".join(f"{id} {NOW - 5}" for id in IDS)
SCHEDULED = World(schedules=each(50), schedule_specs=each("{}"), schedule_states=each("T+0 0 - 0"))
SENT = {"meta": {"sent": MAX_IDS}, "wake": 1}
BURIED = {"meta": {"dead": MAX_IDS}}
IMPORTED = World(
    dead={f"{id}:T-5000": -5 for id in IDS},
    dead_messages={f"{id}:T-5000": Dead(1, 2, -5, -5, "no", "e", "h", "m") for id in IDS},
    dead_ids=each("T-5000"),
    meta={"dead_imported": MAX_IDS},
)

CASES = [
    Case(
        "new groups",
        World(),
        collect_call(
            calls,
            [one._replace(payload=b",m", attributes=b"collect=9") for one in OUT],
            Debounce(50, None, 9),
            max_length=MAX_IDS,
            max_payload=99,
        ),
        [Debounced("1", f"@{NOW + 50}", 1, unstarted=False)] * MAX_IDS,
        NEW.but(
            messages=each(""),
            attributes=each(f"collect=9 gathers={T}:0:1:1:3:{NOW}:{NOW + 50}:99"),
            gathered={f"{id} 0": ",m" for id in IDS},
            meta={"sent": MAX_IDS, "schema": 6, "priority_step": 60_000},
            wake=1,
        ),
    ),
    Case("new", World(), calls.send(OUT, replace=False, max_length=MAX_IDS), statuses(1), NEW.but(**SENT)),
    Case("replaced", BACKOFF, calls.send(OUT, replace=True, max_length=None), statuses(2), NEW.but(wake=1)),
    Case(
        "fresh",
        PENDING,
        calls.pending_to_ready(),
        PromoteReply(MAX_IDS, -1, -1, MAX_IDS, 0, NOW),
        sent(ready=IDS, deliveries=each("ready -5 0 0 0 -")),
    ),
    Case(
        "fresh, with priorities",
        PENDING.but(attributes=each("priority=1"), meta=RANKS),
        calls.pending_to_ready(),
        PromoteReply(MAX_IDS, -1, -1, MAX_IDS, 0, NOW, ranks=1),
        PRIOR.but(deliveries=each("ranked -5 0 0 0 -"), errors={}),
    ),
    Case("from ranked", PRIOR, CLAIM, *claimed_by_rank()),
    Case(
        "leases, with priorities",
        PRIOR.but(ranked={}, unack=each(-5), deliveries=each("leased -5 1 T-7 T-7 w")),
        calls.unack_to_retry(),
        ExpireReply(MAX_IDS, 0, -1),
        PRIOR.but(retries=each(1), errors=each("lease expired"), meta=RANKS | {"expired": MAX_IDS}),
    ),
    Case(
        "released, with priorities",
        PRIOR.but(ranked={}, unack=each(90), deliveries=each("leased -5 1 T-7 T-7 w")),
        calls.release([Release(*receipt) for receipt in RECEIPTS]),
        statuses(1),
        PRIOR.but(deliveries=each("ranked -5 0 T-7 T-7 w"), meta=RANKS | {"released": MAX_IDS}, wake=1),
    ),
    Case("from pending", PENDING, DUE_CLAIM, *claimed_new()),
    Case(
        "staged",
        READY + BEGUN,
        stage(MAX_IDS),
        StageReply(1, MAX_IDS, 0, NOW),
        claimed(False)[1].but(
            unack=each(LEASE), readers=readers(f"1 1 0 {LEASE}"), staged={"r 1": STAGED, "r 1 texts": "mh" * MAX_IDS}
        ),
    ),
    Case(
        "committed",
        LEASED + BEGUN.but(readers=readers("1 1 0 9"), staged={"r 1": COMMITTED, "r 1 texts": "mh" * MAX_IDS}),
        commit_staged_call(calls, 1, reader="r", run="this"),
        CommitReply(MAX_IDS, 0, 0),
        World(meta={"acked": MAX_IDS}, readers=readers("2 1 0 9")),
    ),
    Case("from pending, in a turn", PENDING, TURN, TurnReply("", claimed_new()[0], NOW * 1000), claimed_new()[1]),
    Case("from ready", READY, CLAIM, *claimed(False)),
    Case("from retry", RETRY, CLAIM, *claimed(True)),
    Case("leases", LEASED, calls.unack_to_retry(), ExpireReply(MAX_IDS, 0, -1), RETRY.but(retries=each(1), **EXPIRED)),
    Case(
        "last leases",
        LEASED.but(retries=each(0)),
        calls.unack_to_retry(),
        ExpireReply(0, MAX_IDS, -1),
        GARBAGE.but(**EXPIRED),
    ),
    Case("delays", BACKOFF, calls.unack_to_retry(), ExpireReply(MAX_IDS, 0, -1), RETRY),
    Case("leased", LEASED, calls.ack(RECEIPTS), statuses(1), World(meta={"acked": MAX_IDS})),
    Case(
        "joined",
        LEASED,
        join_call(calls, 99, [Joined(*one, f"g{one.id}", 50, "", 2, b"h", b"collect=9", b",m") for one in RECEIPTS]),
        statuses(1),
        World(
            pending={f"g{id}": 50 for id in IDS},
            retries={f"g{id}": 2 for id in IDS},
            messages={f"g{id}": "" for id in IDS},
            headers={f"g{id}": "h" for id in IDS},
            attributes={f"g{id}": f"collect=9 gathers={T}:0:1:1:3:{NOW}:{NOW + 50}:99" for id in IDS},
            gathered={f"g{id} 0": ",m" for id in IDS},
            meta={"acked": MAX_IDS, "sent": MAX_IDS, "schema": 6, "priority_step": 60_000},
            wake=1,
        ),
    ),
    Case(
        "completed",
        LEASED.but(attributes=each("retention=50")) + World(waited=each(900), meta={"schema": 2}),
        calls.complete([Completed(*one, "50", "returned", b"retention=50", "", b"7") for one in RECEIPTS]),
        statuses(1),
        World(completed=each(50), results=each(KEPT), ends=[" ".join(IDS)], meta={"acked": MAX_IDS, "schema": 2}),
    ),
    Case("waited for", World(), await_ends_call(calls, IDS, duration=900), ANYWHERE, World(waited=each(900))),
    Case(
        "failed",
        LEASED,
        calls.nack(FAILURES),
        statuses(1),
        FAILED.but(meta={"backoffs": MAX_IDS, "nacked": MAX_IDS}, wake=1),
    ),
    Case(
        "spent",
        LEASED.but(retries=each(0)),
        calls.nack(FAILURES),
        statuses(2),
        GARBAGE.but(errors=each("boom"), meta={"nacked": MAX_IDS}),
    ),
    Case(
        "released",
        LEASED,
        calls.release([Release(*receipt) for receipt in RECEIPTS]),
        statuses(1),
        READY.but(deliveries=each("ready -5 0 T-7 T-7 w"), meta={"released": MAX_IDS}, wake=1),
    ),
    Case(
        "asked for",
        LEASED.but(deliveries=each("leased -5 1 T-7 T-7 w ?")),
        calls.withdraw(IDS),
        statuses(1),
        LEASED.but(deliveries=each("leased -5 1 T-7 T-7 w -"), wake=1),
    ),
    Case(
        "withdrawn",
        LEASED.but(deliveries=each("leased -5 1 T-7 T-7 w -")),
        calls.release([Release(*receipt) for receipt in RECEIPTS]),
        statuses(1),
        LEASED.but(
            unack=each(1000),
            deliveries=each("backoff -5 0 T-7 T-7 w"),
            meta={"released": MAX_IDS, "backoffs": MAX_IDS},
            wake=1,
        ),
    ),
    Case("extended", LEASED, calls.extend(RECEIPTS, lease=100), statuses(1), LEASED.but(unack=each(100))),
    Case("rejected", LEASED, calls.reject(REJECTIONS), statuses(1), dead(0, "no", 2).but(**BURIED)),
    Case("cancelled", BACKOFF, calls.cancel(IDS), statuses(1), World(meta={"cancelled": MAX_IDS})),
    Case("killed", BACKOFF, calls.kill(IDS), statuses(1), dead(0, "killed", 3).but(**BURIED)),
    Case(
        "rescheduled",
        BACKOFF,
        calls.reschedule([(id, 50) for id in IDS]),
        statuses(1),
        AGAIN.but(meta={"rescheduled": MAX_IDS}, wake=1),
    ),
    Case("collected", GARBAGE, COLLECT, CollectReply(MAX_IDS, 0, 0), dead(0, "retries spent", 0).but(**BURIED)),
    Case("named", GARBAGE, COLLECT_NAMED, CollectReply(MAX_IDS, 0, 0), dead(0, "retries spent", 0).but(**BURIED)),
    Case(
        "trimmed at once",
        GARBAGE,
        TRIM,
        CollectReply(MAX_IDS, MAX_IDS, 0),
        World(meta={"dead": MAX_IDS, "trimmed": MAX_IDS}),
    ),
    Case(
        "redriven",
        dead(-5, "no", 2),
        calls.redrive(ENTRIES, retries=None),
        statuses(1),
        sent(pending=each(0), meta={"redriven": MAX_IDS}, wake=1),
    ),
    Case(
        "purged dead",
        dead(-5, "no", 2),
        calls.dead_purge(ENTRIES),
        statuses(1),
        World(meta={"dead_purged": MAX_IDS}),
    ),
    Case(
        "spilled",
        PENDING,
        spill_call(calls, "f", "x", [ColdRow(id, NOW - 5, 2, b"m", b"h", b"") for id in IDS], first=0, oldest=NOW),
        statuses(1),
        World(meta={"schema": 8, "cold": MAX_IDS}, cold={"folder": "f", "moved x": statuses(1)}),
    ),
    Case(
        "restored",
        World(meta={"schema": 8, "cold": MAX_IDS}, cold={"file x": f"{MAX_IDS} 0"}),
        restore_call(calls, "x", [ColdRow(id, NOW - 5, 2, b"m", b"h", b"") for id in IDS], first=0),
        statuses(1),
        PENDING.but(meta={"schema": 8}, cold={"back x": "1"}, wake=1),
    ),
    Case(
        "imported dead",
        World(),
        dead_import_call(calls, (ImportedDeath(id, NOW - 5, NOW - 5, 2, 1, "no", "e", b"h", b"", b"m") for id in IDS)),
        statuses(1),
        IMPORTED,
    ),
    Case(
        "mended",
        PENDING.but(pending={}),
        repair_call(calls, [id.encode() for id in IDS], fix=True, search=True, retries=3),
        statuses(2),
        sent(pending=each(0), meta={"repaired": MAX_IDS}),
    ),
    Case(
        "in step",
        dead(-5, "no", 2).but(dead={}, dead_ids={}),
        repair_dead_call(calls, [entry.encode() for entry in ENTRIES], fix=True),
        statuses(2),
        dead(-5, "no", 2).but(meta={"repaired": MAX_IDS}),
    ),
    Case(
        "recounted",
        BACKOFF.but(ready=IDS, meta={}),
        recount_call(calls, fix=True),
        (-MAX_IDS, 0, -MAX_IDS, 0, 0),
        BACKOFF.but(ready=IDS, meta={"stale_ready": MAX_IDS, "backoffs": MAX_IDS}),
    ),
    Case(
        "rekeyed",
        BACKOFF,
        rekey_call(calls, "messages", [(id, BACKOFF.messages[id].encode(), b"new") for id in IDS]),
        statuses(1),
        BACKOFF.but(messages=each("new")),
    ),
    Case(
        "forgotten",
        dead(-5, "no", 2) + World(done=each(5)),
        forget_call(calls, IDS, fix=True),
        ForgetReply(statuses(1), 0, MAX_IDS, MAX_IDS, 0),
        World(meta={"dead_purged": MAX_IDS}),
    ),
    Case(
        "forgotten events",
        World(events=["acked 1; ids a; tokens T-9"] * MAX_IDS),
        forget_events_call(calls, range(1, MAX_IDS + 1)),
        statuses(1),
        World(),
    ),
    Case("purged", BACKOFF, calls.purge(), MAX_IDS, World(meta={"purged": MAX_IDS})),
    Case("put", World(), schedule_put_call(calls, PLACINGS), statuses(1), SCHEDULED.but(wake=1)),
    Case("removed", SCHEDULED, schedule_remove_call(calls, IDS), statuses(1), World()),
    Case(
        "moves",
        PENDING,
        move_out_call(calls, TARGET, IDS),
        ALL_SENT_OFF,
        sent_off(OUT_OF_PENDING),
    ),
    Case(
        "moved",
        World(),
        move_in_call(calls, SOURCE, T, OUT_OF_PENDING.encode()),
        "1" + statuses(1),
        PENDING + arrived() + World(wake=1),
    ),
    Case(
        "dead move",
        dead(-5, "no", 2),
        deaths_out_call(calls, TARGET, ENTRIES),
        ALL_SENT_OFF,
        sent_off(PACKED_DEATHS, "deaths"),
    ),
    Case(
        "dead moved",
        World(),
        deaths_in_call(calls, SOURCE, T, PACKED_DEATHS.encode()),
        "1",
        dead(-5, "no", 2) + arrived(kind="deaths"),
    ),
    Case(
        "schedules move",
        SCHEDULED,
        schedules_out_call(calls, TARGET, IDS),
        ALL_SENT_OFF,
        sent_off(PACKED_SCHEDULES, "schedules"),
    ),
    Case(
        "schedules moved",
        World(),
        schedules_in_call(calls, SOURCE, T, PACKED_SCHEDULES.encode()),
        "1" + statuses(1),
        SCHEDULED + arrived(kind="schedules") + World(wake=1),
    ),
    Case(
        "fired",
        SCHEDULED.but(schedules=each(-5)),
        fire_call(calls, FIRINGS),
        statuses(1),
        SCHEDULED.but(schedule_states=each("T+1 1 -5 0")) + sent(pending=each(-5), **SENT),
    ),
    Case(
        "a thousand of one",
        World(schedules={"s": -5}, schedule_states={"s": "T+0 0 - 0"}),
        fire_call(calls, [ScheduleFire("s", str(T), NOW + 50, NOW - 5, 2, b"m", b"h", OCCURRENCES)]),
        "1",
        World(schedules={"s": 50}, schedule_states={"s": f"T+1 {MAX_IDS} -5 0"}) + sent(pending=each(-5), **SENT),
    ),
]


def test_every_script_has_a_case():
    of_one_or_no_id = {
        "begin_run",
        "end_run",
        "keep_plan",
        "log_action",
        "pause",
        "report",
        "ack_some",
        "resume",
        "send_one",
        "debounce",
        "edit",
    }
    of_one_or_no_id |= {"limit", "declare", "close", "presence"}
    assert {case.call.script.name for case in CASES} == set(MUTATING) - of_one_or_no_id


@pytest.mark.long
@on_each
@pytest.mark.table("case", CASES, ids=lambda case: f"{case.call.script.name}: {case.name}")
def test_call_handles_a_thousand_ids(executor, case: Case):
    plant(executor, case.before)
    assert deliver(executor, case.call) == case.reply
    assert observe(executor) == case.after
    assert deliver(executor, case.call) == case.reply
    assert observe(executor) == case.after


LOGGED = {
    "new": "sent",
    "put": "",
    "new groups": "sent",
    "removed": "",
    **dict.fromkeys(("moves", "moved", "dead move", "dead moved", "schedules move", "schedules moved"), ""),
    "fired": "sent",
    "a thousand of one": "sent",
    "fresh": "promoted",
    "fresh, with priorities": "promoted",
    "from ranked": "delivered",
    "leases, with priorities": "expired retried",
    "released, with priorities": "released",
    "from pending": "promoted delivered",
    "from ready": "delivered",
    "from retry": "delivered",
    "leases": "expired retried",
    "last leases": "expired",
    "delays": "retried",
    "leased": "acked",
    "joined": "acked sent",
    "completed": "acked",
    "waited for": "",
    "failed": "nacked",
    "spent": "nacked",
    "asked for": "",
    "staged": "delivered",
    "committed": "acked",
    "withdrawn": "released",
    "extended": "",
    "collected": "dead",
    "named": "dead",
    "trimmed at once": "dead dead_trimmed",
    "rejected": "dead",
    "killed": "dead",
    "purged dead": "dead_purged",
    "imported dead": "dead_imported",
    "mended": "rescheduled",
    "in step": "",
    "rekeyed": "",
    "recounted": "",
    "forgotten": "",
    "forgotten events": "",
}
"""Events that the log has for a case, where they differ from its name."""
REMEMBERED = {
    "leased",
    "committed",
    "joined",
    "completed",
    "rejected",
    "cancelled",
    "killed",
    "collected",
    "named",
    "trimmed at once",
}
REMEMBERED |= {"imported dead", "joined"}


@pytest.mark.long
@on_each
@pytest.mark.table(
    "case",
    [case for case in CASES if case.call.script.name != "turn"],  # which leaves a queue with a log to others
    ids=lambda case: f"{case.call.script.name}: {case.name}",
)
def test_call_logs_and_remembers_a_thousand_ids(executor, case: Case):
    switched_on = World(meta=LOG | {"dedupe": "1000 5000"})
    plant(executor, case.before + switched_on)
    assert deliver(executor, case.call) == case.reply
    after = observe(executor)
    assert after.but(events=[], done={}) == case.after + switched_on
    settled = -5 if case.name == "imported dead" else 0
    assert after.done == (each(settled) if case.name in REMEMBERED else {})
    kinds = LOGGED.get(case.name, case.name).split()
    entries = [text.split("; ") for text in after.events]
    assert [head for head, *_ in entries] == [f"{kind} 0" for kind in kinds]
    for _, *columns in entries:
        cells = {name: _cells(name, text) for name, _, text in (column.partition(" ") for column in columns)}
        if case.name == "purged":
            assert cells == {"count": ["1000"]}
        else:
            assert sorted(cells.pop("ids")) in (IDS, [f"g{id}" for id in IDS])
            assert {len(column) for name, column in cells.items() if name != "holder"} <= {MAX_IDS}


def _cells(name: str, text: str) -> list[str]:
    return text.split("\n" if name in {"errors", "reasons"} else " ")
