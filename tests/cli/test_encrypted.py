"""The command line without a key: it says that payloads are encrypted, and steers messages all the same."""

from __future__ import annotations

import base64
import json
import re

import pytest

from delayq import DelayQueue, Encrypted

KEYS = {"2026": bytes(range(32))}
APP = """
from delayq import {kind}, Encrypted
queue = {kind}("reminders", url={url!r}, codec=Encrypted({{"2026": bytes(range(32))}}))
other = DelayQueue("other", url={url!r}) if {kind!r} == "DelayQueue" else None
"""


@pytest.fixture
def queue(redis_url):
    """One message that waits and one that is dead, with a result beside them, all encrypted."""
    with DelayQueue("reminders", url=redis_url, codec=Encrypted(KEYS), retention="1h") as queue:
        queue.callback(lambda message: {"card": 4111} if message.id == "done" else False)
        for id in ("done", "dead"):
            queue.send_delay_msg({"card": 4111}, id=id, retries=0)
        queue.run(burst=True)
        queue.send_delay_msg({"card": 4111}, "1h", id="waits")
        yield queue


@pytest.fixture(params=["DelayQueue", "AsyncDelayQueue"])
def app(request, tmp_path, monkeypatch, redis_url):
    """The name of the program that has the keys, in this folder."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"keys_{tmp_path.name}_{request.param}".lower()
    (tmp_path / f"{name}.py").write_text(APP.format(kind=request.param, url=redis_url))
    return name


def test_tables_and_details_say_that_payloads_are_encrypted(cli, queue):
    size = queue.get("waits").size
    assert f"encrypted, {size} B" in cli("list", "reminders").out
    shown = cli("show", "reminders", "waits").out
    assert f"payload    encrypted, {size} B\n" in shown
    assert cli("show", "reminders", "done").out.count("encrypted, ") == 1
    assert cli("list", "reminders", "--state", "completed").out.count("encrypted, ") == 1
    assert cli("result", "reminders", "done").out.startswith("encrypted, ")


def test_json_has_the_bytes_in_base64(cli, queue):
    shown = cli("show", "reminders", "waits", "--json").json
    assert shown["encoding"] == "encrypted"
    assert Encrypted(KEYS).for_queue("reminders").decode(base64.b64decode(shown["payload"])) == {"card": 4111}
    assert cli("result", "reminders", "done", "--json").json["encoding"] == "encrypted"


def test_messages_are_steered_without_a_key(cli, queue):
    for words in (
        ["reschedule", "reminders", "waits", "--delay", "2h"],
        ["kill", "reminders", "waits"],
        ["dead", "redrive", "reminders", "waits", "dead"],
        ["cancel", "reminders", "waits"],
    ):
        ended = cli(*words)
        note = "due in 2h\n" if words[0] == "reschedule" else ""
        assert (ended.code, ended.err) == (0, note), words
    assert queue.get("waits") is None
    assert queue.get("dead").payload == {"card": 4111}


def test_what_was_exported_is_imported_as_it_is(cli, queue, tmp_path):
    assert cli("export", "reminders", "all.jsonl").code == 0
    assert "4111" not in (tmp_path / "all.jsonl").read_text()
    queue.cancel("waits")
    assert cli("import", "reminders", "all.jsonl").code == 0
    assert queue.get("waits").payload == {"card": 4111}


def test_an_edited_payload_is_encrypted_by_the_program(cli, queue, app):
    line = json.dumps({"id": "dead", "payload": {"card": 5}}).encode()
    refused = cli("dead", "redrive", "reminders", "--edit", "-", stdin=line)
    assert (refused.code, refused.line.startswith("dead is encrypted: give --app MODULE:QUEUE")) == (2, True)
    assert queue.counts().dead == 1
    done = cli("dead", "redrive", "reminders", "--edit", "-", "--app", f"{app}:queue", stdin=line)
    assert (done.code, done.out) == (0, "redrove 1 message; payloads in the file: 1 changed, 0 unchanged\n")
    assert queue.get("dead").payload == {"card": 5}


def test_no_edited_payload_is_stored_in_the_clear_beside_one_that_is(cli, queue, redis_url):
    with DelayQueue("reminders", url=redis_url) as plain:
        plain.send_delay_msg({"card": 1}, id="plain")
        with plain.lease() as message:
            assert message.reject("no")
    lines = b"".join(json.dumps({"id": id, "payload": {"card": 5}}).encode() + b"\n" for id in ("plain", "dead"))
    refused = cli("dead", "redrive", "reminders", "--edit", "-", stdin=lines)
    assert (refused.code, refused.line.startswith("dead is encrypted: give --app MODULE:QUEUE")) == (2, True)
    assert queue.counts().dead == 2


def test_an_earlier_death_is_not_edited_in_the_clear_though_the_last_one_is(cli, queue, redis_url):
    (encrypted,) = queue.list("dead").messages
    with DelayQueue("reminders", url=redis_url) as plain:
        plain.send_delay_msg({"card": 1}, id="dead")
        with plain.lease() as message:
            assert message.reject("no")
    line = json.dumps({"entry": encrypted.entry, "payload": {"card": 5}}).encode()
    refused = cli("dead", "redrive", "reminders", "--edit", "-", stdin=line)
    assert (refused.code, refused.line.startswith(f"{encrypted.entry} is encrypted: give --app")) == (2, True)
    assert queue.counts().dead == 2


def test_an_encrypted_line_is_redriven_as_it_is(cli, queue):
    page = cli("dead", "list", "reminders", "--json").out
    done = cli("dead", "redrive", "reminders", "--edit", "-", "--json", stdin=page.encode())
    assert (done.code, done.json["changed"], done.json["unchanged"]) == (0, 0, done.json["matched"])
    assert queue.get("dead").payload == {"card": 4111}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--edit", "-", "--app", "{app}:other"], "{app}:other is queue other, not reminders"),
        (["--edit", "-", "--app", "{app}"], "{app} has several queues: name one of {app}:queue, {app}:other"),
        (["--edit", "-", "--app", "{app}:none"], "{app} has no 'none'; it has queue, other"),
        (["--all", "--app", "{app}:queue"], "--app goes with --edit"),
    ],
    ids=["other", "several", "none", "alone"],
)
@pytest.mark.parametrize("app", ["DelayQueue"], indirect=True)
def test_a_program_that_does_not_fit_is_refused_in_one_line(cli, queue, app, words, text):
    ended = cli(
        "dead", "redrive", "reminders", *(word.format(app=app) for word in words), stdin=b'{"id":"dead","payload":1}'
    )
    assert (ended.code, ended.line.partition(". See")[0]) == (2, text.format(app=app))


REKEYING = """
from delayq import {kind}, DelayQueue, Encrypted
from delayq.streams import StreamQueue
keys = {{"new": bytes(16), "2026": bytes(range(32))}}
queue = {kind}("reminders", url={url!r}, codec=Encrypted(keys))
lost = {kind}("reminders", url={url!r}, codec=Encrypted({{"new": bytes(16)}}))
plain = DelayQueue("reminders", url={url!r})
stream = StreamQueue("tasks", url={url!r}, codec=Encrypted(keys))
"""


@pytest.fixture
def rekeying(app, tmp_path, redis_url):
    """The program with a new key before the old one."""
    (tmp_path / f"new_{app}.py").write_text(
        REKEYING.format(kind="Async" * ("async" in app) + "DelayQueue", url=redis_url)
    )
    return f"new_{app}"


def test_rekey_says_what_it_has_done(cli, queue, rekeying):
    done = cli("rekey", f"{rekeying}:queue")
    assert (done.code, done.out, done.err) == (0, "rekeyed 2, 0 already, 0 left\n", "")
    again = {"queue": "reminders", "rekeyed": 0, "already": 2, "left": 0, "unreadable": 0, "missing": []}
    again["unreadable_ids"] = []
    assert cli("rekey", f"{rekeying}:queue", "--json").json == again


def test_rekey_without_the_old_key_changes_nothing(cli, queue, rekeying):
    lost = cli("rekey", f"{rekeying}:lost")
    assert (lost.code, lost.line) == (4, "missing keys: 2026")
    assert re.fullmatch(r"rekeyed 0, 0 already, 0 left, 2 unreadable: waits, dead:[0-9]+\n", lost.out)
    assert queue.get("waits").payload == {"card": 4111}


@pytest.mark.parametrize("app", ["DelayQueue"], indirect=True)
@pytest.mark.parametrize(
    ("name", "text"),
    [("plain", "rekey needs a queue that encrypts"), ("stream", "the entries of a stream cannot be changed")],
)
def test_rekey_refuses_other_queues_in_one_line(cli, queue, rekeying, name, text):
    ended = cli("rekey", f"{rekeying}:{name}")
    assert (ended.code, ended.line.startswith(text)) == (2, True)
