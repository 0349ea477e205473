"""The event log: what its entries hold, how they are numbered and trimmed, and that it is nothing to those without."""

from __future__ import annotations

import pytest

from delayq.answers import Delivery, id_of, offset_of
from delayq.events import Columns, expand
from delayq.keys import Keys
from delayq.values import Failure, Outgoing, Receipt, Rejection
from tests.lua.cases.states import LEASED, PENDING
from tests.lua.tables import parameters
from tests.support.scripts import KEYS, LOG, NOW, Case, T, World, at, calls, deliver, observe, plant, without_gaps


def entries(executor):
    return executor.call(calls.events(1, limit=1000))


def kinds(executor):
    return [entry.kind for entry in entries(executor)]


@pytest.mark.parametrize("case", parameters())
def test_the_log_changes_nothing_else_and_tells_nothing_of_a_call_that_changes_nothing(executor, case: Case):
    log, told = World(meta=LOG), len(case.before.events)
    plant(executor, case.before + log)
    if isinstance(case.answer, type):
        with pytest.raises(case.answer):
            executor.call(case.call)
    else:
        assert executor.call(case.call) == case.answer
    after = observe(executor)
    assert after.but(events=[]) == case.after.but(events=[]) + log
    if case.before == case.after:
        assert len(after.events) == told


@pytest.mark.parametrize("case", parameters(refused=False))
def test_without_the_log_and_the_window_there_is_neither(real_executor, case: Case):
    plant(
        real_executor, case.before.but(meta={name: held for name, held in case.before.meta.items() if name != "events"})
    )
    real_executor.call(case.call)
    if not case.before.events:
        assert not real_executor.client.exists(KEYS.events)
    if "dedupe" not in case.before.meta:
        assert observe(real_executor).done == case.before.done


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
    """Return messages under a lease each."""
    return World(
        unack=dict.fromkeys(ids, 500),
        retries=dict.fromkeys(ids, 3),
        messages=dict.fromkeys(ids, "m"),
        deliveries=dict.fromkeys(ids, "leased -5 1 T-9 T-9 w"),
        meta=LOG | meta,
    )


@pytest.mark.parametrize(("text", "kept"), TEXTS, ids=lambda text: repr(text[:12]) if text else "none")
def test_of_a_text_the_first_line_is_kept_as_far_as_it_can_be_read(executor, text, kept):
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


def test_an_error_kept_from_before_is_told_of_a_death(executor):
    plant(executor, (held("a") + World(errors={"a": "first\nsecond"})))
    executor.call(calls.reject([Rejection("a", T - 9, "no", "")]))
    (event,) = expand(entries(executor)[0])
    assert (event.reason, event.error) == ("no", "first")


def test_a_claim_bears_that_retries_are_missing(executor):
    plant(
        executor,
        World(ready=["a", "b"], retries={"b": 2}, messages={"a": "A", "b": "B"}, meta=LOG).but(
            deliveries={"a": "ready -5 0 0 0 -", "b": "ready -5 0 0 0 -"}
        ),
    )
    claimed = executor.call(calls.ready_to_unack(5, lease=100, holder="w"))
    assert claimed.deliveries == [
        Delivery("a", T, b"A", 0, NOW - 5, 1, b""),
        Delivery("b", T + 1, b"B", 2, NOW - 5, 1, b""),
    ]
    assert list(Columns.of(entries(executor)[0]).retries) == [None, 2]


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


def test_where_the_server_cannot_do_that_offsets_still_rise(executor):
    plant(executor, World(meta={"events": "* 100000"}))
    send_each(executor, *"abc")
    told = entries(executor)
    offsets = [entry.offset for entry in told]
    assert offsets == sorted(set(offsets))
    assert all(10**15 < offset < 2**63 for offset in offsets)
    assert [entry.columns["ids"] for entry in told] == [b"a", b"b", b"c"]
    for n, offset in enumerate(offsets):
        assert executor.call(calls.events(offset + 1, limit=9)) == told[n + 1 :]
        assert executor.call(calls.events(offset, offset, limit=9)) == [told[n]]
        assert executor.call(calls.await_events(offset, limit=9, timeout=0.01)) == told[n + 1 :]
    assert executor.call(calls.last_event()) == told[-1:]
    assert executor.call(calls.trim_events(offsets[1])) == 1
    assert entries(executor) == told[1:]


@without_gaps
def test_dense_offsets_can_be_read_from_anywhere_as_well(executor):
    plant(executor, World(meta=LOG))
    send_each(executor, *"abc")
    told = entries(executor)
    assert [entry.offset for entry in told] == [1, 2, 3]
    for after in range(4):
        assert executor.call(calls.events(after + 1, limit=9)) == told[after:]
        assert executor.call(calls.await_events(after, limit=9, timeout=0.01)) == told[after:]
    assert executor.call(calls.events(1, 2, limit=9)) == told[:2]
    assert executor.call(calls.events(1, limit=2)) == told[:2]
    assert executor.call(calls.last_event()) == told[2:]
    assert executor.call(calls.trim_events(3)) == 2
    assert entries(executor) == told[2:]


@pytest.mark.parametrize(
    ("id", "offset"), [(b"0-1", 1), (b"0-999999999", 999_999_999), (b"1700000000000-7", 1_700_000_000_000_000_007)]
)
def test_an_offset_stands_for_an_id(id, offset):
    assert (offset_of(id), id_of(offset)) == (offset, id.decode())


# Limits


@without_gaps
def test_the_log_is_trimmed_to_about_its_length(executor):
    plant(executor, World(meta={"events": "0-* 1000"}))
    for n in range(2500):
        executor.call(at(n).cancel(["x"]))  # changes nothing, and is not told
        executor.call(at(n).send([Outgoing(f"m{n}", 50, 3, b"m", b"")], replace=False, max_length=None))
    kept = executor.call(calls.events(1, limit=5000))
    assert 1000 <= len(kept) <= 1100
    assert kept[-1].offset == 2500
    assert kept[0].offset == 2501 - len(kept)


def test_queues_have_a_log_each(executor):
    plant(executor, World(meta=LOG))
    other = calls.__class__(Keys.of("delayq", "other"), clock=calls.clock)
    executor.call(other.send([Outgoing("a", 50, 3, b"m", b"")], replace=False, max_length=None))
    send_each(executor, "b")
    assert [entry.columns["ids"] for entry in entries(executor)] == [b"b"]
    assert not executor.client.exists(other.keys.events)
    executor.client.delete(other.keys.pending, other.keys.retries, other.keys.messages, other.keys.meta)


@without_gaps
def test_a_log_that_is_switched_off_is_kept_and_goes_on_later(executor):
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


# When it goes wrong


@pytest.mark.faults
@pytest.mark.parametrize("part", ["events", "done"])
def test_a_foreign_key_in_the_place_of_one_that_is_off_is_nobodys_business(executor, part):
    plant(executor, LEASED + PENDING.but(pending={"p": 5}, messages={"p": "P"}))
    executor.client.set(getattr(KEYS, part), "a text")
    assert deliver(executor, calls.release([Receipt("p", T - 7)])) == "0"
    assert deliver(executor, calls.ack([Receipt("a", T - 7)]), sequence=2) == "1"
    assert executor.client.get(getattr(KEYS, part)) == b"a text"
