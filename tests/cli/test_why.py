"""`delayq why`, and the line `why` of `delayq show`."""

import re

import pytest

from delayq import NewMessage


def test_says_why_a_message_waits(cli, queue):
    queue.pause("1h", reason="deploy")
    queue.send_delay_msg(1, id="m")
    ended = cli("why", "reminders", "m")
    assert ended.code == 0
    first, second = ended.out.splitlines()
    assert first.startswith("the queue is paused until 20")
    assert first.endswith(": deploy")
    assert re.search(r"T\d\d:\d\d:\d\d\+09:00 \(in ", cli("--tz", "Asia/Tokyo", "why", "reminders", "m").out)
    assert second == "nobody consumes this queue: nothing was ever claimed"


def test_says_why_a_queue_waits(cli, queue):
    queue.limits.set("mail", running=1)
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(2)])
    assert len([*queue.lease(n=2)]) == 1
    lines = cli("why", "reminders").out.splitlines()
    assert lines == [
        "1 message is held back: 1 of 1 places of mail are taken",
        "1 message is held by consumers",
    ]
    assert cli("why", "reminders", "m1").out == "1 of 1 places of mail are taken, by m0\n"


def test_json_has_every_field(cli, queue):
    queue.send_delay_msg(1, "1h", id="m")
    found = cli("why", "reminders", "m", "--json").json
    assert list(found) == ["queue", "id", "state", "at", "reasons"]
    assert (found["queue"], found["id"], found["state"]) == ("reminders", "m", "pending")
    assert [list(reason) for reason in found["reasons"]] == [["kind", "text", "until", "name", "ids"]] * 2
    assert [reason["kind"] for reason in found["reasons"]] == ["due", "nobody"]


@pytest.mark.parametrize("id", ["done", "gone"])
def test_unknown_id_is_one_line_and_exit_code_3(cli, queue, id):
    queue.send_delay_msg(1, id="done", unique_for="1h")
    (message,) = queue.lease(n=1)
    message.ack()
    ended = cli("why", "reminders", id, "--json")
    assert (ended.code, ended.out) == (3, "")
    assert ended.line.startswith(
        f"{id} in reminders: {'it is settled' if id == 'done' else 'there is no such message'}"
    )


def test_bad_input_is_one_line(cli, queue):
    queue.send_delay_msg(1)
    assert (cli("why", "reminders", "a b").code, cli("why", "nowhere").code) == (2, 3)
    assert cli("why", "nowhere", "m").line.startswith("no queue named 'nowhere'")


def test_show_has_a_line_for_each_reason(cli, queue):
    queue.send_delay_msg(1, id="m", name="mail")
    queue.pause(name="mail", reason="no relay")
    out = cli("show", "reminders", "m").out
    assert "why       nobody consumes this queue: nothing was ever claimed\n" in out
    assert "the name mail is paused until it is resumed: no relay\n" in out
