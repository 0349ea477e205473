"""Mail through a real server: what is mailed, what each answer means, and that nothing is smuggled in."""

import email
import email.policy
import re
import ssl
from datetime import timedelta

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq import ConfigurationError, Reject, Retry
from delayq.deliver import Smtp
from delayq.deliver.letter import Letters
from delayq.throwaway import free_port
from tests.support.deliveries import DUE, delivered
from tests.support.receivers import mail_server

EVENT = {"summary": "Zahnarzt ☎", "email": "anna@example.com", "user": {"name": "Anna"}}


@pytest.fixture
def box():
    with mail_server() as made:
        yield made


@pytest.fixture
def mailer(box):
    """`mailer(subject=…)` makes one that mails through the server."""
    made = []

    def make(**options) -> Smtp:
        usual = {"sender": "Reminders <bot@example.org>", "to": "{email}", "subject": "{summary}", "tls": "off"}
        made.append(Smtp("127.0.0.1", box.port, **usual | options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def read(box):
    """Return the one letter there is."""
    (envelope,) = box.letters
    return email.message_from_bytes(envelope.content, policy=email.policy.default)


def text(box):
    """Return the text of the one letter, with the line ends of Python."""
    return read(box).get_content().replace("\r\n", "\n")


# What is mailed


def test_a_message_becomes_a_letter(box, mailer):
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


def test_the_text_is_the_payload_by_default(box, mailer):
    mailer()(delivered(EVENT))
    assert text(box) == '{"summary":"Zahnarzt ☎","email":"anna@example.com","user":{"name":"Anna"}}\n'


def test_a_payload_that_is_text_has_no_fields(box, mailer):
    mailer(to="a@example.com", subject="Reminder {id}")(delivered(b"Zahnarzt", codec="bytes"))
    assert (read(box)["Subject"], text(box)) == ("Reminder m1", "Zahnarzt\n")


def test_a_payload_may_have_fields_of_the_names_that_the_message_has(box, mailer):
    mailer(subject="{id} {attempt}")(delivered(EVENT | {"id": 7}))
    assert read(box)["Subject"] == "7 1"


def test_several_addresses_get_one_letter(box, mailer):
    mailer(to=["{email}", "boss@example.com"])(delivered(EVENT))
    assert read(box)["To"] == "anna@example.com, boss@example.com"
    assert box.letters[0].rcpt_tos == ["anna@example.com", "boss@example.com"]


@pytest.mark.parametrize("address", ["änna@example.com", "anna@exämple.com"])
def test_an_address_beyond_ascii_goes_to_a_server_that_takes_it(box, mailer, address):
    mailer()(delivered(EVENT | {"email": address}))
    assert box.letters[0].rcpt_tos == [address]
    with mail_server(utf8=False) as other:
        mail = Smtp("127.0.0.1", other.port, sender="a@example.org", to="{email}", subject="x", tls="off")
        with pytest.raises(Reject, match="takes no addresses beyond ASCII"):
            mail(delivered(EVENT | {"email": address}))


def test_a_redelivery_can_be_told_by_its_message_id(box, mailer):
    mail = mailer()
    same = [delivered(EVENT), delivered(EVENT, attempt=2)]
    others = [
        delivered(EVENT, id="m2"),
        delivered(EVENT, due=DUE + timedelta(days=7)),  # the id is used again
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


def test_a_long_subject_is_cut_and_a_long_line_arrives(box, mailer):
    mailer(body="{text}")(delivered(EVENT | {"summary": "ä" * 5000, "text": "ü" * 5000}))
    assert read(box)["Subject"] == "ä" * 200
    assert text(box) == "ü" * 5000 + "\n"


# What an answer means


@pytest.mark.parametrize("command", ["MAIL", "RCPT", "DATA"])
def test_4xx_is_tried_again_after_a_time(box, mailer, command):
    box.answers = {command: ["451 4.7.1 greylisted, <anna@example.com>"]}
    mail = mailer(retry_after="90s")
    with pytest.raises(Retry, match=r"^127.0.0.1 answered 451 4.7.1 greylisted, …$") as told:
        mail(delivered(EVENT))
    assert told.value.delay == 90
    mail(delivered(EVENT))
    assert len(box.letters) == 1


@pytest.mark.parametrize("command", ["MAIL", "RCPT", "DATA"])
def test_5xx_rejects(box, mailer, command):
    box.answers = {command: ["550 5.1.1 no such user anna@example.com here"]}
    with pytest.raises(Reject, match=r"^127.0.0.1 answered 550 5.1.1 no such user … here$"):
        mailer()(delivered(EVENT))
    assert not box.letters


def test_a_server_that_closes_at_once_is_tried_again(box, mailer):
    box.answers = {"MAIL": ["421 4.3.0 closing down"]}
    mail = mailer()
    with pytest.raises(Retry, match="answered 421"):
        mail(delivered(EVENT))
    mail(delivered(EVENT))


@pytest.mark.parametrize(
    ("answers", "outcome", "said"),
    [
        (["", "550 no"], Reject, "answered 550 no"),
        (["", "450 busy"], Retry, "answered 450 busy"),
        (["550 no", "450 busy"], Retry, "answered 450 busy"),
        (["550 no", "551 no"], Reject, "answered 550 no"),
    ],
)
def test_of_several_refusals_one_that_may_pass_counts(box, mailer, answers, outcome, said):
    box.answers = {"RCPT": [*answers]}
    with pytest.raises(outcome, match=said):
        mailer(to=["{email}", "boss@example.com"])(delivered(EVENT))
    assert len(box.letters) == answers.count("")


def test_a_server_that_is_not_there_is_tried_again():
    mail = Smtp("127.0.0.1", free_port(), sender="a@example.org", to="b@example.org", subject="x", tls="off")
    with pytest.raises(Retry, match=r"^127.0.0.1: Connection refused$") as told:
        mail(delivered({}))
    assert told.value.delay is None


# One connection


def test_a_connection_is_used_again_and_opened_again_when_it_was_closed(box, mailer):
    mail = mailer()
    mail(delivered(EVENT))
    mail(delivered(EVENT))
    assert len(set(box.sessions)) == 1
    mail._idle[0].sock.shutdown(2)
    mail(delivered(EVENT))
    assert len(set(box.sessions)) == 2
    mail.close()
    assert not mail._idle


# TLS and logging in


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """An authority of one's own that is trusted here."""
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
        with pytest.raises(Retry, match="certificate verify failed"):
            mail(delivered(EVENT))
        assert len(box.letters) == 1


def test_a_wrong_password_says_nothing_about_the_message(authority):
    with mail_server(tls_server(authority, "127.0.0.1"), login=("bot", "s3cr3t")) as box:
        mail = Smtp(
            "127.0.0.1", box.port, sender="a@example.org", to="{email}", subject="x", user="bot", password="wr0ng"
        )
        with pytest.raises(Retry, match="answered 535") as told:
            mail(delivered(EVENT))
        assert "wr0ng" not in str(told.value)
        assert told.value.delay is None


def test_a_server_of_another_name_gets_nothing(authority):
    with mail_server(tls_server(authority, "mail.example.org")) as box:
        mail = Smtp("127.0.0.1", box.port, sender="a@example.org", to="{email}", subject="x")
        with pytest.raises(Retry, match="certificate verify failed"):
            mail(delivered(EVENT))
        assert not box.letters


def test_a_server_that_will_not_encrypt_gets_nothing(box):
    mail = Smtp("127.0.0.1", box.port, sender="a@example.org", to="{email}", subject="x")
    with pytest.raises(Retry, match="STARTTLS"):
        mail(delivered(EVENT))
    assert not box.letters


# Nothing is smuggled in


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"summary": "Hello\r\nBcc: all@example.com"}, "line break or control character into the subject"),
        ({"summary": "Hello\nWorld"}, "line break or control character into the subject"),
        ({"summary": "Hello\x00"}, "line break or control character into the subject"),
        ({"summary": "Hello\u2028Bcc: all@example.com"}, "line break or control character into the subject"),
        # Encoded words, which Python's own e-mail package decodes before it writes a header.
        ({"summary": "=?utf-8?q?Hello=0D=0ABcc:_all@example.com?="}, "control character into the subject"),
        ({"summary": "=?utf-8?b?SGVsbG8KQmNjOiBhbGxAZXhhbXBsZS5jb20=?="}, "control character into the subject"),
        ({"email": "=?utf-8?q?Anna=0D=0ABcc:_all@example.com?= <a@example.com>"}, "makes no address"),
        ({"email": "a@example.com\r\nRCPT TO:<all@example.com>"}, "line break or control character into the address"),
        ({"email": "a@example.com, all@example.com"}, "makes no address"),
        ({"email": "a@example.com> <all@example.com"}, "makes no address"),
        ({"email": "group: a@example.com;"}, "makes no address"),
        ({"email": "(%=@;):"}, "makes no address"),
        ({"email": "(" * 400}, "makes no address"),
        ({"email": "a" * 600 + "@example.com"}, "makes no address"),
        ({"email": "nobody"}, "makes no address"),
        ({"email": "<>"}, "makes no address"),
        ({"email": "@example.com"}, "makes no address"),
        ({"email": ""}, "makes no address"),
        ({"email": None}, "makes no address"),
        ({"email": ["a@example.com"]}, "makes no address"),
    ],
)
def test_a_payload_that_makes_no_proper_letter_is_rejected(box, mailer, changed, said):
    with pytest.raises(Reject, match=said) as told:
        mailer()(delivered(EVENT | changed))
    assert not box.letters
    assert "example.com" not in str(told.value)


PARTS = [*'aü@.<>()[]",:;\\ =_?\r\n\0', "=?utf-8?q?", "=0D=0A", "?=", "Bcc:", "a@b.c"]
WORDS = st.lists(st.sampled_from(["a", "_", "=0D=0A", "=00", "Bcc:", "=2C", "=40", "=C3=BC"]), max_size=6).map("".join)
HOSTILE = st.lists(st.sampled_from(PARTS) | WORDS.map("=?utf-8?q?{}?=".format), max_size=12).map("".join)


@settings(max_examples=300, deadline=None)
@given(summary=HOSTILE, name=st.just("Anna") | HOSTILE, address=st.just("a@b.c") | HOSTILE)
def test_whatever_a_payload_says_a_letter_has_the_headers_that_are_ours(summary, name, address):
    letters = Letters("bot@example.org", ["{email}", "{name} <a@b.c>"], "Re: {summary}", "{summary}")
    try:
        letter, to = letters.write(delivered({"summary": summary, "name": name, "email": address}))
    except Reject:
        return
    head = letter.as_bytes(policy=letter.policy.clone(utf8=True)).partition(b"\r\n\r\n")[0].decode()
    names = re.findall(r"^([^\s:]+):", head.replace("\r\n ", " "), re.MULTILINE)
    assert names[:6] == ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"]
    assert set(names[6:]) == {"Content-Type", "Content-Transfer-Encoding", "MIME-Version"}
    assert not re.search(r"[^\r]\n|\r[^\n]|\0", head)
    assert len(to) == 2
    assert not any(re.search(r"[\r\n\0]", one) for one in to)


def test_a_name_is_no_second_address(box, mailer):
    with pytest.raises(Reject, match="makes no address"):
        mailer(to="{user.name} <{email}>")(delivered(EVENT | {"user": {"name": "all@example.com, x"}}))
    assert not box.letters


def test_a_field_that_is_missing_rejects(box, mailer):
    with pytest.raises(Reject, match="the payload has no field 'summary'"):
        mailer()(delivered({"email": "a@example.com"}))


def test_the_end_of_a_letter_cannot_be_written_by_a_payload(box, mailer):
    smuggled = "one\n.\nMAIL FROM:<x@example.com>\n..two"
    mailer(body="{text}")(delivered(EVENT | {"text": smuggled}))
    assert text(box) == f"{smuggled}\n"


# What is refused


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sender": "nobody"}, "sender must be one address"),
        ({"sender": "a@b.example, c@d.example"}, "sender must be one address"),
        ({"sender": None}, "sender must be one address"),
        ({"to": []}, "to must name an address"),
        ({"to": "{email!r}"}, "to takes fields"),
        ({"subject": "{"}, "subject is no template"),
        ({"body": 7}, "body must be text"),
        ({"tls": "yes"}, "tls must be 'starttls', 'ssl' or 'off'"),
        ({"host": "a b"}, "host must be"),
        ({"port": 0}, "port must be"),
        ({"timeout": 0}, "timeout must be"),
        ({"user": "bot"}, "a user needs a password: set DELAYQ_SMTP_PASSWORD"),
        ({"user": "bot", "password": "s3cr3t", "tls": "off"}, "a password goes to mail.example.com over TLS only"),
    ],
)
def test_what_is_wrong_is_told_at_once(changed, said):
    usual = {"host": "mail.example.com", "sender": "a@example.org", "to": "{email}", "subject": "x"}
    with pytest.raises(ConfigurationError, match=said):
        Smtp(**usual | changed)


@pytest.mark.parametrize(("tls", "port"), [("starttls", 587), ("ssl", 465), ("off", 25)])
def test_the_port_follows_from_the_encryption(tls, port):
    mail = Smtp("mail.example.com", sender="a@example.org", to="{email}", subject="x", tls=tls)
    assert repr(mail) == f"<Smtp mail.example.com:{port}>"
