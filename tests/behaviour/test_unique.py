"""Of several sends of one id the first wins: while its message lives, for a time, and of equal ones."""

from __future__ import annotations

from datetime import timedelta

import pytest

from delayq import ConfigurationError, NewMessage, SendStatus
from delayq.streams import StreamQueue
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until


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


def test_equal_payloads_have_one_id_however_they_are_written(open_queue):
    queue = open_queue()
    first = queue.send_delay_msg({"a": 1, "b": [{"c": 1, "d": 2}]}, unique="payload")
    batch = queue.send_many([NewMessage({"b": [{"d": 2, "c": 1}], "a": 1}, unique="payload")])
    assert [first.id] == batch.ids
    assert queue.send_delay_msg({"a": 1.0, "b": [{"c": 1, "d": 2}]}, unique="payload").new  # 1.0 is not 1 in JSON

    typed = open_queue("typed", payload_type=dict[str, float])
    assert typed.send_delay_msg({"a": 1, "b": 2}, unique="payload").new
    assert not typed.send_delay_msg({"b": 2.0, "a": 1.0}, unique="payload").new


def test_a_default_that_is_given_makes_no_other_call(open_queue):
    queue = open_queue()

    @queue.task(unique="payload")
    def sync(user: int, full: bool = False, ratio: float = 1, tags: frozenset[str] = frozenset(), until=None): ...

    first = sync.send(7)
    calls = [((7, False), {}), ((), {"ratio": 1.0, "user": 7}), ((7,), {"tags": frozenset(), "until": None})]
    assert [sync.send(*args, **kwargs).id for args, kwargs in calls] == [first.id] * 3
    assert queue.send_many([sync.message(7, ratio=1)]).ids == [first.id]
    assert queue.send_delay_msg({"full": False, "user": 7}, name="sync", unique="payload").id == first.id
    others = [sync.send(7, True), sync.send(7, ratio=2), sync.send(7, tags={"a", "b"}), sync.send(7, until=0)]
    assert [one.new for one in others] == [True] * 4


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


# For a time


ENDS = {
    "ack": lambda message: message.ack(),
    "reject": lambda message: message.reject("no"),
    "retries spent": lambda message: message.nack(),
}


@everywhere
@pytest.mark.parametrize("how", ENDS)
def test_an_id_is_reserved_from_the_send_however_its_message_ends(queue, how):
    sent = queue.send_delay_msg("first", id="m", retries=0, unique_for="10m")
    assert queue.send_delay_msg("second", id="m").status is SendStatus.EXISTS

    (message,) = queue.lease(n=1)
    ENDS[how](message)
    queue.lease()  # collects

    for replace in (False, True, "after"):
        again = queue.send_delay_msg("second", id="m", replace=replace)
        assert (again.status, again.owner.state) == (SendStatus.SETTLED, "settled")
        assert timedelta(minutes=9) < again.owner.due - sent.due <= timedelta(minutes=10)
    assert queue.send_many([NewMessage(1, id="m"), NewMessage(2, id="o")]).new == ["o"]


@everywhere
def test_an_id_is_reserved_from_the_end_of_its_message(queue):
    queue.send_delay_msg("first", id="m", unique_after="10m")
    with queue.lease() as message:
        assert message.id == "m"
    ended = queue.stats().at

    again = queue.send_delay_msg("second", id="m")

    assert again.status is SendStatus.SETTLED
    assert abs(again.owner.due - ended - timedelta(minutes=10)) < timedelta(seconds=5)


def test_the_later_of_two_times_counts(open_queue):
    queue = open_queue()
    for id, times in (("a", ("10m", "2h")), ("b", ("2h", "10m"))):
        queue.send_delay_msg("first", id=id, unique_for=times[0], unique_after=times[1])
        with queue.lease():
            pass
        reserved = queue.send_delay_msg("second", id=id).owner
        assert reserved.due > queue.stats().at + timedelta(hours=1, minutes=50)


def test_an_id_can_be_sent_again_when_its_time_is_over(open_queue):
    queue = open_queue()
    queue.send_delay_msg("first", id="m", unique_for=0.3, unique_after=0.2)
    with queue.lease():
        pass
    assert queue.send_delay_msg("second", id="m").status is SendStatus.SETTLED

    wait_until(lambda: queue.send_delay_msg("second", id="m").new)
    assert queue.get("m").payload == "second"


def test_an_id_stays_reserved_when_its_message_is_cancelled_or_the_queue_is_purged(open_queue):
    queue = open_queue()
    for id in ("cancelled", "purged"):
        queue.send_delay_msg("first", "1h", id=id, unique_for="10m")
    assert queue.cancel("cancelled") == "cancelled"
    queue.purge()

    statuses = [queue.send_delay_msg("second", id=id).status for id in ("cancelled", "purged")]

    assert statuses == [SendStatus.SETTLED] * 2


def test_a_dedupe_window_and_own_times_go_together(open_queue):
    queue = open_queue(dedupe_window="1h")
    for id, time in (("long", "2h"), ("short", "1m"), ("none", None)):
        queue.send_delay_msg("first", id=id, unique_for=time)
        with queue.lease():
            pass
    open_queue(dedupe_window=0).open()  # off, for all processes

    assert queue.send_delay_msg("second", "1h", id="none").new
    assert queue.send_delay_msg("second", "1h", id="long").status is SendStatus.SETTLED


def test_a_redriven_message_lives_again_while_its_id_is_reserved(open_queue):
    queue = open_queue()
    queue.send_delay_msg("first", id="m", unique_for="10m")
    (message,) = queue.lease(n=1)
    message.reject("no")

    assert queue.dead.redrive("m").redriven == 1
    with queue.lease() as message:
        assert message.payload == "first"
    assert queue.send_delay_msg("second", id="m").status is SendStatus.SETTLED


def test_a_task_runs_once_in_a_time_for_the_same_arguments(open_queue):
    queue = open_queue()
    seen = []
    report = queue.task(name="report", unique="payload", unique_for="1h")(lambda user: seen.append(user))

    assert [report.send(user).status for user in (1, 2, 1)] == ["new", "new", "exists"]
    queue.run(burst=True)
    assert queue.send_many([report.message(1), report.message(3)]).new != []
    assert [report.send(user).status for user in (1, 2)] == ["settled", "settled"]
    queue.run(burst=True)
    assert sorted(seen) == [1, 2, 3]


def test_wrong_times_of_an_id_are_refused_and_nothing_stored(open_queue):
    queue = open_queue()
    for options, text in (
        ({"unique_for": "1h"}, "unique_for needs an id, or unique='payload'"),
        ({"unique_after": "1h"}, "unique_after needs an id"),
        ({"id": "m", "unique_for": 0}, "unique_for must be between 1ms"),
        ({"id": "m", "unique_for": "1h", "replace": True}, "give unique_for or replace, but not both"),
        ({"id": "m", "unique_after": "1h", "replace": "after"}, "give unique_after or replace, but not both"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            queue.send_delay_msg(1, **options)
    with pytest.raises(ConfigurationError, match="unique_for must be"):
        queue.task(name="report", unique_for=-1)(lambda user: None)
    assert queue.counts().living == 0
