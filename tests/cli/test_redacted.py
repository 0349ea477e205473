"""What a queue redacts is hidden wherever the command line shows payloads, unless it is asked to reveal it."""

from __future__ import annotations

import json

import pytest

from delayq import DelayQueue

SECRET = "4111-1111"
PAYLOAD = {"user": 7, "card": {"number": SECRET}, "people": [{"email": f"ada@{SECRET}.example"}]}
PATHS = ["card.number", "*.email"]


@pytest.fixture
def queue(redis_url):
    """Messages that wait and are dead, a result and a schedule, of a queue that hides two fields."""
    with DelayQueue("reminders", url=redis_url, redact=PATHS, retention="1h") as queue:
        queue.callback(lambda message: PAYLOAD if message.id == "done" else False)
        for id in ("done", "dead"):
            queue.send_delay_msg(PAYLOAD, id=id, retries=0)
        queue.run(burst=True)
        queue.send_delay_msg(PAYLOAD, "1h", id="waits")
        queue.send_delay_msg({"user": 8}, "2h", id="harmless")
        queue.send_delay_msg({**PAYLOAD, "text": "x" * 5000}, "3h", id="long")
        queue.schedules.add("daily", every="1d", payload=PAYLOAD)
        yield queue


SHOWING = {
    "list": ["list", "reminders"],
    "list json": ["list", "reminders", "--json"],
    "list csv": ["list", "reminders", "--csv"],
    "show": ["show", "reminders", "waits"],
    "show long": ["show", "reminders", "long", "--json"],
    "show dead": ["show", "reminders", "dead", "--json"],
    "completed": ["show", "reminders", "done"],
    "completed json": ["list", "reminders", "--state", "completed", "--json"],
    "dead": ["dead", "list", "reminders", "--jsonl"],
    "result": ["result", "reminders", "done"],
    "result json": ["result", "reminders", "done", "--json"],
    "search": ["search", "reminders", "user", "--json"],
    "schedules": ["schedules", "list", "reminders", "--json"],
    "schedule": ["schedules", "show", "reminders", "daily"],
    "export": ["export", "reminders"],
}


@pytest.mark.parametrize("words", SHOWING.values(), ids=SHOWING)
def test_a_hidden_value_is_shown_only_if_it_is_asked_for(cli, queue, words):
    hidden, revealed = cli(*words), cli(*words, "--reveal")
    assert (hidden.code, revealed.code) == (0, 0)
    assert SECRET not in hidden.out + hidden.err
    assert "[redacted]" in hidden.out
    assert SECRET in revealed.out
    assert "[redacted]" not in revealed.out


def test_a_message_says_what_it_is(cli, queue):
    shown = cli("show", "reminders", "waits", "--json").json
    assert shown["encoding"] == "redacted"
    expected = {"user": 7, "card": {"number": "[redacted]"}, "people": [{"email": "[redacted]"}]}
    assert (shown["payload"], shown["truncated"]) == (expected, False)
    assert shown["size"] == len(json.dumps(PAYLOAD, separators=(",", ":")))
    assert "payload    redacted, " in cli("show", "reminders", "waits").out
    assert cli("show", "reminders", "harmless", "--json").json["encoding"] == "json"


def test_a_hidden_value_cannot_be_found_by_a_search(cli, queue):
    assert cli("search", "reminders", SECRET, "--json").json["matches"] == []
    found = cli("search", "reminders", SECRET, "--json", "--reveal").json["matches"]
    assert {one["id"] for one in found} >= {"waits", "dead", "long"}


@pytest.mark.parametrize("file", ["q.jsonl", "q.parquet"])
def test_a_redacted_export_is_no_backup_and_says_so(cli, queue, file):
    note = cli("export", "reminders", file).err
    hidden = "what the queue redacts is hidden: an import needs an export with --reveal"
    assert note == f"exported 4 messages of reminders; {hidden}\n"
    queue.purge()
    ended = cli("import", "reminders", file, "--strict")
    assert (ended.code, "payload is redacted" in ended.line) == (2, True)
    assert queue.counts().living == 0
    ended = cli("import", "reminders", file)
    assert (ended.code, "payload is redacted" in ended.line) == (1, True)
    assert queue.counts().living == 1
    assert queue.get("harmless").payload == {"user": 8}
    assert queue.get("waits") is None


@pytest.mark.parametrize("first", [[], ["--reveal"]], ids=["hidden", "revealed"])
def test_an_export_is_not_resumed_with_other_values_hidden(cli, queue, first, monkeypatch):
    other = [] if first else ["--reveal"]
    with monkeypatch.context() as patch:
        patch.setattr("delayq.bulk.export.read_stored", _interrupt)
        assert cli("export", "reminders", "q.jsonl", *first).code == 130
    refused = cli("export", "reminders", "q.jsonl", "--resume", *other)
    assert (refused.code, "the export that was interrupted is of" in refused.line) == (2, True)
    assert cli("export", "reminders", "q.jsonl", "--resume", *first).code == 0


def _interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("file", ["q.jsonl", "q.parquet"])
def test_a_revealed_export_is_one(cli, queue, file):
    assert cli("export", "reminders", file, "--reveal").err == "exported 4 messages of reminders\n"
    queue.purge()
    assert cli("import", "reminders", file).code == 0
    assert queue.get("waits").payload == PAYLOAD


def test_a_redacted_line_is_not_redriven(cli, queue):
    lines = cli("dead", "list", "reminders", "--jsonl").out.encode()
    refused = cli("dead", "redrive", "reminders", "--edit", "-", stdin=lines)
    assert (refused.code, "payload is redacted" in refused.line) == (2, True)
    assert queue.get("dead").payload == PAYLOAD
    (row,) = [json.loads(line) for line in lines.splitlines()]
    cut = json.dumps({"id": row["id"], "payload": row["payload"]}).encode()
    refused = cli("dead", "redrive", "reminders", "--edit", "-", stdin=cut)
    assert (refused.code, "dead has [redacted] in place of a value" in refused.line) == (2, True)
    assert queue.get("dead").payload == PAYLOAD
    revealed = cli("dead", "list", "reminders", "--jsonl", "--reveal").out.encode()
    done = cli("dead", "redrive", "reminders", "--edit", "-", "--json", stdin=revealed)
    assert (done.code, done.json["changed"], done.json["unchanged"]) == (0, 0, 1)


def test_messages_are_steered_as_ever_and_keep_their_payloads(cli, queue):
    assert cli("dead", "redrive", "reminders", "dead").code == 0
    assert cli("reschedule", "reminders", "waits", "--delay", "2h").code == 0
    assert queue.get("dead").payload == queue.get("waits").payload == PAYLOAD


def test_a_program_reads_all_and_changes_what_is_hidden(cli, queue, redis_url):
    assert queue.get("waits").payload == PAYLOAD
    with DelayQueue("reminders", url=redis_url) as other:
        other.open()
        assert SECRET not in cli("list", "reminders").out
    with DelayQueue("reminders", url=redis_url, redact=["user"]) as other:
        other.open()
    shown = cli("show", "reminders", "waits", "--json").json["payload"]
    assert (shown["user"], shown["card"]["number"]) == ("[redacted]", SECRET)
    with DelayQueue("reminders", url=redis_url, redact=[]) as other:
        other.open()
    assert cli("show", "reminders", "waits", "--json").json["encoding"] == "json"
