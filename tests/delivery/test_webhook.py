"""Webhooks against a receiver: what is posted, what each answer means, and what is kept to oneself."""

import base64
import hashlib
import hmac
import json
import logging
import ssl
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import trustme

from delayq import ConfigurationError, Reject, Retry
from delayq.deliver import Webhook, verify
from delayq.deliver.webhook import LONGEST_BODY, wait_of
from delayq.throwaway import free_port
from tests.support.deliveries import delivered
from tests.support.receivers import hang_up, receiver, status

KEY = b"0123456789abcdefghijklmnopqrstuv"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@pytest.fixture
def hooks():
    with receiver() as made:
        yield made


@pytest.fixture
def webhook(hooks):
    """`webhook(secret=…)` makes one that posts to the receiver."""
    made = []

    def make(**options) -> Webhook:
        made.append(Webhook(hooks.url, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


# What is posted


def test_a_message_is_posted_as_json(hooks, webhook):
    webhook(headers={"Authorization": "Bearer s3cr3t"})(
        delivered({"summary": "Zahnarzt ☎"}, id="a/b", attempt=2, headers={"source": "calendar"})
    )
    (request,) = hooks.requests
    assert json.loads(request.body) == {
        "id": "a/b",
        "attempt": 2,
        "due": "2027-01-31T09:00:00.000Z",
        "payload": {"summary": "Zahnarzt ☎"},
        "headers": {"source": "calendar"},
    }
    assert request.path == "/hooks?key=s3cr3t"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-id"] == "a/b"
    assert request.headers["authorization"] == "Bearer s3cr3t"
    assert request.headers["user-agent"].startswith("delayq/")
    assert "webhook-signature" not in request.headers


@pytest.mark.parametrize(
    ("payload", "codec", "posted"),
    [
        (b'{ "n":\n 12345678901234567890123 }', "bytes", b'"payload":{"n":12345678901234567890123}'),
        (b"\xff\x00", "bytes", b'"payload_base64":"/wA="'),
        (b'"\xff"', "bytes", b'"payload_base64":"Iv8i"'),
        (b"NaN", "bytes", b'"payload_base64":"TmFO"'),
        (b"[" * 5000 + b"]" * 5000, "bytes", b'"payload_base64":"' + base64.b64encode(b"[" * 5000 + b"]" * 5000)),
        ("text", "text", b'"payload":"text"'),
        (None, "json", b'"payload":null'),
    ],
)
def test_a_payload_is_json_where_it_is_and_base64_where_it_is_not(hooks, webhook, payload, codec, posted):
    webhook()(delivered(payload, codec=codec))
    (request,) = hooks.requests
    assert posted in request.body
    json.loads(request.body)


def test_a_header_may_take_the_place_of_a_default(hooks, webhook):
    webhook(headers={"User-Agent": "reminders"})(delivered({}))
    assert hooks.requests[0].headers["user-agent"] == "reminders"


def test_a_signature_is_that_of_the_specification(hooks, webhook):
    before = int(time.time())
    webhook(secret=SECRET)(delivered({"n": 1}))
    (request,) = hooks.requests
    at = request.headers["webhook-timestamp"]
    assert before <= int(at) <= time.time()
    signed = hmac.new(KEY, b"m1." + at.encode() + b"." + request.body, hashlib.sha256).digest()
    assert request.headers["webhook-signature"] == f"v1,{base64.b64encode(signed).decode()}"
    verify(request.headers, request.body, SECRET)


def test_two_secrets_sign_side_by_side(hooks, webhook):
    other = base64.b64encode(b"another key of enough bytes").decode()
    webhook(secret=f"{SECRET} {other}")(delivered({"n": 1}))
    (request,) = hooks.requests
    assert request.headers["webhook-signature"].count("v1,") == 2
    for secret in (SECRET, other):
        verify(request.headers, request.body, secret)


def test_the_secret_may_be_in_the_environment(hooks, webhook, monkeypatch):
    monkeypatch.setenv("DELAYQ_WEBHOOK_SECRET", SECRET)
    webhook()(delivered({"n": 1}))
    webhook(secret="")(delivered({"n": 1}))
    signed, unsigned = hooks.requests
    verify(signed.headers, signed.body, SECRET)
    assert "webhook-signature" not in unsigned.headers


# What an answer means


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
def test_success_acknowledges(hooks, webhook, code):
    hooks.answers = [status(code)]
    assert webhook()(delivered({})) is None


@pytest.mark.parametrize("code", [301, 302, 307, 308, 408, 425, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_tried_again_when_the_queue_says(hooks, webhook, code):
    hooks.answers = [status(code, Location=f"http://127.0.0.1:{hooks.port}/other")]
    with pytest.raises(Retry, match=f"^webhook 127.0.0.1 answered {code}$") as told:
        webhook()(delivered({}))
    assert told.value.delay is None
    assert len(hooks.requests) == 1  # no redirect is followed


@pytest.mark.parametrize("code", [400, 401, 403, 404, 405, 410, 413, 422, 451])
def test_what_the_receiver_will_never_take_is_rejected(hooks, webhook, code):
    hooks.answers = [status(code, b"private words", Retry_After="7")]
    with pytest.raises(Reject, match=f"^webhook 127.0.0.1 answered {code}$"):
        webhook()(delivered({}))


@pytest.mark.parametrize("code", [429, 503])
def test_a_receiver_may_say_how_long_to_wait(hooks, webhook, code):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    hooks.answers = [status(code, Retry_After="7"), status(code, Retry_After=later), status(code, Retry_After="9999")]
    delays = []
    post = webhook(longest_wait="10m")
    for _ in range(3):
        with pytest.raises(Retry) as told:
            post(delivered({}))
        delays.append(told.value.delay)
    assert delays[0] == 7
    assert 85 <= delays[1] <= 91
    assert delays[2] == 600


def test_only_429_and_503_are_asked_how_long_to_wait(hooks, webhook):
    hooks.answers = [status(500, Retry_After="7")]
    with pytest.raises(Retry) as told:
        webhook()(delivered({}))
    assert told.value.delay is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "0"}, 0),
        ({"retry-after": " 30 "}, 30),
        ({"retry-after": "9" * 5000}, 3600),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1.5"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
        # A date counts from the answer's own, whatever the clock here says.
        ({"retry-after": "Fri, 01 Jan 2100 00:01:00 GMT", "date": "Fri, 01 Jan 2100 00:00:00 GMT"}, 60),
        ({"retry-after": "Fri, 01 Jan 2100 00:01:00 -0000", "date": "Fri, 01 Jan 2100 00:00:00 GMT"}, 60),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
        ({"retry-after": "Fri, 01 Jan 2100 00:00:00 GMT", "date": "nonsense"}, 3600),
        ({"retry-after": "Fri, 99 Jan 2100 00:00:00 GMT"}, None),
    ],
)
def test_retry_after_is_read_with_care(headers, seconds):
    assert wait_of(headers, 3600) == seconds


def test_a_receiver_that_does_not_answer_in_time_is_tried_again(hooks, webhook):
    hooks.answers = [hooks.slow]
    with pytest.raises(Retry, match=r"^webhook 127.0.0.1 did not answer within 0.05 s$"):
        webhook(timeout=0.05)(delivered({}))


def test_a_connection_that_is_closed_is_tried_again(hooks, webhook):
    hooks.answers = [hang_up, status(204)]
    post = webhook()
    with pytest.raises(Retry, match=r"^webhook 127.0.0.1: Server disconnected"):
        post(delivered({}))
    post(delivered({}))


def test_a_receiver_that_is_not_there_is_tried_again():
    post = Webhook(f"http://127.0.0.1:{free_port()}/s3cr3t")
    with pytest.raises(Retry, match="Connection refused") as told:
        post(delivered({}))
    assert "s3cr3t" not in str(told.value)
    post.close()


def test_an_answer_that_is_no_http_is_tried_again(hooks, webhook):
    hooks.answers = [lambda handler: handler.wfile.write(b"220 mail.example.com ESMTP\r\n\r\n")]
    with pytest.raises(Retry, match=r"^webhook 127.0.0.1: "):
        webhook()(delivered({}))


# What is kept, and what is not


def test_a_connection_is_used_again(hooks, webhook):
    post = webhook()
    for _ in range(3):
        post(delivered({}))
    assert len({request.port for request in hooks.requests}) == 1


def test_of_a_long_answer_no_more_is_read_than_is_worth_it(hooks, webhook):
    cut = threading.Event()

    def pour(handler):
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(2000):
                handler.wfile.write(b"x" * LONGEST_BODY)
        except OSError:
            cut.set()
        handler.close_connection = True

    hooks.answers = [pour, status(204)]
    post = webhook()
    post(delivered({}))
    assert cut.wait(30)
    post(delivered({}))
    assert len({request.port for request in hooks.requests}) == 2


def test_a_success_counts_though_its_body_never_ends(hooks, webhook):
    def stall(handler):
        handler.send_response(200)
        handler.send_header("content-length", "5")
        handler.end_headers()
        handler.wfile.write(b"x")
        hooks.released.wait(30)

    hooks.answers = [stall]
    assert webhook(timeout=0.1)(delivered({})) is None


def test_cookies_are_forgotten(hooks, webhook):
    hooks.answers = [status(204, Set_Cookie="session=1"), status(204)]
    post = webhook()
    post(delivered({}))
    post(delivered({}))
    assert "cookie" not in hooks.requests[1].headers


def test_nothing_private_is_told(hooks, webhook, caplog):
    hooks.answers = [status(500, b"c4nary"), status(404, b"c4nary"), hang_up]
    post = webhook(secret=SECRET, headers={"authorization": "c4nary"})
    caplog.set_level(logging.DEBUG, "delayq")
    texts = [repr(post)]
    for _ in range(3):
        with pytest.raises((Retry, Reject)) as told:
            post(delivered({"word": "c4nary"}))
        texts.append(str(told.value))
    told = [record for record in caplog.records if record.name.startswith("delayq")]
    assert [record.levelname for record in told] == ["WARNING"] * 3
    assert told[0].getMessage() == "message m1, attempt 1: retry: webhook 127.0.0.1 answered 500"
    texts += [record.getMessage() for record in told]
    for secret in ("c4nary", "s3cr3t", SECRET, "whsec_"):
        assert secret not in "".join(texts)


def test_several_threads_share_one(hooks, webhook):
    gate = threading.Barrier(8)

    def meet(handler):
        gate.wait(30)  # all eight are under way at a time
        status(204)(handler)

    hooks.answers = [meet]
    post = webhook()
    threads = [threading.Thread(target=post, args=(delivered({"n": n}, id=f"m{n}"),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {request.headers["webhook-id"] for request in hooks.requests} == {f"m{n}" for n in range(8)}


# What is refused


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("", {}, "url must be"),
        ("ftp://example.com/", {}, "url must be"),
        ("http://", {}, "url must be"),
        ("example.com/hook", {}, "url must be"),
        ("http://example.com:port/", {}, "url must be"),
        (None, {}, "url must be"),
        ("http://e.x/", {"secret": "not base64!"}, "secret must be the base64 of a key"),
        ("http://e.x/", {"secret": "whsec_c2hvcnQ="}, "at least 24 bytes, not 5"),
        ("http://e.x/", {"timeout": 0}, "timeout must be"),
        ("http://e.x/", {"headers": {"a b": "c"}}, "'a b' is no header"),
        ("http://e.x/", {"headers": {"Webhook-Id": "c"}}, "'Webhook-Id' is no header"),
        ("http://e.x/", {"headers": {"a": "b\r\nc: d"}}, "header a must be printable ASCII on one line"),
    ],
)
def test_what_is_wrong_is_told_at_once(url, options, said):
    with pytest.raises(ConfigurationError, match=said) as told:
        Webhook(url, **options)
    assert "c2hvcnQ" not in str(told.value)
    assert "not base64!" not in str(told.value)


def test_without_httpx_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'delayq\[http\]'"):
        Webhook("http://example.com/")


# TLS


def test_a_receiver_must_show_a_certificate_that_is_trusted(tmp_path, monkeypatch):
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with receiver(context=context) as hooks:
        url = hooks.url.replace("http:", "https:")
        stranger = Webhook(url)
        with pytest.raises(Retry, match="certificate verify failed"):
            stranger(delivered({}))
        assert not hooks.requests
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        post = Webhook(url)
        post(delivered({}))
        assert len(hooks.requests) == 1
        stranger.close()
        post.close()
