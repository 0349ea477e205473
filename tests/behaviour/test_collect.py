"""Collected sends: the payloads of one id become one message, at a size, after a pause, or at an age."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from delayq import ConfigurationError, Encrypted, NewMessage, PayloadError, SendStatus
from delayq.bulk import export_messages, import_messages
from tests.behaviour.places import ID, everywhere

GROUP = {"id": ID, "debounce": "30s", "at_most": "5m", "collect": 3}


def texts(count, first=0):
    return [f"p{number}" for number in range(first, first + count)]


def take(queue):
    (message,) = queue.lease(n=1, block=5)
    return message


@everywhere
def test_payloads_of_one_id_become_one_message_that_is_due_when_it_is_full(queue):
    sent = [queue.send_delay_msg(text, **GROUP) for text in texts(3)]

    assert [one.status for one in sent] == [SendStatus.NEW, SendStatus.ADDED, SendStatus.ADDED]
    assert sent[1].due > queue.stats().at + timedelta(seconds=25)
    message = take(queue)
    assert (message.id, message.payload, message.collected) == (ID, texts(3), 3)
    assert message.ack()
    assert queue.counts().living == 0
    queue.send_delay_msg("plain")
    assert take(queue).collected == 0


@everywhere
def test_it_is_due_after_a_pause_and_at_most_so_long_after_the_first(queue):
    first = queue.send_delay_msg("p0", id=ID, debounce=60, at_most=60, collect=9)
    second = queue.send_delay_msg("p1", id=ID, debounce=60, at_most=60, collect=9)
    later = queue.send_delay_msg("p2", id=ID, debounce="1h", collect=9)

    assert abs(second.due - first.due) <= timedelta(milliseconds=1)
    assert later.due > first.due + timedelta(minutes=50)
    assert queue.get(ID).due == later.due
    assert queue.reschedule(ID, 0) == "rescheduled"
    assert take(queue).payload == texts(3)


@everywhere
def test_a_full_batch_is_delivered_before_the_next_one_of_its_group(queue):
    for text in texts(8):
        queue.send_delay_msg(text, **GROUP)

    seen = []
    for size in (3, 3):
        message = take(queue)
        seen.append(message.payload)
        assert not queue.lease(n=1)
        assert len(message.payload) == size
        message.ack()

    assert seen == [texts(3), texts(3, 3)]
    found = queue.get(ID)
    assert (found.state, found.payload) == ("pending", texts(2, 6))
    assert found.due > queue.stats().at + timedelta(seconds=20)


@everywhere
def test_what_is_sent_while_a_batch_runs_or_waits_for_a_retry_gathers_behind_it(queue):
    for text in texts(3):
        queue.send_delay_msg(text, **GROUP)
    running = take(queue)

    beside = [queue.send_delay_msg(text, **GROUP).status for text in ("a", "b")]
    assert running.nack(delay=0)
    beside.append(queue.send_delay_msg("c", **GROUP).status)

    assert beside == [SendStatus.AFTER] * 3
    again = take(queue)
    assert (again.payload, again.attempt) == (texts(3), 2)
    again.ack()
    assert take(queue).payload == ["a", "b", "c"]


@everywhere
def test_some_of_a_batch_can_be_settled_and_a_retry_has_the_rest(queue):
    for text in texts(3):
        queue.send_delay_msg(text, **GROUP)
    message = take(queue)

    assert message.ack_some([1])
    assert message.ack_some((1, 0))
    for indexes in ([3], [-1], "1", None, [True]):
        with pytest.raises(ConfigurationError, match=r"such as \[0, 2\], from 0 to 2"):
            message.ack_some(indexes)
    message.nack(delay=0)

    again = take(queue)
    assert (again.payload, again.collected, again.attempt) == (["p2"], 1, 2)
    assert queue.purge() == 1
    assert not again.ack_some([0])
    for text in texts(3):
        queue.send_delay_msg(text, **GROUP)
    again = take(queue)
    assert again.ack_some([0])
    assert again.ack_some([2, 1])
    assert queue.counts().living == 0
    queue.send_delay_msg("plain")
    with pytest.raises(ConfigurationError, match="sent with collect"):
        take(queue).ack_some([0])


@everywhere
def test_a_batch_that_dies_is_kept_whole_and_can_be_redriven(queue):
    for text in texts(3):
        queue.send_delay_msg(text, retries=0, **GROUP)
    take(queue).reject("no")
    queue.send_delay_msg("next", **GROUP)

    assert queue.get(ID).payload == ["next"]
    assert queue.cancel(ID) == "cancelled"
    (dead,) = queue.dead.list().messages
    assert dead.payload == texts(3)
    assert queue.dead.redrive(id=ID).redriven == 1
    message = take(queue)
    assert (message.payload, message.collected) == (texts(3), 3)


@everywhere
def test_a_group_can_be_killed_cancelled_and_purged_while_it_gathers(queue):
    queue.send_delay_msg("p0", **GROUP)
    assert queue.kill(ID) == "killed"
    (dead,) = queue.dead.list().messages
    assert dead.payload == ["p0"]
    queue.send_delay_msg("p1", **GROUP)
    assert queue.cancel(ID) == "cancelled"
    queue.send_delay_msg("p2", **GROUP)
    assert queue.get(ID).payload == ["p2"]
    assert queue.purge() == 1
    assert queue.send_delay_msg("p3", **GROUP).status is SendStatus.NEW
    assert queue.list("pending").messages[0].payload == ["p3"]


@everywhere
def test_many_payloads_are_collected_in_one_call(queue):
    news = [NewMessage(text, id=f"group-{number % 2}") for number, text in enumerate(texts(6))]

    sent = queue.send_many(news, debounce="30s", collect=3)

    assert [one.status for one in sent] == [SendStatus.NEW] * 2 + [SendStatus.ADDED] * 4
    payloads = {}
    for _ in range(2):
        message = take(queue)
        payloads[message.id] = message.payload
        message.ack()
    assert payloads == {"group-0": ["p0", "p2", "p4"], "group-1": ["p1", "p3", "p5"]}


@pytest.mark.parametrize(
    ("codec", "payloads"),
    [("text", ["a", "", "ü,1:"]), ("bytes", [b"\xff\0", b"", b"3:abc,"]), ("json", [None, [1], "ü"])],
)
def test_payloads_of_each_codec_come_back(open_queue, codec, payloads):
    queue = open_queue(codec=codec)
    for payload in payloads:
        queue.send_delay_msg(payload, **GROUP)
    assert take(queue).payload == payloads


def test_encrypted_payloads_are_collected_without_the_key(open_queue):
    encrypted = Encrypted({"k": b"0" * 16})
    queue = open_queue(codec=encrypted)
    for number in range(3):
        queue.send_delay_msg({"card": number}, **GROUP)
    assert take(queue).payload == [{"card": number} for number in range(3)]


def test_a_batch_has_at_most_so_many_bytes_as_a_payload(open_queue):
    queue = open_queue(max_payload=20)
    for text in texts(5):
        queue.send_delay_msg(text, **GROUP | {"collect": 9})
    message = take(queue)
    assert message.payload == texts(3)
    message.ack()
    assert queue.get(ID).payload == texts(2, 3)
    with pytest.raises(PayloadError, match="max_payload is 20"):
        queue.send_delay_msg("x" * 20, **GROUP)


def test_a_task_is_called_with_the_lists_of_its_arguments(open_queue):
    queue = open_queue()
    calls = []

    def digest(users: list[int], texts: list[str]) -> None:
        calls.append((users, texts))

    task = queue.task(name="digest", debounce="1h", collect=3)(digest)
    for number in range(3):
        task.options(id=ID).send(number, f"t{number}")
    task.options(id="other", delay=0).send(7, "alone")
    queue.run(burst=True)

    assert sorted(calls) == [([0, 1, 2], ["t0", "t1", "t2"]), ([7], ["alone"])]
    with pytest.raises(PayloadError, match="users"):
        task.options(id=ID).send("x", "t")


def test_why_tells_how_much_a_group_has_gathered(open_queue):
    queue = open_queue()
    for text in texts(2):
        queue.send_delay_msg(text, **GROUP)
    (reason, *_) = queue.why(ID).reasons
    assert (reason.kind, reason.text.startswith("gathering, 2 of 3: it is due at")) == ("gathering", True)


def test_threads_that_collect_lose_nothing_and_send_nothing_twice(open_queue):
    queue = open_queue(concurrency=4)
    seen, running, overlapping = [], set(), []

    @queue.callback
    def handle(message):
        if message.id in running:
            overlapping.append(message.id)
        running.add(message.id)
        seen.append(message.payload)
        running.discard(message.id)

    def send(number):
        for at in range(100):
            queue.send_delay_msg([number, at], id=f"g{at % 5}", debounce="5ms", at_most="50ms", collect=20)

    if queue.__class__.__name__.startswith("Async"):
        pytest.skip("threads use blocking queues")
    queue.start_consume()
    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.stop_consume()
    for id in [f"g{number}" for number in range(5)]:
        queue.reschedule(id, 0)
    queue.run(burst=True)
    found = [tuple(entry) for payload in seen for entry in payload]
    assert len(found) == len(set(found)) == 400
    assert max(map(len, seen)) <= 20
    assert not overlapping


def test_what_contradicts_a_group_is_refused_and_nothing_stored(open_queue):
    queue = open_queue()
    for options, text in [
        ({"collect": 0}, "collect must be a whole number from 1 to 1000"),
        ({"collect": 1_000_000}, "collect must be a whole number from 1 to 1000"),
        ({"collect": "3"}, "collect must be"),
        ({"id": None}, "collect needs the id of the group"),
        ({"debounce": None, "at_most": None}, "collect goes with debounce"),
        ({"replace": True}, "give replace or debounce"),
        ({"unique_for": "1h"}, "give unique_for or debounce"),
        ({"delay": "1h"}, "give delay or debounce"),
        ({"unique": "payload"}, "collect needs the id of the group: give id, not unique"),
    ]:
        with pytest.raises(ConfigurationError, match=text):
            queue.send_delay_msg(1, **GROUP | options)
    for message, options, text in [
        (NewMessage(1), {}, "collect needs the id of the group"),
        (NewMessage(1, id=ID, delay=5), {}, "give delay or debounce"),
        (NewMessage(1, id=ID), {"collect": None}, "debounce is an option of a single send"),
        (NewMessage(1, id=ID), {"run": "r"}, "give run or collect"),
        (NewMessage(1, id=ID), {"name": "n"}, "unknown option 'name'"),
    ]:
        with pytest.raises(ConfigurationError, match=text):
            queue.send_many([message], **{"debounce": "30s", "collect": 3, **options})
    for function, text in [
        (lambda: None, "must take each of its arguments as a list"),
        (lambda users=(): None, "must be a list without a default"),
    ]:
        with pytest.raises(ConfigurationError, match=text):
            queue.task(name="n", debounce="1s", collect=3)(function)
    with pytest.raises(ConfigurationError, match="collect goes with debounce"):
        queue.task(name="n", collect=3)(lambda users: None)
    assert queue.counts().living == 0


def test_what_was_collected_gets_a_new_key(open_queue):
    old, new = Encrypted({"old": b"0" * 16}), Encrypted({"new": b"1" * 16, "old": b"0" * 16})
    queue = open_queue(codec=old)
    for number in range(4):
        queue.send_delay_msg(number, **GROUP)
    take(queue).nack(delay="1h")
    queue = open_queue(codec=new)

    assert queue.rekey().rekeyed == 2
    done = queue.rekey()
    assert (done.rekeyed, done.left, done.unreadable) == (0, 0, 0)
    queue = open_queue(codec=Encrypted({"new": b"1" * 16}))
    assert queue.reschedule(ID, 0) == "rescheduled"
    message = take(queue)
    assert message.payload == [0, 1, 2]
    message.ack()
    assert queue.reschedule(ID, 0) == "rescheduled"
    assert take(queue).payload == [3]


def test_an_export_has_what_has_gathered_and_an_import_is_one_batch(open_queue, url, tmp_path):
    queue, other = open_queue(), open_queue("others")
    for text in texts(2):
        queue.send_delay_msg(text, **GROUP)

    assert export_messages(queue.name, tmp_path / "m.jsonl", url=url) == {"pending": 1}
    assert '"payload":["p0","p1"]' in (tmp_path / "m.jsonl").read_text()
    assert import_messages(tmp_path / "m.jsonl", "others", url=url).new == 1

    assert other.get(ID).due == queue.get(ID).due
    assert other.send_delay_msg("p2", **GROUP).status is SendStatus.AFTER
    assert other.reschedule(ID, 0) == "rescheduled"
    message = take(other)
    assert (message.payload, message.collected) == (texts(2), 2)
