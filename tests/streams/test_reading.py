"""Reading a stream queue without changing it: pages of each state, one message, the groups."""

from dataclasses import replace
from datetime import timedelta

import pytest

from delayq import ConfigurationError, NewMessage, ServerError, State
from delayq.broker.engine import STREAMS as STREAMS_OFFER
from tests.streams.conftest import everywhere


@pytest.fixture
def scene(queue):
    """One message in each state, with the state as its id; the leased one stays leased."""
    queue.send_many([NewMessage({"of": id}, id=id, retries=2, headers={"h": id}) for id in ("a", "b", "long", "d")])
    held = {message.id: message for message in queue.lease(n=4)}
    held["b"].nack(delay=5, error="boom")
    held["long"].nack(delay="1h", error="late")
    held["d"].reject("wrong")
    queue.send_many([NewMessage({"of": id}, id=id) for id in ("r", "s")])
    return held


def ids(page):
    return [message.id for message in page.messages]


@everywhere
@pytest.mark.usefixtures("scene")
def test_list_returns_the_messages_of_a_state(queue):
    assert {state: ids(queue.list(state)) for state in STREAMS_OFFER.states} == {
        "ready": ["r", "s"],
        "active": ["a"],
        "backoff": ["b", "long"],
        "dead": ["d"],
    }


@everywhere
def test_get_describes_a_message_in_each_state(queue, scene):
    (active,) = queue.list("active").messages
    assert (active.id, active.payload, active.size, active.headers) == ("a", {"of": "a"}, 10, {"h": "a"})
    assert (active.attempts, active.retries_left, active.error) == (1, 2, "")
    assert active.consumer == queue.executor.consumer_id
    assert active.due
    assert timedelta(seconds=20) < active.deadline - active.due < timedelta(seconds=300)
    soon, late = queue.list("backoff").messages
    assert (soon.attempts, soon.retries_left, soon.error, soon.consumer) == (1, 1, "boom", None)
    assert timedelta(seconds=4) < soon.deadline - soon.due < timedelta(seconds=300)
    assert timedelta(minutes=59) < late.deadline - late.due < timedelta(minutes=65)
    ready = queue.list("ready").messages[0]
    assert (ready.attempts, ready.retries_left, ready.deadline, ready.consumer) == (0, 3, None, None)
    (dead,) = queue.list("dead").messages
    assert (dead.attempts, dead.reason, dead.error, dead.retries_left) == (1, "wrong", "", 0)
    assert dead.died
    assert dead.entry == queue.dead.list().messages[0].entry
    for message in (active, soon, late, ready):
        by_id, by_entry = (replace(queue.get(name), deadline=None) for name in (message.id, message.entry))
        assert by_id == by_entry  # except for a millisecond, which the embedded server may round
        assert queue.get(message.id).state is message.state
        assert queue.get(message.id).payload == {"of": message.id}
    assert queue.get("d") == dead
    assert queue.get("nobody") is None
    assert queue.get("1-1") is None
    assert scene["a"].ack()
    assert queue.get("a") is None


def test_reading_changes_nothing(open_queue, redis_client):
    queue = open_queue(group="others")
    for state in STREAMS_OFFER.states:
        assert queue.list(state).messages == []
    assert queue.get("x") is None
    assert list(queue.groups()) == []
    assert redis_client.keys() == []
    redis_client.xadd("tasks", {"payload": "1"})
    before = redis_client.dump("tasks")
    assert len(queue.list("ready").messages) == 1
    assert queue.list("active").messages == queue.list("backoff").messages == []
    assert queue.get("x") is None
    assert queue.counts().ready == 1
    assert list(queue.groups()) == []
    assert redis_client.dump("tasks") == before
    assert redis_client.keys() == [b"tasks"]


@everywhere
def test_groups_lists_the_groups_that_have_consumed(open_queue):
    for name in ("b", "a"):
        open_queue(group=name).lease()
    assert list(open_queue().groups()) == ["a", "b"]


def pages(queue, state, limit):
    found, cursor = [], None
    while True:
        page = queue.list(state, limit=limit, cursor=cursor)
        found.append(ids(page))
        cursor = page.cursor
        if not cursor:
            return found


@everywhere
def test_a_cursor_continues_after_its_page(queue):
    queue.send_many([NewMessage("x", id=f"{n}") for n in range(40)])
    assert pages(queue, "ready", 20) == [[f"{n}" for n in range(20)], [f"{n}" for n in range(20, 40)], []]
    held = queue.lease(n=5).messages
    held[0].nack(delay="1h")
    held[2].nack(delay="1h")
    assert pages(queue, "active", 2) == [["1"], ["3"], ["4"]]
    assert pages(queue, "backoff", 2) == [["0", "2"], []]
    first = queue.list("ready", limit=2)
    assert ids(first) == ["5", "6"]
    queue.lease(n=10)
    assert ids(queue.list("ready", limit=2, cursor=first.cursor)) == ["15", "16"]


def test_a_page_has_up_to_a_thousand_messages(queue):
    queue.send_many(["x"] * 1200)
    assert [len(page) for page in pages(queue, "ready", 1000)] == [1000, 200]
    queue.send("y" * 9000)
    assert (
        len(queue.list("ready", limit=1000, cursor=queue.list("ready", limit=1000).cursor).messages[-1].payload) == 4096
    )


def test_pages_of_large_payloads_are_whole(queue):
    queue.send_many([NewMessage("x" * 600_000, id=f"{n}") for n in range(10)])
    assert [len(page) for page in pages(queue, "ready", 4)] == [4, 4, 2]
    assert queue.get("9").id == "9"


def test_get_searches_an_id_up_to_the_documented_limit(queue, server, monkeypatch):
    monkeypatch.setattr("delayq.streams.inspector.MAX_SEARCHED", 1000)
    pipe = server.pipeline(transaction=False)
    for n in range(1001):
        pipe.xadd("tasks", {"id": f"m{n}", "payload": "1"})
    pipe.execute()
    assert queue.get("m999").payload == 1
    assert queue.get("m1000") is None
    assert queue.get(server.xrevrange("tasks", count=1)[0][0]).id == "m1000"


def test_get_returns_the_latest_dead_message_of_an_id(queue):
    for reason in ("first", "second"):
        queue.send("x", id="a")
        queue.lease().messages[0].reject(reason)
    assert queue.get("a").reason == "second"
    queue.send("x", id="a")
    assert queue.get("a").state is State.READY


def test_entries_of_other_clients_are_listed_with_the_fields_they_have(queue, redis_client):
    redis_client.xadd("tasks", {"other": b"\xff"}, id="1-1")
    redis_client.xadd("tasks", {"id": b"\xff", "retries": "9" * 5000, "due": "x", "headers": "[", "payload": b"\xfe"})
    redis_client.xadd("tasks", {"id": "far"}, id=f"{2**64 - 1}-1")
    bare, odd, far = queue.list("ready").messages
    assert (bare.id, bare.payload, bare.size) == ("1-1", None, 0)
    assert (odd.id, odd.payload, odd.retries_left, odd.headers) == ("\ufffd", b"\xfe", 3, {})
    assert (far.id, far.due) == ("far", None)
    assert queue.get("far") == far
    assert queue.get(bare.entry) == bare


def test_an_entry_acknowledged_but_not_deleted_is_not_a_message(queue, server):
    queue.send("x", id="a")
    (message,) = queue.lease().messages
    server.xack("tasks", "workers", queue.get("a").entry)
    assert queue.get("a") is None
    assert [queue.list(state).messages for state in STREAMS_OFFER.states] == [[], [], [], []]
    assert not message.ack()


def test_an_entry_deleted_but_not_acknowledged_is_not_a_message(queue, server):
    queue.send_many(["x", "y"])
    held = queue.lease(n=2)
    assert len(held) == 2
    entry = queue.list("active").messages[0].entry
    server.xdel("tasks", entry)
    assert len(queue.list("active").messages) == 1
    assert queue.get(entry) is None


@pytest.mark.parametrize("wrong", [{"state": "pending"}, {"state": 7}, {"cursor": "x"}, {"limit": 0}, {"limit": 1001}])
def test_invalid_arguments_raise_a_configuration_error(queue, server, wrong):
    with pytest.raises(ConfigurationError):
        queue.list(**({"state": "ready"} | wrong))
    with pytest.raises(ConfigurationError):
        queue.get("a b")
    assert server.keys() == []


def test_a_key_of_another_type_raises(queue, server):
    server.set("tasks", "text")
    for look in (lambda: queue.list("ready"), lambda: queue.get("1-1"), queue.groups, queue.counts):
        with pytest.raises(ServerError, match="WRONGTYPE"):
            look()


def test_a_purge_whose_reply_is_lost_returns_its_count(queue):
    queue.send("x")
    queue.lease().messages[0].reject("no")
    (dead,) = queue.dead.list().messages
    assert [queue.dead.purge(dead.entry), queue.dead.purge(dead.entry)] == [1, 0]
