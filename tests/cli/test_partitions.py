"""`delayq partitions` shows the partitions of a queue, and changes their number."""

from __future__ import annotations

import pytest

from delayq import DelayQueue


@pytest.fixture
def queue(redis_url):
    with DelayQueue("reminders", url=redis_url) as opened:
        yield opened


def test_a_queue_is_spread_and_shown(cli, queue):
    queue.send_many([str(n) for n in range(40)], delay=3600)
    done = cli("partitions", "reminders", "--to", "4")
    assert "reminders: moved 40" in done.err
    assert "reminders: 4 partitions, epoch 3" in done.out
    shown = cli("partitions", "reminders", "--json").json
    assert shown["partitions"] == 4
    assert shown["moving_from"] is None
    assert [one["name"] for one in shown["states"]] == [f"reminders#{n}" for n in range(4)]
    assert sum(one["messages"] for one in shown["states"]) == 40
    assert {one["misplaced"] + one["on_the_way"] for one in shown["states"]} == {0}


def test_a_queue_that_has_as_many_is_left_alone(cli, queue):
    queue.send("x")
    done = cli("partitions", "reminders", "--to", "1")
    assert "reminders has 1 partition: nothing to do" in done.err
    assert "reminders: 1 partition, epoch 0" in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["reminders", "--to", "0"], 2, "0 is not in the range 1<=x<=1000"),
        (["reminders", "--to", "1.5"], 2, "'1.5' is not a valid integer"),
        (["reminders", "--to", "10000"], 2, "10000 is not in the range 1<=x<=1000"),
        (["nowhere", "--to", "4"], 3, "no queue named 'nowhere'"),
        (["nowhere"], 3, "no queue named 'nowhere'"),
    ],
)
def test_bad_input_is_told_in_one_line(cli, queue, arguments, code, text):
    queue.send("x")
    failed = cli("partitions", *arguments)
    assert failed.code == code
    assert text in failed.err
    assert len(failed.err.strip().splitlines()) == 1
