"""`delayq notify`: real processes that are killed, stopped and refused, and where notices go."""

from __future__ import annotations

import json
import signal

import pytest

from delayq import DelayQueue
from tests.cli.conftest import Program, Start
from tests.support.receivers import mail_server, receiver, status
from tests.support.waiting import wait_until

ONCE = ("notify", "reminders", "--once", "--deliver")
SECRET = "s3cr3t payload"


@pytest.fixture
def logged(redis_url):
    """The queue, its event log on."""
    with DelayQueue("reminders", url=redis_url, events=True) as queue:
        queue.open()
        yield queue


def die(queue, reason="no such user 7"):
    queue.send_delay_msg({"to": SECRET})
    with queue.lease() as message:
        message.reject(reason)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_killed_between_delivery_and_its_note_it_delivers_the_same_again(start: Start, cli, logged):
    with receiver() as hooks:
        webhook = (*ONCE, "webhook", "--webhook-url", hooks.url)
        assert cli(*webhook).code == 0  # from here on
        die(logged)
        hooks.replies[:] = [hooks.slow, status(204)]
        program: Program = start(*webhook)
        program.until(lambda: hooks.requests, "the delivery")
        program.signal(signal.SIGKILL)
        program.ends()
        die(logged)
        assert cli(*webhook) == cli(*webhook)  # the second has nothing to tell
    first, second = hooks.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert json.loads(first.body)["payload"] == json.loads(second.body)["payload"]
    assert json.loads(first.body)["payload"]["count"] == 1
    assert SECRET.encode() not in first.body


@pytest.mark.timeout(180)
def test_it_follows_until_it_is_stopped(start: Start, logged, redis_client):
    program: Program = start("notify", "reminders", "--deliver", "log", "--every", "100ms", "--on", "dead,paused")
    program.until(lambda: redis_client.exists("delayq:{reminders}:notifiers"), "the first look")
    die(logged)
    program.until(lambda: "no such user #" in program.out, "the notice")
    program.signal()
    ended = program.ended()
    assert ended.code == 0
    assert ended.json["payload"]["kind"] == "dead"
    assert SECRET not in ended.out + ended.err


def test_a_delivery_that_fails_is_kept_for_the_next_run(cli, logged):
    with receiver(status(500), status(204)) as hooks:
        webhook = (*ONCE, "webhook", "--webhook-url", hooks.url)
        assert cli(*webhook).err.strip() == "begins here: 0 notices; tells from now on"
        die(logged)
        failed = cli(*webhook)
        assert (failed.code, failed.out) == (1, "")
        assert failed.line.startswith("1 notice could not be delivered, and wait for the next run: webhook 127.0.0.1")
        assert cli(*webhook).code == 0
    assert [json.loads(request.body)["attempt"] for request in hooks.requests] == [1, 2]


def test_a_notice_that_is_refused_leaves_a_line_and_is_not_delivered_again(cli, logged):
    with receiver(status(404)) as hooks:
        webhook = (*ONCE, "webhook", "--webhook-url", hooks.url)
        cli(*webhook)
        die(logged)
        failed, again = cli(*webhook), cli(*webhook)
    assert (failed.code, failed.out) == (1, "")
    assert failed.line.startswith("1 notice given up: webhook ")
    assert failed.line.endswith("webhook 127.0.0.1 replied 404")
    assert (again.code, again.out, again.err) == (0, "", "")
    assert len(hooks.requests) == 1


def test_chats_get_a_line(cli, logged):
    with receiver() as hooks:
        chat = {"DELAYQ_NOTIFY_WEBHOOK_URL": hooks.url, "DELAYQ_NOTIFY_WEBHOOK_SERVICE": "slack"}
        cli(*ONCE, "webhook", env=chat)
        die(logged)
        assert cli(*ONCE, "webhook", env=chat).code == 0
    (request,) = hooks.requests
    assert json.loads(request.body) == {"text": "reminders: 1 message moved to the dead letter: no such user #"}


def test_mails_go_to_each_recipient_alone(cli, logged):
    with mail_server() as box:
        mail = (*ONCE, "smtp", "--smtp-host", "127.0.0.1", "--smtp-port", str(box.port), "--smtp-tls", "off")
        mail += ("--smtp-from", "delayq@example.org", "--smtp-to", "ada@example.org", "--smtp-to", "bob@example.org")
        cli(*mail)
        die(logged)
        assert cli(*mail).code == 0
        wait_until(lambda: len(box.letters) == 2)
        assert [letter.rcpt_tos for letter in box.letters] == [["ada@example.org"], ["bob@example.org"]]
        text = box.letters[0].content.decode()
    assert "Subject: reminders: 1 message moved to the dead letter" in text
    assert "kind: dead" in text
    assert SECRET not in text


def test_the_role_is_enough(cli, logged, redis_url, redis_client):
    logged.preload()
    redis_client.execute_command(*cli("acl", "notifier", "--user", "bell").out.split(), ">secret")
    as_bell = ("--url", redis_url.replace("unix://", "unix://bell:secret@"))
    try:
        assert cli(*as_bell, *ONCE, "log").code == 0
        die(logged)
        assert cli(*as_bell, *ONCE, "log").json["payload"]["sample"] == logged.dead.groups()[0].sample
    finally:
        redis_client.execute_command("ACL", "DELUSER", "bell")


def test_two_names_have_two_positions(cli, logged):
    for name in ("one", "two"):
        cli(*ONCE, "log", "--name", name)
    die(logged)
    assert cli(*ONCE, "log", "--name", "one").json["payload"]["count"] == 1
    assert cli(*ONCE, "log", "--name", "one").out == ""
    assert cli(*ONCE, "log", "--name", "two").json["payload"]["count"] == 1


@pytest.mark.usefixtures("logged")
@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("nobody", "--deliver", "log", "--once"), 3, "nobody"),
        (("reminders",), 2, "--deliver"),
        (("reminders", "--deliver", "webhook"), 2, "--deliver webhook needs --webhook-url"),
        (("reminders", "--deliver", "log", "--smtp-host", "x"), 2, "--smtp-host cannot be used with --deliver log"),
        (("reminders", "--deliver", "command"), 2, "command"),
        (("reminders", "--deliver", "log", "--on", "dead,alive"), 2, "'alive' is none of dead, late, paused, silent"),
        (("reminders", "--deliver", "log", "--on", ""), 2, "is none of"),
        (("reminders", "--deliver", "log", "--every", "1ms"), 2, "--every"),
        (("reminders", "--deliver", "log", "--name", "a b", "--once"), 2, "the name of a notifier"),
        (("reminders", "--deliver", "webhook", "--webhook-url", "ftp://x"), 2, "http:// or https://"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_bad_input_is_one_line(cli, monkeypatch, words, code, error):
    monkeypatch.setattr("delayq.cli.serving.notify.configure_logging", lambda *_, **__: None)
    ended = cli("notify", *words)
    assert (ended.code, ended.out) == (code, "")
    assert error in ended.line


def test_redis_that_is_away_is_69(cli, logged):
    ended = cli("--url", "redis://127.0.0.1:1/0", "--timeout", "100ms", *ONCE, "log")
    assert (ended.code, ended.out) == (69, "")
    assert "cannot be reached" in ended.line
