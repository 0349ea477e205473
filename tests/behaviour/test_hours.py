"""Hours: a message is delivered in them, whenever it is due, retried or sent again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from delayq import ConfigurationError, DelayQueue, NewMessage, SendStatus, State
from delayq.streams import Relay, StreamQueue
from tests.behaviour.places import everywhere

AT = datetime(2190, 1, 4, 22, tzinfo=UTC)
"""A Monday."""
OPENS = datetime(2190, 1, 5, 7, tzinfo=UTC)
BERLIN = {"hours": "08:00-21:00", "tz": "Europe/Berlin"}
HOUR = timedelta(hours=1)


def closed():
    """Hours that open in two hours, for an hour, and when they open."""
    opens = (datetime.now(UTC) + 2 * HOUR).replace(second=0, microsecond=0)
    return f"{opens:%H:%M}-{opens + HOUR:%H:%M}", opens


def kinds(why):
    return {reason.kind: reason for reason in why.reasons}


@everywhere
def test_what_is_due_outside_its_hours_is_due_when_they_open(open_queue):
    queue = open_queue()
    assert queue.send_schedule_msg(1, AT, id="night", **BERLIN).due == OPENS
    assert queue.send_schedule_msg(1, AT - 6 * HOUR, id="day", **BERLIN).due == AT - 6 * HOUR
    sent = queue.send_many([NewMessage(n, id=f"m{n}", at=AT + n * HOUR, **BERLIN) for n in range(12)])
    assert [one.due for one in sent] == [*[OPENS] * 10, AT + 10 * HOUR, AT + 11 * HOUR]
    hours, opens = closed()
    assert queue.send_delay_msg(1, id="soon", hours=hours).due == opens
    assert queue.send_delay_msg(1, "2h30m", id="delay", hours=hours).due > opens

    found = queue.get("night")
    assert (found.due, found.hours, found.tz) == (OPENS, "08:00-21:00", "Europe/Berlin")
    assert (queue.get("soon").hours, queue.get("soon").tz) == (hours, "UTC")


@everywhere
def test_a_message_that_is_late_waits_for_its_hours_uncharged(open_queue, caplog):
    queue = open_queue(events=True)
    seen = []
    queue.callback(lambda message: seen.append(message.id))
    hours, opens = closed()
    caplog.set_level("DEBUG", "delayq.consumer")
    for id in ("moved", "plain"):
        queue.send_delay_msg(1, "1h", id=id, retries=0, hours=hours if id == "moved" else None)
        assert queue.reschedule(id, 0) == "rescheduled"
    assert kinds(queue.why("moved"))["hours"].until == opens

    queue.run(burst=True)

    assert seen == ["plain"]
    found = queue.get("moved")
    assert (found.state, found.attempts, found.retries_left, found.snoozes) == (State.BACKOFF, 0, 0, 0)
    assert timedelta(0) <= found.deadline - opens < timedelta(seconds=30)
    reason = kinds(queue.why("moved"))["hours"]
    assert reason.text.startswith(f"it is outside its hours {hours} UTC until {opens:%Y-%m-%dT%H:%M:%S}Z (in ")
    assert f"is outside its hours {hours} UTC, and is delivered again in " in caplog.text
    assert [event.kind for event in queue.events() if event.id == "moved"][-2:] == ["delivered", "released"]
    assert not kinds(queue.why("moved")).keys() & {"retry", "nobody"}


def test_hours_that_are_open_change_nothing(open_queue):
    queue = open_queue()
    seen = []
    queue.callback(lambda message: seen.append((message.payload, message.lateness < 60)))
    queue.send_many([NewMessage(n, hours="00:00-24:00") for n in range(3)])
    queue.run(burst=True)
    assert sorted(seen) == [(n, True) for n in range(3)]
    queue.send_delay_msg(1, "1h", id="m", hours="00:00-24:00")
    assert "hours" not in kinds(queue.why("m"))


def test_a_batch_gets_those_in_their_hours(open_queue):
    queue = open_queue()
    seen = []
    queue.batch_callback(lambda messages: seen.append(sorted(one.id for one in messages)), most=10)
    hours, _ = closed()
    queue.send_many([NewMessage(n, id=f"m{n}", delay="1h", hours=hours if n % 2 else None) for n in range(4)])
    queue.select(id_prefix="m").reschedule(0)
    queue.run(burst=True)
    assert seen == [["m0", "m2"]]
    assert queue.counts().backoff == 2


def test_a_lease_gets_those_in_their_hours(open_queue):
    queue = open_queue()
    hours, opens = closed()
    queue.send_delay_msg(1, "1h", id="m", hours=hours)
    queue.reschedule("m", 0)
    assert queue.lease(n=10).messages == []
    assert queue.get("m").deadline >= opens
    queue.send_delay_msg(1, id="open", hours="00:00-24:00")
    assert [message.id for message in queue.lease(n=10)] == ["open"]


def test_a_redriven_message_waits_for_its_hours(open_queue):
    queue = open_queue()
    queue.callback(lambda message: pytest.fail("outside its hours"))
    hours, _ = closed()
    queue.send_delay_msg(1, "1h", id="m", hours=hours)
    queue.kill("m")
    assert queue.dead.redrive("m").redriven == 1
    queue.run(burst=True)
    assert (queue.get("m").state, queue.get("m").hours) == (State.BACKOFF, hours)


def test_a_task_has_hours_and_its_sends_may_have_others(open_queue):
    queue = open_queue()
    digest = queue.task(name="digest", **BERLIN)(lambda user: None)
    assert digest.options(at=AT).send(1).due == OPENS
    assert digest.options(at=AT, tz="UTC").send(1).due == OPENS + HOUR
    assert digest.options(at=AT, hours="00:00-24:00").send(1).due == AT
    assert digest.options(at=AT, hours=None, tz=None).send(1).due == AT
    queue.send_many([digest.options(at=AT, id="m").message(1)])
    assert (queue.get("m").due, queue.get("m").name) == (OPENS, "digest")


@everywhere
def test_a_replaced_message_keeps_its_hours_unless_the_send_has_others(open_queue):
    queue = open_queue()
    queue.send_schedule_msg(1, AT, id="m", **BERLIN)
    assert queue.send_schedule_msg(2, AT, id="m", replace=True).status is SendStatus.REPLACED
    assert (queue.get("m").due, queue.get("m").hours, queue.get("m").tz) == (AT, "08:00-21:00", "Europe/Berlin")
    assert queue.send_schedule_msg(3, AT, id="m", replace=True, hours="09:00-10:00").due == OPENS + 2 * HOUR
    assert (queue.get("m").hours, queue.get("m").tz) == ("09:00-10:00", "UTC")


def test_a_burst_that_ends_outside_its_hours_is_due_when_they_open(open_queue):
    queue = open_queue()
    hours, opens = closed()
    for id, more in (("last", {}), ("digest", {"collect": 100})):
        sent = [queue.send(n, id=id, debounce="10s", at_most="1m", hours=hours, **more) for n in range(3)]
        assert all(timedelta(0) <= one.due - opens < timedelta(seconds=1) for one in sent)
        within = queue.send(3, id=id, debounce="2h30m", at_most="3h", hours=hours, **more)
        assert within.due > opens + timedelta(minutes=20)
    assert [queue.get(id).payload for id in ("last", "digest")] == [3, [0, 1, 2, 3]]


def test_a_debounced_message_waits_for_its_hours_once_it_is_due(open_queue):
    queue = open_queue()
    queue.callback(lambda message: pytest.fail("outside its hours"))
    hours, opens = closed()
    queue.send_delay_msg(1, id="m", debounce="1h", hours=hours)
    queue.reschedule("m", 0)
    queue.run(burst=True)
    assert queue.get("m").deadline >= opens


def test_jitter_spreads_what_opens_at_one_time(open_queue):
    queue = open_queue()
    queue.send_many([NewMessage(n, id=f"m{n}", at=AT, jitter="15h", **BERLIN) for n in range(200)])
    dues = sorted(one.due for one in queue.list("pending", limit=1000).messages)
    assert all(8 <= (due + HOUR).hour < 21 for due in dues)
    assert len(set(dues)) > 150
    assert max(later - sooner for sooner, later in pairwise(dues) if sooner.day == later.day) < 2 * HOUR


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tz": "UTC"}, "tz goes with hours: say when the message may be delivered"),
        (
            {"hours": "08:00-21:00", "tz": "Europe/Berln"},
            "unknown time zone 'Europe/Berln', did you mean 'Europe/Berlin'",
        ),
        ({"hours": "08:00-21:00", "tz": 1}, "unknown time zone 1"),
        ({"hours": ""}, "hours must look like '08:00-21:00'.* not ''"),
        ({"hours": 8}, "hours must look like .* not 8"),
        ({"hours": "8-21"}, "hours must look like .* not '8-21'"),
        ({"hours": "08:00-21:00;"}, "hours must look like"),
        ({"hours": "08:00-21:00" + " " * 200}, "hours must look like"),
        ({"hours": "08:00-08:00"}, "never open: 08:00-08:00 is empty; a whole day is 00:00-24:00"),
        ({"hours": "08:00-25:00"}, "have an invalid time of day: 08:00-25:00"),
        ({"hours": "24:00-08:00"}, "have an invalid time of day: 24:00-08:00"),
        ({"hours": "MOO 08:00-21:00"}, "MOO is no weekday such as MON"),
        ({"hours": "MON-WED-FRI 08:00-21:00"}, "MON-WED-FRI is no weekday such as MON, and no span MON-FRI"),
        ({"hours": "08:00-21:00 except holidays:XX"}, "holidays:XX"),
        ({"hours": "08:00-21:00 except soon"}, "except dates such as 2026-12-24 and holidays:DE, not SOON"),
        ({"hours": "08:00-21:00 except school.ics"}, "except dates such as 2026-12-24 and holidays:DE, not SCHOOL.ICS"),
        ({"hours": "08:00-21:00", "expires": AT + HOUR}, "is not after 2190-01-05T08:00:00.*let it expire later, or"),
        ({"hours": "08:00-21:00", "expires": AT}, "is not after 2190-01-05T08:00:00"),
    ],
)
def test_hours_that_cannot_be_are_refused_and_nothing_is_stored(queue, options, text):
    with pytest.raises(ConfigurationError, match=text):
        queue.send_schedule_msg(1, AT, **options)
    with pytest.raises(ConfigurationError, match=text):
        queue.send_many([NewMessage(1, at=AT, **options)])
    if "expires" not in options:
        with pytest.raises(ConfigurationError, match=text):
            queue.task(name="t", **options)(lambda: None)
    assert queue.counts().living == 0


def test_a_delay_that_ends_after_the_expiry_is_refused(queue):
    soon = datetime.now(UTC) + HOUR
    with pytest.raises(ConfigurationError, match=r"in its hours 00:00-24:00 UTC: let it expire later"):
        queue.send_delay_msg(1, "2h", hours="00:00-24:00", expires=soon)
    assert queue.send_delay_msg(1, "30m", hours="00:00-24:00", expires=soon).new
    assert queue.send_schedule_msg(1, AT, id="m", expires="1h", **BERLIN).due == OPENS
    assert queue.get("m").expires == OPENS + HOUR


def test_hours_that_this_machine_cannot_read_cost_an_attempt(open_queue, redis_client, caplog):
    queue = open_queue(nack_delay="1h")
    queue.callback(lambda message: pytest.fail("unreadable"))
    for id, retries in (("again", 1), ("dead", 0)):
        queue.send_delay_msg(1, id=id, retries=retries, hours="00:00-24:00")
        redis_client.hset(f"delayq:{{{queue.name}}}:attributes", id, "hours=00:00-24:00 tz=Moon/Crater")

    assert "cannot be read here: unknown time zone 'Moon/Crater'" in kinds(queue.why("again"))["hours"].text
    queue.run(burst=True)

    assert queue.get("again").error.startswith("undecodable hours: unknown time zone 'Moon/Crater'")
    assert (queue.get("again").state, queue.get("dead").state) == (State.BACKOFF, State.DEAD)
    assert "message again has hours that cannot be read here: unknown time zone" in caplog.text


def test_a_stream_keeps_the_hours_of_what_is_relayed_to_it_and_takes_none_itself(redis_url):
    hours, opens = closed()
    with (
        DelayQueue("late", url=redis_url) as queue,
        StreamQueue("tasks", url=redis_url, callback=lambda _: pytest.fail("outside its hours")) as stream,
    ):
        queue.send_delay_msg(1, "1h", id="m", hours=hours)
        queue.reschedule("m", 0)
        assert Relay(queue, stream).run(burst=True) == 1
        stream.run(burst=True)
        (waiting,) = stream.list("backoff").messages
        assert (waiting.id, waiting.attempts, waiting.deadline >= opens) == ("m", 0, True)
        with pytest.raises(ConfigurationError, match="the streams engine has no hours"):
            stream.send_many([NewMessage(1, id="other", hours="08:00-21:00")])
        assert stream.counts().ready == 0
