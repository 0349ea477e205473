"""Mail through a real server: contents, replies, TLS, and protection against injection."""

import email
import email.policy
import re
import socket
import ssl
import sys
import threading
from datetime import timedelta

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq import ConfigurationError, RateLimited, Reject, Retry, Snooze, StopWorker
from delayq.delivery import Smtp, adapter
from delayq.delivery.email_message import POLICY, EmailTemplate, with_ascii_domain
from delayq.testing.redis_server import free_port
from tests.support.deliveries import DUE, delivered
from tests.support.receivers import mail_server

EVENT = {"summary": "Zahnarzt ☎", "email": "anna@example.com", "user": {"name": "Anna"}}


@pytest.fixture
def box():
    with mail_server() as made:
        yield made


@pytest.fixture
def mailer(box):
    """`mailer(subject=…)` makes an `Smtp` that uses the server."""
    made = []

    def make(**options) -> Smtp:
        usual = {"sender": "Reminders <bot@example.org>", "to": "{email}", "subject": "{summary}", "tls": "off"}
        made.append(Smtp("127.0.0.1", box.port, **usual | options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def read(box):
    """Return the only received email."""
    (envelope,) = box.letters
    return email.message_from_bytes(envelope.content, policy=email.policy.default)


def text(box):
    """Return the text of the only received email, with `\
` as line end."""
    return read(box).get_content().replace("\r\n", "\n")


# Contents


def test_message_is_sent_as_email(box, mailer):
    mailer(to="{user.name} <{email}>", body="Dear {user.name},\n{summary} at {due}.\n")(delivered(EVENT))
    letter = read(box)
    assert letter["From"] == "Reminders <bot@example.org>"
    assert letter["To"] == "Anna <anna@example.com>"
    assert letter["Subject"] == "Zahnarzt ☎"
    assert letter["Auto-Submitted"] == "auto-generated"
    assert letter["Date"].datetime.utcoffset() == timedelta()
    assert text(box) == "Dear Anna,\nZahnarzt ☎ at 2027-01-31T09:00:00.000Z.\n"
    (envelope,) = box.letters
    assert (envelope.mail_from, envelope.rcpt_tos) == ("bot@example.org", ["anna@example.com"])


def test_text_is_the_payload_by_default(box, mailer):
    mailer()(delivered(EVENT))
    assert text(box) == '{"summary":"Zahnarzt ☎","email":"anna@example.com","user":{"name":"Anna"}}\n'


def test_text_payload_has_no_fields(box, mailer):
    mailer(to="a@example.com", subject="Reminder {id}")(delivered(b"Zahnarzt", codec="bytes"))
    assert (read(box)["Subject"], text(box)) == ("Reminder m1", "Zahnarzt\n")


def test_payload_fields_override_message_fields(box, mailer):
    mailer(subject="{id} {attempt}")(delivered(EVENT | {"id": 7}))
    assert read(box)["Subject"] == "7 1"


def test_several_recipients_get_one_email(box, mailer):
    mailer(to=["{email}", "boss@example.com"])(delivered(EVENT))
    assert read(box)["To"] == "anna@example.com, boss@example.com"
    assert box.letters[0].rcpt_tos == ["anna@example.com", "boss@example.com"]


@pytest.mark.parametrize("server", [{}, {"utf8": False}], ids=["utf8", "ascii"])
@pytest.mark.parametrize(
    ("address", "sent"),
    [
        ("anna@exämple.com", "anna@xn--exmple-cua.com"),
        ("Änna <anna@EXÄMPLE.com>", "anna@xn--exmple-cua.com"),
        ("anna@straße.example", "anna@xn--strae-oqa.example"),  # not strasse.example, as older rules have it
        ("anna@例え.テスト", "anna@xn--r8jz45g.xn--zckzah"),
    ],
)
def test_domain_that_is_not_ascii_is_sent_as_its_a_label(server, address, sent):
    with mail_server(**server) as box:
        mail = Smtp("127.0.0.1", box.port, sender="bot@bücher.example", to="{email}", subject="x", tls="off")
        mail(delivered(EVENT | {"email": address}))
        mail.close()
    assert (box.letters[0].mail_from, box.letters[0].rcpt_tos) == ("bot@xn--bcher-kva.example", [sent])
    assert read(box)["To"].addresses[0].addr_spec == sent
    assert read(box)["Message-ID"].endswith("@xn--bcher-kva.example>")


@pytest.mark.parametrize(("name", "label"), [("bücher.example", "xn--bcher-kva.example"), ("straße.example", None)])
def test_a_labels_are_right_without_the_package_for_them(monkeypatch, name, label):
    monkeypatch.setitem(sys.modules, "idna", None)
    assert with_ascii_domain(f"a@{name}") == f"a@{label or name}"  # the codec would make it strasse.example


@pytest.mark.parametrize("address", ["änna@example.com", "anna@☎.example"])
def test_address_without_an_ascii_form_needs_server_support(box, mailer, address):
    mailer()(delivered(EVENT | {"email": address}))
    assert box.letters[0].rcpt_tos == [address]
    with mail_server(utf8=False) as other:
        mail = Smtp("127.0.0.1", other.port, sender="a@example.org", to="{email}", subject="x", tls="off")
        with pytest.raises(Reject, match="does not accept non-ASCII addresses"):
            mail(delivered(EVENT | {"email": address}))


def test_redelivery_has_the_same_message_id(box, mailer):
    mail = mailer()
    same = [delivered(EVENT), delivered(EVENT, attempt=2)]
    others = [
        delivered(EVENT, id="m2"),
        delivered(EVENT, due=DUE + timedelta(days=7)),  # the id is reused
        *(delivered(EVENT, id=id) for id in ("a.b", "a..b", ".", "a@b", "a:b", "+" * 128, "x" * 128)),
    ]
    for message in [*same, *others]:
        mail(message)
    ids = [
        email.message_from_bytes(letter.content, policy=email.policy.default)["Message-ID"] for letter in box.letters
    ]
    assert ids[0] == "<m1.1801386000000@example.org>"
    assert ids[0] == ids[1]
    assert len(set(ids)) == 1 + len(others)
    for id in ids:
        assert id.isascii()
        assert not id.defects
        assert id.count("@") == 1


def test_long_subject_is_cut_and_long_line_is_delivered(box, mailer):
    mailer(body="{text}")(delivered(EVENT | {"summary": "ä" * 5000, "text": "ü" * 5000}))
    assert read(box)["Subject"] == "ä" * 200
    assert text(box) == "ü" * 5000 + "\n"


LINES = st.lists(
    st.sampled_from(
        ["From ", ">From ", ".", "..", "From: x", "=20", "--", " ", "\t", "ü", "☎", "\x85", "\u2028", "x" * 990]
    )
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=5),
    max_size=6,
).map("".join)


@settings(max_examples=100, deadline=None)
@given(st.lists(LINES, max_size=5), st.booleans())
def test_text_arrives_as_it_is(lines, utf8):
    body = "\n".join([*lines, ""])
    template = EmailTemplate("bot@example.org", "änna@example.com" if utf8 else "anna@example.com", "x", "{text}")
    letter, _ = template.build(delivered({"text": body}))
    sent = letter.as_bytes(policy=POLICY.clone(utf8=utf8))
    text = sent.partition(b"\r\n\r\n")[2]
    assert text.isascii()
    assert max(map(len, text.split(b"\r\n"))) <= 998
    assert not re.search(rb"[^\r]\n|\r[^\n]", text)
    got = email.message_from_bytes(sent, policy=email.policy.default).get_content()
    assert got.replace("\r\n", "\n") == body or not body


def test_lines_that_mail_programs_take_for_more_arrive_as_they_are(box, mailer):
    body = "From here on\n>From there\n.\n..\nFröhlich\n"
    for user in ("anna", "änna"):
        mailer(body="{text}")(delivered(EVENT | {"text": body, "email": f"{user}@example.com"}))
    letters = [email.message_from_bytes(one.content, policy=email.policy.default) for one in box.letters]
    assert [one.get_content().replace("\r\n", "\n") for one in letters] == [body, body]


def test_display_name_arrives_as_it_is(box, mailer):
    names = ["Doe, Jane", "Ä, (y) <z@q>", "a@b", "J. R. Ewing", "日本語" * 3, "Zahnärzte; & Söhne"]
    for name in names:
        quoted = f'"{name}" <anna@example.com>'
        mailer(to="{email}")(delivered(EVENT | {"email": quoted}))
    letters = [email.message_from_bytes(one.content, policy=email.policy.default) for one in box.letters]
    assert [one["To"].addresses[0].display_name for one in letters] == names


# Replies of the server


@pytest.mark.parametrize("command", ["RCPT", "DATA"])
def test_4xx_is_retried_after_a_delay(box, mailer, command):
    box.replies = {command: ["451 4.7.1 greylisted, <anna@example.com>"]}
    mail = mailer(retry_after="90s")
    with pytest.raises(Retry, match=r"^127.0.0.1 replied 451 4.7.1 greylisted, …$") as raised:
        mail(delivered(EVENT))
    assert raised.value.delay == 90
    mail(delivered(EVENT))
    assert len(box.letters) == 1


@pytest.mark.parametrize("command", ["RCPT", "DATA"])
def test_5xx_rejects(box, mailer, command):
    box.replies = {command: ["550 5.1.1 no such user anna@example.com here"]}
    with pytest.raises(Reject, match=r"^127.0.0.1 replied 550 5.1.1 no such user … here$"):
        mailer()(delivered(EVENT))
    assert not box.letters


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("MAIL", "530 5.7.0 Authentication required"),
        ("RCPT", "530 5.7.1 Authentication required"),
        ("DATA", "530 5.7.1 Authentication required"),
        ("MAIL", "538 5.7.11 Encryption required for bot@example.org"),
        ("MAIL", "550 5.1.8 bot@example.org: sender rejected"),
        ("MAIL", "553 5.7.1 not owned by you"),
        ("MAIL", "501 5.1.7 bad sender"),
    ],
)
def test_refusal_of_all_emails_stops_the_worker(box, mailer, command, reply):
    box.replies = {command: [reply]}
    mail = mailer()
    with pytest.raises(StopWorker, match=rf"^127.0.0.1 replied {reply[:3]} .*: check ") as raised:
        mail(delivered(EVENT))
    assert "example.org" not in str(raised.value)
    assert not box.letters
    mail(delivered(EVENT))
    assert len(box.letters) == 1


@pytest.mark.parametrize("reply", ["552 5.3.4 too large", "554 5.3.4 too large", "550 5.6.7 needs SMTPUTF8"])
def test_refusal_of_one_email_at_mail_from_rejects(box, mailer, reply):
    box.replies = {"MAIL": [reply]}
    with pytest.raises(Reject, match=f"^127.0.0.1 replied {reply}$"):
        mailer()(delivered(EVENT))


def test_long_reply_is_cut(box, mailer):
    box.replies = {"RCPT": ["550 " + "no " * 160]}
    with pytest.raises(Reject) as raised:
        mailer()(delivered(EVENT))
    assert len(str(raised.value)) < 330


def answering(line: bytes):
    """Start a server that says one line to each connection; returns its socket and thread."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = server.accept()
        with client:
            client.sendall(line)
            client.recv(1000)

    thread = threading.Thread(target=serve)
    thread.start()
    return server, thread


@pytest.mark.parametrize(
    ("line", "tls", "outcome", "error"),
    [
        (b"554 no SMTP service here\r\n", "off", StopWorker, "replied 554 no SMTP .*: check the mail server"),
        (b"421 too many connections\r\n", "off", RateLimited, "replied 421 too many connections$"),
        (b"220 not encrypted\r\n", "ssl", StopWorker, "it does not speak TLS from the first byte"),
    ],
)
def test_greeting_decides_between_a_retry_and_a_stop(line, tls, outcome, error):
    server, thread = answering(line)
    with server:
        port = server.getsockname()[1]
        mail = Smtp("127.0.0.1", port, sender="a@example.org", to="b@example.org", subject="x", tls=tls)
        with pytest.raises(outcome, match=error):
            mail(delivered({}))
    thread.join()


@pytest.mark.parametrize(
    ("number", "outcome", "error"),
    [
        (socket.EAI_NONAME, StopWorker, "^mail.example.com: no such host: check its name$"),
        (socket.EAI_AGAIN, Snooze, "^mail.example.com: "),
    ],
)
def test_unknown_host_stops_the_worker_and_a_failed_look_up_is_not_charged(monkeypatch, number, outcome, error):
    def look_up(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "look-up failed")

    mail = Smtp("mail.example.com", sender="a@example.org", to="b@example.org", subject="x")
    monkeypatch.setattr(adapter, "MAX_HELD", 0.01)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(outcome, match=error):
        mail(delivered({}))


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("MAIL", "421 4.3.0 closing down"),
        ("RCPT", "421 4.3.0 closing down"),
        ("DATA", "421 4.3.0 closing down"),
        ("MAIL", "450 4.7.1 too much mail from you"),
        ("DATA", "452 4.3.1 system full"),
        ("RCPT", "451 4.3.2 system not accepting messages"),
    ],
)
def test_server_that_takes_nothing_for_now_is_closed_and_nobody_charged(box, mailer, command, reply):
    box.replies = {command: [reply]}
    mail = mailer(retry_after="90s")
    with pytest.raises(RateLimited, match=f"replied {reply[:3]}") as raised:
        mail(delivered(EVENT))
    assert raised.value.delay == pytest.approx(5 if reply.startswith("421") else 90, abs=1)
    with pytest.raises(Snooze, match=f"replied {reply[:3]}"):
        mail(delivered(EVENT))
    assert not box.letters


def test_server_that_ends_a_connection_gets_the_email_over_another(box, mailer):
    box.replies = {"MAIL": ["", "421 4.7.0 enough emails over this connection"]}
    mail = mailer()
    mail(delivered(EVENT))
    mail(delivered(EVENT))
    assert len(box.letters) == len(set(box.sessions)) == 2


@pytest.mark.parametrize(
    ("replies", "outcome", "error"),
    [
        (["550 no", "450 busy"], Retry, "replied 450 busy"),
        (["550 no", "551 no"], Reject, "replied 550 no"),
    ],
)
def test_email_that_nobody_gets_is_retried_if_any_refusal_is_temporary(box, mailer, replies, outcome, error):
    box.replies = {"RCPT": [*replies]}
    with pytest.raises(outcome, match=error):
        mailer(to=["{email}", "boss@example.com"])(delivered(EVENT))
    assert not box.letters


def test_unreachable_server_is_retried():
    mail = Smtp("127.0.0.1", free_port(), sender="a@example.org", to="b@example.org", subject="x", tls="off")
    with pytest.raises(Retry, match=r"^127.0.0.1: Connection refused$") as raised:
        mail(delivered({}))
    assert raised.value.delay is None


@pytest.mark.long
@pytest.mark.timeout(60)
@pytest.mark.parametrize("drop", [b"2", b"220-wait\r\n"])
def test_server_that_drips_does_not_hold_the_delivery(drop):
    gone = threading.Event()

    def drip(server):
        client, _ = server.accept()
        with client:
            try:
                while not gone.wait(0.1):
                    client.sendall(drop)
            except OSError:
                gone.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        options = {"sender": "a@example.org", "to": "b@example.org", "subject": "x", "tls": "off", "timeout": "1s"}
        mail = Smtp("127.0.0.1", server.getsockname()[1], **options)
        with pytest.raises(Retry, match=r"^127.0.0.1: timed out$"):
            mail(delivered({}))
        assert gone.wait(30)  # the connection is closed
        thread.join()


# Connections


def test_connection_is_reused_and_reopened(box, mailer):
    mail = mailer()
    mail(delivered(EVENT))
    mail(delivered(EVENT))
    assert len(set(box.sessions)) == 1
    mail._idle[0].sock.shutdown(2)
    mail(delivered(EVENT))
    assert len(set(box.sessions)) == 2
    mail.close()
    assert not mail._idle


# TLS and login


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """A certificate authority that is trusted here."""
    made = trustme.CA(key_type=trustme.KeyType.ECDSA)
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return made


def tls_server(authority, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def test_starttls_encrypts_and_logs_in(authority, monkeypatch):
    with mail_server(tls_server(authority, "127.0.0.1"), login=("bot", "s3cr3t")) as box:
        monkeypatch.setenv("DELAYQ_SMTP_USER", "bot")
        monkeypatch.setenv("DELAYQ_SMTP_PASSWORD", "s3cr3t")
        mail = Smtp("127.0.0.1", box.port, sender="bot@example.org", to="{email}", subject="x")
        mail(delivered(EVENT))
        mail(delivered(EVENT))
        assert len(box.letters) == 2
        mail.close()
        assert "s3cr3t" not in repr(mail)


def test_tls_from_the_first_byte(authority, tmp_path, monkeypatch):
    with mail_server(tls_server(authority, "127.0.0.1"), at_once=True) as box:
        mail = Smtp("127.0.0.1", box.port, sender="bot@example.org", to="{email}", subject="x", tls="ssl")
        mail(delivered(EVENT))
        assert len(box.letters) == 1
        mail.close()
        trustme.CA(key_type=trustme.KeyType.ECDSA).cert_pem.write_to_path(tmp_path / "other.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "other.pem"))
        with pytest.raises(StopWorker, match=r"127.0.0.1: its certificate is not trusted: unable to get"):
            mail(delivered(EVENT))
        assert len(box.letters) == 1


def test_wrong_password_stops_the_worker(authority):
    with mail_server(tls_server(authority, "127.0.0.1"), login=("bot", "s3cr3t")) as box:
        mail = Smtp(
            "127.0.0.1", box.port, sender="a@example.org", to="{email}", subject="x", user="bot", password="wr0ng"
        )
        with pytest.raises(StopWorker, match=r"replied 535 .*: check user, password and encryption$") as raised:
            mail(delivered(EVENT))
        assert "wr0ng" not in str(raised.value)


def test_server_without_login_stops_the_worker(box):
    mail = Smtp(
        "127.0.0.1",
        box.port,
        sender="a@example.org",
        to="b@example.org",
        subject="x",
        tls="off",
        user="a",
        password="b",
    )
    with pytest.raises(StopWorker, match=r"^127.0.0.1: it offers no login: check"):
        mail(delivered({}))


def test_login_that_fails_for_now_is_retried(authority):
    context, reply = tls_server(authority, "127.0.0.1"), "454 4.7.0 Temporary authentication failure"
    with mail_server(context, login=("bot", "s3cr3t"), login_reply=reply) as box:
        options = {"sender": "a@example.org", "to": "b@example.org", "subject": "x"}
        mail = Smtp("127.0.0.1", box.port, user="bot", password="s3cr3t", **options)
        with pytest.raises(RateLimited, match="replied 454"):
            mail(delivered({}))


def test_server_with_a_wrong_certificate_gets_nothing(authority):
    with mail_server(tls_server(authority, "mail.example.org")) as box:
        mail = Smtp("127.0.0.1", box.port, sender="a@example.org", to="{email}", subject="x")
        with pytest.raises(StopWorker, match="its certificate is not trusted: IP address mismatch"):
            mail(delivered(EVENT))
        assert not box.letters


def test_server_without_encryption_gets_nothing(box):
    mail = Smtp("127.0.0.1", box.port, sender="a@example.org", to="{email}", subject="x")
    with pytest.raises(StopWorker, match=r"^127.0.0.1: it offers no encryption by STARTTLS: check"):
        mail(delivered(EVENT))
    assert not box.letters


# Injection


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"summary": "Hello\r\nBcc: all@example.com"}, "line break or control character in the subject"),
        ({"summary": "Hello\nWorld"}, "line break or control character in the subject"),
        ({"summary": "Hello\x00"}, "line break or control character in the subject"),
        ({"summary": "Hello\u2028Bcc: all@example.com"}, "line break or control character in the subject"),
        # Encoded words, which Python's own e-mail package decodes before it writes a header.
        ({"summary": "=?utf-8?q?Hello=0D=0ABcc:_all@example.com?="}, "control character in the subject"),
        ({"summary": "=?utf-8?b?SGVsbG8KQmNjOiBhbGxAZXhhbXBsZS5jb20=?="}, "control character in the subject"),
        ({"email": "=?utf-8?q?Anna=0D=0ABcc:_all@example.com?= <a@example.com>"}, "gives no valid email address"),
        ({"email": "a@example.com\r\nRCPT TO:<all@example.com>"}, "line break or control character in the address"),
        ({"email": "a@example.com, all@example.com"}, "gives no valid email address"),
        ({"email": "a@example.com> <all@example.com"}, "gives no valid email address"),
        ({"email": "group: a@example.com;"}, "gives no valid email address"),
        ({"email": "(%=@;):"}, "gives no valid email address"),
        ({"email": "(" * 400}, "gives no valid email address"),
        ({"email": "a" * 600 + "@example.com"}, "gives no valid email address"),
        ({"email": "nobody"}, "gives no valid email address"),
        ({"email": "<>"}, "gives no valid email address"),
        ({"email": "@example.com"}, "gives no valid email address"),
        ({"email": ""}, "gives no valid email address"),
        ({"email": None}, "gives no valid email address"),
        ({"email": ["a@example.com"]}, "gives no valid email address"),
    ],
)
def test_payload_that_gives_no_valid_email_is_rejected(box, mailer, changed, error):
    with pytest.raises(Reject, match=error) as raised:
        mailer()(delivered(EVENT | changed))
    assert not box.letters
    assert "example.com" not in str(raised.value)


PARTS = [*'aü@.<>()[]",:;\\ =_?\r\n\0', "=?utf-8?q?", "=0D=0A", "?=", "Bcc:", "a@b.c"]
WORDS = st.lists(st.sampled_from(["a", "_", "=0D=0A", "=00", "Bcc:", "=2C", "=40", "=C3=BC"]), max_size=6).map("".join)
HOSTILE = st.lists(st.sampled_from(PARTS) | WORDS.map("=?utf-8?q?{}?=".format), max_size=12).map("".join)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(summary=HOSTILE, name=st.just("Anna") | HOSTILE, address=st.just("a@b.c") | HOSTILE)
def test_payload_cannot_change_headers(summary, name, address):
    template = EmailTemplate("bot@example.org", ["{email}", "{name} <a@b.c>"], "Re: {summary}", "{summary}")
    try:
        letter, to = template.build(delivered({"summary": summary, "name": name, "email": address}))
    except Reject:
        return
    head = letter.as_bytes(policy=letter.policy.clone(utf8=True)).partition(b"\r\n\r\n")[0].decode()
    names = re.findall(r"^([^\s:]+):", head.replace("\r\n ", " "), re.MULTILINE)
    assert names[:6] == ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"]
    assert set(names[6:]) == {"Content-Type", "Content-Transfer-Encoding", "MIME-Version"}
    assert not re.search(r"[^\r]\n|\r[^\n]|\0", head)
    assert len(set(to)) == len(to) <= 2
    assert not any(re.search(r"[\r\n\0]", one) for one in to)


def test_display_name_cannot_add_an_address(box, mailer):
    with pytest.raises(Reject, match="gives no valid email address"):
        mailer(to="{user.name} <{email}>")(delivered(EVENT | {"user": {"name": "all@example.com, x"}}))
    assert not box.letters


def test_missing_field_rejects(box, mailer):
    with pytest.raises(Reject, match="the payload has no field 'summary'"):
        mailer()(delivered({"email": "a@example.com"}))


def test_payload_cannot_end_the_email(box, mailer):
    injected = "one\n.\nMAIL FROM:<x@example.com>\n..two"
    mailer(body="{text}")(delivered(EVENT | {"text": injected}))
    assert text(box) == f"{injected}\n"


# Invalid options


@pytest.mark.table(
    ("changed", "error"),
    [
        ({"sender": "nobody"}, "sender must be one email address"),
        ({"sender": "a@b.example, c@d.example"}, "sender must be one email address"),
        ({"sender": None}, "sender must be one email address"),
        ({"to": []}, "to must have at least one address"),
        ({"to": "{email!r}"}, "to takes fields"),
        ({"subject": "{"}, "subject is not a valid template"),
        ({"body": 7}, "body must be a str"),
        ({"tls": "yes"}, "tls must be 'starttls', 'ssl' or 'off'"),
        ({"host": "a b"}, "host must be"),
        ({"port": 0}, "port must be"),
        ({"timeout": 0}, "timeout must be"),
        ({"user": "bot"}, "user needs a password: set DELAYQ_SMTP_PASSWORD"),
        (
            {"user": "bot", "password": "s3cr3t", "tls": "off"},
            "refusing to send a password to mail.example.com without TLS",
        ),
    ],
)
def test_invalid_options_are_refused_on_creation(changed, error):
    usual = {"host": "mail.example.com", "sender": "a@example.org", "to": "{email}", "subject": "x"}
    with pytest.raises(ConfigurationError, match=error):
        Smtp(**usual | changed)


@pytest.mark.parametrize(("tls", "port"), [("starttls", 587), ("ssl", 465), ("off", 25)])
def test_default_port_depends_on_the_encryption(tls, port):
    mail = Smtp("mail.example.com", sender="a@example.org", to="{email}", subject="x", tls=tls)
    assert repr(mail) == f"<Smtp mail.example.com:{port}>"
