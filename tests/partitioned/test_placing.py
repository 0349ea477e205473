"""Which partition an id belongs to: the same in every version and language."""

from __future__ import annotations

import random

import pytest
from redis.crc import key_slot

from delayq import InvalidValueError
from delayq.queue.placing.layout import MAX_PARTITIONS, Layout, check_partitions, key_of, names_of, partition_of
from delayq.queue.placing.partition_finding import partition_key
from tests.partitioned.places import place

ALPHABET = "ABCXYZabcxyz0189._:@/+=-"


@pytest.mark.parametrize(
    ("id", "crc", "of_16"), [("123456789", 0x31C3, 3), ("user-42", 63739, 11), ("order:42", 41459, 3), ("ä", 46697, 9)]
)
def test_examples_of_the_handbook_stay_as_they_are(id, crc, of_16):
    assert (partition_of(id, 1 << 16), partition_of(id, 16)) == (crc, of_16)


def test_it_is_the_hash_of_the_slots_of_redis_cluster():
    chance = random.Random(40)
    for _ in range(5_000):
        id = "".join(chance.choices(ALPHABET, k=chance.randint(1, 128)))
        number = chance.randint(1, MAX_PARTITIONS)
        assert partition_of(id, 16384) == key_slot(id.encode())
        assert partition_of(id, number) == place(id, number)


def test_ids_are_spread_evenly():
    found = [0] * 16
    for number in range(16_000):
        found[partition_of(f"user-{number}", 16)] += 1
    assert 900 < min(found) <= max(found) < 1_100


def test_half_of_the_ids_stay_where_they_are_when_the_number_is_doubled():
    ids = [f"user-{number}" for number in range(4_000)]
    assert all(partition_of(id, 32) % 16 == partition_of(id, 16) for id in ids)


def test_a_message_goes_by_its_group_then_its_key_then_its_id():
    assert key_of("m", b"") == "m"
    assert key_of("m", b"name=mail") == "m"


def test_partitions_have_the_names_of_their_numbers():
    assert names_of("reminders", 1) == ["reminders"]
    assert names_of("reminders", 3) == ["reminders#0", "reminders#1", "reminders#2"]
    assert Layout("reminders", 3, 2, growing_from=1).names() == [*names_of("reminders", 3), "reminders"]
    assert Layout("reminders", 2, 2, growing_from=4).names() == names_of("reminders", 4)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, False, "x", "16", 10_000, MAX_PARTITIONS + 1, None])
def test_other_numbers_are_refused(number):
    with pytest.raises(InvalidValueError, match="partitions must be a whole number from 1 to 1000, not"):
        check_partitions(number)


def test_numbers_up_to_the_greatest_are_taken():
    assert [check_partitions(number) for number in (1, 16, MAX_PARTITIONS, "stored")] == [1, 16, MAX_PARTITIONS, None]


def test_an_occurrence_is_where_its_schedule_is():
    assert partition_key("daily@2026-11-20T08:00:00Z") == "daily"
    assert partition_key("daily@home") == "daily@home"
    assert partition_key("m") == "m"
