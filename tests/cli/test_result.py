"""`delayq result`: prints the result of a message, and waits for it."""

from __future__ import annotations

import threading

import pytest

from delayq import Discard, Reject
from tests.cli.conftest import PATIENCE
from tests.support.waiting import wait_until


@pytest.fixture
def done(queue):
    """Messages that have ended in every way: `sum`, `none`, `text`, `rejected`, `discarded`."""

    @queue.callback
    def work(message):
        if message.id == "rejected":
            raise Reject("no such customer")
        if message.id == "discarded":
            raise Discard("already shipped")
        return {"sum": {"of": [1, 2]}, "none": None, "text": "a\x1b[31mb"}[message.id]

    for id in ("sum", "none", "text", "rejected", "discarded"):
        queue.send_delay_msg(1, id=id, retention="1h", name="n")
    queue.run(burst=True)
    return queue


@pytest.mark.usefixtures("done")
def test_prints_the_result(cli):
    assert cli("result", "reminders", "sum").out == '{"of":[1,2]}\n'
    assert cli("result", "reminders", "none").out == "null\n"
    assert "\x1b" not in cli("result", "reminders", "text").out
    found = cli("result", "reminders", "sum", "--json")
    told = {"queue": "reminders", "id": "sum", "result": {"of": [1, 2]}, "encoding": "json"}
    assert (found.code, found.json) == (0, told)


@pytest.mark.usefixtures("done")
def test_failure_is_exit_code_1_and_no_result_3(cli, queue):
    ended = cli("result", "reminders", "rejected")
    assert (ended.code, ended.line) == (1, "message rejected failed after 1 attempt: no such customer")
    ended = cli("result", "reminders", "discarded", "--json")
    failure = {"reason": "already shipped", "error": "", "attempts": 1}
    assert (ended.code, ended.json) == (1, {"queue": "reminders", "id": "discarded", "error": failure})
    assert cli("result", "reminders", "unknown").code == 3
    assert cli("result", "nowhere", "sum").code == 3
    queue.send_delay_msg(1, "1h", id="later", retention="1h")
    ended = cli("result", "reminders", "later", "--timeout=100ms")
    assert (ended.code, ended.line) == (1, "message later has not ended within 100ms")
    assert cli("result", "reminders", "later", "--timeout=soon").code == 2


def test_waits_for_the_end(cli, queue, redis_client):
    queue.callback(lambda message: message.payload)
    assert cli("send", "reminders", "7", "--id=a", "--delay=1h", "--retention=2h").code == 0

    def consume():
        wait_until(lambda: redis_client.zcard("delayq:{reminders}:waited") == 1, PATIENCE)
        queue.reschedule("a", 0)
        queue.run(burst=True)

    consuming = threading.Thread(target=consume)
    consuming.start()
    assert cli("result", "reminders", "a", "--timeout=30s").out == "7\n"
    consuming.join()


@pytest.mark.usefixtures("done")
def test_completed_messages_are_listed_shown_and_counted(cli):
    listed = cli("list", "reminders", "--state=completed", "--json").json["messages"]
    assert {message["id"]: message["result"] for message in listed} == {
        "sum": {"of": [1, 2]},
        "none": None,
        "text": "a\x1b[31mb",
        "discarded": None,
    }
    assert {(message["state"], message["payload"], message["retention"]) for message in listed} == {
        ("completed", None, 3600)
    }
    assert '{"of":[1,2]}' in cli("list", "reminders", "--state=completed").out
    assert cli("list", "reminders", "--state=completed", "--csv").code == 0
    shown = cli("show", "reminders", "sum").out
    for text in ("completed", '{"of":[1,2]}', "kept until", "retention", "1h"):
        assert text in shown
    assert "already shipped" in cli("show", "reminders", "discarded").out
    assert cli("show", "reminders", "sum", "--json").json["result"] == {"of": [1, 2]}
    assert cli("stats", "reminders", "--json").json["completed"] == 4
    assert "completed" in cli("stats", "reminders").out


def test_progress_is_shown(cli, queue):
    queue.send_delay_msg(1, id="a")
    with queue.lease() as message:
        message.report({"rows": 3})
        assert '{"rows":3}' in cli("show", "reminders", "a").out
        assert cli("show", "reminders", "a", "--json").json["progress"] == {"rows": 3}


def test_streams_and_bad_retention_are_refused(cli):
    ended = cli("send", "tasks", "1", "--engine=streams", "--retention=1h")
    assert (ended.code, ended.line) == (2, "the streams engine has no results")
    assert cli("send", "reminders", "1", "--retention=soon").code == 2
