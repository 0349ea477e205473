"""`delayq worker --deliver …`: a reminder service without code, against real receivers, in real processes."""

import base64
import json
import os
import re
import signal
import ssl
import sys
from pathlib import Path

import pytest
import trustme

from delayq.delivery import verify
from tests.cli.conftest import Program, Start
from tests.support.receivers import mail_server, receiver, status
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)  # a process starts in a second, or in ten on a machine that is busy

SECRET = base64.b64encode(b"a key that is long enough").decode()
SERVE = ("worker", "--queue", "reminders", "--deliver")


@pytest.fixture
def hooks():
    with receiver() as made:
        yield made


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# Each way of delivery


@pytest.mark.long
def test_log_prints_messages(start: Start, queue):
    queue.send_delay_msg({"summary": "Zahnarzt"}, id="a", headers={"source": "x"})
    ended = start(*SERVE, "log", "--burst").ended()
    assert ended.code == 0
    line = ended.json
    assert (line["id"], line["attempt"], line["payload"]) == ("a", 1, {"summary": "Zahnarzt"})
    assert line["headers"] == {"source": "x"}
    assert "draining reminders, 1 at a time" in ended.err
    assert queue.counts().living == 0


def test_webhook_posts_messages(start: Start, queue, hooks, tmp_path):
    queue.send_many([{"n": n} for n in range(20)])
    (tmp_path / "secret").write_text(f"whsec_{SECRET}\n")
    options = ("--webhook-url", hooks.url, "--webhook-header", "X-Of=here", "--webhook-secret-file", "secret")
    ended = start(*SERVE, "webhook", *options, "--concurrency", "5", "--burst", "--log-level", "debug").ended()
    assert (ended.code, ended.out) == (0, "")
    assert {json.loads(request.body)["payload"]["n"] for request in hooks.requests} == set(range(20))
    for request in hooks.requests:
        assert request.headers["x-of"] == "here"
        verify(request.headers, request.body, SECRET)
    assert "s3cr3t" not in ended.err  # which is in the URL
    assert SECRET not in ended.err
    assert queue.counts().living == 0


def test_status_of_the_webhook_decides_how_a_message_is_settled(start: Start, queue, hooks):
    hooks.replies = [status(500), status(404), status(204), status(429, Retry_After="3600")]
    queue.send_many([{"n": n} for n in range(3)])
    ended = start(*SERVE, "webhook", "--webhook-url", hooks.url, "--retry-delay", "50ms", "--burst").ended()
    assert ended.code == 0
    assert len(hooks.requests) == 4
    (dead,) = queue.dead.list().messages
    assert dead.reason == "webhook 127.0.0.1 replied 404"
    (waiting,) = queue.list("backoff").messages
    assert (waiting.attempts, waiting.retries_left) == (1, 2)  # of the 500 alone
    assert "webhook 127.0.0.1 replied 429: nothing is delivered there for" in ended.err
    assert (waiting.deadline - queue.stats().at).total_seconds() > 3500
    assert "retry: webhook 127.0.0.1 replied 500" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.long
def test_url_of_a_payload_reaches_no_private_address_unless_allowed(start: Start, queue, hooks):
    queue.send_delay_msg({"url": hooks.url}, id="m")
    ended = start(*SERVE, "webhook", "--webhook-url", "{url}", "--burst").ended()
    assert (ended.code, len(hooks.requests)) == (0, 0)
    (dead,) = queue.dead.list().messages
    assert dead.reason.startswith("the payload's webhook has an address that is not public: allow it with ")
    assert "s3cr3t" not in ended.err
    queue.dead.redrive("m")
    options = ("--webhook-url", "{url}", "--allow-private", "--processes", "2", "--burst")
    assert start(*SERVE, "webhook", *options).ends() == 0
    assert [request.path for request in hooks.requests] == ["/hooks?key=s3cr3t"]


@pytest.mark.parametrize(
    ("service", "body"),
    [("slack", b'{"text":"At 9: A&amp;B"}'), ("mattermost", b'{"text":"At 9: A&B"}'), ("ntfy", b"At 9: A&B")],
)
def test_chat_gets_the_text_of_a_template(start: Start, queue, hooks, service, body):
    queue.send_delay_msg({"summary": "A&B"})
    options = ("--webhook-url", hooks.url, "--webhook-service", service, "--webhook-text", "At 9: {summary}")
    assert start(*SERVE, "webhook", *options, "--burst").ends() == 0
    assert [request.body for request in hooks.requests] == [body]
    assert queue.counts().living == 0


@pytest.mark.long
def test_chat_that_refuses_its_url_stops_the_worker_and_buries_nothing(start: Start, queue, hooks):
    hooks.replies = [status(404, b"no_service")]
    queue.send_many([{"n": n} for n in range(5)])
    ended = start(*SERVE, "webhook", "--webhook-url", hooks.url, "--webhook-service", "slack").ended()
    assert ended.code == 2
    line = "delayq: webhook 127.0.0.1 replied 404: check the URL, and the login if there is one"
    assert ended.err.splitlines()[-1] == line
    assert (queue.counts().living, queue.counts().dead) == (5, 0)
    assert {one.attempts for one in queue.list("ready").messages} == {0}


@pytest.mark.long
def test_smtp_mails_messages(start: Start, queue, tmp_path):
    queue.send_delay_msg({"summary": "Zahnarzt", "email": "anna@example.com"})
    (tmp_path / "body").write_text("Dear {email},\n{summary}.\n")
    (tmp_path / "password").write_text("s3cr3t\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with mail_server(context, login=("bot", "s3cr3t")) as box:
        server = ("--smtp-host", "127.0.0.1", "--smtp-port", str(box.port), "--smtp-user", "bot")
        letter = ("--smtp-from", "bot@example.org", "--smtp-to", "{email}", "--smtp-subject", "{summary}")
        files = ("--smtp-password-file", "password", "--smtp-body-file", "body")
        trust = {"SSL_CERT_FILE": str(tmp_path / "ca.pem")}
        ended = start(*SERVE, "smtp", *server, *letter, *files, "--burst", env=trust).ended()
    assert ended.code == 0
    (envelope,) = box.letters
    assert envelope.rcpt_tos == ["anna@example.com"]
    assert b"Subject: Zahnarzt\r\n" in envelope.content
    assert b"Dear anna@example.com,\r\nZahnarzt.\r\n" in envelope.content
    assert "s3cr3t" not in ended.err


@pytest.fixture
def locked(tmp_path):
    """A mail server that takes no password; the options of a worker for it, and what makes it trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with mail_server(context, login=("bot", "s3cr3t")) as box:
        server = ("--smtp-host", "127.0.0.1", "--smtp-port", str(box.port), "--smtp-user", "bot")
        letter = ("--smtp-from", "bot@example.org", "--smtp-to", "{email}", "--smtp-subject", "{summary}")
        env = {"SSL_CERT_FILE": str(tmp_path / "ca.pem"), "DELAYQ_SMTP_PASSWORD": "wr0ng"}
        yield (*SERVE, "smtp", *server, *letter), env


@pytest.mark.long
@pytest.mark.parametrize("processes", ["1", "3"])
def test_refused_login_stops_all_workers_with_one_line_and_charges_nothing(start: Start, queue, locked, processes):
    options, env = locked
    sent = queue.send_many([{"summary": "x", "email": "anna@example.com"} for _ in range(30)])
    more = () if processes == "1" else ("--processes", processes)
    ended = start(*options, *more, env=env).ended()
    assert (ended.code, ended.out) == (2, "")
    (line,) = [line for line in ended.err.splitlines() if "535" in line]
    assert line.startswith("delayq: 127.0.0.1 replied 535 ")
    assert line.endswith(": check user, password and encryption")
    assert "Traceback" not in ended.err
    assert "ERROR" not in ended.err
    assert "wr0ng" not in ended.err
    messages = [queue.get(id) for id in sent.ids]
    assert {(one.state, one.attempts, one.retries_left) for one in messages} == {("ready", 0, 3)}
    assert queue.counts().dead == 0
    assert queue.stats().totals.get("released", 0) >= 1


def test_worker_stopped_by_its_mail_server_lets_running_deliveries_finish(start: Start, queue):
    queue.send_many([{"n": n} for n in range(4)])
    with mail_server() as box:
        box.replies = {"MAIL": ["", "550 5.1.8 sender rejected"]}
        server = ("--smtp-host", "127.0.0.1", "--smtp-port", str(box.port), "--smtp-tls", "off")
        letter = ("--smtp-from", "bot@example.org", "--smtp-to", "a@example.com", "--smtp-subject", "x")
        ended = start(*SERVE, "smtp", *server, *letter, "--concurrency", "1").ended()
        assert (ended.code, len(box.letters)) == (2, 1)
    assert ended.err.splitlines()[-1] == "delayq: 127.0.0.1 replied 550 5.1.8 sender rejected: check the sender"
    assert (queue.counts().living, queue.counts().dead) == (3, 0)
    assert {entry.attempts for entry in queue.list("ready").messages} == {0}


def test_recipients_that_the_mail_server_does_not_accept_are_left_over_alone(start: Start, queue):
    queue.send_delay_msg({"to": ["a@example.com", "b@example.com", "c@example.com"]}, id="m")
    with mail_server() as box:
        box.replies = {"b@example.com": ["450 busy"], "c@example.com": ["550 unknown"] * 2}
        server = ("--smtp-host", "127.0.0.1", "--smtp-port", str(box.port), "--smtp-tls", "off")
        to = [word for name in "abc" for word in ("--smtp-to", f"{name}@example.com")]
        letter = ("--smtp-from", "bot@example.org", *to, "--smtp-subject", "x")
        ended = start(*SERVE, "smtp", *server, *letter, "--burst").ended()
        assert (ended.code, [one.rcpt_tos for one in box.letters]) == (0, [["a@example.com"]])
    assert "127.0.0.1 replied 450 busy, for 2 recipients; 1 are tried again alone, 1 are refused for good" in ended.err
    (dead,), (waiting,) = queue.dead.list().messages, queue.list("pending").messages
    assert (dead.id.split(":")[:2], dead.reason) == (["m", "refused"], "127.0.0.1 replied 550 unknown")
    assert (waiting.id.split(":")[:2], waiting.retries_left) == (["m", "later"], 2)
    assert json.loads(waiting.headers["delayq-smtp"])["to"] == ["b@example.com"]
    assert 290 < (waiting.due - queue.stats().at).total_seconds() <= 300
    assert queue.counts().living == 1


@pytest.mark.long
def test_command_passes_messages_to_a_program(start: Start, queue):
    queue.send_delay_msg({"code": 0}, id="a")
    queue.send_delay_msg({"code": 100}, id="b")
    program = (
        "import json, os, sys; print(os.environ['DELAYQ_ID'], *sys.argv[1:]); sys.exit(json.load(sys.stdin)['code'])"
    )
    ended = start(*SERVE, "command", "--burst", "--", sys.executable, "-c", program, "--queue", "--burst").ended()
    assert ended.code == 0
    assert sorted(ended.out.splitlines()) == ["a --queue --burst", "b --queue --burst"]
    assert {entry.id: entry.reason for entry in queue.dead.list().messages} == {
        "b": f"{Path(sys.executable).name} ended with exit code 100"
    }


@pytest.mark.long
def test_options_are_read_from_environment_and_settings(start: Start, queue, hooks, tmp_path):
    queue.send_delay_msg({"n": 1})
    (tmp_path / "pyproject.toml").write_text("[tool.delayq.worker]\nqueue = 'reminders'\ndeliver = 'webhook'\n")
    env = {"DELAYQ_WORKER_WEBHOOK_URL": hooks.url, "DELAYQ_WORKER_WEBHOOK_HEADER": "X-A=1 2\nX-B=3"}
    assert start("worker", "--burst", env=env | {"DELAYQ_WEBHOOK_SECRET": SECRET}).ends() == 0
    (request,) = hooks.requests
    assert (request.headers["x-a"], request.headers["x-b"]) == ("1 2", "3")
    verify(request.headers, request.body, SECRET)


# Same behaviour as any other worker


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_lets_running_deliveries_finish(start: Start, queue, hooks, number):
    hooks.replies = [hooks.slow]
    queue.send_many([{"n": n} for n in range(2)])
    program: Program = start(*SERVE, "webhook", "--webhook-url", hooks.url)
    program.until(lambda: hooks.requests, "the first request")
    program.signal(number)
    program.says("finishing running callbacks")
    hooks.released.set()
    assert program.ends() == 0
    assert len(hooks.requests) == 1
    assert queue.counts().living == 1


def test_second_signal_kills_a_program(start: Start, queue, tmp_path):
    queue.send_delay_msg({}, id="a")
    hang = "echo $$ > pid.new; mv pid.new pid; exec sleep 600"
    program: Program = start(*SERVE, "command", "--", "sh", "-c", hang)
    program.until((tmp_path / "pid").exists, "the program")
    pid = int((tmp_path / "pid").read_text())
    program.signal()
    program.says("finishing running callbacks")
    assert alive(pid)
    program.signal()
    assert program.ends() == 1
    wait_until(lambda: not alive(pid))
    assert (queue.get("a").state, queue.get("a").snoozes) == ("ready", 1)


@pytest.mark.long
def test_several_processes_deliver_and_none_shows_a_secret(start: Start, queue, hooks):
    hooks.replies = [hooks.slow]
    queue.send_many([{"n": n} for n in range(2)])
    options = ("--webhook-url", hooks.url, "--webhook-header", "X-A=1 2", "--webhook-header", "X-B=c4nary")
    program: Program = start(*SERVE, "webhook", *options, "--deliver-timeout", "20s", "--processes", "2")
    program.until(lambda: len(hooks.requests) == 2, "a request of each process")
    pids = {int(pid) for pid in re.findall(r" (\d+) delayq.worker: consuming reminders", program.err)}
    assert len(pids) == 2
    for pid in pids:
        shown = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"s3cr3t" not in shown
        assert b"c4nary" not in shown
    assert all(request.headers["x-a"] == "1 2" and request.headers["x-b"] == "c4nary" for request in hooks.requests)
    program.signal()
    program.says("finishing running callbacks", 2)
    hooks.released.set()
    assert program.ends() == 0
    assert queue.counts().living == 0


@pytest.mark.long
def test_several_processes_start_the_same_program(start: Start, queue):
    queue.send_many([{"n": n} for n in range(4)])
    options = ("--processes", "2", "--burst", "--", "sh", "-c", 'printf "%s %s\\n" "$(cat)" "$1"', "sh", "--processes")
    ended = start(*SERVE, "command", *options).ended()
    assert ended.code == 0
    assert sorted(ended.out.splitlines()) == [f'{{"n":{n}}} --processes' for n in range(4)]


def test_unreachable_redis_at_the_start_exits_69(start: Start):
    ended = start("--timeout", "200ms", *SERVE, "log", url="redis://127.0.0.1:1").ended()
    assert (ended.code, ended.out) == (69, "")
    assert "connecting to 127.0.0.1:1" in ended.line


# Usage errors


@pytest.fixture(autouse=True)
def no_logging(monkeypatch):
    """Configure no logging in this process."""
    monkeypatch.setattr("delayq.cli.worker.worker.configure_logging", lambda *_, **__: None)


MAIL = ("--smtp-host", "mail.example.com", "--smtp-from", "a@example.org", "--smtp-to", "{to}", "--smtp-subject", "x")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "give MODULE or MODULE:QUEUE, or --queue and --deliver"),
        (["--queue", "reminders"], "--queue needs --deliver"),
        (["a:b", "--webhook-url", "http://x/"], "--webhook-url needs --deliver"),
        (["--deliver", "log"], "--deliver needs --queue"),
        (["--deliver", "pigeon"], "'pigeon' is not one of"),
        ([*SERVE[1:], "log", "app:queue"], "'app:queue' cannot be used with --deliver log"),
        ([*SERVE[1:], "log", "--allow-private"], "--allow-private cannot be used with --deliver log"),
        (["a:b", "--allow-private"], "--allow-private needs --deliver"),
        ([*SERVE[1:], "webhook", "--webhook-url", "http://x/", "--webhook-text", "x"], "text needs a service"),
        ([*SERVE[1:], "webhook", "--webhook-url", "http://x/", "--webhook-service", "irc"], "'irc' is not one of"),
        ([*SERVE[1:], "log", "--smtp-host", "x"], "--smtp-host cannot be used with --deliver log"),
        ([*SERVE[1:], "webhook"], "--deliver webhook needs --webhook-url"),
        ([*SERVE[1:], "webhook", "--webhook-url", "ftp://s3cr3t/"], "url must be http:// or https://"),
        (
            [*SERVE[1:], "webhook", "--webhook-url", "http://x/", "--webhook-header", "a"],
            "must look like NAME=VALUE",
        ),
        ([*SERVE[1:], "webhook", "--webhook-url", "http://x/", "--webhook-header", "a b=c"], "'a b' is not a header"),
        (
            [*SERVE[1:], "webhook", "--webhook-url", "http://x/", "--webhook-secret-file", "none"],
            "'none' does not exist",
        ),
        ([*SERVE[1:], "webhook", "--webhook-url", "http://x/", "--webhook-secret-file", "file"], "secret must be"),
        (
            [*SERVE[1:], "webhook", "--webhook-url", "http://x/", "--webhook-secret-file", "empty"],
            "'empty' is empty: it must contain the secret",
        ),
        ([*SERVE[1:], "smtp", *MAIL, "--smtp-body-file", "binary"], "cannot read 'binary' as UTF-8 text"),
        ([*SERVE[1:], "smtp"], "--deliver smtp needs --smtp-host"),
        ([*SERVE[1:], "smtp", *MAIL[:4]], "--deliver smtp needs --smtp-to"),
        ([*SERVE[1:], "smtp", *MAIL, "--smtp-user", "bot"], "user needs a password"),
        ([*SERVE[1:], "smtp", *MAIL, "--smtp-tls", "maybe"], "'maybe' is not one of"),
        ([*SERVE[1:], "smtp", *MAIL, "--smtp-port", "0"], "--smtp-port"),
        ([*SERVE[1:], "smtp", *MAIL, "--smtp-subject", "{a!r}"], "subject takes fields such as"),
        ([*SERVE[1:], "command"], "--deliver command needs a program: -- PROGRAM [ARGUMENT]…"),
        ([*SERVE[1:], "command", "--", "no-such-program"], "program 'no-such-program' not found"),
        ([*SERVE[1:], "log", "--deliver-timeout", "soon"], "--deliver-timeout must look like"),
        ([*SERVE[1:], "command", "--deliver-timeout", "0", "true"], "timeout must be"),
        ([*SERVE[1:], "log", "--queue", "a b"], "queue name must be"),
    ],
)
def test_wrong_options_print_one_line(cli, arguments, error):
    Path("file").write_text("no base64")
    Path("empty").write_text("\n")
    Path("binary").write_bytes(b"\xff")
    ended = cli("worker", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.line
    assert "s3cr3t" not in ended.line


def test_missing_extra_prints_the_install_command(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    ended = cli(*SERVE, "webhook", "--webhook-url", "http://example.com/")
    assert ended.code == 2
    assert ended.line == "webhooks need the extra: pip install 'delayq[http]'"


def test_deliver_in_the_environment_does_not_affect_a_module(cli):
    ended = cli("worker", "app:queue", env={"DELAYQ_WORKER_WEBHOOK_URL": "http://x/", "DELAYQ_WORKER_QUEUE": "q"})
    assert (ended.code, ended.line.split(" in ")[0]) == (2, "no module 'app'")
    assert "DELAYQ_WORKER_DELIVER" not in os.environ
