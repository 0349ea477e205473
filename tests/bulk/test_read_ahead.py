"""Reading ahead: the same parts in the same order, one ahead, and errors where they belong."""

from __future__ import annotations

import threading

import pytest

from delayq.bulk.export import read_ahead


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


def test_parts_come_in_order_from_other_threads():
    def parts():
        for number in range(100):
            yield number, threading.current_thread()

    found = list(read_ahead(parts()))
    assert [number for number, _ in found] == list(range(100))
    assert threading.current_thread() not in {thread for _, thread in found}


def test_only_one_is_read_ahead():
    begun = []

    def parts():
        for number in range(50):
            begun.append(number)
            yield number

    for part in read_ahead(parts()):
        assert begun[part:] in ([part], [part, part + 1])


def test_an_error_comes_after_what_was_read_before_it():
    def parts():
        yield 1
        raise ValueError("cut")

    found = []
    with pytest.raises(ValueError, match="cut"):  # noqa: PT012 - the loop is what raises
        for part in read_ahead(parts()):
            found.append(part)  # noqa: PERF402 - what was there before the error
    assert found == [1]


def test_who_stops_does_not_wait_for_what_is_being_read():
    answered = threading.Event()

    def parts():
        yield 1
        answered.wait(60)

    reader = read_ahead(parts())
    assert next(reader) == 1
    reader.close()
    assert not answered.is_set()
    answered.set()
