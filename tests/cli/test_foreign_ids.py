"""A message whose id is no UTF-8 is named by the id that lists show, in every command and method that takes one."""

from __future__ import annotations

import json

import pytest

from delayq import CancelOutcome, DelayQueue, KillOutcome

STORED = b"odd\xff \xc3:1"
SHOWN = "odd\\xff \\xc3:1"
FORMS = [SHOWN, STORED.decode("utf-8", "surrogateescape")]


@pytest.fixture
def queue(redis_url, redis_client):
    def plant():
        redis_client.hset("delayq:{odd}:messages", STORED, b'"x"')
        redis_client.hset("delayq:{odd}:retries", STORED, b"3")
        redis_client.zadd("delayq:{odd}:pending", {STORED: 4e12})

    with DelayQueue("odd", url=redis_url) as opened:
        opened.send_delay_msg(1, "1h", id="other")
        plant()
        opened.plant = plant
        yield opened
        assert opened.get("other").payload == 1


@pytest.mark.parametrize("id", FORMS, ids=["shown", "surrogates"])
def test_methods_find_what_lists_show(queue, id):
    assert [one.id for one in queue.list("pending").messages] == ["other", SHOWN]
    assert (queue.get(id).id, queue.get(id).payload) == (SHOWN, "x")
    assert queue.reschedule(id, "2h") == "rescheduled"
    assert queue.cancel(id) is CancelOutcome.CANCELLED
    assert queue.get(id) is None
    queue.plant()
    assert queue.kill(id) is KillOutcome.KILLED
    entry = queue.get(id).entry
    assert queue.dead.redrive(entry).redriven == 1
    assert queue.kill(id) is KillOutcome.KILLED
    assert queue.dead.redrive(payloads={id: "y"}).redriven == 1
    assert queue.get(id).payload == "y"
    assert queue.kill(id) is KillOutcome.KILLED
    assert queue.dead.purge(id) == 1


def test_filters_act_on_it_as_well(queue):
    assert dict(queue.select("pending").kill()) == {KillOutcome.KILLED: 2}
    assert queue.dead.redrive(all=True).redriven == 2


def test_commands_find_what_lists_show(queue, cli):
    listed = json.loads(cli("list", "odd", "--json").out)
    assert SHOWN in [one["id"] for one in listed["messages"]]
    assert json.loads(cli("show", "odd", SHOWN, "--json").out)["payload"] == "x"
    for words in (
        ["reschedule", "odd", SHOWN, "--delay", "2h"],
        ["kill", "odd", SHOWN],
        ["dead", "redrive", "odd", SHOWN, "--yes"],
        ["kill", "odd", SHOWN],
        ["dead", "purge", "odd", SHOWN, "--yes"],
    ):
        ended = cli(*words)
        assert ended.code == 0, (words, ended)
    queue.plant()
    assert cli("cancel", "odd", SHOWN).code == 0
    assert cli("show", "odd", SHOWN).code == 3
