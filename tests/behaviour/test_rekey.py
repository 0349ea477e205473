"""`rekey`: what waits and what is dead is encrypted with the first key, once each, and readable at any moment."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from delayq import ConfigurationError, DelayQueue, Encrypted, NewMessage, Rekeyed
from delayq.privacy.encrypted import QueueCipher
from delayq.queue.sweeps import rekeying
from delayq.queue.sweeps.rekeying import PAGE, PARTS
from delayq.schedules import store
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

OLD, NEW = bytes(16), bytes(range(32))
BEFORE, BOTH, AFTER = Encrypted({"old": OLD}), Encrypted({"new": NEW, "old": OLD}), Encrypted({"new": NEW})


def one_of_each(open_queue, codec=BEFORE):
    """One that waits, one that is dead, one that runs and is followed, and a schedule; returns what runs."""
    queue = open_queue(codec=codec)
    queue.send_delay_msg("dead", id="dead", headers={"a": "b"}, name="n", retries=0)
    (dead,) = queue.lease(n=1)
    dead.reject("no")
    queue.send_delay_msg("runs", id="runs")
    (runs,) = queue.lease(n=1)
    queue.send_delay_msg("follows", "1h", id="runs", replace="after", headers={"a": "b"})
    queue.send_delay_msg("waits", "1h", id="waits")
    queue.schedules.add("s", every="1h", payload="fires")
    return runs


@everywhere
def test_everything_but_what_runs_has_the_first_key(open_queue):
    runs = one_of_each(open_queue)
    both, after = open_queue(codec=BOTH), open_queue(codec=AFTER)
    assert both.rekey() == Rekeyed(4, 0, 1, 0, ())
    assert (after.get("waits").payload, after.get("dead").payload) == ("waits", "dead")
    assert (after.get("dead").headers, after.get("dead").name) == ({"a": "b"}, "n")
    assert after.schedules.get("s").payload == "fires"
    assert runs.ack()
    assert (after.get("runs").payload, after.get("runs").headers) == ("follows", {"a": "b"})
    assert both.rekey() == Rekeyed(0, 4, 0, 0, ())


@pytest.fixture
def several(url):
    """The same queue with the old key, with both, with the new one and without."""
    codecs = (BEFORE, BOTH, AFTER, "bytes")
    with ExitStack() as opened:
        yield [opened.enter_context(DelayQueue("reminders", url=url, codec=codec)) for codec in codecs]


def held(before, _):
    before.send_delay_msg("old", id="m", retries=1)
    (message,) = before.lease(n=1)
    return message


def dead(before, _):
    assert held(before, _).reject("no")


def waiting(before, _):
    before.send_delay_msg("old", "1h", id="m")


def scheduled(before, _):
    before.schedules.add("s", every="1h", payload="old")


def followed(before, both):
    """Only what follows has the old key."""
    both.send_delay_msg("new", id="m")
    (message,) = both.lease(n=1)
    before.send_delay_msg("old", "1h", id="m", replace="after")
    return message


def redrive(other, _):
    other.dead.redrive(all=True)


def kill(other, _):
    other.kill("m")


def reject(_, message):
    message.reject("no")


MOVES = {
    "redriven": (dead, [redrive]),
    "redriven and dead again": (dead, [redrive, kill]),
    "killed": (waiting, [kill]),
    "killed and redriven": (waiting, [kill, redrive]),
    "fired": (scheduled, [lambda queue, _: queue.schedules.run_now("s")]),
    "fired, and its schedule removed": (
        scheduled,
        [lambda queue, _: queue.schedules.run_now("s"), lambda queue, _: queue.schedules.remove("s")],
    ),
    "failed": (held, [lambda _, message: message.nack()]),
    "died": (held, [reject]),
    "died and redriven": (held, [reject, redrive]),
    "followed": (followed, [lambda _, message: message.ack()]),
    "followed and killed": (followed, [lambda _, message: message.ack(), kill]),
}


@pytest.mark.parametrize("page", range(len(PARTS)))
@pytest.mark.parametrize("move", MOVES)
def test_what_moves_between_two_pages_is_rekeyed_or_counted_as_left(several, monkeypatch, move, page):
    before, both, after, other = several
    prepare, moves = MOVES[move]
    message = prepare(before, both)
    read, pages = rekeying.rekey_page_call, []

    def move_and_read(calls, part, **options):
        if page <= len(pages) < page + len(moves):
            moves[len(pages) - page](other, message)
        pages.append(part)
        return read(calls, part, **options)

    monkeypatch.setattr(rekeying, "rekey_page_call", move_and_read)
    done = both.rekey()
    assert tuple(pages) == PARTS
    monkeypatch.undo()
    assert done.unreadable == 0
    assert done.left or after.rekey().unreadable == 0


@pytest.mark.parametrize("change", [{"labels": ["x"]}, {"every": "2h"}], ids=str)
def test_a_change_of_a_schedule_does_not_bring_back_what_it_has_read(several, monkeypatch, change):
    before, both, after, other = several
    before.schedules.add("s", every="1h", payload="fires")
    put, acts = store.schedule_put_call, [both.rekey]

    def rekey_and_put(calls, *args, **options):
        call = put(calls, *args, **options)
        if acts:
            acts.pop()()
        return call

    monkeypatch.setattr(store, "schedule_put_call", rekey_and_put)
    other.schedules.set("s", **change)
    assert after.schedules.get("s").payload == "fires"
    assert not acts


def test_schedules_that_are_declared_again_stay_unchanged(open_queue):
    one_of_each(open_queue)
    both = open_queue(codec=BOTH)
    both.rekey()
    assert both.schedules.add("s", every="1h", payload="fires") == "unchanged"


def test_without_the_old_key_nothing_changes(open_queue):
    one_of_each(open_queue)
    done = open_queue(codec=AFTER).rekey()
    assert done == Rekeyed(0, 0, 0, 5, ("old",), done.unreadable_ids)
    assert sorted(id.split(":")[0] for id in done.unreadable_ids) == ["dead", "runs", "runs", "s", "waits"]
    assert open_queue(codec=BEFORE).get("waits").payload == "waits"


def test_what_no_key_opens_stays_and_stops_nothing(open_queue):
    raw, both = open_queue(codec="bytes"), open_queue(codec=BOTH)
    good = BEFORE.for_queue("reminders").encode(1)
    moved = BEFORE.for_queue("other").encode(1)
    raw.send_many(
        [NewMessage(data, "1h", id=f"m{n}") for n, data in enumerate([good[:-1], good[:8], moved, b"1", good])]
    )
    done = both.rekey()
    assert (done.rekeyed, done.unreadable, sorted(done.unreadable_ids)) == (1, 4, ["m0", "m1", "m2", "m3"])
    assert raw.get("m1").payload == good[:8]


def test_a_queue_in_the_clear_is_encrypted(open_queue):
    one_of_each(open_queue, "json")
    assert open_queue(codec=Encrypted({"new": NEW}, allow_plain=True)).rekey() == Rekeyed(4, 0, 1, 0, ())
    assert open_queue(codec=AFTER).get("waits").payload == "waits"


@pytest.mark.parametrize("codec", ["json", "bytes"])
def test_a_queue_that_does_not_encrypt_is_refused(open_queue, codec):
    with pytest.raises(ConfigurationError, match="rekey needs a queue that encrypts"):
        open_queue(codec=codec).rekey()


def test_many_and_large_payloads_take_several_pages(open_queue):
    before, both = open_queue(codec=BEFORE), open_queue(codec=BOTH)
    before.send_many([*range(3 * PAGE), *("x" * 700_000 for _ in range(3))], delay="1h")
    assert both.rekey() == Rekeyed(3 * PAGE + 3, 0, 0, 0, ())
    assert both.rekey() == Rekeyed(0, 3 * PAGE + 3, 0, 0, ())


@pytest.mark.parametrize("meanwhile", ["replace", "cancel", "lease", "settle"])
def test_what_changes_between_reading_and_writing_is_left(open_queue, url, monkeypatch, meanwhile):
    rekeyed, acts = QueueCipher.rekeyed, []
    with DelayQueue("reminders", url=url, codec=BEFORE) as before:
        before.send_many([NewMessage("old", id="m"), NewMessage("other", "1h", id="n")])
        acts.append(
            {
                "replace": lambda: before.send_delay_msg("fresh", id="m", replace=True),
                "cancel": lambda: before.cancel("m"),
                "lease": lambda: list(before.lease(n=1)),
                "settle": lambda: [message.ack() for message in before.lease(n=1)],
            }[meanwhile]
        )

        def between(codec, data, **how):
            if acts:
                acts.pop()()
            return rekeyed(codec, data, **how)

        monkeypatch.setattr(QueueCipher, "rekeyed", between)
        assert open_queue(codec=BOTH).rekey() == Rekeyed(1, 0, 1, 0, ())
        found = before.get("m")
        assert (found and found.payload) == {"replace": "fresh", "lease": "old"}.get(meanwhile)


def test_beside_a_worker_each_message_is_delivered_once_with_its_payload(url):
    seen = []
    with (
        DelayQueue("cards", url=url, codec=BEFORE) as sender,
        DelayQueue("cards", url=url, codec=BOTH, callback=lambda message: seen.append(message.payload)) as worker,
        DelayQueue("cards", url=url, codec=BOTH) as admin,
    ):
        sender.send_many(list(range(2000)))
        worker.start_consume(concurrency=2)
        found = [admin.rekey() for _ in range(3)]
        wait_until(lambda: len(seen) >= 2000)
        worker.stop_consume()
        assert sorted(seen) == list(range(2000))
        assert sum(one.rekeyed for one in found) <= 2000
        assert not any(one.unreadable for one in found)
        assert worker.counts().dead == 0
