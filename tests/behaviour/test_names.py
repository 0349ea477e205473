"""Names of messages: a name chooses the function, and stays with its message until that has ended."""

from __future__ import annotations

from collections import Counter

import pytest

from delayq import ConfigurationError, NewMessage
from delayq.queue.repairing.repair_report import FindingKind
from delayq.streams import StreamQueue
from delayq.values.states import State


@pytest.fixture
def seen():
    return Counter()


def noting(seen, function):
    return lambda message: seen.update([(function, message.name)])


def test_the_name_or_its_longest_beginning_chooses_the_function(open_queue, seen):
    queue = open_queue(callback=noting(seen, "callback"))
    for name in ("invoice.", "invoice.paid", "invoice.p"):
        queue.on(name)(noting(seen, name))

    names = ("invoice.paid", "invoice.paid.late", "invoice.printed", "invoice.sent", "invoice.")
    queue.send_many(["plain", *(NewMessage(1, name=name) for name in names)])
    queue.run(burst=True)

    assert seen == Counter(
        {
            ("callback", ""): 1,
            ("invoice.paid", "invoice.paid"): 1,
            ("invoice.paid", "invoice.paid.late"): 1,
            ("invoice.p", "invoice.printed"): 1,
            ("invoice.", "invoice.sent"): 1,
            ("invoice.", "invoice."): 1,
        }
    )


def test_a_callback_alone_gets_all_messages(open_queue, seen):
    queue = open_queue(callback=noting(seen, "callback"))
    queue.send_delay_msg(1, name="invoice.paid")
    queue.send_delay_msg(1)

    queue.run(burst=True)

    assert seen == Counter({("callback", "invoice.paid"): 1, ("callback", ""): 1})


def test_a_name_without_a_function_is_left_to_others_uncharged(open_queue, seen, caplog):
    queue = open_queue(callback=noting(seen, "callback"))
    queue.on("invoice.")(noting(seen, "invoice."))
    queue.send_delay_msg(1, name="letter.sent", id="m")

    queue.run(burst=True)

    found = queue.get("m")
    assert (found.state, found.attempts, found.retries_left, found.name) == (State.BACKOFF, 0, 3, "letter.sent")
    assert not seen
    advice = "register one with @queue.on('letter.sent') or @queue.task"
    assert f"no handler for messages with the name letter.sent: {advice}" in caplog.text
    assert found.unhandled == 1


def test_a_name_that_nobody_knows_is_dead_after_unknown_for(open_queue):
    queue = open_queue(unknown_for=0)
    queue.on("invoice.")(lambda message: None)
    queue.send_delay_msg(1, name="letter.sent")

    queue.run(burst=True)

    (dead,) = queue.dead.list().messages
    assert dead.name == "letter.sent"
    assert "no handler for messages with the name letter.sent" in dead.reason


def test_a_name_stays_through_retries_death_and_redrive(open_queue, seen):
    queue = open_queue(nack_delay=0)
    fails = [True]

    @queue.on("letter.")
    def deliver(message):
        seen[message.name, message.attempt] += 1
        return not fails

    queue.send_delay_msg({"to": "ada"}, retries=1, id="m", name="letter.sent", headers={"a": "b"})
    assert queue.get("m").name == "letter.sent"
    queue.run(burst=True)
    assert [(dead.name, dead.headers, dead.payload) for dead in queue.dead.list().messages] == [
        ("letter.sent", {"a": "b"}, {"to": "ada"})
    ]

    fails.clear()
    queue.dead.redrive("m")
    queue.run(burst=True)

    assert seen == Counter({("letter.sent", 1): 2, ("letter.sent", 2): 1})


def test_replacing_a_message_replaces_its_name_if_one_is_given(open_queue):
    queue = open_queue()
    for name in ("one", "two", None):
        queue.send_delay_msg(1, "1h", id="m", name=name, replace=True)
        assert queue.get("m").name == (name or "two")
        assert [message.name for message in queue.list("pending").messages] == [name or "two"]


def test_a_message_that_has_ended_leaves_no_attributes(open_queue, redis_client):
    queue = open_queue(default_retries=0)
    ends = {"a": lambda m: None, "b": lambda m: m.reject("no"), "c": lambda m: False, "d": lambda m: m.ack()}
    queue.callback(lambda message: ends[message.id](message) if message.id in ends else None)
    queue.send_many([NewMessage(id, id=id, name="n") for id in ends])
    queue.run(burst=True)
    queue.send_delay_msg(1, "1h", id="e", name="n")
    queue.cancel("e")
    queue.send_delay_msg(1, "1h", name="n")
    assert redis_client.hlen("delayq:{reminders}:attributes") == 1
    queue.purge()

    assert redis_client.hgetall("delayq:{reminders}:attributes") == {}


def test_the_first_name_raises_the_schema_of_the_queue(open_queue, redis_client):
    queue = open_queue()
    queue.send_delay_msg(1)
    assert redis_client.hget("delayq:{reminders}:meta", "schema") == b"3"

    queue.send_delay_msg(1, name="n")

    assert redis_client.hget("delayq:{reminders}:meta", "schema") == b"4"
    assert {finding.kind for finding in queue.examine(deep=True).findings} <= {FindingKind.SERVER}


@pytest.mark.parametrize("name", ["", "a b", "ä", "a=b", "x" * 129, 5, b"n", True], ids=repr)
def test_a_wrong_name_is_refused_and_nothing_stored(open_queue, name):
    queue = open_queue()
    for send in (queue.send_delay_msg, lambda payload, name: queue.send_many([1, NewMessage(payload, name=name)])):
        with pytest.raises(ConfigurationError, match="name must be 1 to 128 of"):
            send(1, name=name)
    with pytest.raises(ConfigurationError, match="name must be"):
        queue.on(name)
    assert queue.counts().living == 0


def test_wrong_registrations_are_refused(open_queue):
    queue = open_queue()
    first = queue.on("a")(lambda message: None)
    assert queue.on("a")(first) is first
    with pytest.raises(ConfigurationError, match="name a has a function already"):
        queue.on("a")(lambda message: None)
    with pytest.raises(ConfigurationError, match="give the name of the messages"):
        queue.on(first)
    with pytest.raises(ConfigurationError, match="must take one argument"):
        queue.on("b")(lambda: None)
    queue.batch_callback(lambda messages: None)
    with pytest.raises(ConfigurationError, match="cannot have a batch_callback"):
        queue.run(burst=True)


def test_streams_refuse_names(redis_url):
    with (
        StreamQueue("tasks", url=redis_url) as stream,
        pytest.raises(ConfigurationError, match="has no names of messages"),
    ):
        stream.send_many([NewMessage(1, name="n")])
