"""Consumers and producers in other languages share the stream; plain commands play them here."""

import json

import pytest

from delayq import SendStatus, ServerError
from delayq.streams import StreamQueue


@pytest.fixture
def queue(redis_url):
    with StreamQueue("tasks", url=redis_url, lease="200ms") as queue:
        yield queue


def read(server, consumer="go-1", count=10):
    """Read as a consumer of the group does."""
    found = server.xreadgroup("workers", consumer, {"tasks": ">"}, count=count)
    return found[0][1] if found else []


def test_the_fields_of_an_entry_describe_the_message(queue, server):
    queue.send({"a": 1}, 2, id="one", headers={"trace": "7"})
    ((_, fields),) = server.xrange("tasks")
    assert json.loads(fields.pop("payload")) == {"a": 1}
    assert json.loads(fields.pop("headers")) == {"trace": "7"}
    assert fields == {"id": "one", "retries": "2", "unique": "1"}


def test_entries_of_other_clients_are_delivered(queue, server):
    entry = server.xadd("tasks", {"id": "theirs", "payload": '{"from": "go"}'})
    with queue.lease() as message:
        assert (message.id, message.payload, message.retries_left, message.headers) == ("theirs", {"from": "go"}, 3, {})
        assert message.due.timestamp() == pytest.approx(int(entry.partition("-")[0]) / 1000)
        assert message.sent == message.due
    assert server.xlen("tasks") == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "a", "payload": "[1", "retries": "1e9"},
        {"payload": "{", "due": "-"},
        {"unique": "1", "payload": "", "headers": "[", "due": "9" * 30},
        {"payload": "{", "retries": "9" * 5000, "due": "9" * 5000},
        {"payload": "{"} | {f"f{n}": "x" for n in range(1900)},
    ],
)
def test_an_entry_that_cannot_be_decoded_goes_to_the_dead_letter_with_all_its_fields(open_queue, server, fields):
    queue = open_queue(nack_delay=0)
    server.xadd("tasks", fields)
    queue.callback(lambda _: None)
    queue.run(burst=True)
    ((_, dead),) = server.xrange("{tasks}.dead")
    assert dead.items() >= fields.items()
    assert dead["reason"].startswith("undecodable")
    (shown,) = queue.dead.list().messages
    assert queue.dead.redrive(shown.entry).redriven == 1
    assert server.xrange("tasks")[0][1] == fields


@pytest.mark.parametrize(
    "options", [{}, {"codec": "text"}, {"codec": "bytes"}, {"payload_type": dict[str, int]}], ids=repr
)
@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"id": "X"}, {}),
        ({"id": "X", "retries": "0"}, {}),
        ({"x": "y", "user": "42"}, {"x": "y", "user": "42"}),
        ({"id": "X", "user": "42", "headers": '{"trace":"7"}'}, {"user": "42", "trace": "7"}),
        ({f"f{n}": "x" for n in range(1900)}, {f"f{n}": "x" for n in range(1900)}),
    ],
    ids=["id", "known fields", "own fields", "own fields and headers", "many fields"],
)
def test_an_entry_without_payload_is_a_message_whose_headers_are_its_own_fields(
    open_queue, server, fields, headers, options
):
    queue, seen = open_queue(**options), []
    entry = server.xadd("tasks", fields)
    assert [message.payload for message in queue.list("ready").messages] == [None]
    queue.callback(lambda message: seen.append((message.id, message.payload, message.headers)))
    queue.run(burst=True)
    assert seen == [(fields.get("id", entry), None, headers)]
    assert (queue.counts().living, queue.counts().dead) == (0, 0)


def test_an_entry_without_payload_is_listed_and_redriven_when_it_is_dead(open_queue, server):
    queue = open_queue(default_retries=0)
    server.xadd("tasks", {"id": "X", "user": "42"})
    with queue.lease() as message:
        message.reject("no")
    (dead,) = queue.dead.list().messages
    assert (dead.id, dead.payload) == ("X", None)
    assert queue.dead.redrive(dead.entry).redriven == 1
    assert server.xrange("tasks")[0][1] == {"id": "X", "user": "42"}


def test_an_entry_with_thousands_of_fields_stops_no_consumer(queue, server):
    server.xadd("tasks", {"payload": "{", "retries": "0"} | {f"f{n}": "x" for n in range(9000)})
    queue.send("next")
    seen = []
    queue.callback(lambda message: seen.append(message.payload))
    queue.run(burst=True)
    assert seen == ["next"]
    assert queue.counts().dead == 1


def test_an_entry_with_an_invalid_time_is_due_at_the_latest_time(queue, server):
    server.xadd("tasks", {"payload": "1"}, id="18446744073709551614-0")
    with queue.lease() as message:
        assert (message.payload, message.due.year) == (1, 2199)


def test_a_dead_letter_entry_of_another_client_is_listed(queue, server):
    server.xadd("{tasks}.dead", {"payload": "1"})
    (dead,) = queue.dead.list().messages
    assert (dead.payload, dead.attempts, dead.reason) == (1, 0, "")


def test_foreign_dead_message_stays_when_the_others_are_redriven(queue, server):
    queue.send("mine")
    (message,) = queue.lease()
    message.reject("no")
    server.xadd("{tasks}.dead", {"id": "theirs"})
    assert queue.dead.redrive(all=True).redriven == 1
    assert [one.id for one in queue.dead.list().messages] == ["theirs"]


def test_an_entry_without_retries_is_redriven_with_retries(queue, server):
    server.xadd("tasks", {"payload": "1"})
    assert queue.lease().messages[0].reject("no")
    assert queue.dead.redrive(all=True, retries=7).redriven == 1
    with queue.lease() as message:
        assert (message.payload, message.retries_left) == (1, 7)


def test_invalid_headers_go_to_the_dead_letter_with_the_reason(queue, server):
    server.xadd("tasks", {"payload": '"x"', "headers": "[", "retries": "0"})
    queue.callback(lambda _: None)
    queue.run(burst=True)
    (dead,) = queue.dead.list().messages
    assert (dead.payload, dead.headers) == ("x", {})
    assert dead.reason.startswith("undecodable headers: ")


def test_a_group_of_another_client_is_not_changed(queue, server):
    server.xadd("tasks", {"payload": '"old"'})
    server.xgroup_create("tasks", "workers", "$")
    queue.send("new")
    with queue.lease(n=10) as messages:
        assert [message.payload for message in messages] == ["new"]


def test_other_clients_keep_what_they_read_and_settle_it(queue, server):
    queue.send_many(["a", "b", "c"])
    with queue.lease():
        pass
    ((entry, fields),) = read(server, count=1)
    assert fields["payload"] == '"b"'
    with queue.lease(n=10) as messages:
        assert [message.payload for message in messages] == ["c"]
    assert server.xack("tasks", "workers", entry) == 1
    assert server.xdel("tasks", entry) == 1
    assert queue.counts().living == 0


def test_abandoned_messages_of_other_clients_are_taken_over_with_their_count(queue, server):
    queue.send("x")
    queue.lease().messages[0].release()
    server.xautoclaim("tasks", "workers", "go-1", 0)
    assert server.xpending_range("tasks", "workers", "-", "+", 1)[0]["times_delivered"] == 2
    with queue.lease(block=5) as message:
        assert (message.payload, message.attempt) == ("x", 2)


def test_other_clients_take_over_our_abandoned_messages_with_their_count(queue, server):
    queue.send("x")
    (ours,) = queue.lease()
    wait = 0
    while not wait:
        wait = len(server.xautoclaim("tasks", "workers", "go-1", 200)[1])
    (held,) = server.xpending_range("tasks", "workers", "-", "+", 1)
    assert (held["consumer"], held["times_delivered"]) == ("go-1", 2)
    assert not ours.nack()
    assert not ours.extend()


@pytest.mark.long
def test_a_heartbeat_of_another_client_keeps_its_message(redis_url, server):
    with StreamQueue("tasks", url=redis_url, lease="2s") as queue:
        assert len(queue.lease()) == 0  # creates the group
        queue.send("x")
        ((entry, _),) = read(server)
        for _ in range(5):
            assert len(queue.lease(block=0.5)) == 0
            server.xclaim("tasks", "workers", "go-1", 0, [entry], justid=True)
    assert server.xack("tasks", "workers", entry) == 1


def test_another_client_can_free_an_id(queue, server):
    queue.send("x", id="one")
    queue.lease().messages[0].release()
    entry = server.xrange("tasks")[0][0]
    with server.pipeline() as pipe:
        pipe.xack("tasks", "workers", entry).xdel("tasks", entry).srem("{tasks}.ids", "one")
        assert pipe.execute() == [1, 1, 1]
    assert queue.send("y", id="one").status is SendStatus.NEW


def test_an_entry_deleted_without_ack_is_removed_from_the_pending_list(queue, server):
    queue.send_many(["a", "b"])
    (first,) = queue.lease()
    server.xdel("tasks", server.xrange("tasks", count=1)[0][0])
    with queue.lease(block=0.6) as message:
        assert message.payload == "b"
    assert len(queue.lease(block=0.5)) == 0
    assert server.xpending("tasks", "workers")["pending"] == 0
    assert not first.ack()


def test_a_key_that_is_not_a_stream_raises_and_stays_unchanged(queue, server):
    server.set("tasks", "text")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        queue.send("x", id="one")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        queue.lease()
    assert not server.exists("{tasks}.ids")


# Two mistakes of the published implementation


def test_an_ack_removes_the_entry_from_pending_list_and_stream(queue, server):
    queue.send_many(["a", "b"])
    with queue.lease(n=2) as messages:
        assert server.xpending("tasks", "workers")["pending"] == 2
        assert [message.ack() for message in messages] == [True, True]
        assert server.xpending("tasks", "workers")["pending"] == 0
        assert server.xlen("tasks") == 0


def test_every_queue_of_a_process_is_recovered(redis_url):
    queues = [StreamQueue(name, url=redis_url, lease="100ms") for name in ("first", "second", "third")]
    for queue in queues:
        queue.send(queue.name)
        assert len(queue.lease()) == 1
    try:
        for queue in queues:
            with queue.lease(block=5) as message:
                assert (message.payload, message.attempt) == (queue.name, 2)
    finally:
        for queue in queues:
            queue.close()


def test_an_abandoned_message_is_found_behind_any_number_in_flight(redis_url, server):
    # More than one call scans; all but the last are in flight.
    with StreamQueue("tasks", url=redis_url, lease="30s") as queue:
        queue.send_many(range(3000))
        server.xgroup_create("tasks", "workers", "0")
        while read(server, count=1000):
            pass
        ((last, _),) = server.xrevrange("tasks", count=1)
        server.execute_command("XCLAIM", "tasks", "workers", "go-1", 0, last, "IDLE", 60_000, "JUSTID")
        for _ in range(4):
            claimed = queue.lease().messages
            if claimed:
                break
        assert [(message.payload, message.attempt) for message in claimed] == [(2999, 2)]
