"""Claims over many calls: fairness, tokens, long runs of stale entries, and claims whose reply was lost."""

from __future__ import annotations

import pytest

from delayq.broker.calls import Calls
from delayq.broker.replies import ClaimReply
from delayq.broker.requests import Failure, Receipt, Release
from delayq.errors import OutcomeUnknown
from tests.lua.cases.pending_to_unack import pending
from tests.lua.cases.ready_to_unack import claim, waiting
from tests.lua.cases.stage import BEGUN, stage
from tests.lua.cases.turn import held, turn
from tests.support.scripts import KEYS, NOW, T, World, at, calls, deliver, observe, plant


def ids(claimed: ClaimReply) -> str:
    return "".join(one.id for one in claimed.messages)


def many(ready: int, retry: int) -> World:
    fresh, old = [f"a{n}" for n in range(ready)], [f"r{n}" for n in range(retry)]
    return World(
        ready=fresh,
        retry=old,
        retries=dict.fromkeys(fresh + old, 3),
        messages=dict.fromkeys(fresh + old, "m"),
        deliveries=dict.fromkeys(fresh, "ready -5 0 0 0 -") | dict.fromkeys(old, "retry -5 1 T-9 T-9 w"),
    )


@pytest.mark.parametrize("wanted", [1, 2, 3, 4, 5, 7, 30])
def test_a_quarter_of_claimed_messages_are_retries(executor, wanted):
    plant(executor, many(60, 20))
    seen: list[str] = []
    for _ in range(60 // wanted):
        seen += [one.id for one in executor.call(claim(wanted)).messages]
        retries = [id for id in seen if id.startswith("r")]
        assert len(retries) == len(seen) // 4
    assert len(seen) == 60 // wanted * wanted
    assert retries == [f"r{n}" for n in range(len(retries))]
    assert [id for id in seen if id.startswith("a")] == [f"a{n}" for n in range(len(seen) - len(retries))]


def test_retry_is_claimed_behind_stale_entries(executor):
    world = waiting("a", "u", meta={"delivered": 3, "stale_retry": 2})
    plant(executor, world.but(retry=["x", "y", "u"]))
    assert ids(executor.call(claim(1))) == "u"
    assert observe(executor).meta == {"token": "T+0", "delivered": 4}


@pytest.mark.parametrize("list_", ["ready", "retry"])
def test_an_entry_that_another_program_has_pushed_is_not_counted(executor, list_):
    plant(executor, waiting("a", "u") + World(**{list_: ["foreign"]}))
    assert ids(executor.call(claim(5))) in ("au", "ua")
    after = observe(executor)
    assert (after.ready, after.retry) == ([], [])
    assert not {"stale_ready", "stale_retry"} & after.meta.keys()


def test_tokens_rise_despite_a_purge_and_a_clock_set_back(executor):
    drawn: list[int] = []
    for offset in (0, 0, -60_000, 1, -60_000, 2):
        plant(executor, waiting("ab"))
        call = at(offset).ready_to_unack(2, lease=1000, consumer_id="w")
        drawn += [one.token for one in executor.call(call).messages]
        executor.call(calls.purge())
    assert len(drawn) == 12
    assert drawn == sorted(set(drawn))
    assert drawn[:2] == [T, T + 1]
    assert drawn[6:8] == [T + 1000, T + 1001]


def test_claim_stops_after_a_thousand_stale_entries_of_both_lists_and_reports_more(executor):
    counters = {"stale_ready": 1500, "stale_retry": 2}
    plant(executor, waiting("a").but(ready=[f"x{n}" for n in range(1500)] + ["a"], retry=["y", "z"], meta=counters))
    first = executor.call(claim(1))
    assert (ids(first), first.left) == ("", 502)
    after = observe(executor)
    assert (len(after.ready), after.wake) == (500, 1)
    assert after.meta == {"stale_ready": 499, "stale_retry": 2}
    second = executor.call(claim(1))
    assert (ids(second), second.left) == ("a", 2)
    assert observe(executor).meta == {"token": "T+0", "delivered": 1, "stale_retry": 2}


def test_repeated_claim_returns_and_renews_only_messages_still_leased(executor):
    plant(executor, waiting("abcdefgh") + World(pending={"z": 0}, headers={"h": "hh"}))
    call = claim(8)
    first = deliver(executor, call).messages
    receipts = {one.id: Receipt(one.id, one.token) for one in first}
    executor.call(calls.ack([receipts["a"]]))
    executor.call(calls.nack([Failure(*receipts["b"], 90_000, "boom")]))
    executor.call(calls.release([Release(*receipts["c"])]))
    executor.call(calls.extend([receipts["d"]], lease=99_000))
    executor.call(calls.release([Release(*receipts["e"])]))
    second = executor.call(at(5).ready_to_unack(1, lease=70_000, consumer_id="other")).messages
    executor.client.zadd(KEYS.unack, {"f": NOW - 1})
    executor.call(calls.unack_to_retry())
    assert [one.id for one in second] == ["e"]  # the last one released is the first of ready
    before = observe(executor)

    again = deliver(executor, at(10).ready_to_unack(8, lease=30_000, consumer_id="me"))
    assert again.messages == [one for one in first if one.id in "dgh"]
    assert (again.now, again.deadline, again.left) == (NOW + 10, NOW + 30_010, 2)
    assert observe(executor) == before.but(unack=before.unack | dict.fromkeys("dgh", 30_010))


def test_repeated_claim_after_a_purge_returns_no_message_sent_later(executor):
    plant(executor, waiting("a"))
    assert ids(deliver(executor, claim(1))) == "a"
    executor.call(calls.purge())
    plant(executor, waiting("a"))
    assert ids(executor.call(claim(1))) == "a"
    before = observe(executor)
    assert deliver(executor, claim(1)).messages == []
    assert observe(executor) == before


def test_repeated_empty_claim_stays_empty(executor):
    assert deliver(executor, claim(1)).messages == []
    plant(executor, waiting("a"))
    again = deliver(executor, claim(1))
    assert (again.messages, again.left) == ([], 1)
    assert observe(executor) == waiting("a")


def test_claims_of_several_slots_share_the_list(executor):
    plant(executor, waiting("abc"))
    brought = [ids(deliver(executor, claim(1), slot=slot)) for slot in ("one", "two", "three", "one", "two")]
    assert brought == ["a", "b", "c", "a", "b"]


def test_server_clock_gives_lease_and_token_without_an_override(executor):
    plant(executor, waiting("a"))
    before = microseconds(executor)
    claimed = executor.call(Calls(KEYS).ready_to_unack(1, lease=1000, consumer_id="me"))
    after = microseconds(executor)
    assert before <= claimed.messages[0].token <= after
    assert before // 1000 <= claimed.now <= after // 1000
    assert claimed.deadline == claimed.now + 1000


def microseconds(executor) -> int:
    seconds, rest = executor.client.time()
    return int(seconds) * 1_000_000 + int(rest)


def test_repeated_turn_returns_and_renews_only_messages_still_leased(executor):
    plant(executor, pending(a=0, b=10, c=20, d=30) + held("x"))
    first = deliver(executor, turn(3, "x T-7", "y T-7"))
    a, _, c = (Receipt(one.id, one.token) for one in first.claimed.messages)
    assert (first.statuses, ids(first.claimed), first.claimed.next_due) == ("10", "abc", NOW + 30)
    executor.call(calls.ack([a]))
    executor.call(calls.extend([c], lease=99_000))
    plant(executor, pending(e=5))
    before = observe(executor)

    again = deliver(executor, at(10).turn(3, ahead=25, lease=30_000, consumer_id="me", receipts=[c, c]))
    assert (again.statuses, again.micros) == ("10", T + 10_000)
    assert again.claimed.messages == first.claimed.messages[1:]
    assert (again.claimed.next_due, again.claimed.left) == (NOW + 5, 0)
    assert observe(executor) == before.but(unack=before.unack | dict.fromkeys("bc", 30_010))


def test_repeated_turn_tells_of_what_waits_by_then_and_claims_no_more(executor):
    assert ids(deliver(executor, turn(1)).claimed) == ""
    plant(executor, pending(a=-5))
    assert ids(deliver(executor, turn(1)).claimed) == "a"
    plant(executor, waiting("b") + pending(c=-5))
    again = deliver(executor, turn(1)).claimed
    assert (ids(again), again.left, again.next_due) == ("a", 1, NOW - 5)


@pytest.mark.parametrize("remembered", ["", "1", "1;", "11;", "x;a 1"])
def test_turn_that_is_overtaken_or_remembered_by_another_program_answers_nothing(executor, remembered):
    plant(executor, held("xy") + pending(a=-5))
    executor.client.hset(KEYS.meta, "a.slot", f"1 {NOW} {remembered}" if remembered else f"2 {NOW} 1;")
    before = observe(executor)
    if remembered == "11;":
        assert deliver(executor, turn(1, "x T-7", "y T-7")).statuses == "11"
    else:
        with pytest.raises(OutcomeUnknown, match="overtaken"):
            deliver(executor, turn(1, "x T-7", "y T-7"))
    assert observe(executor) == before


def test_staged_message_with_unreadable_retries_has_none(executor):
    plant(executor, waiting("a") + BEGUN)
    executor.client.hset(KEYS.retries, "a", "many")
    assert deliver(executor, stage()).staged == 1
    assert executor.client.hget(KEYS.staged, "r 1").split()[3:5] == [b"1", b"0"]  # attempt, retries
