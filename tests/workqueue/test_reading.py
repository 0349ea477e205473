"""Reading a work queue without changing it: pages of both lists, one item with its state."""

from datetime import timedelta

import pytest

from delayq import ConfigurationError
from delayq.workqueue import Item
from tests.support.waiting import wait_until


def ids(page):
    return [item.id for item in page.items]


@pytest.fixture
def scene(jobs, redis_client):
    """Items that are queued, leased, with an expired lease, and in neither list."""
    for id in ("gone", "held", "r", "s"):
        jobs.add_item(Item(f"data of {id}", id=id))
    assert [jobs.lease(0.05 if id == "gone" else 60).id() for id in ("gone", "held")] == ["gone", "held"]
    redis_client.set("jobs:item:lost", "data of lost")
    wait_until(lambda: not redis_client.exists("jobs:lease:gone"))


@pytest.mark.usefixtures("scene")
def test_list_and_get_return_items_with_their_state(jobs):
    queued, processing = (jobs.list(state) for state in ("queued", "processing"))
    assert (ids(queued), ids(processing)) == (["r", "s"], ["gone", "held"])
    assert queued.cursor is processing.cursor is None
    gone, held = processing.items
    assert (gone.consumer, gone.deadline) == (None, None)
    assert held.consumer == jobs.queue._session
    assert held.deadline
    for info in (*queued.items, *processing.items):
        assert info.data == f"data of {info.id}".encode()
        assert info.size == len(info.data)
        found = jobs.get(info.id)
        assert (found.state, found.data, found.consumer) == (info.state, info.data, info.consumer)
    assert abs(jobs.get("held").deadline - held.deadline) < timedelta(milliseconds=100)
    assert jobs.get("lost").state == "orphaned"
    assert jobs.get("nobody") is None
    assert "data" not in repr(held)


@pytest.mark.usefixtures("scene")
def test_reading_changes_nothing(jobs, redis_client):
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter() if b":lease:" not in key}
    for state in ("queued", "processing"):
        jobs.list(state)
    jobs.get("held")
    assert {key: redis_client.dump(key) for key in before} == before
    assert redis_client.pttl("jobs:lease:held") > 0


def test_a_missing_queue_is_empty(jobs, redis_client):
    assert jobs.list("queued").items == jobs.list("processing").items == []
    assert jobs.get("a") is None
    assert redis_client.keys() == []


def test_a_cursor_continues_after_its_page(jobs):
    for n in range(5):
        jobs.add_item(Item("x", id=n))
    first = jobs.list("queued", limit=2)
    second = jobs.list("queued", limit=2, cursor=first.cursor)
    third = jobs.list("queued", limit=2, cursor=second.cursor)
    assert [ids(page) for page in (first, second, third)] == [["0", "1"], ["2", "3"], ["4"]]
    assert third.cursor is None
    assert ids(jobs.list("queued", cursor="99")) == []


def test_stale_and_duplicate_ids_are_not_listed(jobs, redis_client):
    jobs.add_item(Item("x", id="a"))
    redis_client.lpush("jobs:queue", "stale", "a")
    assert ids(jobs.list("queued")) == ["a"]


def test_any_data_and_any_id_are_returned(opened, redis_client):
    jobs = opened("jobs", decode_responses=True)
    data = b"\xff\x00" * 5000
    jobs.add_item(Item(data, id="a"))
    jobs.add_item(Item("", id="empty"))
    redis_client.set(b"jobs:item:\xff", "x")
    redis_client.lpush("jobs:queue", b"\xff")
    first, empty, odd = jobs.list("queued").items
    assert (first.data, first.size) == (data[:4096], 10_000)
    assert (empty.data, empty.size) == (b"", 0)
    assert odd.id == "\udcff"
    assert jobs.get(odd.id).data == b"x"
    assert jobs.get("a").data == data


def test_in_a_queue_too_long_to_search_an_item_counts_as_queued(jobs, monkeypatch):
    monkeypatch.setattr("delayq.workqueue.queue.MAX_SEARCHED", 2)
    for n in range(4):
        jobs.add_item(Item("x", id=n))
    assert jobs.get("3").state == "queued"


@pytest.mark.parametrize(
    "wrong", [{"state": "orphaned"}, {"state": "ready"}, {"state": 7}, {"cursor": "x"}, {"limit": 0}, {"limit": 1001}]
)
def test_invalid_arguments_raise_a_configuration_error(jobs, wrong):
    with pytest.raises(ConfigurationError):
        jobs.list(**({"state": "queued"} | wrong))
    with pytest.raises(ConfigurationError):
        jobs.get(7)
