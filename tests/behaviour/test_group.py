"""`group` with a delay: a message waits by itself, and joins its group when it is due."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from delayq import ConfigurationError, Encrypted, SendStatus
from delayq.bulk import export_messages, import_messages
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

GROUP = {"group": "ada", "debounce": "30s", "at_most": "5m", "collect": 3}


def consume(queue, count):
    """Run until so many messages were settled."""
    queue.start_consume()
    wait_until(lambda: queue.stats().totals.get("acked", 0) >= count)
    queue.stop_consume()


@everywhere
def test_message_waits_by_itself_and_joins_its_group_when_it_is_due(queue):
    seen = []
    queue.callback(lambda message: seen.append((message.id, message.payload, message.headers)))
    first = queue.send_delay_msg("later", 3600, 5, headers={"h": "1"}, name="digest", **GROUP)
    assert (first.status, queue.counts().pending) == (SendStatus.NEW, 1)
    assert queue.send_delay_msg("at once", **GROUP).id == "ada"
    queue.reschedule(first.id, 0)

    consume(queue, 1)
    found = queue.get("ada")
    assert (found.payload, found.state) == (["at once", "later"], "pending")
    assert queue.get(first.id) is None
    assert not seen

    queue.send_delay_msg("now", 0.001, **GROUP)
    consume(queue, 3)
    assert seen == [("ada", ["at once", "later", "now"], {})]
    assert queue.counts().living == 0
    assert queue.stats().totals["sent"] == queue.stats().totals["acked"] == 3


@everywhere
def test_first_of_a_group_decides_its_options(queue):
    joining = queue.send_delay_msg("p", 3600, 7, headers={"h": "1"}, priority=5, key="k", **GROUP)
    assert queue.get(joining.id).payload == "p"
    queue.reschedule(joining.id, 0)
    assert not queue.lease(n=1, block=0)

    found = queue.get("ada")
    assert (found.payload, found.headers, found.retries_left) == (["p"], {"h": "1"}, 7)
    assert (found.priority, found.key) == (5, "k")


@everywhere
def test_what_joins_a_running_group_follows_it(queue):
    for text in "abc":
        queue.send_delay_msg(text, **GROUP)
    (running,) = queue.lease(n=1)
    queue.send_delay_msg("d", 0.001, **GROUP)
    wait_until(lambda: not queue.lease(n=1) and queue.counts().successors == 1)

    assert running.ack()
    assert queue.get("ada").payload == ["d"]


@everywhere
def test_one_that_waits_is_cancelled_and_one_that_has_expired_joins_nothing(queue):
    waits = queue.send_delay_msg("p", 3600, **GROUP)
    assert queue.cancel(waits.id) == "cancelled"
    late = queue.send_delay_msg("p", 0.001, expires="1ms", missed="drop", **GROUP)
    wait_until(lambda: queue.stats().at > late.due + timedelta(milliseconds=20))
    assert not queue.lease(n=1)
    assert queue.counts().living == 0
    assert queue.stats().totals["missed"] == 1


@everywhere
def test_tasks_name_their_group_by_arguments(queue):
    called = []

    @queue.task(collect=2, debounce="30s", group="user:{user}")
    def digest(user: list[int], text: list[str]):
        called.append((user, text))

    digest.send(1, "a")
    digest.options(delay=0.001).send(1, "b")
    digest.options(delay=3600).send(2, "c")
    consume(queue, 2)
    assert called == [([1, 1], ["a", "b"])]
    assert queue.counts().pending == 1
    with pytest.raises(ConfigurationError, match=r"has \{who\}, which is no parameter"):
        digest.options(group="user:{who}")


def test_one_that_waits_is_shown_and_exported_with_its_group(open_queue, url, tmp_path):
    queue, copy = open_queue(), open_queue("copy")
    sent = queue.send_delay_msg("p", 3600, **GROUP)

    assert queue.get(sent.id).group == "ada"
    assert "and then joins the group ada" in queue.why(sent.id).reasons[0].text
    export_messages(queue.name, tmp_path / "messages.jsonl", url=url)
    import_messages(tmp_path / "messages.jsonl", "copy", url=url)
    copy.reschedule(sent.id, 0)
    assert not copy.lease(n=1, block=0)
    assert copy.get("ada").payload == ["p"]
    line = json.loads((tmp_path / "messages.jsonl").read_text())
    (tmp_path / "odd.jsonl").write_text(json.dumps(line | {"joins": "x"}))
    refused = import_messages(tmp_path / "odd.jsonl", "copy", url=url).first_refusal
    assert "joins is not a group as an export writes it: 'x'" in refused


def test_payloads_are_encrypted_each(open_queue):
    queue = open_queue(codec=Encrypted({"key": b"0" * 16}))
    queue.send_delay_msg("a", **GROUP)
    queue.send_delay_msg("b", 0.001, **GROUP)
    wait_until(lambda: not queue.lease(n=1) and queue.counts().living == 1)
    assert queue.get("ada").payload == ["a", "b"]


def test_what_contradicts_it_is_refused(open_queue):
    queue = open_queue()
    for options, text in [
        ({"collect": None}, "group goes with debounce and collect"),
        ({"debounce": None, "at_most": None, "collect": None}, "group goes with debounce and collect"),
        ({"group": "a b"}, "group must be 1 to 128 of"),
        ({"id": "ada"}, "a message with the id of its group cannot join it"),
        ({"replace": True}, "give group or replace"),
        ({"unique_for": "1h"}, "give group or unique_for"),
        ({"delay": 0, "id": "x"}, "give group or id"),
        ({"delay": 0, "unique": "payload"}, "give group or unique"),
    ]:
        with pytest.raises(ConfigurationError, match=text):
            queue.send_delay_msg(1, **{"delay": 60, **GROUP, **options})
    assert queue.counts().living == 0


def test_a_group_that_another_program_has_named_wrongly_is_left_to_the_callback(open_queue, redis_client):
    queue = open_queue()
    sent = queue.send_delay_msg("p", 0.001, **GROUP)
    for text in (b"joins=x", b"joins=1::0:json:g", b"joins=1::1:json:" + sent.id.encode()):
        redis_client.hset(queue.context.calls.keys.attributes, sent.id, text)
        (message,) = queue.lease(n=1, block=5)
        assert message.payload == "p"
        message.nack(delay=0)
