"""`delayq events` and `delayq runs`: what happened, to people and to machines."""

import json
import re
import signal
from datetime import timedelta

import pytest

from delayq import DelayQueue, NewMessage, UnavailableError
from delayq.broker.requests import RedisCommand
from delayq.cli.support.session import Session
from tests.cli.conftest import PATIENCE
from tests.support.waiting import wait_until

EVENT_KEYS = {
    "offset", "index", "kind", "at", "id", "due", "attempt", "token", "retries_left", "holder", "run",
    "reason", "error", "name",
}  # fmt: skip


def lines(ended):
    return [json.loads(line) for line in ended.out.splitlines()]


def test_turns_the_log_on_and_off_for_all_processes(cli, queue):
    queue.send_delay_msg(1, id="before")
    ended = cli("events", "reminders", "--on")
    assert (ended.code, ended.out, ended.err) == (0, "", "the event log of reminders is on\n")
    queue.send_delay_msg(1, id="logged")
    assert cli("events", "reminders", "--off").code == 0
    queue.send_delay_msg(1, id="after")
    assert [event["id"] for event in lines(cli("events", "reminders", "--json"))] == ["logged"]


def test_log_is_turned_on_with_a_length(cli, queue):
    assert cli("events", "reminders", "--on", "--max-len", "5000").code == 0
    queue.send_many([NewMessage(n) for n in range(10)])
    keys = queue.context.calls.keys
    stored = queue.executor.call(RedisCommand(("HGET", keys.meta, "events"), bytes.decode))
    assert "5000" in stored
    for wrong in (["--max-len", "5000"], ["--off", "--max-len", "5000"]):
        ended = cli("events", "reminders", *wrong)
        assert (ended.code, ended.line) == (2, "--max-len goes with --on. See 'delayq events --help'.")


def test_says_whether_the_log_or_only_the_choice_is_empty(cli, queue):
    cli("events", "reminders", "--on")
    assert cli("events", "reminders").err.startswith("no events in reminders; if its log is off")
    queue.send_delay_msg(1, id="a")
    assert cli("events", "reminders", "--id", "b").err == "no such event in the log of reminders\n"


def test_says_if_the_beginning_of_a_story_was_trimmed(cli, queue, redis_client):
    cli("events", "reminders", "--on")
    for id in "ab":
        queue.send_delay_msg(1, "1h", id=id)
    queue.reschedule("a", "2h")
    assert cli("events", "reminders", "--id", "a").err == ""
    redis_client.xtrim(queue.context.calls.keys.events, maxlen=2, approximate=False)
    assert re.fullmatch(
        r"the log begins at \S+: what happened before was trimmed\n", cli("events", "reminders", "--id", "a").err
    )
    assert cli("events", "reminders", "--id", "b").err == ""
    unknown = cli("events", "reminders", "--id", "c").err
    assert re.fullmatch(r"no such event in the log of reminders, which begins at \S+\n", unknown)


def test_prints_one_line_per_event(cli, queue):
    cli("events", "reminders", "--on")
    queue.send_delay_msg(1, id="a", retries=1)
    (message,) = queue.lease(n=1)
    message.nack(error="smtp: refused\nat line 3")
    out = cli("events", "reminders").out.splitlines()
    assert [line.split()[2:4] for line in out] == [
        ["sent", "a"],
        ["promoted", "a"],
        ["delivered", "a"],
        ["nacked", "a"],
    ]
    assert "retries left 1" in out[0]
    assert "attempt 1" in out[2]
    assert out[3].endswith("smtp: refused")


def test_prints_json_filtered_by_id_kind_and_offset(cli, queue):
    cli("events", "reminders", "--on")
    for id in "ab":
        queue.send_delay_msg(1, id=id)
    queue.cancel("a")
    every = lines(cli("events", "reminders", "--json"))
    assert all(set(event) == EVENT_KEYS for event in every)
    assert [(event["offset"], event["kind"], event["id"]) for event in every] == [
        (1, "sent", "a"),
        (2, "sent", "b"),
        (3, "cancelled", "a"),
    ]
    assert lines(cli("events", "reminders", "--json", "--id", "a", "--id", "b")) == every
    assert lines(cli("events", "reminders", "--json", "--kind", "cancelled")) == every[2:]
    assert lines(cli("events", "reminders", "--json", "--after", "1")) == every[1:]


def test_explains_how_to_turn_the_log_on(cli, queue):
    queue.send_delay_msg(1)
    ended = cli("events", "reminders")
    assert (ended.code, ended.out) == (0, "")
    assert "delayq events reminders --on" in ended.err
    assert cli("events", "reminders", "--json").err == ""


def test_refuses_invalid_offset_kind_and_queue(cli, queue):
    queue.send_delay_msg(1)
    ended = cli("events", "reminders", "--after", "yesterday")
    assert (ended.code, ended.line) == (2, "--after must be an offset of the event log or 'now', not 'yesterday'")
    assert cli("events", "reminders", "--kind", "lost").code == 2
    assert (cli("events", "remiders").code, cli("events", "remiders").line.endswith("did you mean 'reminders'?")) == (
        3,
        True,
    )


def test_follows_until_ctrl_c(start, queue):
    with DelayQueue("reminders", redis=queue.executor.client, events=True) as logged:
        logged.send_delay_msg(1, id="first")
        program = start("events", "reminders", "--follow", "--json")
        program.until(lambda: "first" in program.out, "the first event")
        logged.send_delay_msg(1, id="second")
        wait_until(lambda: "second" in program.out, PATIENCE, "the second event")
        program.signal(signal.SIGINT)
        assert program.ends() == 0


def test_lists_runs_and_their_refusals(cli, queue):
    queue.send_many([NewMessage(1, id="a"), NewMessage(2, id="b")], delay="1h", run="nightly")
    queue.send_many([NewMessage(1, id="a")], run="again")
    queue.end_run("nightly", refusals=[("c", "payload too large")])
    runs = {info["run"]: info for info in cli("runs", "reminders", "--json").json["runs"]}
    again, nightly = runs["again"], runs["nightly"]
    assert (again["state"], again["exists"], again["ended"]) == ("writing", 1, None)
    assert (nightly["state"], nightly["new"], nightly["refused"]) == ("committed", 2, 1)
    header, *rows = cli("runs", "reminders").out.splitlines()
    assert header.split() == ["run", "state", "started", "new", "exists", "replaced", "running", "settled", "refused"]
    assert sorted(row.split()[:2] for row in rows) == [["again", "writing"], ["nightly", "committed"]]
    assert cli("runs", "reminders", "nightly", "--json").json == {
        "refusals": [{"id": "c", "reason": "payload too large"}]
    }
    assert "payload too large" in cli("runs", "reminders", "nightly").out
    assert cli("runs", "reminders", "again").err == "no refusals in the run again\n"
    ended = cli("runs", "reminders", "nightli")
    assert (ended.code, ended.line) == (3, "no run named 'nightli', did you mean 'nightly'?")


def test_ends_and_forgets_a_run(cli, queue):
    queue.send_many([NewMessage(1, id="a")], delay="1h", run="nightly")
    assert cli("runs", "end", "reminders", "nightly", "--aborted").err == "run nightly is aborted\n"
    assert cli("runs", "end", "reminders", "nightly").err == "run nightly is committed\n"
    assert cli("runs", "list", "reminders", "--json").json["runs"][0]["state"] == "committed"
    assert cli("runs", "forget", "reminders", "nightly").err == "forgot run nightly\n"
    assert cli("runs", "reminders", "--json").json == {"runs": []}
    for command in ("end", "forget"):
        assert cli("runs", command, "reminders", "nightly").code == 3
    assert queue.counts().pending == 1


def test_notes_that_there_are_no_runs(cli, queue):
    queue.send_delay_msg(1)
    assert cli("runs", "reminders").err.startswith("no runs in reminders")
    assert cli("runs", "reminders", "--json").json == {"runs": []}


@pytest.mark.long
@pytest.mark.faults
def test_follows_across_an_outage_that_is_longer_than_the_timeout(start, start_redis):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    with DelayQueue("reminders", url=server.url, events=True) as queue:
        queue.send_delay_msg(1, 60, id="before")
        program = start("--timeout", "1s", "events", "reminders", "--follow", "--json", url=server.url)
        program.until(lambda: '"before"' in program.out, "the first event")
        server.kill()
        program.says("Redis does not answer")
        with pytest.raises(UnavailableError):
            DelayQueue("reminders", url=server.url, deadline="2s").counts()
        server.start()
        program.says("Redis answers again")
        queue.send_delay_msg(1, 60, id="after")
        program.until(lambda: '"after"' in program.out, "the second event")
        program.signal(signal.SIGINT)
        assert program.ends() == 0


@pytest.mark.parametrize(
    ("url", "seconds"),
    [
        ("redis://h", 3),
        (None, 3),
        ("redis+sentinel://h/?master=m", 30),
        ("rediss+cluster://h", 30),
    ],
)
def test_commands_wait_as_long_as_a_failover_takes(url, seconds):
    session = Session(url, "delayq", None)
    assert session.timeout == timedelta(seconds=seconds)
    assert session.options["socket_timeout"] <= timedelta(seconds=5)
