"""No script reads more payloads than a mebibyte, except for the one with which it gets there; callers go on."""

from __future__ import annotations

import re

import pytest

from delayq import DelayQueue, NewMessage, Schedule
from delayq.broker.partition_calls import deaths_out_call, move_out_call, schedules_out_call
from delayq.broker.replies import ClaimReply, TurnReply
from delayq.broker.requests import Receipt, Rejection
from delayq.broker.results import Completed
from delayq.broker.staged import CommitReply, commit_staged_call
from delayq.bulk.import_messages import ImportedDeath, dead_import_call
from delayq.queue.repairing.repair import repair_dead_call
from delayq.queue.sweeps.stored_messages import snapshot_call
from delayq.schedules.calls import (
    ScheduleFire,
    SchedulePut,
    fire_call,
    schedule_put_call,
    schedule_remove_call,
    schedules_due_call,
    schedules_page_call,
)
from tests.lua.cases.moving import TARGET
from tests.lua.cases.pending_to_unack import claim as claim_due
from tests.lua.cases.ready_to_unack import claim
from tests.lua.cases.turn import turn
from tests.lua.tables import LUA
from tests.support.scripts import KEYS, NOW, After, Dead, T, World, calls, deliver, observe, plant
from tests.support.waiting import wait_until

BIG = "x" * 600_000
"""Two of them are more than a call reads."""
HUGE = "x" * 2_000_000
FOUR = ["a", "b", "c", "d"]
LEASED = World(
    unack=dict.fromkeys(FOUR, 30_000),
    retries=dict.fromkeys(FOUR, 2),
    messages=dict.fromkeys(FOUR, BIG),
    deliveries=dict.fromkeys(FOUR, "leased -5 1 T-9 T-9 w"),
)
GARBAGE = LEASED.but(unack={}, garbage=set(FOUR), deliveries=dict.fromkeys(FOUR, "garbage -5 1 T-9 T-9 w"))
DEAD = World(
    dead={f"{id}:T-9": n for n, id in enumerate(FOUR)},
    dead_messages={f"{id}:T-9": Dead(1, 1, -500, n, "no", "", "", BIG) for n, id in enumerate(FOUR)},
    dead_ids=dict.fromkeys(FOUR, "T-9"),
)
ENTRIES = [f"{id}:{T - 9}" for id in FOUR]
SMALL = {
    *("deliveries", "retries", "meta", "dead_ids", "runs", "schedule_states", "limits", "declared"),
    "history",
    "moving",  # numbers: no script reads a batch
    *("readers", "staged"),  # numbers and ids: no script reads the texts of what is staged
    *("cold", "cold_changes", "changes"),  # a status for each of 10,000 messages, and times
    *("hash", "runs"),  # in `snapshot`: a column of records, retries or errors; in `run`: the ledger
}
"""Hashes whose values are short, by the names they have in the scripts."""

ATTRIBUTES = {"attributes"}
"""Read in one command by claims, promotions and releases: texts that delayq writes, and that are short."""


FROM_PENDING = pytest.mark.parametrize("make", [claim_due, turn], ids=["pending", "turn"])


def due(ready: list[str], retry: list[str], payload: str) -> World:
    ids = ready + retry
    return World(
        ready=ready,
        retry=retry,
        retries=dict.fromkeys(ids, 3),
        messages=dict.fromkeys(ids, payload),
        deliveries=dict.fromkeys(ready, "ready -5 0 0 0 -") | dict.fromkeys(retry, "retry -5 1 T-9 T-9 w"),
    )


def pending(payload: str) -> World:
    return World(
        pending={id: n - 5 for n, id in enumerate(FOUR)},
        retries=dict.fromkeys(FOUR, 3),
        messages=dict.fromkeys(FOUR, payload),
    )


def ids(claimed: ClaimReply | TurnReply) -> str:
    claimed = claimed.claimed if isinstance(claimed, TurnReply) else claimed
    return "".join(message.id for message in claimed.messages)


@pytest.mark.parametrize("path", sorted(LUA.rglob("*.lua")), ids=lambda path: path.stem)
def test_texts_of_any_length_are_read_within_the_budget(path):
    if path.stem == "bytes":
        return
    reads = re.findall(r"redis\.p?call\('(?:HGET|HMGET|HGETALL|HVALS|HSCAN)', ([\w.]+)", path.read_text())
    reads_attributes = path.stem in {
        "lease",
        "turn",
        "rank",
        "sources",
        "line_sources",
        "key",
        "health",
        "seat",
        "give_back",
    }
    allowed = SMALL | ATTRIBUTES if reads_attributes else SMALL
    assert set(reads) <= allowed, "read texts of any length with read_payload or scan_payloads of lib/bytes"


def test_claim_returns_what_fits_and_leaves_the_rest_in_order(executor):
    plant(executor, due(FOUR, [], BIG))
    first = deliver(executor, claim(10), sequence=1)
    assert (ids(first), first.left) == ("ab", 2)
    assert ids(deliver(executor, claim(10), sequence=1)) == "ab"
    assert [len(message.payload) for message in deliver(executor, claim(10), sequence=1).messages] == [len(BIG)] * 2
    second = deliver(executor, claim(10), sequence=2)
    assert (ids(second), second.left) == ("cd", 0)


def test_claim_stops_when_the_budget_is_used_up_exactly(executor):
    plant(executor, due(FOUR, [], "x" * (1 << 19)))
    assert [ids(executor.call(claim(10))) for _ in range(2)] == ["ab", "cd"]


@pytest.mark.parametrize("make", [claim, claim_due, turn], ids=["ready", "pending", "turn"])
@pytest.mark.parametrize(
    ("sizes", "again"),
    [
        ({}, "abc"),
        ({"a": 2_000_000}, "a"),
        ({"a": 1 << 20}, "a"),
        ({"a": (1 << 20) - 1}, "ab"),
        ({"a": (1 << 20) - 2}, "ab"),
        ({"a": 600_000, "b": 600_000}, "ab"),
    ],
)
def test_claim_made_again_puts_back_what_does_not_fit_any_more(executor, make, sizes, again):
    world = due(FOUR, [], "") if make is claim else pending("")
    texts = dict.fromkeys(FOUR, "ready -5 2 T-99 T-99 w" if make is claim else "pending -5 2 T-99 T-99 w")
    plant(executor, world.but(deliveries=texts, messages=dict.fromkeys(FOUR, "xx")))
    assert ids(deliver(executor, make(3), sequence=1)) == "abc"
    back = [id for id in "abc" if id not in again]
    if len(back) == 1:
        executor.client.hset(KEYS.meta, "backoffs", 5)
    if sizes:
        executor.client.hset(KEYS.messages, mapping={id: "x" * size for id, size in sizes.items()})
    assert ids(deliver(executor, make(3), sequence=1)) == again
    seen = executor.client.hget(KEYS.meta, "backoffs")
    assert seen == ({1: b"6", 2: b"2"}.get(len(back)))
    assert [observe(executor).unack[id] for id in back] == [0] * len(back)
    executor.client.hset(KEYS.messages, mapping=dict.fromkeys(FOUR, "x"))
    assert ids(deliver(executor, make(3), sequence=1)) == again  # what was put back is nobody's
    executor.call(calls.unack_to_retry())
    claims = executor.call(claim(10)).messages
    assert {message.id: message.attempt for message in claims if message.id != "d"} == dict.fromkeys(back, 3)


@pytest.mark.parametrize(("size", "again", "back"), [(2_000_000, "a", 1), ((1 << 20) - 1, "ad", 0)])
def test_claim_made_again_puts_back_only_what_it_would_return(executor, size, again, back):
    plant(executor, due(FOUR, [], "x"))
    b, c = deliver(executor, claim(4), sequence=1).messages[1:3]
    executor.call(calls.ack([Receipt("b", b.token)]))
    executor.client.hdel(KEYS.messages, c.id)  # by another program
    executor.client.hset(KEYS.messages, "a", "x" * size)
    assert ids(deliver(executor, claim(4), sequence=1)) == again
    assert observe(executor).unack.keys() == {"a", "c", "d"}
    assert int(executor.client.hget(KEYS.meta, "backoffs") or 0) == (2 if back else 0)


@pytest.mark.parametrize("size", [600_000, 1 << 19])
@FROM_PENDING
def test_claim_from_pending_returns_what_fits_and_leaves_the_rest_in_order(executor, make, size):
    plant(executor, pending("x" * size))
    first = deliver(executor, make(10), sequence=1)
    assert (ids(first), getattr(first, "claimed", first).next_due) == ("ab", NOW - 3)
    assert observe(executor).wake == 1
    assert ids(deliver(executor, make(10), sequence=1)) == "ab"
    assert [ids(deliver(executor, make(10), sequence=n)) for n in (2, 3)] == ["cd", ""]


@FROM_PENDING
def test_first_message_of_a_claim_from_pending_may_have_any_size(executor, make):
    plant(executor, pending(HUGE))
    assert [ids(executor.call(make(10))) for _ in range(5)] == ["a", "b", "c", "d", ""]


def test_first_message_of_a_claim_may_have_any_size(executor):
    plant(executor, due(["a", "b"], [], HUGE))
    assert [ids(executor.call(claim(10))) for _ in range(3)] == ["a", "b", ""]


def test_large_retries_do_not_keep_ready_messages_waiting(executor):
    plant(executor, due(["a", "b"], ["r", "s"], HUGE))
    assert [ids(executor.call(claim(10))) for _ in range(2)] == ["ra", "sb"]


def test_headers_count_as_well(executor):
    plant(executor, due(FOUR, [], "x" * 400_000) + World(headers=dict.fromkeys(FOUR, "h" * 400_000)))
    assert [ids(executor.call(claim(10))) for _ in range(2)] == ["ab", "cd"]


def test_reject_moves_what_fits(executor):
    plant(executor, LEASED)
    rejections = [Rejection(id, T - 9, "no", "") for id in ("none", *FOUR)]
    assert deliver(executor, calls.reject(rejections)) == "011"
    assert deliver(executor, calls.reject(rejections)) == "011"
    assert observe(executor).unack.keys() == {"c", "d"}
    assert deliver(executor, calls.reject(rejections[3:]), sequence=2) == "11"
    assert {dead.payload for dead in observe(executor).dead_messages.values()} == {BIG}


@pytest.mark.parametrize("size", [600_000, 1 << 19, (1 << 20) - 1])
def test_kill_moves_what_fits(executor, size):
    plant(executor, pending("x" * size))
    assert deliver(executor, calls.kill(["none", *FOUR])) == "011"
    assert deliver(executor, calls.kill(["none", *FOUR])) == "011"
    assert observe(executor).pending.keys() == {"c", "d"}
    assert deliver(executor, calls.kill(FOUR), sequence=2) == "3311"
    assert {len(dead.payload) for dead in observe(executor).dead_messages.values()} == {size}


SETTLING = {
    "ack": lambda ids: calls.ack([Receipt(id, T - 9) for id in ids]),
    "complete": lambda ids: calls.complete([Completed(id, T - 9, 60_000, "nothing", b"", "", b"") for id in ids]),
}


@pytest.mark.parametrize("size", [600_000, 1 << 19])
@pytest.mark.parametrize("settle", SETTLING.values(), ids=SETTLING)
def test_settlement_lets_in_the_successors_that_fit(executor, settle, size):
    after = After(5, 3, "", "x" * size, "")
    plant(executor, LEASED + World(successors=dict.fromkeys(FOUR, after), meta={"schema": 2}))
    assert deliver(executor, settle(["none", *FOUR])) == "011"
    assert deliver(executor, settle(["none", *FOUR])) == "011"
    assert (observe(executor).unack.keys(), observe(executor).pending.keys()) == ({"c", "d"}, {"a", "b"})
    assert deliver(executor, settle(FOUR[2:]), sequence=2) == "11"
    assert observe(executor).messages == dict.fromkeys(FOUR, "x" * size)


@pytest.mark.parametrize("settle", SETTLING.values(), ids=SETTLING)
def test_settlement_reads_attributes_that_fit(executor, settle):
    plant(executor, LEASED + World(attributes=dict.fromkeys(FOUR, BIG), meta={"schema": 2, "unique": 1}))
    assert deliver(executor, settle(FOUR)) == "11"
    assert deliver(executor, settle(FOUR[2:]), sequence=2) == "11"
    assert observe(executor).attributes == {}


def test_commit_of_a_batch_reads_attributes_that_fit(executor):
    staged = "; ".join("1 T-9 -5 1 2 9 0 0" for _ in FOUR) + "|" + "".join(FOUR)
    reader = World(readers={"r run": "this", "r": "4 4 -5 9"}, staged={"r 4": staged, "r 4 texts": "x"})
    attributed = World(attributes=dict.fromkeys(FOUR, BIG), meta={"schema": 2, "unique": 1})
    plant(executor, LEASED + attributed + reader)
    call = commit_staged_call(calls, 4, reader="r", run="this")
    assert deliver(executor, call) == CommitReply(2, 0, 1)
    assert deliver(executor, call) == CommitReply(2, 0, 1)
    assert (observe(executor).unack.keys(), observe(executor).readers) == ({"c", "d"}, reader.readers)
    assert deliver(executor, call, sequence=2) == CommitReply(2, 0, 0)
    assert observe(executor).staged == {}


def test_batch_with_large_successors_is_settled_at_once(redis_url):
    with DelayQueue("tables", url=redis_url, tick="20s") as queue:

        @queue.batch_callback
        def work(messages):
            queue.send_many([NewMessage(BIG, "1h", id=message.id) for message in messages], replace="after")

        queue.send_many([NewMessage("first", id=id) for id in FOUR])
        queue.start_consume()
        wait_until(lambda: (queue.counts().pending, queue.counts().active) == (4, 0), 10)  # far from a tick


@pytest.mark.parametrize("named", [[], FOUR])
def test_collection_moves_what_fits_and_says_what_is_left(executor, named):
    plant(executor, GARBAGE)
    call = calls.collect_garbage(100, dead_max=9, dead_ttl=9000, slot_ttl=9000, ids=named)
    assert [deliver(executor, call, sequence=n) for n in range(3)] == [(2, 0, 2), (2, 0, 0), (0, 0, 0)]
    assert observe(executor).messages == {}


def test_import_of_what_was_about_to_die_compares_what_fits(executor):
    plant(executor, DEAD)
    lines = [ImportedDeath(id, "", NOW - 500, 1, 1, "no", "", b"", b"", b"") for id in FOUR]
    assert deliver(executor, dead_import_call(calls, lines)) == "0011"


def test_redrive_moves_what_fits(executor):
    plant(executor, DEAD)
    assert deliver(executor, calls.redrive(["none:1", *ENTRIES], retries=None)) == "011"
    assert deliver(executor, calls.redrive(ENTRIES[2:], retries=None), sequence=2) == "11"
    assert observe(executor).messages == dict.fromkeys(FOUR, BIG)


@pytest.mark.parametrize(
    ("state", "world"),
    {
        "pending": LEASED.but(unack={}, deliveries={}, pending=dict.fromkeys(FOUR, 5)),
        "ready": due(FOUR, [], BIG),
        "active": LEASED,
        "garbage": GARBAGE,
        "dead": DEAD,
    }.items(),
)
def test_page_ends_with_what_it_has_read(executor, state, world):
    plant(executor, world)
    pages, cursor, score = [], "", ""
    while cursor or not pages:
        page = executor.call(calls.page(state, limit=10, cursor=cursor, score=score, preview=10))
        pages.append([row.id for row in page.rows])
        assert len(pages) < 9
        assert page.inspected == len(page.rows) <= 2
        cursor, score = page.cursor, page.score
        assert all(row.size >= len(BIG) for row in page.rows)
    assert sorted(id for page in pages for id in page) == (ENTRIES if state == "dead" else FOUR)
    if state != "dead":  # its reasons and errors are beside the payload
        page = executor.call(calls.page(state, limit=10, cursor="", score="", preview=0))
        assert [(row.size, row.payload) for row in page.rows] == [(len(BIG), b"")] * 4


@pytest.mark.parametrize("part", ["messages", "dead_messages"])
def test_walk_ends_with_what_it_has_read(executor, part):
    many = [f"{n}" for n in range(20)]
    dead = {f"{id}:T-9": Dead(1, 1, -500, 0, "no", "", "", BIG) for id in many}
    plant(executor, World(messages=dict.fromkeys(many, BIG)) if part == "messages" else World(dead_messages=dead))
    found, cursor, pages = set(), "", 0
    while cursor != "0":
        cursor, page = executor.call(calls.walk(part, cursor=cursor or "0", limit=1000))
        pages += 1
        assert len(page) < 10
        assert pages < 50
        found |= {entry.decode().partition(":")[0] for entry in page}
    assert found == set(many)


def test_walk_reads_small_values_many_at_a_time(executor):
    plant(executor, World(messages={f"{n}": "m" for n in range(2000)}))
    found, calls_made, cursor = set(), 0, ""
    while cursor != "0":
        cursor, page = executor.call(calls.walk("messages", cursor=cursor or "0", limit=1000))
        found |= set(page)
        calls_made += 1
        assert calls_made < 50
    assert (len(found), calls_made) == (2000, pytest.approx(2, abs=1))


def test_snapshot_reads_payloads_that_fit(executor):
    plant(executor, LEASED.but(unack={}, deliveries={}, pending=dict.fromkeys(FOUR, 5)))
    page = executor.call(snapshot_call(calls, "", limit=10, cursor="", byte_limit=1 << 30))
    assert (page.ids, list(map(len, page.payloads))) == ([b"a", b"b"], [len(BIG)] * 2)
    page = executor.call(snapshot_call(calls, "", limit=10, cursor=page.cursor, score=page.score, byte_limit=1 << 30))
    assert page.ids == [b"c", b"d"]
    assert executor.call(snapshot_call(calls, "", limit=10, cursor="")).sizes == [len(BIG)] * 4
    plant(executor, LEASED)
    page = executor.call(snapshot_call(calls, "leased", limit=10, cursor="0", byte_limit=1 << 30))
    assert (page.sizes, [payload is None for payload in page.payloads].count(True)) == ([len(BIG)] * 4, 2)


def test_repair_of_the_dead_letter_examines_what_fits(executor):
    plant(executor, DEAD.but(dead={}))
    entries = [entry.encode() for entry in ENTRIES]
    assert deliver(executor, repair_dead_call(calls, entries, fix=True)) == "22"
    assert deliver(executor, repair_dead_call(calls, entries[2:], fix=True), sequence=2) == "22"
    assert observe(executor).dead == DEAD.dead


def test_schedules_are_read_as_they_fit(executor):
    others = [f"other-{n}" for n in range(20)]
    plant(executor, World(schedules=dict.fromkeys(FOUR, -5), schedule_specs=dict.fromkeys([*FOUR, *others], BIG)))
    assert [one.name for one in executor.call(schedules_page_call(calls, FOUR, limit=9)).schedules] == ["a", "b"]
    assert 1 <= len(executor.call(schedules_page_call(calls, limit=30)).schedules) < 12
    due_now = executor.call(schedules_due_call(calls, ahead=0, offset=0, limit=9, byte_limit=1 << 20))
    assert ([one.name for one in due_now.schedules], due_now.complete) == (["a", "b"], False)


def test_schedules_are_removed_as_they_fit(executor):
    plant(executor, World(schedule_specs=dict.fromkeys(FOUR, BIG) | {"e": ""}))
    assert deliver(executor, schedule_remove_call(calls, [*FOUR, "e"])) == "11"
    assert deliver(executor, schedule_remove_call(calls, ["c", "e", "d"]), sequence=2) == "111"
    assert observe(executor) == World()
    plant(executor, World(schedule_specs={"a": "x" * (1 << 20), "b": ""}))
    assert deliver(executor, schedule_remove_call(calls, ["a", "b"]), sequence=3) == "1"
    plant(executor, World(schedule_specs={"a": "x" * ((1 << 20) - 1)}))
    assert deliver(executor, schedule_remove_call(calls, ["a", "b"]), sequence=4) == "11"


@pytest.mark.parametrize(("size", "statuses"), [(1 << 20, "10"), ((1 << 20) - 1, "11")])
def test_large_schedules_are_replaced_as_they_fit(executor, size, statuses):
    specs = {"a": "x" * size, "b": "b"}
    plant(executor, World(schedule_specs=specs, schedule_states=dict.fromkeys(specs, "T-9 0 - 0")))
    puts = [SchedulePut(name, str(T - 9), "", 0, b"new") for name in specs]
    assert deliver(executor, schedule_put_call(calls, puts)) == statuses
    assert deliver(executor, schedule_put_call(calls, puts[1:]), sequence=2) == ("1" if statuses == "10" else "0")
    assert observe(executor).schedule_specs == {"a": "new", "b": "new"}


def test_large_schedules_are_replaced_and_removed_together(redis_url):
    with DelayQueue("tables", url=redis_url) as queue:
        for payload in (BIG, BIG[1:]):
            queue.schedules.add_many(Schedule(name, every="1h", payload=payload, labels=["x"]) for name in FOUR)
        assert {info.payload for info in queue.schedules.list()} == {BIG[1:]}
        assert queue.schedules.set(label="x", every="2h") == queue.schedules.pause(label="x") == 4
        assert queue.schedules.remove(label="x") == 4
        assert queue.schedules.list() == []


def test_schedules_whose_messages_exist_are_fired_as_they_fit(executor):
    plant(executor, World(messages=dict.fromkeys(FOUR, BIG), schedules=dict.fromkeys(FOUR, -5)))
    fires = [ScheduleFire(id, "0", NOW + 5, NOW - 5, 3, b"p", b"", f"{id} {NOW - 5}") for id in FOUR]
    assert deliver(executor, fire_call(calls, fires)) == "1100"
    assert deliver(executor, fire_call(calls, fires[2:]), sequence=2) == "11"
    assert observe(executor).messages == dict.fromkeys(FOUR, BIG)


def test_ids_of_large_messages_without_retries_left_can_be_sent_again(real_executor, redis_url):
    plant(real_executor, GARBAGE)
    with DelayQueue("tables", url=redis_url) as queue:
        sent = queue.send_many([NewMessage("again", id=id) for id in [*FOUR, "e"]])
        assert (sent.new, queue.counts().dead) == ([*FOUR, "e"], 4)
        assert [queue.get(id).payload for id in FOUR] == ["again"] * 4


@pytest.mark.parametrize(
    ("world", "call"),
    [
        (pending(BIG), move_out_call(calls, TARGET, FOUR)),
        (DEAD, deaths_out_call(calls, TARGET, ENTRIES)),
        (World(schedule_specs=dict.fromkeys(FOUR, BIG)), schedules_out_call(calls, TARGET, FOUR)),
    ],
    ids=["messages", "deaths", "schedules"],
)
def test_a_batch_has_what_fits(executor, world, call):
    plant(executor, world)
    sent = deliver(executor, call)
    assert sent.statuses == "11"
    (batch,) = (
        text for field, text in observe(executor).moving.items() if field.endswith(f"{TARGET} {sent.numbers[0]}")
    )
    assert 2 * len(BIG) < len(batch) < 2 * len(BIG) + 500
