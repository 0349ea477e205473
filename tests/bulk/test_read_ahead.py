"""Reading ahead: the same parts in the same order, one ahead, and errors where they belong."""

from __future__ import annotations

import threading

import pytest

from delayq.bulk.read_ahead import read_ahead


def test_the_next_part_is_read_while_this_one_is_worked_on():
    reading = threading.Event()

    def parts():
        yield 1
        reading.set()
        yield 2

    found = []
    for part in read_ahead(parts()):
        assert reading.wait(30)
        found.append(part)
    assert found == [1, 2]


def test_parts_come_in_order_and_from_one_thread():
    threads = set()

    def parts():
        for number in range(100):
            threads.add(threading.get_ident())
            yield number

    assert list(read_ahead(parts())) == list(range(100))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_an_error_comes_after_what_was_read_before_it():
    def parts():
        yield 1
        raise ValueError("cut")

    found = []
    with pytest.raises(ValueError, match="cut"):  # noqa: PT012 - the loop is what raises
        for part in read_ahead(parts()):
            found.append(part)  # noqa: PERF402 - what was there before the error
    assert found == [1]


def test_no_thread_is_left_when_the_reader_stops():
    before = threading.active_count()
    reader = read_ahead(iter(range(10)))
    assert next(reader) == 0
    reader.close()
    assert threading.active_count() == before
