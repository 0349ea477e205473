"""The event log: contents, numbers and trimming of its entries; it is off by default."""

from __future__ import annotations

import pytest

from delayq.broker.event_log import await_events, id_of, offset_of, read_events, read_last_event, trim_events
from delayq.broker.keys import Keys
from delayq.broker.replies import ClaimedMessage
from delayq.broker.requests import Failure, Outgoing, Receipt, Rejection, Release
from delayq.queue.inspecting.event_log import EventColumns, expand
from tests.lua.cases.states import LEASED, PENDING
from tests.lua.tables import every_case, on_both, with_log
from tests.support.scripts import KEYS, LOG, NOW, Case, T, World, at, calls, deliver, observe, plant, without_gaps


def entries(executor):
    return executor.call(read_events(calls, 1, limit=1000))


def kinds(executor):
    return [entry.kind for entry in entries(executor)]


@on_both
@every_case(some=4)
def test_log_changes_no_other_data_and_skips_calls_without_effect(executor, case: Case):
    log, number = World(meta=LOG), len(case.before.events)
    case = with_log(case)
    plant(executor, case.before + log)
    if isinstance(case.reply, type):
        with pytest.raises(case.reply):
            executor.call(case.call)
    else:
        assert executor.call(case.call) == case.reply
    after = observe(executor)
    assert after.but(events=[]) == case.after.but(events=[]) + log
    if case.before == case.after and case.call.script.name != "log_action":  # which does nothing else
        assert len(after.events) == number


@every_case(refused=False)
def test_calls_create_no_log_or_window_that_is_off(real_executor, case: Case):
    plant(
        real_executor, case.before.but(meta={name: held for name, held in case.before.meta.items() if name != "events"})
    )
    real_executor.call(case.call)
    if not case.before.events:
        assert not real_executor.client.exists(KEYS.events)
    if not case.after.meta.keys() & {"dedupe", "unique"}:
        assert observe(real_executor).done.items() <= case.before.done.items()


# Texts


TEXTS = [
    (b"boom", "boom"),
    (b"one\ntwo", "one"),
    (b"one\r\ntwo", "one"),
    (b"\nsecond", None),
    (b"", None),
    (b"-", "-"),
    (b" a  b ", " a  b "),
    (b"a\x1fb\x00c", "a\x1fb\x00c"),
    (b"\xff\xfe", "\ufffd\ufffd"),
    ("ä€".encode(), "ä€"),
    (b"x" * 10_000, "x" * 200),
    (b"y" * 199 + "€".encode(), "y" * 199 + "\ufffd"),
]


def held(ids, **meta):
    """Return leased messages."""
    return World(
        unack=dict.fromkeys(ids, 500),
        retries=dict.fromkeys(ids, 3),
        messages=dict.fromkeys(ids, "m"),
        deliveries=dict.fromkeys(ids, "leased -5 1 T-9 T-9 w"),
        meta=LOG | meta,
    )


@pytest.mark.parametrize(("text", "kept"), TEXTS, ids=lambda text: repr(text[:12]) if text else "none")
def test_log_keeps_the_readable_first_line_of_a_text(executor, text, kept):
    plant(executor, held("ab"))
    executor.call(calls.nack([Failure("a", T - 9, 10, text)]))
    executor.call(calls.reject([Rejection("b", T - 9, text, text)]))
    nacked, dead = (event for entry in entries(executor) for event in expand(entry))
    assert (nacked.kind, nacked.id, nacked.error) == ("nacked", "a", kept)
    assert (dead.kind, dead.id, dead.reason, dead.error) == ("dead", "b", kept, kept)


def test_texts_of_one_call_stay_with_their_messages(executor):
    ids = [f"m{number}" for number in range(len(TEXTS))]
    plant(executor, held(ids))
    executor.call(calls.nack([Failure(id, T - 9, 10, text) for id, (text, _) in zip(ids, TEXTS, strict=True)]))
    (entry,) = entries(executor)
    assert [(event.id, event.error) for event in expand(entry)] == [
        (id, kept) for id, (_, kept) in zip(ids, TEXTS, strict=True)
    ]


def test_dead_event_has_the_stored_error(executor):
    plant(executor, (held("a") + World(errors={"a": "first\nsecond"})))
    executor.call(calls.reject([Rejection("a", T - 9, "no", "")]))
    (event,) = expand(entries(executor)[0])
    assert (event.reason, event.error) == ("no", "first")


def test_claim_accepts_messages_whose_retries_are_not_stored(executor):
    plant(
        executor,
        World(ready=["a", "b"], retries={"b": 2}, messages={"a": "A", "b": "B"}, meta=LOG).but(
            deliveries={"a": "ready -5 0 0 0 -", "b": "ready -5 0 0 0 -"}
        ),
    )
    claimed = executor.call(calls.ready_to_unack(5, lease=100, consumer_id="w"))
    assert claimed.messages == [
        ClaimedMessage("a", T, b"A", 3, NOW - 5, 1, b""),
        ClaimedMessage("b", T + 1, b"B", 2, NOW - 5, 1, b""),
    ]
    assert list(EventColumns.of(entries(executor)[0]).retries) == [3, 2]


# Numbers


def send_each(executor, *ids):
    for id in ids:
        executor.call(calls.send([Outgoing(id, 50, 3, b"m", b"")], replace=False, max_length=None))


@without_gaps
def test_entries_are_numbered_without_gaps_from_one(executor):
    assert executor.call(calls.configure(events=100_000, dedupe_window=None, dedupe_max=1))
    send_each(executor, *"abc")
    executor.call(calls.ack([Receipt("a", 1)]))
    executor.call(calls.cancel(["a"]))
    assert [entry.offset for entry in entries(executor)] == [1, 2, 3, 4]
    assert executor.client.xrange(KEYS.events)[3][0] == b"0-4"


def test_offsets_rise_on_servers_without_automatic_numbers(executor):
    plant(executor, World(meta={"events": "* 100000"}))
    send_each(executor, *"abc")
    logged = entries(executor)
    offsets = [entry.offset for entry in logged]
    assert offsets == sorted(set(offsets))
    assert all(10**15 < offset < 2**63 for offset in offsets)
    assert [entry.columns["ids"] for entry in logged] == [b"a", b"b", b"c"]
    for n, offset in enumerate(offsets):
        assert executor.call(read_events(calls, offset + 1, limit=9)) == logged[n + 1 :]
        assert executor.call(read_events(calls, offset, offset, limit=9)) == [logged[n]]
        assert executor.call(await_events(calls, offset, limit=9, timeout=0.01)) == logged[n + 1 :]
    assert executor.call(read_last_event(calls)) == logged[-1:]
    assert executor.call(trim_events(calls, offsets[1])) == 1
    assert entries(executor) == logged[1:]


@without_gaps
def test_log_can_be_read_from_any_offset(executor):
    plant(executor, World(meta=LOG))
    send_each(executor, *"abc")
    logged = entries(executor)
    assert [entry.offset for entry in logged] == [1, 2, 3]
    for after in range(4):
        assert executor.call(read_events(calls, after + 1, limit=9)) == logged[after:]
        assert executor.call(await_events(calls, after, limit=9, timeout=0.01)) == logged[after:]
    assert executor.call(read_events(calls, 1, 2, limit=9)) == logged[:2]
    assert executor.call(read_events(calls, 1, limit=2)) == logged[:2]
    assert executor.call(read_last_event(calls)) == logged[2:]
    assert executor.call(trim_events(calls, 3)) == 2
    assert entries(executor) == logged[2:]


@pytest.mark.parametrize(
    ("id", "offset"), [(b"0-1", 1), (b"0-999999999", 999_999_999), (b"1700000000000-7", 1_700_000_000_000_000_007)]
)
def test_offset_and_stream_id_are_converted_both_ways(id, offset):
    assert (offset_of(id), id_of(offset)) == (offset, id.decode())


@pytest.mark.faults
@pytest.mark.parametrize("id", ["1-0", "5-18446744073709551615", "1000000000-7", "*"])
def test_log_is_read_past_foreign_entries(executor, id):
    plant(executor, World(meta=LOG))
    send_each(executor, "a")
    for _ in range(3 if id == "*" else 1):
        executor.client.xadd(KEYS.events, {"not": "ours"}, id=id)
    executor.call(calls.configure(events=1000, dedupe_window=None, dedupe_max=1))
    send_each(executor, "b")
    found, after = [], 0
    for _ in range(6):
        page = executor.call(read_events(calls, after + 1, limit=1))
        assert page == executor.call(await_events(calls, after, limit=1, timeout=0.01))
        found += [event.id for entry in page for event in expand(entry)]
        after = page[-1].offset if page else after
    assert found == ["a", "b"]


# Limits


@without_gaps
@pytest.mark.parametrize("executor", ["redis", pytest.param("embedded", marks=pytest.mark.long)], indirect=True)
def test_log_is_trimmed_to_about_its_length(executor):
    plant(executor, World(meta={"events": "0-* 1000"}))
    for n in range(2500):
        executor.call(at(n).cancel(["x"]))  # changes nothing and is not logged
        executor.call(at(n).send([Outgoing(f"m{n}", 50, 3, b"m", b"")], replace=False, max_length=None))
    kept = executor.call(read_events(calls, 1, limit=5000))
    assert 1000 <= len(kept) <= 1100
    assert kept[-1].offset == 2500
    assert kept[0].offset == 2501 - len(kept)


def collect(max_log):
    return calls.collect_garbage(9, dead_max=9, dead_ttl=9000, slot_ttl=10**9, max_log=max_log)


def send_large(executor, *, entries):
    for n in range(entries):
        messages = [Outgoing(f"{n}-{i:0>40}", 50, 3, b"m", b"") for i in range(250)]
        executor.call(calls.send(messages, replace=False, max_length=None))


def test_collection_cuts_the_log_to_its_bytes_and_keeps_the_newest(real_executor):
    executor = real_executor
    plant(executor, World(meta=LOG))
    send_large(executor, entries=300)
    before = entries(executor)
    size = executor.client.memory_usage(KEYS.events)
    executor.call(collect(max_log=size))
    assert len(entries(executor)) == 300
    executor.call(collect(max_log=size // 2))
    after = entries(executor)
    assert size // 4 < executor.client.memory_usage(KEYS.events) <= size // 2
    assert after == before[-len(after) :]


@pytest.mark.parametrize("executor", ["embedded"], indirect=True)
def test_embedded_log_has_its_number_of_entries_alone(executor):
    plant(executor, World(meta=LOG))
    send_large(executor, entries=3)
    executor.call(collect(max_log=1))
    assert len(entries(executor)) == 3


def test_log_that_is_off_is_not_measured(executor):
    plant(executor, World(meta=LOG))
    send_large(executor, entries=9)
    executor.client.hdel(KEYS.meta, "events")
    executor.call(collect(max_log=1))
    assert len(entries(executor)) == 9


@pytest.mark.faults
def test_collection_may_lack_the_right_to_measure_the_log(real_executor):
    executor = real_executor
    plant(executor, World(meta=LOG, garbage={"a"}, messages={"a": "A"}))
    send_large(executor, entries=9)
    executor.client.execute_command("ACL", "SETUSER", "default", "-memory|usage")
    try:
        executor.call(collect(max_log=1))
    finally:
        executor.client.execute_command("ACL", "SETUSER", "default", "+@all")
    assert kinds(executor) == ["sent"] * 9 + ["dead"]


def test_each_queue_has_its_own_log(executor):
    plant(executor, World(meta=LOG))
    other = calls.__class__(Keys.of("delayq", "other"), clock=calls.clock)
    executor.call(other.send([Outgoing("a", 50, 3, b"m", b"")], replace=False, max_length=None))
    send_each(executor, "b")
    assert [entry.columns["ids"] for entry in entries(executor)] == [b"b"]
    assert not executor.client.exists(other.keys.events)
    executor.client.delete(other.keys.pending, other.keys.retries, other.keys.messages, other.keys.meta)


@without_gaps
def test_log_that_is_switched_off_is_kept_and_continues_later(executor):
    on = calls.configure(events=1000, dedupe_window=None, dedupe_max=1)
    off = calls.configure(events=0, dedupe_window=None, dedupe_max=1)
    executor.call(on)
    send_each(executor, "a")
    executor.call(off)
    send_each(executor, "b")
    assert kinds(executor) == ["sent"]
    executor.call(on)
    executor.call(calls.cancel(["a"]))
    assert [entry.offset for entry in entries(executor)] == [1, 2]
    assert kinds(executor) == ["sent", "cancelled"]


# Errors


@pytest.mark.faults
@pytest.mark.parametrize("part", ["events", "done"])
def test_key_of_wrong_type_is_ignored_while_its_feature_is_off(executor, part):
    plant(executor, LEASED + PENDING.but(pending={"p": 5}, messages={"p": "P"}))
    executor.client.set(getattr(KEYS, part), "a text")
    assert deliver(executor, calls.release([Release("p", T - 7)])) == "0"
    assert deliver(executor, calls.ack([Receipt("a", T - 7)]), sequence=2) == "1"
    assert executor.client.get(getattr(KEYS, part)) == b"a text"
