"""`delayq limits`, and pauses of a name."""

from __future__ import annotations

import re

import pytest

from delayq import DelayQueue


def test_sets_lists_and_removes_limits(cli, queue):
    queue.send_delay_msg(1)
    assert cli("limits", "list", "reminders").err == "no limits in reminders\n"
    assert cli("limits", "set", "reminders", "--rate", "200/s").out == "reminders  200/s, any number running\n"
    made = cli(
        "limits", "set", "reminders", "--name", "mail", "--rate", "5/m", "--burst", "2", "--running", "3", "--json"
    )
    assert made.json["queue"] == "reminders"
    limit = {"name": "mail", "rate_limit": "5/m", "burst": 2, "running": 3, "throttled": 0, "active": 0}
    assert made.json["limit"] == limit | {
        "paused": None,
        "closed_until": None,
        "tripped_until": None,
        "spread_until": None,
        "declared": None,
        "in_order": False,
    }
    listed = cli("limits", "list", "reminders").out
    assert "(the queue)" in listed
    assert "mail" in listed
    assert [one["name"] for one in cli("limits", "list", "reminders", "--json").json["limits"]] == [None, "mail"]
    assert cli("limits", "remove", "reminders", "--name", "mail").out == "reminders mail  removed\n"
    assert cli("limits", "remove", "reminders", "--name", "mail").out == "reminders mail  had no limit\n"
    removed = cli("limits", "remove", "reminders", "--json").json
    assert removed == {"queue": "reminders", "name": None, "removed": True}
    assert queue.limits.list() == []


def test_sets_lists_and_removes_a_template_of_keys(cli, queue):
    assert cli("send", "reminders", "1", "--key", "account:7", "--id", "m").err.startswith("sent to reminders")
    assert queue.get("m").key == "account:7"
    shown = cli("limits", "set", "reminders", "--name", "account:*", "--in-order").out
    assert shown == "reminders account:*  any rate, 1 running, in order\n"
    assert re.search("key +account:7", cli("show", "reminders", "m").out)
    (limit,) = cli("limits", "list", "reminders", "--json").json["limits"]
    assert (limit["name"], limit["running"], limit["in_order"]) == ("account:*", 1, True)
    assert "account:* any 1 0 0 in order" in " ".join(cli("limits", "list", "reminders").out.split())
    assert cli("limits", "remove", "reminders", "--name", "account:*").out == "reminders account:*  removed\n"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--name", "acc*", "--running", "1"], "the template overlaps account:*, and a key has one limit: remove"),
        (["--name", "mail", "--in-order"], "in_order is for the keys of a template"),
        (["--name", "user:*", "--running", "2", "--in-order"], "in_order runs one message of a key at a time"),
        (["--name", "user:*", "--rate", "5/s"], "a template has no rate: limit user:* by running=, or a name"),
        (["--name", "us*er", "--running", "1"], "a template must be the beginning of keys with a * at its end"),
    ],
)
def test_template_that_cannot_be_is_refused(cli, queue, options, error):
    queue.limits.set("account:*", running=1)
    ended = cli("limits", "set", "reminders", *options)
    assert ended.code == 2
    assert error in ended.err
    assert ended.err.count("\n") == 1


def test_shows_what_programs_declare_where_another_limit_counts(cli, redis_url):
    with DelayQueue("reminders", url=redis_url, callback=print, rate_limit="5/m", running=3) as queue:
        queue.run(burst=True)
    assert "declared" not in cli("limits", "list", "reminders").out
    cli("limits", "set", "reminders", "--running", "9")
    listed = " ".join(cli("limits", "list", "reminders").out.split())
    assert "5/m 1 9 0 0 declared 5/m, 3 running" in listed
    cli("limits", "remove", "reminders")
    assert "any any 0 0 declared 5/m, 3 running" in " ".join(cli("limits", "list", "reminders").out.split())
    (removed,) = cli("limits", "list", "reminders", "--json").json["limits"]
    assert removed["rate_limit"] is None
    assert removed["declared"] == {"rate_limit": "5/m", "burst": 1, "running": 3}


def test_pauses_and_resumes_a_name(cli, queue):
    queue.send_delay_msg(1, name="mail")
    text = "reminders mail  paused until it is resumed: down\n"
    assert cli("pause", "reminders", "--name", "mail", "--reason", "down").out == text
    assert "paused until it is resumed: down" in " ".join(cli("limits", "list", "reminders").out.split())
    with queue.lease() as message:
        assert message is None
    assert "mail" in cli("list", "reminders", "--state", "throttled", "--json").out
    resumed = cli("resume", "reminders", "--name", "mail", "--spread", "2s", "--json").json
    assert resumed == {"queue": "reminders", "name": "mail", "resumed": True}
    assert queue.limits.list()[0].spread_until is not None
    assert "spread until 20" in " ".join(cli("limits", "list", "reminders").out.split())
    assert cli("resume", "reminders", "--name", "mail").out == "reminders mail  resumed\n"
    assert cli("resume", "reminders", "--name", "mail").out == "reminders mail  was not paused\n"


def test_shows_which_breaker_has_tripped(cli, queue, redis_client):
    queue.send_delay_msg(1, name="mail")
    now = round(queue.stats().at.timestamp() * 1000)
    texts = {"name:mail": f"1 0 1 0 0/{now + 90_000}/60000/2 - 0 0 0 ", "name:sms": f"2 0 1 0 0/{now}/60000/2 - 0 0 0 "}
    redis_client.hset("delayq:{reminders}:limits", mapping=texts | {"name:web": f"3 0 1 0 0/{now}/9/0 - 0 0 0 "})
    listed = cli("limits", "list", "reminders").out
    assert re.search(r"mail .* tripped until .* \(in (1m|59s)", listed)
    assert re.search(r"sms .* tries the next", listed)
    assert re.search(r"web .* 0 *0 *$", listed, re.MULTILINE)
    times = {one["name"]: one["tripped_until"] for one in cli("limits", "list", "reminders", "--json").json["limits"]}
    assert (times["web"], times["mail"] > times["sms"]) == (None, True)
    assert cli("resume", "reminders").out == "reminders  was not paused\n"
    assert cli("resume", "reminders", "--name", "mail").out == "reminders mail  resumed\n"
    assert cli("resume", "reminders", "--name", "sms", "--json").json["resumed"] is True
    assert "tripped" not in cli("limits", "list", "reminders").out


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["set", "gone", "--running", "1"], 3, "gone"),
        (["set", "reminders"], 2, "say what to limit: --rate 200/s, --running 5, or both"),
        (["set", "reminders", "--rate", "5/fortnight"], 2, "per s, m, h or d"),
        (["set", "reminders", "--rate", "fast"], 2, "must look like"),
        (["set", "reminders", "--burst", "2"], 2, "burst goes with rate_limit"),
        (["set", "reminders", "--running", "0"], 2, "running must be a whole number"),
        (["set", "reminders", "--name", "a b", "--running", "1"], 2, "name must be"),
        (["set", "reminders", "--running", "1", "--engine", "streams"], 2, "the streams engine has no limits"),
        (["list", "reminders", "--engine", "streams"], 2, "the streams engine has no limits"),
    ],
)
def test_bad_limit_is_one_line_and_changes_nothing(cli, queue, arguments, code, text):
    queue.send_delay_msg(1)
    ended = cli("limits", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert text in ended.err
    assert ended.err.count("\n") == 1
    assert queue.limits.list() == []
