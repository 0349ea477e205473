"""Messages whose name and payload make their id, so that the first of several equal ones wins."""

from __future__ import annotations

import pytest

from delayq import ConfigurationError, NewMessage, SendStatus
from delayq.streams import StreamQueue


def test_the_first_of_equal_messages_wins_until_it_has_ended(open_queue):
    queue = open_queue()
    seen = []
    queue.callback(lambda message: seen.append((message.name, message.payload)))

    first = queue.send_delay_msg({"user": 1}, name="remind", unique="payload")
    again = queue.send_delay_msg({"user": 1}, "1h", name="remind", unique="payload")
    others = queue.send_many(
        [
            NewMessage({"user": 1}, name="greet", unique="payload"),
            NewMessage({"user": 2}, name="remind", unique="payload"),
            NewMessage({"user": 1}, unique="payload"),
            NewMessage({"user": 1}, name="remind", unique="payload"),
            NewMessage({"user": 1}, name="remind"),
        ]
    )

    assert (first.status, again.status) == (SendStatus.NEW, SendStatus.EXISTS)
    assert first.id == again.id == others[3].id
    assert [one.status for one in others] == [SendStatus.NEW] * 3 + [SendStatus.EXISTS, SendStatus.NEW]
    assert len({first.id, *others.ids}) == 5
    queue.run(burst=True)
    assert len(seen) == 5
    assert queue.send_delay_msg({"user": 1}, name="remind", unique="payload").status is SendStatus.NEW


def test_a_unique_message_can_be_replaced(open_queue):
    queue = open_queue()
    queue.send_delay_msg(1, "1h", unique="payload")
    sent = queue.send_delay_msg(1, "2h", unique="payload", replace=True)
    assert sent.status is SendStatus.REPLACED
    assert queue.counts().living == 1


def test_a_task_can_be_unique_by_its_arguments(open_queue):
    queue = open_queue()
    remind = queue.task(name="remind", unique="payload")(lambda user, text="": None)

    statuses = [remind.send(1).status, remind.send(user=1).status, remind.send(2).status]
    own = remind.options(id="own").send(1)

    assert statuses == [SendStatus.NEW, SendStatus.EXISTS, SendStatus.NEW]
    assert (own.id, own.status) == ("own", SendStatus.NEW)
    assert queue.send_many([remind.message(2), remind.message(3)]).new != []


def test_wrong_uniqueness_is_refused_and_nothing_stored(open_queue):
    queue = open_queue()
    for options, text in (({"unique": "name"}, "unique must be 'payload'"), ({"unique": True}, "unique must be")):
        with pytest.raises(ConfigurationError, match=text):
            queue.send_delay_msg(1, **options)
        with pytest.raises(ConfigurationError, match=text):
            queue.task(name="remind", **options)(lambda user: None)
    with pytest.raises(ConfigurationError, match="give id or unique, but not both"):
        queue.send_many([NewMessage(1, id="a", unique="payload")])
    assert queue.counts().living == 0


def test_messages_of_a_stream_can_be_unique(redis_url):
    with StreamQueue("tasks", url=redis_url) as stream:
        sent = stream.send_many([NewMessage(1, unique="payload"), NewMessage(1, unique="payload")])
        assert [one.status for one in sent] == [SendStatus.NEW, SendStatus.EXISTS]
