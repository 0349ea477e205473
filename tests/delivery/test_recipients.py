"""Emails for several recipients of which a server accepts some: who gets them when, and what is left in the queue."""

import email
import email.policy

import msgspec
import pytest

from delayq import DelayQueue, Reject, Retry
from delayq.delivery import Smtp
from delayq.delivery.email_message import EmailTemplate
from delayq.delivery.recipients import HEADER, Part
from delayq.errors import ServerError
from delayq.streams import StreamQueue
from tests.support.deliveries import delivered
from tests.support.receivers import mail_server
from tests.support.waiting import wait_until

A, B, C = "a@example.com", "b@example.com", "c@example.com"
PAYLOAD = {"to": [A, B, C], "summary": "Zahnarzt ☎"}


@pytest.fixture
def box():
    with mail_server() as made:
        yield made


@pytest.fixture
def mailer(box):
    """`mailer(to=…)` makes an `Smtp` that uses the server."""
    made = []

    def make(to=(A, B, C), **options):
        usual = {"sender": "bot@example.org", "subject": "{id} {attempt}", "tls": "off", "retry_after": "200ms"}
        made.append(Smtp("127.0.0.1", box.port, to=list(to), **usual | options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def mail(mailer):
    return mailer()


@pytest.fixture
def queue(redis_url, mail):
    with DelayQueue("mails", url=redis_url, tick=0.1) as made:
        made.callback(mail)
        yield made


def got(box):
    """Return who got each email, in the order of the emails."""
    return [envelope.rcpt_tos for envelope in box.letters]


def run_until(queue, condition):
    queue.start_consume()
    wait_until(condition)
    queue.stop_consume()


def test_deferred_and_refused_recipients_are_left_over_alone(queue, box):
    box.replies = {B: ["450 4.2.1 busy", "450 4.2.1 busy"], C: ["550 5.1.1 no such user c@example.com"] * 2}
    queue.send_delay_msg(PAYLOAD, id="m", headers={"of": "a test"}, retries=3)
    run_until(queue, lambda: queue.counts().living == 0)
    assert got(box) == [[A], [B]]
    (dead,) = queue.dead.list().messages
    assert dead.id.startswith("m:refused:")
    assert dead.reason == "127.0.0.1 replied 550 5.1.1 no such user …"
    assert dead.headers["of"] == "a test"
    assert dead.payload == PAYLOAD
    first, second = (email.message_from_bytes(one.content, policy=email.policy.default) for one in box.letters)
    assert first["Message-ID"] == second["Message-ID"]
    assert first["To"] == second["To"] == f"{A}, {B}, {C}"
    assert (first["Subject"], second["Subject"]) == ("m 1", "m 3")  # the second attempt was deferred


def test_redriven_recipient_gets_the_email_alone(queue, box):
    box.replies = {C: ["550 5.1.1 no such user"] * 2}
    queue.send_delay_msg(PAYLOAD, id="m")
    run_until(queue, lambda: queue.counts().dead == 1 and queue.counts().living == 0)
    queue.dead.redrive(queue.dead.list().messages[0].id)
    run_until(queue, lambda: queue.counts().dead == 0 and queue.counts().living == 0)
    assert got(box) == [[A, B], [C]]


def test_recipients_are_left_over_again_and_again(queue, box):
    box.replies = {B: ["450 busy"], C: ["450 busy", "450 busy"]}
    queue.send_delay_msg(PAYLOAD, id="m", retries=3)
    run_until(queue, lambda: queue.counts().living == 0)
    assert (got(box), queue.counts().dead) == ([[A], [B], [C]], 0)


def test_deferred_recipient_has_the_retries_that_are_left_and_one_attempt_at_least(queue, box):
    box.replies = {B: ["450 busy"] * 9}
    queue.send_delay_msg(PAYLOAD, id="m", retries=0)
    run_until(queue, lambda: queue.counts().dead == 1)
    assert len(box.replies[B]) == 7
    (dead,) = queue.dead.list().messages
    assert (dead.id.partition(":")[0], dead.reason, dead.error) == ("m", "retries spent", "127.0.0.1 replied 450 busy")
    assert (got(box), queue.counts().living) == ([[A, C]], 0)


@pytest.mark.long
def test_worker_that_died_before_the_acknowledgement_leaves_nobody_a_second_email(redis_url, box, mailer):
    box.replies = {B: ["450 busy"]}
    mail = mailer(retry_after="3s")
    with DelayQueue("mails", url=redis_url, tick=0.1, lease="1s") as queue:
        queue.send_delay_msg(PAYLOAD, id="m")
        (message,) = queue.lease("1s", n=1, block="5s")
        mail(message)  # and the process dies here
        queue.callback(mail)
        run_until(queue, lambda: queue.counts().living == 0)
    assert got(box) == [[A, C], [B]]


def test_refused_store_falls_back_to_all_recipients(queue, box, mail, monkeypatch, caplog):
    box.replies = {B: ["450 busy"]}
    queue.send_delay_msg(PAYLOAD, id="m")

    def refuse(*_, **__):
        raise ServerError("no permission")

    (message,) = queue.lease(n=1, block="5s")
    monkeypatch.setattr(type(message.context.calls), "send", refuse)
    with pytest.raises(Retry, match="replied 450"):
        mail(message)
    assert "cannot store a message for the recipients that are left: no permission" in caplog.text


def test_stream_leaves_recipients_over_too(redis_url, box, mailer):
    box.replies = {B: ["450 busy"], C: ["550 no such user"] * 2}
    with StreamQueue("mails", url=redis_url, tick="100ms") as queue:
        queue.callback(mailer())
        queue.send(PAYLOAD)
        queue.start_consume()
        wait_until(lambda: len(box.letters) == 2 and queue.counts().dead == 1)
        queue.stop_consume()
        assert got(box) == [[A], [B]]
        assert queue.dead.list().messages[0].reason == "127.0.0.1 replied 550 no such user"


def test_address_that_is_given_twice_gets_one_email(box, mailer):
    box.replies = {A: ["550 no"]}
    with pytest.raises(Reject, match="replied 550"):
        mailer(to=[A, A])(delivered({}))


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ("no JSON", "the header delayq-smtp is invalid"),
        ('{"id":1}', "the header delayq-smtp is invalid"),
        ('{"id":"m","due":0,"attempts":1,"parts":1,"to":["x@example.com"]}', "none of the recipients"),
    ],
)
def test_header_that_fits_no_recipient_rejects(box, mailer, header, error):
    with pytest.raises(Reject, match=error):
        mailer()(delivered({}, headers={HEADER: header}))
    assert not box.letters


def test_recipients_that_were_left_over_are_found_by_either_form_of_their_domain():
    part = Part("m1", 0, 1, 1, ["anna@exämple.com", "bob@xn--exmple-cua.com"])
    headers = {HEADER: msgspec.json.encode(part).decode()}
    template = EmailTemplate("a@example.org", ["anna@exämple.com", "bob@exämple.com", "c@exämple.com"], "x", "x")
    _, to = template.build(delivered({}, headers=headers))
    assert to == ["anna@xn--exmple-cua.com", "bob@xn--exmple-cua.com"]
