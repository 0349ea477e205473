"""The run ledger: how the messages of a bulk send were stored, and which were refused before sending."""

from __future__ import annotations

from datetime import timedelta

import pytest

from delayq import ConfigurationError, NewMessage, QueueFullError, RunInfo
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

pytestmark = everywhere


def messages(ids, *, delay=60):
    return [NewMessage(f"payload of {id}", id=id, delay=delay) for id in ids]


def counts(info):
    return info.new, info.exists, info.replaced, info.running, info.settled, info.refused


def run_of(queue, name="nightly"):
    (info,) = (info for info in queue.runs() if info.run == name)
    return info


def test_sends_without_a_run_name_are_not_in_the_ledger(queue):
    queue.send_many(["a", "b"])
    queue.send_delay_msg("c")

    assert queue.runs() == []


def test_ledger_counts_the_status_of_each_message(open_queue):
    queue = open_queue(dedupe_window="1h")
    queue.send_many(messages("r", delay=0))
    (running,) = queue.lease("60s", n=1)
    queue.send_many(messages("ab"))
    queue.send_many(messages("s"))
    queue.cancel("s")

    queue.send_many(messages("abcrs"), run="nightly")
    assert counts(run_of(queue)) == (1, 3, 0, 0, 1, 0)
    sent = queue.send_many(messages("abcdrs"), run="nightly", replace=True)

    assert [one.status for one in sent] == ["replaced", "replaced", "replaced", "new", "running", "settled"]
    info = run_of(queue)
    assert (info.state, counts(info)) == ("writing", (2, 3, 3, 1, 2, 0))
    assert info.sent == 11
    assert timedelta() <= queue.stats().at - info.started < timedelta(seconds=10)
    assert info.ended is None
    assert running.ack()


def test_replaced_spent_message_is_counted_once(queue):
    queue.send_delay_msg("hopeless", id="m", retries=0)
    (message,) = queue.lease(n=1)
    message.nack()

    queue.send_many(messages("am"), run="nightly")

    assert counts(run_of(queue)) == (2, 0, 0, 0, 0, 0)


def test_counts_of_several_batches_are_added(queue):
    queue.send_many(range(3210), 60, run="nightly")
    queue.send_many(iter(range(790)), 60, run="nightly")

    assert run_of(queue).new == 4000


def test_sending_no_messages_starts_no_run(queue):
    queue.send_many([], run="nightly")

    assert queue.runs() == []


def test_messages_refused_by_a_full_queue_are_not_counted(open_queue):
    queue = open_queue(max_length=600)

    with pytest.raises(QueueFullError):
        queue.send_many(range(1000), 60, run="nightly")

    assert run_of(queue).new == queue.counts().living == 500


def test_runs_are_listed_latest_first(queue):
    for run in ("first", "second", "third"):
        queue.send_many(["hello"], 60, run=run)
        at = queue.stats().at
        wait_until(lambda at=at: queue.stats().at > at)

    assert [info.run for info in queue.runs()] == ["third", "second", "first"]


# The end of a run


def test_ended_run_is_committed(queue):
    queue.send_many(messages("ab"), run="nightly")

    ended = queue.end_run("nightly")

    assert isinstance(ended, RunInfo)
    assert (ended.run, ended.state, counts(ended)) == ("nightly", "committed", (2, 0, 0, 0, 0, 0))
    assert ended.started <= ended.ended <= queue.stats().at
    assert queue.runs() == [ended]
    assert queue.refusals("nightly") == []


def test_messages_of_an_aborted_run_stay_in_the_queue(queue):
    queue.send_many(messages("ab"), run="nightly")

    assert queue.end_run("nightly", aborted=True).state == "aborted"
    assert queue.counts().pending == 2


def test_forgotten_run_is_not_in_the_ledger(queue):
    queue.send_many(messages("ab"), run="nightly")
    queue.end_run("nightly", refusals=[("c", "due is missing")])

    assert queue.forget_run("nightly")
    assert not queue.forget_run("nightly")
    assert queue.runs() == []
    assert queue.refusals("nightly") == []
    assert queue.counts().pending == 2


def test_refusals_are_counted_and_listed(queue):
    queue.send_many(messages("a"), run="nightly")

    ended = queue.end_run("nightly", refusals=[("b", "due is missing"), ("c", "ünïcode\n\x00")])

    assert ended.refused == 2
    assert ended.sent == 1
    assert queue.refusals("nightly") == [("b", "due is missing"), ("c", "ünïcode\n\x00")]


def test_refused_count_can_exceed_the_listed_refusals(queue):
    assert queue.end_run("nightly", refusals=[("b", "no")], refused=70_000).refused == 70_000
    assert queue.refusals("nightly") == [("b", "no")]


def test_the_first_thousand_refusals_are_listed(queue):
    refusals = [(f"m{n}", "no") for n in range(1001)]

    assert queue.end_run("nightly", refusals=iter(refusals)).refused == 1001
    assert queue.refusals("nightly") == refusals[:1000]


def test_each_epoch_of_a_run_counts_once(queue):
    for epoch in (0, 1, 1, 0, 2):
        queue.end_run("stream", epoch=epoch, refusals=[(f"m{epoch}", "no")])

    assert run_of(queue, "stream").refused == 3
    assert queue.refusals("stream") == [("m2", "no")]


def test_a_run_without_epochs_can_be_ended_again(queue):
    queue.end_run("nightly", aborted=True, refused=2)
    queue.send_many(messages("a"), run="nightly")
    ended = queue.end_run("nightly", refused=1)

    assert (ended.state, counts(ended)) == ("committed", (1, 0, 0, 0, 0, 3))


def test_unknown_runs_have_no_refusals(queue):
    assert queue.refusals("never") == []


# Invalid arguments


@pytest.mark.parametrize("run", ["", "a b", "x" * 129, "a\n", "ü", 5, b"r"], ids=repr)
def test_invalid_run_name_is_refused(queue, run):
    for attempt in (
        lambda: queue.send_many(["hello"], run=run),
        lambda: queue.end_run(run),
        lambda: queue.refusals(run),
    ):
        with pytest.raises(ConfigurationError, match="run must be 1 to 128 of"):
            attempt()
    assert queue.counts().living == 0


@pytest.mark.parametrize(
    "wrong", [{"epoch": -2}, {"epoch": 1.0}, {"epoch": True}, {"refused": -1}, {"refused": "2"}], ids=repr
)
def test_invalid_number_is_refused_by_name(queue, wrong):
    with pytest.raises(ConfigurationError, match=f"{next(iter(wrong))} must be a whole number from"):
        queue.end_run("nightly", **wrong)
    assert queue.runs() == []
