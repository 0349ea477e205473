"""`delayq cancel`, `kill`, `reschedule`, `run-now` and `purge`."""

import os
import re
from datetime import UTC, datetime, timedelta

import pytest

from delayq import NewMessage
from tests.cli.conftest import Program, terminal


@pytest.fixture
def messages(queue):
    """Two pending messages, one in flight, and a dead one."""
    queue.send_delay_msg(1, id="running")
    queue.send_delay_msg(1, id="dead")
    held = {message.id: message for message in queue.lease(n=2)}
    held["dead"].reject("no")
    queue.send_delay_msg(1, "1h", id="waiting")
    queue.send_delay_msg(1, "1h", id="other")
    return queue


# cancel


@pytest.mark.parametrize(
    ("ids", "outcomes", "code"),
    [
        (["waiting"], ["cancelled"], 0),
        (["waiting", "other"], ["cancelled", "cancelled"], 0),
        (["gone"], ["gone"], 3),
        (["running"], ["running"], 1),
        (["dead"], ["dead"], 1),
        (["waiting", "gone"], ["cancelled", "gone"], 3),
        (["gone", "running", "waiting"], ["gone", "running", "cancelled"], 1),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_cancels_and_prints_each_outcome(cli, messages, *, ids, outcomes, code, as_json):
    ended = cli("cancel", "reminders", *ids, *(["--json"] if as_json else []))
    assert (ended.code, ended.err) == (code, "")
    if as_json:
        results = [{"id": id, "outcome": outcome} for id, outcome in zip(ids, outcomes, strict=True)]
        assert ended.json == {"queue": "reminders", "results": results}
    else:
        assert ended.out == "".join(f"{id}  {outcome}\n" for id, outcome in zip(ids, outcomes, strict=True))
    assert (messages.get("waiting") is None) == ("waiting" in ids)


def test_cancel_refuses_invalid_ids(cli, messages):
    assert "select messages: give ids, or --name" in cli("cancel", "reminders").line
    ended = cli("cancel", "reminders", "waiting", "b\x1b[31mad")
    assert (ended.code, ended.out) == (2, "")
    assert "id must be 1 to 128" in ended.line
    assert messages.get("waiting") is not None


# By a filter


@pytest.fixture
def named(queue):
    """Three mails due in an hour, and another message."""
    queue.send_many(NewMessage(n, id=f"user-7:{n}", name="mail", delay="1h") for n in range(3))
    queue.send_delay_msg(1, "1h", id="other")
    return queue


def test_cancels_what_matches_after_a_dry_run(cli, named):
    assert cli("cancel", "reminders", "--name", "mail", "--dry-run").out == "would cancel 3 messages\n"
    dry = cli("cancel", "reminders", "--id-prefix", "user-7:", "--dry-run", "--json").json
    assert dry == {"queue": "reminders", "matched": 3, "outcomes": {}, "dry_run": True}
    refused = cli("cancel", "reminders", "--name", "mail")
    assert (refused.code, "give --yes, or --dry-run" in refused.line) == (2, True)
    assert named.counts().pending == 4
    done = cli("cancel", "reminders", "--name", "mail", "--to", "+2h", "--yes", "--json").json
    assert done == {"queue": "reminders", "matched": None, "outcomes": {"cancelled": 3}, "dry_run": False}
    assert cli("cancel", "reminders", "--name", "mail", "--yes").out == "nothing to do\n"
    assert [message.id for message in named.list("pending").messages] == ["other"]


def test_kills_ids_and_what_matches(cli, messages):
    ended = cli("kill", "reminders", "waiting", "running", "gone")
    assert (ended.code, ended.out) == (1, "waiting  killed\nrunning  running\ngone  gone\n")
    assert cli("kill", "reminders", "gone", "--json").code == 3
    assert cli("kill", "reminders", "--id-prefix", "o", "--dry-run").out == "would kill 1 message\n"
    assert "give --yes" in cli("kill", "reminders", "--id-prefix", "o").line
    done = cli("kill", "reminders", "--id-prefix", "o", "--yes", "--json").json
    assert done == {"queue": "reminders", "matched": None, "outcomes": {"killed": 1}, "dry_run": False}
    assert {message.id: message.reason for message in messages.dead.list().messages} == {
        "dead": "no",
        "waiting": "killed",
        "other": "killed",
    }


def test_removes_an_empty_queue(cli, messages):
    assert "give --yes" in cli("remove", "reminders").line
    refused = cli("remove", "reminders", "--yes")
    assert (refused.code, refused.out) == (1, "")
    assert (
        refused.line == "reminders is not removed, it has 3 messages (purge it), 1 dead message (purge its dead letter)"
    )
    assert cli("purge", "reminders", "--yes").code == cli("dead", "purge", "reminders", "--all", "--yes").code == 0
    ended = cli("remove", "reminders", "--yes", "--json")
    assert (ended.code, ended.json) == (0, {"queue": "reminders", "removed": True})
    assert cli("queues").out == ""
    assert cli("remove", "reminders", "--yes").code == 3


def test_reschedules_and_runs_what_matches(cli, named):
    ended = cli("reschedule", "reminders", "--id-prefix", "user-7:", "--delay", "3h", "--yes")
    assert (ended.code, ended.out) == (0, "3 rescheduled\n")
    assert cli("run-now", "reminders", "--from", "+2h", "--yes").out == "3 rescheduled\n"
    assert cli("run-now", "reminders", "other", "gone").out == "other  rescheduled\ngone  gone\n"
    assert cli("run-now", "reminders", "gone", "--json").code == 3
    assert named.stats().counts.overdue == 4


@pytest.mark.parametrize("command", ["cancel", "kill", "reschedule", "run-now"])
def test_a_filter_or_ids_and_nothing_wrong(cli, named, command):
    due = ("--delay", "1h") if command == "reschedule" else ()
    for words, text in (
        ((), "select messages: give ids, or --name"),
        (("other", "--name", "mail"), "select messages: give ids, or --name"),
        (("other", "--dry-run"), "--dry-run works with a filter"),
        (("--name", "a b", "--yes"), "name must be 1 to 128 of"),
        (("--state", "dead", "--yes"), "--state"),
        (("--from", "+2h", "--to", "+1h"), "is after --to"),
        (("--id-prefix", "", "--yes"), "id_prefix must be 1 to 128 of"),
    ):
        ended = cli(command, "reminders", *words, *due)
        assert (ended.code, ended.out, text in ended.line) == (2, "", True), (words, ended)
    assert named.counts().pending == 4


# reschedule


def test_reschedules_a_message(cli, messages):
    assert cli("reschedule", "reminders", "waiting", "--delay", "2d").out == "waiting  rescheduled\n"
    assert messages.get("waiting").due - datetime.now(UTC) > timedelta(hours=47)
    ended = cli("reschedule", "reminders", "waiting", "--at", "2090-01-01T00:00Z", "--json")
    assert (ended.code, ended.json) == (0, {"queue": "reminders", "id": "waiting", "outcome": "rescheduled"})
    assert messages.get("waiting").due == datetime(2090, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("id", "code"), [("running", 1), ("dead", 1), ("gone", 3)])
def test_prints_why_a_message_is_not_rescheduled(cli, messages, id, code):
    ended = cli("reschedule", "reminders", id, "--delay", "1h")
    assert (ended.code, ended.out) == (code, f"{id}  {id}\n")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ([], "give either --delay or --at"),
        (["--delay", "1h", "--at", "2090-01-01T00:00Z"], "give either --delay or --at"),
        (["--delay", "never"], "--delay must look like"),
    ],
)
def test_reschedule_needs_exactly_one_time(cli, messages, options, error):
    ended = cli("reschedule", "reminders", "waiting", *options)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.line


# purge


def test_purge_dry_run_counts_only(cli, messages):
    ended = cli("purge", "reminders", "--dry-run")
    assert (ended.code, ended.out, ended.err) == (0, "would delete 3 messages\n", "")
    found = cli("purge", "reminders", "--dry-run", "--json").json
    assert found == {"queue": "reminders", "matched": 3, "purged": 0, "dry_run": True, "cold": 0}
    assert messages.counts().living == 3


def test_purge_keeps_dead_messages(cli, messages):
    ended = cli("purge", "reminders", "--yes", "--json")
    assert ended.json == {"queue": "reminders", "matched": 3, "purged": 3, "dry_run": False, "cold": 0}
    assert (messages.counts().living, messages.counts().dead) == (0, 1)
    assert cli("purge", "reminders", "--yes").out == "deleted 0 messages\n"


def test_purge_needs_yes_without_a_terminal(cli, messages):
    ended = cli("purge", "reminders", stdin=b"y\n")
    assert (ended.code, ended.out) == (2, "")
    assert "give --yes" in ended.line
    assert messages.counts().living == 3


@pytest.mark.long
@pytest.mark.parametrize(("reply", "code", "left"), [(b"y\n", 0, 0), (b"n\n", 1, 3), (b"\n", 1, 3)])
def test_purge_asks_for_confirmation(start, messages, reply, code, left):
    with terminal() as (keyboard, seen):
        program: Program = start("purge", "reminders", stdin=seen)
        program.says("Delete 3 messages of reminders, running ones included? [y/N]")
        os.write(keyboard, reply)
        assert program.ends() == code
    assert messages.counts().living == left
    if code:
        assert program.err.splitlines()[-1].endswith("delayq: cancelled: nothing was changed")


@pytest.mark.long
def test_ctrl_c_at_a_confirmation_exits_130(start, messages):
    with terminal() as (_, seen):
        program: Program = start("purge", "reminders", stdin=seen)
        program.says("[y/N]")
        program.signal(2)
        assert program.ends() == 130
    assert messages.counts().living == 3
    assert "Traceback" not in program.err


# The table of actions


@pytest.mark.parametrize(
    "command",
    [
        ["cancel", "reminders", "other"],
        ["cancel", "reminders", "--id-prefix", "oth", "--yes"],
        ["kill", "reminders", "other"],
        ["limits", "list", "reminders"],
        ["limits", "remove", "reminders"],
        ["pause", "reminders", "--name", "mail"],
        ["purge", "reminders", "--dry-run"],
        ["reschedule", "reminders", "other", "--delay", "2h"],
        ["resume", "reminders"],
        ["run-now", "reminders", "other"],
        ["runs", "list", "reminders"],
        ["workers", "reminders"],
    ],
    ids=" ".join,
)
def test_json_has_the_fields_that_the_help_lists(cli, messages, command):
    named = command[: command.index("reminders")]
    text = " ".join(cli(*named, "--help", env={"COLUMNS": "1000"}).out.partition("JSON: ")[2].split())
    while (
        shorter := re.sub(r'(?<="): (\{[^{}]*\}|\[\{[^{}]*\}, …\])', "", text)
    ) != text:  # without what is in the fields
        text = shorter
    known = [set(re.findall(r'"(\w+)"', shape)) for shape in re.findall(r"{[^{}]*}", text)]
    assert set(cli(*command, "--json").json) - {"name"} in [names - {"name"} for names in known]
