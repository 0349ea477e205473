"""Message ids."""

import os
import re
import string
import sys
import threading
import time
from random import Random
from types import SimpleNamespace

import pytest

from delayq.broker.keys import check_id
from delayq.broker.message.ids import new_consumer_id, new_id, new_ids, time_of
from delayq.values.times import timestamp
from tests.support.processes import run


def test_new_id_is_a_valid_message_id_of_22_characters():
    for _ in range(1000):
        id = new_id()
        assert re.fullmatch(r"[0-9A-Za-z]{22}", id)
        check_id(id)


def test_ids_sort_as_text_in_order_of_creation():
    ids = [new_id() for _ in range(20_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_made_in_bulk_and_one_by_one_sort_in_order_of_creation():
    ids = [id for n in (1, 2, 500, 5000, 0, 7) * 20 for id in (*new_ids(n), new_id())]
    assert len(ids) == 20 * (5510 + 6)
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[0-9A-Za-z]{22}", id) for id in ids)


@pytest.mark.parametrize("make", [new_id, lambda: new_ids(500)[-1]])
def test_id_contains_its_creation_time(make):
    statuses = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    before = time.time_ns() // 1_000_000
    number = 0
    for character in make():
        number = number * 62 + statuses.index(character)
    after = time.time_ns() // 1_000_000
    assert before <= number >> 80 <= after
    assert (number >> 76) & 15 == 7  # the version of a UUID
    assert (number >> 62) & 3 == 2  # its variant


@pytest.mark.parametrize("make", [new_id, lambda: new_ids(500)[-1]])
def test_time_of_an_id_is_read_from_it(make):
    before = time.time_ns() // 1_000_000
    made = timestamp(time_of(make(), now=before))
    assert before <= made <= time.time_ns() // 1_000_000
    day = 86_400_000
    assert time_of(make(), now=before - day // 2)
    assert time_of(make(), now=before - day) is None  # from a future that no sender has reached


def test_other_ids_have_no_time():
    now = time.time_ns() // 1_000_000
    random = Random(0)
    letters = string.digits + string.ascii_letters
    others = ["".join(random.choices(letters, k=22)) for _ in range(10_000)]
    for id in ("bill-7", "", "0" * 22, "z" * 22, new_id() + "0", new_id()[:-1], f"user:{new_id()}", *others):
        assert time_of(id, now=now) is None, id


def test_consumer_id_says_where_and_since_when_it_runs():
    ids = {new_consumer_id() for _ in range(100)}
    assert len(ids) == 100
    host, pid, start = ids.pop().split(":")
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,40}", host)
    assert pid == str(os.getpid())
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{6}", start)


@pytest.mark.parametrize("host", ["", "my laptop!", "ünï", "h" * 300])
def test_consumer_id_is_one_word_whatever_the_host_is_called(monkeypatch, host):
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename=host))
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,40}:\d+:\S+", new_consumer_id())


def test_ids_are_unique_over_threads(monkeypatch):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    made = [[] for _ in range(8)]
    ready = threading.Barrier(8)

    def make(ids):
        ready.wait()
        ids.extend(new_id() for _ in range(5000))

    try:
        threads = [threading.Thread(target=make, args=[ids]) for ids in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len({id for ids in made for id in ids}) == 40_000
    assert all(re.fullmatch(r"[0-9A-Za-z]{22}", id) for ids in made for id in ids)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_ids_are_unique_over_forks():
    program = """
import os, sys
from delayq.broker.message.ids import new_id
new_id()
children = []
for _ in range(4):
    read, write = os.pipe()
    if not (child := os.fork()):
        os.write(write, "".join(new_id() for _ in range(1000)).encode())
        os._exit(0)
    os.close(write)
    children.append(read)
mine = [new_id() for _ in range(1000)]
texts = [b"".join(iter(lambda: os.read(read, 1 << 16), b"")).decode() for read in children]
ids = mine + [text[at:at + 22] for text in texts for at in range(0, len(text), 22)]
assert len(ids) == 5000
assert len(set(ids)) == 5000
"""
    run([sys.executable, "-c", program], check=True, timeout=30)
