"""Schedules that send messages with a name and options of their own, such as those of a task."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError, NewMessage, Schedule
from tests.behaviour.places import everywhere
from tests.support.schedules import HOUR

DAILY = datetime(2190, 1, 1, tzinfo=UTC)


@everywhere
def test_schedule_calls_a_task_with_its_arguments_and_options(timed, clock):
    called = []
    options = {"retries": 7, "expires": "2h", "missed": "drop", "priority": 5, "retention": "1h"}
    remind = timed.task(name="remind", **options)(lambda user, text="": called.append((user, text)))
    timed.schedules.add("user-42", every="1h", payload=remind.options(timeout="1m").message(42, text="soon"))
    timed.schedules.add("plain", every="1h", payload={"user": 1})
    info = timed.schedules.get("user-42")
    assert (info.payload, info.message_name, info.retries) == ({"user": 42, "text": "soon"}, "remind", 7)
    assert timed.schedules.get("plain").message_name is None
    sent = timed.schedules.run_now("user-42").id
    found = timed.get(sent)
    stored = (found.name, found.expires - found.due, found.priority, found.timeout, found.retention)
    assert stored == ("remind", timedelta(hours=2), 5, 60, timedelta(hours=1))
    assert timed.cancel(sent)

    clock.advance(HOUR / 2)
    timed.callback(lambda message: called.append(message.payload))
    timed.run(burst=True)

    assert sorted(called, key=str) == [(42, "soon"), {"user": 1}]
    done = timed.list("completed").messages
    assert [(one.id, one.name) for one in done] == [("user-42@2026-11-20T08:00:00Z", "remind")]


@everywhere
def test_options_of_the_message_can_be_changed(timed):
    timed.schedules.add("s", every="1h", payload=NewMessage(1, name="a", headers={"k": "v"}))
    timed.schedules.set("s", payload=2)
    info = timed.schedules.get("s")
    assert (info.payload, info.message_name, info.headers) == (2, "a", {"k": "v"})
    timed.schedules.set("s", payload=NewMessage(3, name="b", retries=9))
    info = timed.schedules.get("s")
    assert (info.payload, info.message_name, info.retries, info.headers) == (3, "b", 9, {"k": "v"})
    assert timed.schedules.add("s", every="1h", payload=3) == "changed"
    assert timed.schedules.get("s").message_name is None


@everywhere
def test_what_a_schedule_fires_has_the_retention_of_the_queue(open_queue, clock):
    timed = clock.of(open_queue(retention="1d", callback=lambda message: "sent"))
    timed.schedules.add("s", every="1h")
    clock.advance(HOUR / 2)

    timed.run(burst=True)

    assert timed.result("s@2026-11-20T08:00:00Z", timeout=0) == "sent"


@everywhere
@pytest.mark.parametrize(
    ("message", "error"),
    [
        (NewMessage(1, delay="1h"), "has no delay: its schedule decides that"),
        (NewMessage(1, at=DAILY), "has no at"),
        (NewMessage(1, id="a"), "has no id"),
        (NewMessage(1, unique="payload"), "has no unique"),
        (NewMessage(1, unique_for="1h"), "has no unique_for"),
        (NewMessage(1, jitter="5m"), "has no jitter"),
        (NewMessage(1, expires=DAILY), "expires so long after its due time: give a duration"),
        (NewMessage(1, priority=101), "priority must be"),
        (NewMessage(1, retries=2), "give retries to the schedule or to its message"),
    ],
    ids=["delay", "at", "id", "unique", "unique_for", "jitter", "expires", "priority", "retries"],
)
def test_message_that_no_schedule_can_send_is_refused(timed, message, error):
    with pytest.raises(ConfigurationError, match=error):
        timed.schedules.add_many([Schedule("good", every="1h"), Schedule("s", every="1h", retries=1, payload=message)])
    assert timed.schedules.list() == []


def test_declared_schedule_calls_its_own_function(queue):
    with pytest.raises(ConfigurationError, match="is no NewMessage: it calls its own function"):
        queue.every("15m", payload=NewMessage(1, name="other"))
