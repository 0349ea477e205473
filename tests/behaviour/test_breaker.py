"""A breaker: nothing starts for a pause when most of the last callbacks have failed, then one starts as a trial."""

from __future__ import annotations

import logging
from datetime import timedelta
from itertools import pairwise
from time import monotonic

import pytest

from delayq import Breaker, ConfigurationError, Discard, NewMessage, RateLimited, Reject, Retry, Snooze
from delayq.broker.scripts import script
from delayq.streams import StreamQueue
from delayq.values.states import State
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until


class Service:
    """A callback that fails while the service is down; it settles a message as its payload says, if it has one."""

    def __init__(self):
        self.down = True
        self.seen = []
        self.times = []

    def __call__(self, message):
        self.seen.append(message.id)
        self.times.append(monotonic())
        if isinstance(message.payload, str):
            return OUTCOMES[message.payload](message)
        if self.down:
            raise ConnectionError("away")
        return None


def fail(message):
    raise ConnectionError("away")


OUTCOMES = {
    "ok": lambda message: None,
    "discard": lambda message: Discard("not needed"),
    "ack": lambda message: message.ack(),
    "error": fail,
    "false": lambda message: False,
    "retry": lambda message: Retry(),
    "reject": lambda message: Reject("no"),
    "nack": lambda message: message.nack() and None,
    "snooze": lambda message: Snooze("1h"),
    "rate limited": lambda message: RateLimited("1h", scope="message"),
    "release": lambda message: message.release(delay="1h") and None,
}


@pytest.fixture
def service():
    return Service()


def send(queue, *payloads, **options):
    """Send messages m0, m1, …, which have no retries."""
    queue.send_many([NewMessage(one, id=f"m{n}", retries=0, **options) for n, one in enumerate(payloads)])


def tripped(queue) -> list[str | None]:
    return [limit.name for limit in queue.limits.list() if limit.tripped_until]


def told(caplog, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records if record.name == "delayq.consumer")


@everywhere
@pytest.mark.parametrize(
    ("payloads", "starts"),
    [
        (["error"] * 6, 4),
        (["ok", "error", "ok", "ok", "error", "ok"], 5),
        (["error", "error", "ok", "ok", "ok", "ok"], 4),
        (["error", "ok", "ok", "ok", "error", "ok", "ok", "ok"], 8),
        (["error", "error", "error"], 3),
    ],
    ids=["all", "half, later", "half, at once", "less", "too few"],
)
def test_it_trips_at_its_share_of_so_many_outcomes_and_not_before(open_queue, service, payloads, starts):
    queue = open_queue(callback=service, breaker=Breaker(share=0.5, of=4, pause="1h"), prefetch=0)
    send(queue, *payloads)
    queue.run(burst=True)
    assert service.seen == [f"m{n}" for n in range(starts)]
    trips = payloads[:starts][-4:].count("error") == 2 or starts == 4
    assert tripped(queue) == ([None] if trips else [])
    assert queue.counts().ready == len(payloads) - starts


@everywhere
@pytest.mark.parametrize("payload", ["error", "false", "retry", "reject", "nack"])
def test_failures_count(open_queue, service, payload):
    queue = open_queue(callback=service, breaker=Breaker(share=1, of=2, pause="1h"), prefetch=0, nack_delay="1h")
    send(queue, payload, payload, "ok")
    queue.run(burst=True)
    assert service.seen == ["m0", "m1"]


@everywhere
@pytest.mark.parametrize("payload", ["ok", "discard", "ack"])
def test_successes_count(open_queue, service, payload):
    queue = open_queue(callback=service, breaker=Breaker(share=1, of=2, pause="1h"), prefetch=0)
    send(queue, "error", payload, "error", payload, "error", "error", "ok")
    queue.run(burst=True)
    assert len(service.seen) == 6


@everywhere
@pytest.mark.parametrize("payload", ["snooze", "rate limited", "release"])
def test_what_charges_nothing_counts_as_neither(open_queue, service, payload):
    queue = open_queue(callback=service, breaker=Breaker(share=1, of=2, pause="1h"), prefetch=0)
    send(queue, payload, "error", payload, payload, "error", "ok")
    queue.run(burst=True)
    assert service.seen == ["m0", "m1", "m2", "m3", "m4"]


def test_what_is_no_failure_does_not_count(open_queue, service):
    options = {"is_failure": lambda error: not isinstance(error, ConnectionError), "nack_delay": "1h"}
    queue = open_queue(callback=service, breaker=Breaker(of=1, pause="1h"), **options)
    send(queue, "error", "error")
    queue.run(burst=True)
    assert tripped(queue) == []


def test_messages_whose_callback_has_not_run_do_not_count(open_queue, service):
    queue = open_queue(codec="bytes")
    send(queue, b"no json", b"no json")
    send(open_queue(), "ok", expires="1ms", name="late")
    sent = queue.stats().at
    wait_until(lambda: queue.stats().at > sent + timedelta(milliseconds=5))
    queue = open_queue(callback=service, breaker=Breaker(of=1, pause="1h"))
    queue.run(burst=True)
    assert (service.seen, tripped(queue)) == ([], [])


def test_timeouts_count(open_queue, gate):
    seen = []

    def work(message):
        seen.append(message.id)
        gate.wait(30)

    queue = open_queue(callback=work, breaker=Breaker(of=2, pause="1h"), tick=0.05)
    send(queue, 0, 1, 2, timeout="100ms")
    queue.start_consume()
    wait_until(lambda: tripped(queue) and queue.counts().ready)
    assert seen == ["m0", "m1"]


def test_messages_of_a_batch_count_one_by_one(open_queue):
    batches = []
    queue = open_queue(breaker=Breaker(share=0.5, of=4, pause="500ms"))

    def work(messages):
        batches.append(len(messages))
        return [ValueError("wrong") if message.payload == "error" else None for message in messages]

    queue.batch_callback(work, most=4)
    send(queue, "error", "ok", "ok", "error", *["ok"] * 4)
    queue.run(burst=True)
    assert batches == [4, 1, 3]


@everywhere
def test_what_a_worker_has_claimed_and_not_started_goes_back(open_queue, service):
    queue, onlooker = open_queue(prefetch=20), open_queue()
    queue.on("mail")(lambda message: service.times.append(0))

    @queue.task(breaker=Breaker(of=2, pause="1h"))
    def pay() -> None:
        service.seen.append(0)
        if len(service.seen) > 2:  # it started before the breaker tripped
            wait_until(lambda: onlooker.stats().totals.get("released"))
        raise ConnectionError("away")

    queue.send_many([NewMessage({}, name=name, retries=0) for name in ("pay", "mail") * 10])
    queue.run(burst=True)
    assert len(service.times) == 10
    assert len(service.seen) <= 3
    assert queue.counts().throttled == queue.counts().living == 10 - len(service.seen)


@everywhere
def test_breaker_of_a_task_holds_up_nobody_else(open_queue, service, caplog):
    queue = open_queue(prefetch=0)
    queue.on("other")(service)

    @queue.task(breaker=Breaker(of=3, pause="1h"), retries=0)
    def pay(n: int) -> None:
        raise ConnectionError("away")

    for n in range(5):
        pay.send(n)
    send(queue, *["error"] * 6, name="other")
    queue.run(burst=True)
    assert len(service.seen) == 6
    assert queue.counts().throttled == 2
    assert tripped(queue) == ["pay"]
    assert told(caplog, "3 of the last 3 failed: nothing of pay starts for 1h") == 1
    (limit,) = queue.limits.list()
    assert timedelta(minutes=59) < limit.tripped_until - queue.stats().at <= timedelta(hours=1)
    assert (limit.closed_until, limit.spread_until, limit.paused) == (None, None, None)


@pytest.mark.long
@everywhere
def test_one_starts_as_a_trial_in_all_processes_and_if_it_succeeds_all_start_again(open_queue, service, caplog):
    caplog.set_level(logging.INFO, "delayq.consumer")
    breaker = Breaker(of=2, pause="500ms")
    consumers = [open_queue(callback=service, breaker=breaker, concurrency=4, prefetch=0) for _ in range(2)]
    queue = consumers[0]
    send(queue, *range(30))
    for one in consumers:
        one.start_consume()
    wait_until(lambda: told(caplog, "2 of the last 2 failed: nothing of reminders starts for 500ms"))
    wait_until(lambda: told(caplog, "a trial failed: nothing of reminders starts for 500ms") == 2)
    service.down = False
    wait_until(lambda: queue.counts().living == 0)
    assert told(caplog, "a trial succeeded: all of reminders starts again") == 1
    assert told(caplog, "starts for 500ms") == 3
    before = next(n for n, (one, next_one) in enumerate(pairwise(service.times), 1) if next_one - one > 0.3)
    first, second, third = service.times[before : before + 3]
    assert min(second - first, third - second) > 0.3
    assert before <= 16  # what had started when it tripped
    assert queue.limits.list() == []


@everywhere
def test_a_trial_whose_process_crashes_is_followed_by_one_more_and_then_all_start(open_queue, service):
    queue = open_queue(callback=service, breaker=Breaker(of=1, pause="200ms"), prefetch=0, tick=0.05)
    send(queue, "error")
    queue.run(burst=True)
    send(queue, *range(8))
    claims = []

    def claim():
        found = len(queue.lease("1h", n=100))
        claims.extend([found] if found else [])
        return found

    for _ in range(3):
        wait_until(claim)
    assert claims == [1, 1, 6]
    assert tripped(queue) == []


def test_a_trial_that_says_nothing_is_followed_by_another(open_queue, service, caplog):
    caplog.set_level(logging.INFO, "delayq.consumer")
    queue = open_queue(callback=service, breaker=Breaker(of=2, pause="600ms"), prefetch=0)
    send(queue, "error", "error", "snooze", "ok", "ok", "ok")
    queue.run(burst=True)
    assert service.seen == [f"m{n}" for n in range(6)]
    assert service.times[2] - service.times[1] > 0.2
    assert service.times[3] - service.times[2] > 0.2
    assert told(caplog, "a trial succeeded") == 1


@everywhere
def test_worker_of_several_queues_goes_on_with_the_others(open_queue, face, service):
    broken = open_queue("broken", callback=service, breaker=Breaker(of=2, pause="300ms"))
    well = open_queue("well", callback=lambda message: service.times.append(0))
    send(broken, "error", "error", "error", *["ok"] * 20)
    send(well, *range(10))
    face.worker({broken: 1, well: 1}).run(burst=True)
    assert len(service.seen) == 23
    assert service.times.count(0) == 10


def test_pause_of_a_user_is_kept_when_a_trial_succeeds(open_queue, service):
    queue = open_queue(callback=service, breaker=Breaker(of=1, pause="100ms"), prefetch=0)
    send(queue, "error")
    queue.run(burst=True)
    queue.pause()
    queue.pause(name="mail")
    queue.send_many([NewMessage("ok", id="p", name="mail"), NewMessage("ok", id="q")])
    queue.resume()
    queue.run(burst=True)
    assert service.seen == ["m0", "q"]
    assert queue.get("p").state is State.THROTTLED
    assert [limit.name for limit in queue.limits.list()] == ["mail"]


@everywhere
@pytest.mark.parametrize("name", [None, "pay"], ids=["queue", "name"])
def test_resume_lets_all_start_again(open_queue, service, name):
    breaker = Breaker(of=2, pause="1h")
    queue = open_queue(prefetch=0, breaker=None if name else breaker)

    @queue.task(retries=0, **{"breaker": breaker} if name else {})
    def pay(n: int) -> None:
        service.seen.append(n)
        if service.down:
            raise ConnectionError("away")

    queue.start_consume()
    for n in range(6):
        pay.send(n)
    wait_until(lambda: tripped(queue) == [name])
    service.down = False
    assert not queue.resume(name="other")
    assert tripped(queue) == [name]
    assert queue.resume(name=name)
    assert not queue.resume(name=name)
    wait_until(lambda: queue.counts().living == 0)
    assert (sorted(service.seen), queue.limits.list()) == ([*range(6)], [])


@pytest.mark.parametrize("name", [None, "mail"])
def test_resume_ends_a_pause_and_lets_go_evenly_what_a_breaker_holds_back(open_queue, name):
    breaker = Breaker(of=1, pause="1h")
    queue = open_queue(prefetch=0, breaker=None if name else breaker)

    @queue.task(name="mail", retries=0, **{"breaker": breaker} if name else {})
    def mail() -> None:
        raise ConnectionError("away")

    mail.send()
    queue.run(burst=True)
    assert tripped(queue) == [name]
    queue.send_many([NewMessage({}, name="mail") for _ in range(6)])
    queue.pause(name=name)
    assert len(queue.lease(n=6)) == 0
    assert queue.resume(name=name, spread="6h")
    assert tripped(queue) == []
    assert len(queue.lease(n=6)) == 1


def test_resume_of_a_queue_that_has_never_been_limited_makes_no_limit(open_queue, redis_client):
    queue = open_queue()
    queue.send_delay_msg("ok")
    assert not queue.resume()
    assert not queue.resume(name="mail")
    assert redis_client.hget("delayq:{reminders}:meta", "schema") == b"3"
    assert not redis_client.exists("delayq:{reminders}:limits")


def test_breaker_sends_nothing_while_all_is_well(open_queue, service, redis_client):
    service.down = False
    queue = open_queue(callback=service, breaker=Breaker())
    redis_client.script_flush()
    send(queue, *range(50))
    queue.run(burst=True)
    assert len(service.seen) == 50
    assert redis_client.script_exists(script("close").sha) == [False]
    assert redis_client.hget("delayq:{reminders}:meta", "limited") is None


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"share": 0}, "Breaker: share must be above 0 and at most 1, not 0"),
        ({"share": 1.01}, "Breaker: share must be above 0 and at most 1, not 1.01"),
        ({"share": float("nan")}, "Breaker: share must be above 0 and at most 1, not nan"),
        ({"share": True}, "Breaker: share must be above 0 and at most 1, not True"),
        ({"share": "half"}, "Breaker: share must be above 0 and at most 1, not 'half'"),
        ({"of": 0}, "Breaker: of must be a whole number from 1 to 10000, not 0"),
        ({"of": 10_001}, "Breaker: of must be a whole number from 1 to 10000, not 10001"),
        ({"of": 2.0}, "Breaker: of must be a whole number from 1 to 10000, not 2.0"),
        ({"of": True}, "Breaker: of must be a whole number from 1 to 10000, not True"),
        ({"pause": "99ms"}, "Breaker: pause must be between 100ms and 100 years, not '99ms'"),
        ({"pause": "soon"}, "Breaker: pause must look like '1h30m'"),
        ({"pause": None}, "Breaker: pause must be a timedelta, a number of seconds or a text"),
    ],
)
def test_wrong_breakers_are_refused(wrong, text):
    with pytest.raises(ConfigurationError, match=text):
        Breaker(**wrong)


@pytest.mark.parametrize("wrong", [True, 0.5, "1m", Breaker], ids=repr)
def test_what_is_no_breaker_is_refused(open_queue, wrong):
    with pytest.raises(ConfigurationError, match="breaker must be a Breaker, such as Breaker"):
        open_queue(breaker=wrong)
    with pytest.raises(ConfigurationError, match="breaker must be a Breaker, such as Breaker"):
        open_queue().task(name="pay", breaker=wrong)(lambda: None)


def test_streams_have_no_breaker():
    with pytest.raises(ConfigurationError, match="the streams engine has no option 'breaker'"):
        StreamQueue("s", url="redis://nowhere.invalid", breaker=Breaker())
