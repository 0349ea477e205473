"""`rekey_page` and `rekey`: each part is read and written in its own hash, within the budget of bytes of a call."""

from __future__ import annotations

import pytest

from delayq.queue.sweeps.rekeying import rekey_call, rekey_page_call
from tests.lua.cases.states import LEASED
from tests.support.scripts import KEYS, calls, deliver, plant

PARTS = ("messages", "successors", "dead_messages", "schedule_specs")
HEAD = b"new:"


@pytest.fixture
def stored(real_executor):
    """The executor of a queue that has two texts with the same ids in each part; one needs no change as a message."""
    for part in PARTS:
        values = {"a": f"old:{part}", "b": f"new:{part}"}
        real_executor.client.hset(getattr(KEYS, part), mapping=values)
    return real_executor


@pytest.mark.parametrize("part", PARTS)
def test_page_has_the_texts_of_its_part(stored, part):
    page = stored.call(rekey_page_call(calls, part, cursor="0", limit=10, head=HEAD))
    rows = [("a", f"old:{part}".encode()), ("b", f"new:{part}".encode())]
    expected = ("0", 1, rows[:1]) if part == "messages" else ("0", 0, rows)
    assert (page.cursor, page.already, sorted(page.rows)) == expected


@pytest.mark.parametrize("part", PARTS)
def test_text_is_replaced_in_its_part_alone(stored, part):
    plant(stored, LEASED.but(messages={}, headers={}, attributes={}))  # `a` runs: only its message must stay
    assert deliver(stored, rekey_call(calls, part, [("b", f"new:{part}".encode(), b"1"), ("c", b"", b"2")])) == "10"
    assert deliver(stored, rekey_call(calls, part, [("a", f"old:{part}".encode(), b"1")]), sequence=2) == (
        "2" if part == "messages" else "1"
    )
    for other in PARTS:
        a = b"1" if other == part != "messages" else f"old:{other}".encode()
        b = b"1" if other == part else f"new:{other}".encode()
        assert stored.client.hgetall(getattr(KEYS, other)) == {b"a": a, b"b": b}


def test_pages_have_about_as_many_texts_as_wanted_and_end(real_executor):
    count = 600  # more than Redis keeps in one piece, which it returns at once
    real_executor.client.hset(KEYS.messages, mapping={f"m{n}": "new:" if n % 3 else "old:" for n in range(count)})
    cursor, found, already, sizes = "", [], 0, []
    while cursor != "0":
        page = real_executor.call(rekey_page_call(calls, "messages", cursor=cursor or "0", limit=50, head=HEAD))
        cursor, found, already = page.cursor, found + page.rows, already + page.already
        sizes.append(len(page.rows) + page.already)
    assert (len({id for id, _ in found}), {text for _, text in found}) == (count // 3, {b"old:"})
    assert already >= count * 2 // 3
    assert all(50 <= size < 100 for size in sizes[:-1])


@pytest.mark.parametrize("size", [600_000, 1 << 19, (1 << 20) - 1])
def test_no_more_is_replaced_than_fits(real_executor, size):
    text = b"x" * size
    real_executor.client.hset(KEYS.successors, mapping=dict.fromkeys("abcd", text))
    rows = [(id, text, b"new") for id in "abcd"]
    assert deliver(real_executor, rekey_call(calls, "successors", rows)) == "11"
    assert deliver(real_executor, rekey_call(calls, "successors", rows[2:]), sequence=2) == "11"
    assert set(real_executor.client.hgetall(KEYS.successors).values()) == {b"new"}
