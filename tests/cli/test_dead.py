"""`delayq dead list`, `groups`, `redrive` and `purge`."""

import json
import os
from datetime import timedelta

import pytest

from delayq.values.text import iso
from tests.cli.conftest import terminal


@pytest.fixture
def dead(queue):
    """Five dead messages: m0 to m2 rejected as unknown, m3 and m4 failed with a timeout; m0 died twice."""
    for id, reason, error in (
        ("m0", "user unknown", ""),
        ("m0", "user unknown", ""),
        ("m1", "user unknown", ""),
        ("m2", "user unknown", ""),
        ("m3", "retries spent", "TimeoutError: 30 s"),
        ("m4", "retries spent", "TimeoutError: 60 s"),
    ):
        queue.send_delay_msg({"of": id}, id=id, retries=0)
        with queue.lease() as message:
            message.nack(error=error) if error else message.reject(reason)
    assert queue.counts().dead == 6
    return queue


def ids(ended):
    return [message["id"] for line in ended.out.splitlines() for message in json.loads(line)["messages"]]


def entries(queue, id):
    return [message.entry for message in queue.dead.list().messages if message.id == id]


def test_lists_dead_messages(cli, dead):
    head, *rows = cli("dead", "list", "reminders").out.splitlines()
    assert head.split() == ["id", "died", "attempts", "reason", "error"]
    assert [row.split()[0] for row in rows] == ["m0", "m0", "m1", "m2", "m3", "m4"]
    assert ids(cli("dead", "list", "reminders", "--json")) == ["m0", "m0", "m1", "m2", "m3", "m4"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--reason", "unknown"], ["m0", "m0", "m1", "m2"]),
        (["--error", "Timeout"], ["m3", "m4"]),
        (["--error", "60 s"], ["m4"]),
        (["--reason", "unknown", "--error", "Timeout"], []),
        (["--limit", "2"], ["m0", "m0"]),
        (["--limit", "2", "--all", "--error", "Timeout"], ["m3", "m4"]),
    ],
)
def test_lists_matching_dead_messages(cli, dead, options, expected):
    assert ids(cli("dead", "list", "reminders", "--json", *options)) == expected


def test_notes_an_empty_dead_letter(cli, queue):
    queue.send_delay_msg(1, "1h")
    ended = cli("dead", "list", "reminders")
    assert (ended.code, ended.out, ended.err) == (0, "", "no dead messages in reminders\n")


# groups


def test_groups_dead_messages_by_the_shape_of_their_errors(cli, dead):
    head, unknown, timeouts = cli("dead", "groups", "reminders").out.splitlines()
    assert head.split() == ["group", "count", "first", "last", "sample", "why"]
    assert unknown.split()[1] == "4"
    assert unknown.endswith("user unknown")
    assert timeouts.split()[1] == "2"
    assert timeouts.endswith("  TimeoutError: # s")

    (_, found) = cli("dead", "groups", "reminders", "--json").json["groups"]
    died = [message.died for message in dead.dead.list().messages]
    assert found == {
        "group": timeouts.split()[0],
        "count": 2,
        "first": iso(died[4]),
        "last": iso(died[5]),
        "reason": "retries spent",
        "error": "TimeoutError: # s",
        "sample": entries(dead, "m4")[0],
    }
    assert ids(cli("dead", "list", "reminders", "--json", "--group", found["group"])) == ["m3", "m4"]


def test_notes_that_there_is_nothing_to_group(cli, queue):
    queue.send_delay_msg(1, "1h")
    ended = cli("dead", "groups", "reminders")
    assert (ended.code, ended.out, ended.err) == (0, "", "no dead messages in reminders\n")
    assert cli("dead", "groups", "reminders", "--json").json == {"groups": []}
    assert cli("dead", "groups", "remainders").code == 3


def test_redrives_or_purges_a_group(cli, dead):
    unknown, timeouts = (one.group for one in dead.dead.groups())
    would = cli("dead", "redrive", "reminders", "--group", timeouts, "--dry-run")
    assert (would.code, would.out) == (0, "would redrive 2 messages\n")
    ended = cli("dead", "redrive", "reminders", "--group", timeouts, "--rate", "1/m", "--yes")
    assert (ended.code, ended.out) == (0, "redrove 2 messages\n")
    first, second = (dead.get(id).due for id in ("m3", "m4"))
    assert second - first == timedelta(minutes=1)
    assert cli("dead", "purge", "reminders", "--group", unknown, "--yes").out == "deleted 4 messages\n"
    assert dead.counts().dead == 0


def test_a_wrong_rate_redrives_nothing(cli, dead):
    ended = cli("dead", "redrive", "reminders", "--all", "--yes", "--rate", "often")
    assert (ended.code, ended.out) == (2, "")
    assert "rate must look like '200/s'" in ended.line
    assert dead.counts().dead == 6


# redrive


def test_redrive_by_id_takes_the_latest_dead_message(cli, dead):
    first, last = entries(dead, "m0")
    ended = cli("dead", "redrive", "reminders", "m0", "--retries", "5")
    assert (ended.code, ended.out, ended.err) == (0, "redrove 1 message\n", "")
    assert entries(dead, "m0") == [first]
    assert last != first
    assert (dead.get("m0").state, dead.get("m0").retries_left) == ("ready", 5)


def test_redrive_by_entry_takes_that_dead_message(cli, dead):
    first, last = entries(dead, "m0")
    found = cli("dead", "redrive", "reminders", first, "m1", "--json").json
    assert found == {"queue": "reminders", "matched": 2, "redriven": 2, "exists": 0, "gone": 0, "dry_run": False}
    assert entries(dead, "m0") == [last]


def test_does_not_redrive_while_a_message_with_the_id_exists(cli, dead):
    assert cli("dead", "redrive", "reminders", "m0").code == 0
    ended = cli("dead", "redrive", "reminders", "m0")
    assert (ended.code, ended.out) == (1, "redrove 0 messages\n")
    assert ended.err == "1 message not redriven: a message with the same id is alive\n"


def test_unknown_dead_id_is_not_found(cli, dead):
    ended = cli("dead", "redrive", "reminders", "m1", "unknown", "--json")
    assert (ended.code, ended.json["redriven"], ended.json["gone"]) == (3, 1, 1)
    assert ended.err == "1 message not found in the dead letter\n"
    assert cli("dead", "purge", "reminders", "unknown:12345").code == 3


def test_redrives_matching_dead_messages(cli, dead):
    found = cli("dead", "redrive", "reminders", "--error", "Timeout", "--yes", "--json").json
    assert (found["matched"], found["redriven"]) == (2, 2)
    assert dead.counts().dead == 4


def test_redrives_all_except_ids_that_exist(cli, dead):
    ended = cli("dead", "redrive", "reminders", "--all", "--yes")
    assert (ended.code, ended.out) == (0, "redrove 5 messages\n")
    assert ended.err.startswith("1 message not redriven")


@pytest.mark.parametrize(
    ("options", "number"),
    [(["--all"], 6), (["--reason", "unknown"], 4), (["--reason", "unknown", "--error", "x"], 0)],
)
@pytest.mark.parametrize(("verb", "says"), [("redrive", "would redrive"), ("purge", "would delete")])
def test_dry_run_counts_only(cli, dead, *, verb, says, options, number):
    ended = cli("dead", verb, "reminders", "--dry-run", *options)
    assert (ended.code, ended.out) == (0, f"{says} {number} message{'' if number == 1 else 's'}\n")
    found = cli("dead", verb, "reminders", "--dry-run", "--json", *options).json
    assert (found["matched"], found["dry_run"]) == (number, True)
    assert dead.counts().dead == 6


# purge


def test_purges_by_id_and_entry(cli, dead):
    first, _ = entries(dead, "m0")
    found = cli("dead", "purge", "reminders", first, "m1", "--json").json
    assert found == {"queue": "reminders", "matched": 2, "purged": 2, "gone": 0, "dry_run": False}
    assert dead.counts().dead == 4


def test_purges_matching_dead_messages_or_all(cli, dead):
    assert cli("dead", "purge", "reminders", "--reason", "unknown", "--yes").out == "deleted 4 messages\n"
    assert cli("dead", "purge", "reminders", "--all", "--yes").out == "deleted 2 messages\n"


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ([], "select dead messages"),
        (["m1", "--group", "0123abcd"], "select dead messages"),
        (["--group", "timeouts"], "group must be 8 hexadecimal digits"),
        (["m1", "--all"], "select dead messages"),
        (["--all", "--error", "x"], "select dead messages"),
        (["m1", "--dry-run"], "not with ids"),
        (["--all"], "give --yes"),
        (["--error", "", "--yes"], "reason and error must be text to search for"),
        (["a b"], "id must be 1 to 128"),
        (["--reson", "x"], "--reason"),
    ],
)
def test_needs_exactly_one_kind_of_selection(cli, dead, verb, options, error):
    ended = cli("dead", verb, "reminders", *options)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.line
    assert dead.counts().dead == 6


@pytest.mark.long
@pytest.mark.parametrize(
    ("verb", "question"), [("redrive", "Send 6 dead messages of reminders again?"), ("purge", "permanently?")]
)
@pytest.mark.parametrize(("reply", "left"), [(b"y\n", (0, 1)), (b"n\n", (6, 6))])
def test_asks_for_confirmation(start, dead, *, verb, question, reply, left):
    with terminal() as (keyboard, seen):
        program = start("dead", verb, "reminders", "--all", stdin=seen)
        program.says(question)
        os.write(keyboard, reply)
        assert program.ends() == (1 if reply == b"n\n" else 0)
    assert dead.counts().dead in left


# With other payloads


def test_what_was_listed_is_edited_and_redriven(cli, dead):
    page = cli("dead", "list", "reminders", "--error", "Timeout", "--json").out
    edited = page.replace('{"of":"m3"}', '{"of":"new"}')
    assert edited != page
    ended = cli("dead", "redrive", "reminders", "--edit", "-", "--json", stdin=edited.encode())
    counts = {"matched": 2, "redriven": 2, "exists": 0, "gone": 0, "changed": 1, "unchanged": 1}
    assert (ended.code, ended.json) == (0, {"queue": "reminders", **counts, "dry_run": False})
    assert (dead.get("m3").payload, dead.get("m4").payload) == ({"of": "new"}, {"of": "m4"})
    assert dead.counts().dead == 4


def test_lines_name_messages_by_id_or_entry_in_any_encoding(cli, dead, tmp_path):
    first, last = entries(dead, "m0")
    lines = (
        {"entry": first, "payload": {"of": "first"}},
        {"id": "m1", "payload": "a text", "encoding": "text"},
        {"id": "m2", "payload": "AAE=", "encoding": "base64"},
        {"id": "gone", "payload": 1},
        {"entry": last, "payload": {"of": "last"}},
    )
    path = tmp_path / "edited.jsonl"
    path.write_text("\n\n".join(map(json.dumps, lines)))
    payloads = "payloads in the file: 4 changed, 0 unchanged"
    dry = cli("dead", "redrive", "reminders", "--edit", str(path), "--dry-run")
    assert (dry.code, dry.out, dead.counts().dead) == (0, f"would redrive 5 messages; {payloads}\n", 6)
    ended = cli("dead", "redrive", "reminders", "--edit", str(path))
    assert (ended.code, ended.out) == (1, f"redrove 3 messages; {payloads}\n")
    assert "gone not found in the dead letter" in ended.err
    assert "1 message not redriven: a message with the same id is alive" in ended.err
    assert dead.get("m0").payload == {"of": "first"}
    assert [entry.entry for entry in dead.dead.list().messages if entry.id == "m0"] == [last]
    assert [dead.get(id).payload for id in ("m1", "m2")] == [b"a text", b"\x00\x01"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"{", "line 2 is not JSON"),
        (b"[]", 'line 2 must be an object with "id" or "entry", and "payload"'),
        (b'{"id": "m1"}', "line 2 must be an object"),
        (b'{"messages": [{"id": "m1", "payload": 1}, {"payload": 1}]}', "line 2, message 2 must be"),
        (b'{"id": "a b", "payload": 1}', "line 2: id must be 1 to 128"),
        (b'{"id": 5, "payload": 1}', "line 2: id must be 1 to 128"),
        (b'{"id": "m1", "payload": 1, "encoding": "xml"}', "line 2: encoding must be json, text or base64"),
        (b'{"id": "m1", "payload": 1, "encoding": "text"}', "line 2: payload must be a text, as its encoding is text"),
        (b'{"id": "m1", "payload": "?", "encoding": "base64"}', "line 2: payload is not base64"),
        (b'{"id": "m1", "payload": "x", "truncated": true}', "line 2: the payload is only the beginning"),
        (b'{"id": "m4", "payload": 1}', "line 2: m4 is there twice"),
    ],
    ids=["half", "list", "bare", "page", "space", "number", "encoding", "no text", "no base64", "truncated", "twice"],
)
def test_wrong_line_is_named_and_nothing_is_sent(cli, dead, line, text):
    ended = cli("dead", "redrive", "reminders", "--edit", "-", stdin=b'{"id": "m4", "payload": 1}\n' + line)
    assert (ended.code, ended.out, text in ended.line) == (2, "", True), ended.err
    assert dead.counts().dead == 6


def test_edit_stands_alone_and_needs_a_message(cli, dead):
    for words in (["m1"], ["--all"], ["--reason", "x"]):
        assert "--edit names its messages" in cli("dead", "redrive", "reminders", *words, "--edit", "-").line
    assert "there is no line with a message" in cli("dead", "redrive", "reminders", "--edit", "-", stdin=b"\n").line
    large = json.dumps({"id": "m1", "payload": "x" * (1 << 21)}).encode()
    assert "of m1: the payload is" in cli("dead", "redrive", "reminders", "--edit", "-", stdin=large).line
    assert dead.counts().dead == 6
