"""`get`, `page` and `counts`: reading messages in every state, among others, on both kinds of Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delayq.broker.replies import CountsReply, GetReply, MessageRow
from delayq.queue.results.result_waits import EndReply, outcomes_call
from tests.lua.cases.states import CROWD, DEAD, LEASED, LEFTOVERS, STATES
from tests.support.scripts import KEYS, NOW, After, Dead, Kept, T, World, at, calls, observe, plant

MOVED = f"{NOW - 5} 2 {T - 9} {T - 7} w"
NOTHING = GetReply(b"", "", "", "", "", b"", b"", "", "", b"", "", b"", NOW)
STORED = NOTHING._replace(payload=b"A", headers=b"ha", attributes=b"name=a", retries_left="2")
DELIVERED = STORED._replace(error="oops")
DIED = f"2 1 {NOW - 500} {NOW - 100} 12 4 2 6\nno such useroopshaname=aA".encode()
LATER = str(NOW + 60_000)
FOUND = {
    "pending": STORED._replace(pending=LATER),
    "rescheduled": DELIVERED._replace(pending=LATER, record=f"pending {MOVED}"),
    "ready": STORED._replace(record=f"ready {NOW - 5} 0 0 0 -"),
    "released": DELIVERED._replace(record=f"ready {MOVED}"),
    "leased": DELIVERED._replace(unack=str(NOW + 30_000), record=f"leased {MOVED}"),
    "backoff": DELIVERED._replace(unack=str(NOW + 500), record=f"backoff {MOVED}"),
    "retry": DELIVERED._replace(record=f"retry {MOVED}"),
    "throttled": DELIVERED._replace(record=f"throttled {MOVED}"),
    "ranked": DELIVERED._replace(record=f"ranked {MOVED}", attributes=b"name=a priority=1"),
    "garbage": DELIVERED._replace(retries_left="0", record=f"garbage {MOVED}"),
    "dead": NOTHING._replace(entry=f"a:{T - 7}", dead=DIED),
    "gone": None,
}

# One id


@pytest.mark.parametrize("state", STATES)
def test_get_returns_all_data_of_an_id(executor, state):
    plant(executor, STATES[state] + CROWD)
    assert executor.call(calls.get("a")) == FOUND[state]
    assert observe(executor) == STATES[state] + CROWD


def test_get_returns_the_latest_of_several_dead_letter_entries(executor):
    again = Dead(1, 1, -50, -10, "spent", "", "", "B")
    plant(executor, DEAD.but(dead_messages=DEAD.dead_messages | {"a:T-3": again}, dead_ids={"a": "T-7 T-3"}))
    assert executor.call(calls.get("a")) == NOTHING._replace(
        entry=f"a:{T - 3}", dead=f"1 1 {NOW - 50} {NOW - 10} 5 0 0\nspentB".encode()
    )


def test_get_returns_a_message_sent_again_with_its_dead_letter_entry(executor):
    plant(executor, STATES["ready"] + DEAD)
    assert executor.call(calls.get("a")) == FOUND["ready"]._replace(entry=f"a:{T - 7}")


def test_get_returns_a_dead_letter_entry_without_its_message(executor):
    plant(executor, DEAD.but(dead_messages={}))
    assert executor.call(calls.get("a")) == NOTHING._replace(entry=f"a:{T - 7}")


def test_empty_payload_is_a_message_and_leftover_fields_are_not(executor):
    plant(executor, World(messages={"a": ""}))
    assert executor.call(calls.get("a")) == NOTHING._replace(retries_left="3")
    executor.client.flushdb()
    plant(executor, LEFTOVERS)
    assert executor.call(calls.get("a")) is None


_RESULT = f"returned 2 {NOW - 500} {NOW - 90} {T - 7} 19 0\nname=a retention=907".encode()
_KEPT = World(
    completed={"a": 900}, results={"a": Kept("returned", 2, -500, -90, "T-7", "7", "", "name=a retention=90")}
)


def test_get_returns_a_result_beside_a_death_but_not_beside_a_message(executor):
    plant(executor, DEAD + _KEPT)
    found = NOTHING._replace(kept_until=str(NOW + 900), result=_RESULT)
    assert executor.call(calls.get("a")) == found._replace(entry=f"a:{T - 7}", dead=DIED)
    executor.client.flushdb()
    plant(executor, _KEPT)
    assert executor.call(calls.get("a")) == found
    plant(executor, STATES["ready"])
    assert executor.call(calls.get("a")) == FOUND["ready"]


def test_page_of_the_completed_has_their_records_by_time(executor):
    plant(
        executor, _KEPT + World(completed={"b": 800, "gone": 950}, results={"b": Kept("nothing", 1, 0, 0, "T-1", "")})
    )
    rows = listed(executor, "completed").rows
    assert [(row.id, row.score, row.payload[:8]) for row in rows] == [
        ("b", str(NOW + 800), b"nothing "),
        ("a", str(NOW + 900), b"returned"),
        ("gone", str(NOW + 950), b""),
    ]
    assert rows[1].payload == _RESULT


def test_outcomes_of_messages_in_every_state(executor):
    plant(executor, CROWD + DEAD + World(attributes={"p": "name=p retention=5 progress=Nw=="}))
    executor.client.delete(KEYS.results)
    assert executor.call(outcomes_call(calls, ["p", "q", "t", "none"])) == [
        EndReply("kept", b"", b""),
        EndReply("alive", b"", b""),
        EndReply("alive", b"", b""),
        EndReply("", b"", b""),
    ]
    plant(executor, _KEPT)
    assert executor.call(outcomes_call(calls, ["a"])) == [EndReply("", _RESULT, DIED.partition(b"haname=aA")[0])]


def test_outcomes_are_read_up_to_a_mebibyte_a_call(executor):
    records = {f"{n}": _RESULT + b"7" * 400_000 for n in range(5)}
    executor.client.hset(KEYS.results, mapping=records)
    assert [len(reply.record) for reply in executor.call(outcomes_call(calls, [*records]))] == [len(records["0"])] * 3


def test_outcomes_of_a_message_alive_show_what_was_before_it(executor):
    died = DIED.partition(b"haname=aA")[0]
    plant(executor, LEASED + DEAD + _KEPT)
    assert executor.call(outcomes_call(calls, ["a"])) == [EndReply("alive", _RESULT, died)]
    plant(executor, World(attributes={"a": "retention=5"}))
    assert executor.call(outcomes_call(calls, ["a"])) == [EndReply("kept", _RESULT.partition(b"\n")[0], died)]


@pytest.mark.parametrize(
    ("attributes", "alive"), [("retention=5", "kept"), ("name=n retention=5", "kept"), ("name=n", "alive")]
)
def test_outcomes_count_the_retention_of_what_waits_to_follow(executor, attributes, alive):
    plant(executor, LEASED + World(successors={"a": After(5, 1, "retention=1", "retention=2", attributes)}))
    assert executor.call(outcomes_call(calls, ["a"])) == [EndReply(alive, b"", b"")]


# Pages


def listed(executor, state, *, limit=100, preview=100, cursor="", score="", **period):
    return executor.call(calls.page(state, limit=limit, cursor=cursor, score=score, preview=preview, **period))


def pages(executor, state, limit, **period) -> Iterator[list[str]]:
    cursor, score = "", ""
    for _ in range(100):
        page = listed(executor, state, limit=limit, cursor=cursor, score=score, **period)
        yield [row.id for row in page.rows]
        cursor, score = page.cursor, page.score
        if not cursor:
            return
    raise AssertionError("the pages do not end")


def row_of(state: str, found: GetReply) -> MessageRow:
    times = {"pending": found.pending, "active": found.unack, "backoff": found.unack}
    return MessageRow("a", times.get(state, ""), found.payload, 1, *found[3:8])


PLACED = {
    "pending": ("pending", "rescheduled"),
    "ready": ("ready", "released", "ranked"),
    "active": ("leased",),
    "backoff": ("backoff",),
    "retry": ("retry",),
    "garbage": ("garbage",),
}
LISTS = {"ready": "ready", "retry": "retry"}


@pytest.mark.parametrize("state", PLACED)
@pytest.mark.parametrize("kept", [one for one in STATES if one not in {"dead", "gone"}])
def test_listing_has_only_messages_of_its_state(executor, state, kept):
    plant(executor, STATES[kept])
    expected = [row_of(state, FOUND[kept])] if kept in PLACED[state] else []
    assert listed(executor, state).rows == expected
    assert observe(executor) == STATES[kept]


@pytest.mark.parametrize("state", LISTS)
@pytest.mark.parametrize("kept", ["pending", "rescheduled", "leased", "backoff", "garbage", "gone"])
def test_stale_entry_of_a_list_is_not_listed(executor, state, kept):
    plant(executor, STATES[kept].but(**{LISTS[state]: ["a"]}) if kept != "gone" else World(**{LISTS[state]: ["a"]}))
    assert listed(executor, state).rows == []


def test_missing_fields_are_listed_as_empty(executor):
    plant(executor, World(pending={"a": 1}, garbage={"b"}))
    assert listed(executor, "pending").rows == [MessageRow("a", str(NOW + 1), b"", 0, "3", "", b"", b"", "")]
    assert listed(executor, "garbage").rows == [MessageRow("b", "", b"", 0, "3", "", b"", b"", "")]


@pytest.mark.parametrize(("attributes", "length"), [("", ""), ("name=n", " 6")])
def test_dead_messages_are_listed_with_truncated_payloads(executor, attributes, length):
    dead = Dead(2, 1, -500, -100, "no such user", "oops", "ha", "a long payload", attributes)
    plant(executor, DEAD.but(dead_messages={"a:T-7": dead}))
    head = f"2 1 {NOW - 500} {NOW - 100} 12 4 2{length}\nno such useroopsha{attributes}".encode()
    died = MessageRow(f"a:{T - 7}", str(NOW - 100), head + b"a long", len(head) + 14, "", "", b"", b"", "")
    assert listed(executor, "dead", preview=6).rows == [died]
    assert listed(executor, "dead").rows == [died._replace(payload=head + b"a long payload")]
    assert listed(executor, "dead", preview=0).rows == [died._replace(payload=head)]


def test_dead_letter_entry_with_missing_or_invalid_message_is_listed(executor):
    plant(executor, DEAD.but(dead_messages={}))
    assert listed(executor, "dead").rows == [MessageRow(f"a:{T - 7}", str(NOW - 100), b"", 0, "", "", b"", b"", "")]
    executor.client.hset(calls.keys.dead_messages, f"a:{T - 7}", "no such line")
    assert listed(executor, "dead", preview=4).rows == [
        MessageRow(f"a:{T - 7}", str(NOW - 100), b"no s", 12, "", "", b"", b"", "")
    ]


def test_payloads_are_truncated_to_the_preview(executor):
    plant(executor, World(pending={"a": 1}, messages={"a": "123456"}))
    for preview in (0, 1, 5, 6, 7):
        (row,) = listed(executor, "pending", preview=preview).rows
        assert (row.payload, row.size) == (b"123456"[:preview], 6)


MANY = [f"m{n}" for n in range(7)]
IN_ORDER = {
    "pending": World(pending={id: n // 2 + 10 for n, id in enumerate(MANY)}),
    "due": World(pending={id: n // 2 - 3 for n, id in enumerate(MANY)}),
    "due and pending": World(pending={id: n - 6 for n, id in enumerate(MANY)} | {"later": 1}),
    "ranked, ready and due": World(
        ranked={id: n - 60_000 for n, id in enumerate(MANY[:2])},
        ready=MANY[2:4],
        pending={id: n - 90_000 for n, id in enumerate(MANY[4:])},
        deliveries=dict.fromkeys(MANY[:2], "ranked -5 0 0 0 -")
        | dict.fromkeys(MANY[2:4], "ready -5 0 0 0 -")
        | {MANY[5]: "pending -5 1 T-9 T-9 w"},
    ),
    "ready": World(ready=MANY, deliveries=dict.fromkeys(MANY, "ready -5 0 0 0 -")),
    "ranked": World(
        ranked={id: n // 2 for n, id in enumerate(MANY)}, deliveries=dict.fromkeys(MANY, "ranked -5 0 0 0 -")
    ),
    "ranked and ready": World(
        ranked={id: n - 60_000 for n, id in enumerate(MANY[:4])},
        ready=MANY[4:],
        deliveries=dict.fromkeys(MANY[:4], "ranked -5 0 0 0 -") | dict.fromkeys(MANY[4:], "ready -5 0 0 0 -"),
    ),
    "retry": World(retry=MANY, deliveries=dict.fromkeys(MANY, "retry -5 1 T-9 T-9 w")),
    "active": World(
        unack={id: n // 2 for n, id in enumerate(MANY)}, deliveries=dict.fromkeys(MANY, "leased -5 1 T-9 T-9 w")
    ),
    "backoff": World(
        unack={id: n // 2 for n, id in enumerate(MANY)}, deliveries=dict.fromkeys(MANY, "backoff -5 1 T-9 T-9 w")
    ),
    "dead": World(dead={f"{id}:T-7": n // 2 for n, id in enumerate(MANY)}),
}


@pytest.mark.parametrize("state", IN_ORDER)
@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
def test_pages_have_no_gaps_or_repetitions(executor, state, limit):
    plant(executor, IN_ORDER[state])
    of_ready = state.startswith(("ranked", "due"))
    found = list(pages(executor, "ready" if of_ready else state, limit))
    ids = [f"{id}:{T - 7}" if state == "dead" else id for id in MANY]
    cut = [ids[first : first + limit] for first in range(0, 7, limit)]
    if state == "ranked and ready" or "due" in state:  # the script ends a page where another part begins: callers go on
        assert [id for page in found for id in page] == ids
    elif state == "ranked":
        assert [page for page in found if page] == cut
    else:
        assert found == (cut if len(cut[-1]) < limit else [*cut, []])


def test_page_continues_after_the_score_of_a_removed_member(executor):
    plant(executor, IN_ORDER["pending"])  # m0 10, m1 10, m2 11, m3 11, m4 12, m5 12, m6 13
    page = listed(executor, "pending", limit=3)
    assert (page.cursor, page.score) == ("m2", str(NOW + 11))
    executor.client.zrem(calls.keys.pending, "m2")
    rest = listed(executor, "pending", cursor="m2", score=page.score)
    assert [row.id for row in rest.rows] == ["m3", "m4", "m5", "m6"]
    executor.client.zadd(calls.keys.pending, {"m2": NOW + 19})  # found again at its new place
    rest = listed(executor, "pending", cursor="m2", score=page.score)
    assert [row.id for row in rest.rows] == ["m3", "m4", "m5", "m6", "m2"]


@pytest.mark.parametrize("state", ["pending", "active", "backoff", "dead"])
@pytest.mark.parametrize(("low", "high"), [(1, 3), (0, 4), (2, 2), (-9, 0), (4, 9), (-9, 9), (3, 1)])
@pytest.mark.parametrize("limit", [1, 2, 3, 8])
def test_pages_of_a_period_have_only_its_messages(executor, state, low, high, limit):
    plant(executor, IN_ORDER[state])  # m0 0, m1 0, m2 1, m3 1, m4 2, m5 2, m6 3
    start = NOW + 10 if state == "pending" else NOW
    found = pages(executor, state, limit, between=(start + low, start + high))
    ids = [row.partition(":")[0] for page in found for row in page]
    assert ids == [id for n, id in enumerate(MANY) if low <= n // 2 < high]


def test_every_spent_message_is_listed_on_some_page(executor):
    many = [f"g{n}" for n in range(700)]
    plant(executor, World(garbage=set(many)))
    found = list(pages(executor, "garbage", 50))
    assert len(found) > 1
    assert {id for page in found for id in page} == set(many)


def test_what_has_become_due_is_ready_and_no_longer_pending(executor):
    plant(executor, World(pending={"a": -1, "b": 0, "c": 1, "d": 2}))

    def states(offset):
        reader, rest = at(offset), {"limit": 9, "cursor": "", "score": "", "preview": 0}
        ready = executor.call(reader.page("ready", **{**rest, "cursor": "0", "score": "d"})).rows
        pending = executor.call(reader.page("pending", **rest)).rows
        return ["".join(row.id for row in rows) for rows in (ready, pending)]

    assert [states(offset) for offset in (-2, 0, 1, 2)] == [["", "abcd"], ["ab", "cd"], ["abc", "d"], ["abcd", ""]]


# Counts

EMPTY = CountsReply(NOW, -1, -1, -1, *[0] * 15, {})
COUNTED = [
    ("nothing", World(), EMPTY),
    (
        "one of each",
        CROWD + World(unack={"x": 500}, meta={"backoffs": 1, "token": "T-3"}),
        CountsReply(
            *(NOW, NOW + 90_000, NOW - 50, NOW + 500, 1, 1, 1, 1, 1, 1, 1, 5, 2, 1, 0, 0, 0, 0, 0),
            {"backoffs": "1", "token": str(T - 3)},
        ),
    ),
    (
        "several of each, the first of them by time",
        World(
            pending={"a": 9, "b": 7, "c": 8},
            ready=["d", "e", "f", "g"],
            unack={"h": 5, "i": 3, "j": 4, "k": 6, "l": 2},
            retry=["m", "n", "o", "p", "q"],
            garbage=set("rs"),
            dead={"t:T-7": 0, "t:T-6": 1, "u:T-5": 2},
            messages=dict.fromkeys("abcdefghijklmno", "m"),
            successors={"h": After(9, 3, "", "new"), "i": After(8, 3, "", "new")},
            completed={"v": 9},
            deliveries={"d": "leased 1 0 0 0 -", "e": "ready -7 0 0 0 -", "f": "ready -9 0 0 0 -"},
            meta={"stale_ready": 1, "stale_retry": 2, "backoffs": 3},
        ),
        CountsReply(
            *(NOW, NOW + 7, NOW - 7, NOW + 2, 3, 3, 2, 3, 3, 2, 3, 15, 6, 2, 2, 1, 0, 0, 0),
            {"stale_ready": "1", "stale_retry": "2", "backoffs": "3"},
        ),
    ),
    (
        "workers that have reported lately",
        World(
            workers=dict.fromkeys("abcdef", "{}"),
            beats={"a": -9, "b": -1, "c": 0, "d": 9, "e": 30_000, "f": 30_001},
        ),
        EMPTY._replace(workers=4, heard=3),
    ),
    (
        "counters of more than there is hide nothing, and make no count negative",
        World(ready=["a"], retry=["b"], unack={"c": 5}, meta={"stale_ready": 2, "stale_retry": 2, "backoffs": 2}),
        EMPTY._replace(
            next_deadline=NOW + 5,
            backoff=2,
            ready=1,
            retry=1,
            overdue=2,
            meta={"stale_ready": "2", "stale_retry": "2", "backoffs": "2"},
        ),
    ),
    (
        "the first of ready behind ninety-nine old entries",
        World(ready=[*(f"x{n}" for n in range(99)), "a"], deliveries={"a": "ready -5 0 0 0 -"}),
        EMPTY._replace(oldest_due=NOW - 5, ready=100, overdue=100),
    ),
    (
        "and behind a hundred it is not looked for",
        World(ready=[*(f"x{n}" for n in range(100)), "a"], deliveries={"a": "ready -5 0 0 0 -"}),
        EMPTY._replace(ready=101, overdue=101),
    ),
    (
        "ranked ones are ready, and the oldest of them is not the first",
        World(
            ranked={"a": -60_000, "b": -20, "c": 60_000},
            ready=["d"],
            deliveries={
                "a": "ranked -10 0 0 0 -",
                "b": "ranked -20 0 0 0 -",
                "c": "ranked -30 0 0 0 -",
                "d": "ready -25 0 0 0 -",
            },
            meta={"priority_step": 60_000},
        ),
        EMPTY._replace(oldest_due=NOW - 30, ready=4, overdue=4, meta={"priority_step": "60000"}),
    ),
    (
        "of ranked ones the first and the last hundred are looked at",
        World(
            ranked={f"x{n}": n for n in range(250)},
            deliveries={
                "x0": "ranked -6 0 0 0 -",
                "x99": "ranked -7 0 0 0 -",
                "x120": "ranked -9 0 0 0 -",
                "x150": "ranked -8 0 0 0 -",
            },
            meta={"priority_step": 60_000},
        ),
        EMPTY._replace(oldest_due=NOW - 8, ready=250, overdue=250, meta={"priority_step": "60000"}),
    ),
    (
        "of ranked ones the oldest is among the first hundred",
        World(
            ranked={f"x{n}": n for n in range(250)},
            deliveries={"x99": "ranked -9 0 0 0 -", "x150": "ranked -8 0 0 0 -"},
            meta={"priority_step": 60_000},
        ),
        EMPTY._replace(oldest_due=NOW - 9, ready=250, overdue=250, meta={"priority_step": "60000"}),
    ),
    (
        "without a step nothing is ranked",
        World(ranked={"a": -60_000}, deliveries={"a": "ranked -10 0 0 0 -"}),
        EMPTY,
    ),
    (
        "what is due is ready, and overdue, now included, and the first of them is the oldest",
        World(
            pending={"a": -20, "b": 0, "c": 1}, ready=["d"], deliveries={"d": "ready -10 0 0 0 -"}, messages={"a": "m"}
        ),
        EMPTY._replace(next_due=NOW + 1, oldest_due=NOW - 20, pending=1, ready=3, messages=1, overdue=3),
    ),
    (
        "the first of ready is older than the first of pending",
        World(pending={"a": -20}, ready=["d"], deliveries={"d": "ready -30 0 0 0 -"}),
        EMPTY._replace(oldest_due=NOW - 30, ready=2, overdue=2),
    ),
    (
        "leases and backoffs that have ended are overdue, and are not held",
        World(unack={"a": -5, "b": 0, "c": 1, "d": 2, "e": 3}, meta={"backoffs": 1}),
        EMPTY._replace(next_deadline=NOW - 5, active=4, backoff=1, overdue=2, held=2, meta={"backoffs": "1"}),
    ),
]


@pytest.mark.parametrize(("world", "counted"), [pytest.param(*rest, id=name) for name, *rest in COUNTED])
def test_messages_are_counted_by_state(executor, world, counted):
    plant(executor, world)
    assert executor.call(calls.counts()) == counted
    assert observe(executor) == world


def test_counts_use_the_given_time(executor):
    assert executor.call(at(5).counts()).now == NOW + 5


def test_walk_of_successors_returns_those_that_wait_for_no_message(executor):
    waiting = {id: After(5, 1, "", "new") for id in "ab"}
    plant(executor, World(messages={"a": "A"}, successors=waiting))
    assert executor.call(calls.walk("successors", cursor="0", limit=10)) == ("0", [b"b"])


def test_walk_of_results_returns_those_that_no_entry_of_completed_names(executor):
    plant(executor, World(results=dict.fromkeys("ab", Kept("nothing", 1, 0, 0, "T-1", "")), completed={"a": 0}))
    assert executor.call(calls.walk("results", cursor="0", limit=10)) == ("0", [b"b"])


def test_walk_of_what_is_ranked_returns_ids_without_a_payload(executor):
    plant(executor, World(messages={"a": "A"}, ranked={"a": 0, "b": 0}))
    assert executor.call(calls.walk("ranked", cursor="0", limit=10)) == ("0", [b"b"])
