"""The dead letter over partitions."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from delayq import ConfigurationError
from tests.behaviour.places import everywhere
from tests.partitioned.places import PARTITIONS, ids_of, one_of_each


def kill(queue, *ids, reason="broken", **options):
    """Send messages and reject them, one after another."""
    for id in ids:
        queue.send_delay_msg(f"payload of {id}", id=id, **options)
        (message,) = queue.lease(n=1, block=5)
        assert message.id == id
        message.reject(reason)


def entries(queue):
    return [message.id for message in queue.dead.list().messages]


@everywhere
def test_dead_messages_of_all_partitions_are_listed_oldest_first(queue):
    ids = [f"m{number}" for number in range(15)]
    kill(queue, *ids)

    found, cursor = [], None
    while True:
        page = queue.dead.list(limit=4, cursor=cursor)
        found += [message.id for message in page.messages]
        if (cursor := page.cursor) is None:
            break

    deaths = [message.died for message in queue.dead.list().messages]
    assert deaths == sorted(deaths)
    assert sorted(found) == sorted(ids)
    assert found == entries(queue)


@everywhere
def test_groups_add_up(queue):
    kill(queue, *ids_of(0, 3), *ids_of(1, 1), reason="no such user 17")
    kill(queue, *ids_of(2, 2), reason="time-out")

    first, second = queue.dead.groups()
    assert (first.count, second.count) == (4, 2)
    assert first.first < first.last
    assert queue.dead.redrive(group=second.group).redriven == 2
    assert [group.group for group in queue.dead.groups()] == [first.group]


@everywhere
def test_one_is_redriven_by_its_id_or_its_entry(queue):
    first, second, third, _ = one_of_each()
    kill(queue, first, second, third)
    kill(queue, second, reason="again")
    (oldest,) = [one for one in queue.dead.list().messages if one.id == second and one.reason == "broken"]

    assert queue.dead.redrive(first).redriven == 1
    assert queue.dead.redrive(oldest.entry).redriven == 1
    assert sorted(entries(queue)) == sorted([second, third])
    done = queue.dead.redrive("nobody")
    assert (done.redriven, done.exists) == (0, 0)
    done = queue.dead.redrive(second)
    assert (done.redriven, done.exists) == (0, 1)


@everywhere
def test_one_with_a_key_and_one_whose_id_looks_like_an_entry_are_found(queue):
    (id,) = ids_of(0, 1)
    kill(queue, id, key=ids_of(3, 1)[0])
    kill(queue, "order:42")

    assert queue.dead.redrive(id).redriven == 1
    assert queue.dead.redrive("order:42").redriven == 1
    assert queue.get(id).payload == f"payload of {id}"
    assert entries(queue) == []


@everywhere
def test_those_that_match_are_redriven_and_purged_in_all_partitions(queue):
    kill(queue, *one_of_each(), reason="no such user")
    kill(queue, *[f"late{n}" for n in range(6)], reason="time-out")

    assert queue.dead.redrive(reason="user").redriven == PARTITIONS
    assert queue.dead.purge(reason="time") == 6
    assert queue.counts().dead == 0
    assert queue.counts().living == PARTITIONS


@everywhere
def test_purge_erases_one_or_all(queue):
    kill(queue, *one_of_each(), "order:42")
    first, *_ = queue.dead.list().messages

    assert queue.dead.purge(first.entry) == 1
    assert queue.dead.purge("order:42") == 1
    assert queue.dead.purge("nobody") == 0
    assert queue.dead.purge(all=True) == 3
    assert entries(queue) == []


def test_the_rate_of_a_redrive_is_that_of_all_partitions_together(queue):
    ids = [id for number in range(PARTITIONS) for id in ids_of(number, 15)]
    kill(queue, *ids)
    before = queue.stats().at
    assert queue.dead.redrive(all=True, rate="10/s").redriven == 60
    after = queue.stats().at

    for number in range(PARTITIONS):
        dues = sorted(queue.get(id).due for id in ids_of(number, 15))
        assert min(later - earlier for earlier, later in pairwise(dues)) >= timedelta(milliseconds=399)
        assert timedelta(seconds=5.5) <= dues[-1] - dues[0] <= timedelta(seconds=5.7) + 2 * (after - before)


@everywhere
def test_messages_are_redriven_with_other_payloads(queue):
    ids = one_of_each()
    kill(queue, *ids)
    entry = next(one.entry for one in queue.dead.list().messages if one.id == ids[0])

    done = queue.dead.redrive(payloads={entry: "new", ids[1]: "new", "gone": 1, "a:12345": 2}, retries=7)

    assert (done.redriven, done.exists, done.gone) == (2, 0, ("gone", "a:12345"))
    assert [queue.get(id).payload for id in ids[:2]] == ["new", "new"]
    assert queue.get(ids[1]).retries_left == 7
    assert sorted(entries(queue)) == sorted(ids[2:])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "select entries"),
        ({"group": "Timeout"}, "group must be 8 hexadecimal digits"),
        ({"all": True, "rate": "fast"}, "rate must look like '200/s'"),
        ({"all": True, "rate": "0/s"}, "rate must be from 1 to 100000 a second"),
        ({"payloads": {}}, "payloads must map ids"),
        ({"payloads": ["a"]}, "payloads must map ids"),
        ({"payloads": {"no spaces": 1}}, "id|entry"),
        ({"id": "no spaces"}, "id|entry"),
    ],
    ids=range(8),
)
def test_wrong_selections_are_refused(queue, options, error):
    kill(queue, "a")
    with pytest.raises(ConfigurationError, match=error):
        queue.dead.redrive(**options)
    assert queue.counts().dead == 1
