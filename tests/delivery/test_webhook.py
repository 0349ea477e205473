"""Webhooks with a real receiver: requests, replies, connections, and secrets."""

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

from delayq import ConfigurationError, RateLimited, Reject, Retry, StopWorker
from delayq.delivery import Webhook, verify
from delayq.delivery.webhook import MAX_BODY_BYTES, wait_of
from delayq.testing.redis_server import free_port
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
    """`webhook(secret=…)` makes a `Webhook` that posts to the receiver."""
    made = []

    def make(**options) -> Webhook:
        made.append(Webhook(hooks.url, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


# Requests


def test_message_is_posted_as_json(hooks, webhook):
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
def test_payload_is_json_or_base64(hooks, webhook, payload, codec, posted):
    webhook()(delivered(payload, codec=codec))
    (request,) = hooks.requests
    assert posted in request.body
    json.loads(request.body)


def test_header_can_replace_a_default(hooks, webhook):
    webhook(headers={"User-Agent": "reminders"})(delivered({}))
    assert hooks.requests[0].headers["user-agent"] == "reminders"


def test_signature_follows_the_specification(hooks, webhook):
    before = int(time.time())
    webhook(secret=SECRET)(delivered({"n": 1}))
    (request,) = hooks.requests
    at = request.headers["webhook-timestamp"]
    assert before <= int(at) <= time.time()
    signed = hmac.new(KEY, b"m1." + at.encode() + b"." + request.body, hashlib.sha256).digest()
    assert request.headers["webhook-signature"] == f"v1,{base64.b64encode(signed).decode()}"
    verify(request.headers, request.body, SECRET)


def test_two_secrets_make_two_signatures(hooks, webhook):
    other = base64.b64encode(b"another key of enough bytes").decode()
    webhook(secret=f"{SECRET} {other}")(delivered({"n": 1}))
    (request,) = hooks.requests
    assert request.headers["webhook-signature"].count("v1,") == 2
    for secret in (SECRET, other):
        verify(request.headers, request.body, secret)


def test_secret_is_read_from_the_environment(hooks, webhook, monkeypatch):
    monkeypatch.setenv("DELAYQ_WEBHOOK_SECRET", SECRET)
    webhook()(delivered({"n": 1}))
    webhook(secret="")(delivered({"n": 1}))
    signed, unsigned = hooks.requests
    verify(signed.headers, signed.body, SECRET)
    assert "webhook-signature" not in unsigned.headers


# Replies


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
def test_success_acknowledges(hooks, webhook, code):
    hooks.replies = [status(code)]
    assert webhook()(delivered({})) is None


@pytest.mark.parametrize("code", [301, 302, 307, 308, 408, 425, 500, 502, 504, 599])
def test_temporary_failures_are_retried_by_the_queue(hooks, webhook, code):
    hooks.replies = [status(code, Location=f"http://127.0.0.1:{hooks.port}/other")]
    with pytest.raises(Retry, match=f"^webhook 127.0.0.1 replied {code}$") as raised:
        webhook()(delivered({}))
    assert raised.value.delay is None
    assert len(hooks.requests) == 1  # no redirect is followed


@pytest.mark.parametrize("code", [400, 401, 403, 404, 405, 410, 413, 422, 451])
def test_permanent_failures_are_rejected(hooks, webhook, code):
    hooks.replies = [status(code, b"private words", Retry_After="7")]
    with pytest.raises(Reject, match=f"^webhook 127.0.0.1 replied {code}$"):
        webhook()(delivered({}))


@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_respected(hooks, webhook, code):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    hooks.replies = [status(code, Retry_After="7"), status(code, Retry_After=later), status(code, Retry_After="9999")]
    delays = []
    for _ in range(3):
        with pytest.raises(RateLimited) as raised:
            webhook(max_wait="10m")(delivered({}))
        delays.append(raised.value.delay)
    assert delays[0] == pytest.approx(7, abs=1)
    assert 60 <= delays[1] <= 91  # counted from when the reply was sent
    assert delays[2] == pytest.approx(600, abs=1)


def test_retry_after_counts_only_for_429_and_503(hooks, webhook):
    hooks.replies = [status(500, Retry_After="7")]
    with pytest.raises(Retry) as raised:
        webhook()(delivered({}))
    assert raised.value.delay is None


@pytest.mark.table(
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
        # A date is relative to the Date header of the reply, not to the local clock.
        ({"retry-after": "Fri, 01 Jan 2100 00:01:00 GMT", "date": "Fri, 01 Jan 2100 00:00:00 GMT"}, 60),
        ({"retry-after": "Fri, 01 Jan 2100 00:01:00 -0000", "date": "Fri, 01 Jan 2100 00:00:00 GMT"}, 60),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
        ({"retry-after": "Fri, 01 Jan 2100 00:00:00 GMT", "date": "nonsense"}, 3600),
        ({"retry-after": "Fri, 99 Jan 2100 00:00:00 GMT"}, None),
    ],
)
def test_retry_after_is_parsed_safely(headers, seconds):
    assert wait_of(headers, 3600) == seconds


def test_timeout_is_retried(hooks, webhook):
    hooks.replies = [hooks.slow]
    with pytest.raises(Retry, match=r"^webhook 127.0.0.1 did not reply within 0.05 s$"):
        webhook(timeout=0.05)(delivered({}))


@pytest.mark.long
@pytest.mark.timeout(60)
@pytest.mark.parametrize("first", ["", "HTTP/1.1 200 OK\r\n"])
def test_receiver_that_drips_does_not_hold_the_delivery(hooks, webhook, first):
    gone = threading.Event()

    def drip(handler):
        handler.wfile.write(first.encode())
        try:
            while not hooks.released.wait(0.1):
                handler.wfile.write(b"x-more: 1\r\n" if first else b"H")
        except OSError:
            gone.set()
        handler.close_connection = True

    hooks.replies = [drip]
    with pytest.raises(Retry, match=r"^webhook 127.0.0.1 did not reply within 1 s$"):
        webhook(timeout="1s")(delivered({}))
    assert gone.wait(30)  # the connection is closed


def test_login_of_the_url_is_sent(hooks):
    post = Webhook(hooks.url.replace("http://", "http://anna:a%40b@"))
    post(delivered({}))
    post.close()
    assert hooks.requests[0].headers["authorization"] == f"Basic {base64.b64encode(b'anna:a@b').decode()}"
    assert hooks.requests[0].headers["host"] == f"127.0.0.1:{hooks.port}"


def test_proxy_of_the_environment_is_used(hooks, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{hooks.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    post = Webhook("http://hooks.example.com/a")
    post(delivered({}))
    post.close()
    assert hooks.requests[0].path == "http://hooks.example.com/a"


def test_closed_connection_is_retried(hooks, webhook):
    hooks.replies = [hang_up, status(204)]
    post = webhook()
    with pytest.raises(Retry, match=r"^webhook 127.0.0.1: Server disconnected"):
        post(delivered({}))
    post(delivered({}))


def test_unreachable_receiver_is_retried():
    post = Webhook(f"http://127.0.0.1:{free_port()}/s3cr3t")
    with pytest.raises(Retry, match="Connection refused") as raised:
        post(delivered({}))
    assert "s3cr3t" not in str(raised.value)
    post.close()


def test_non_http_reply_is_retried(hooks, webhook):
    hooks.replies = [lambda handler: handler.wfile.write(b"220 mail.example.com ESMTP\r\n\r\n")]
    with pytest.raises(Retry, match=r"^webhook 127.0.0.1: "):
        webhook()(delivered({}))


# Connections and secrets


def test_connection_is_reused(hooks, webhook):
    post = webhook()
    for _ in range(3):
        post(delivered({}))
    assert len({request.port for request in hooks.requests}) == 1


def test_long_response_body_is_not_read_to_its_end(hooks, webhook):
    cut = threading.Event()

    def pour(handler):
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(2000):
                handler.wfile.write(b"x" * MAX_BODY_BYTES)
        except OSError:
            cut.set()
        handler.close_connection = True

    hooks.replies = [pour, status(204)]
    post = webhook()
    post(delivered({}))
    assert cut.wait(30)
    post(delivered({}))
    assert len({request.port for request in hooks.requests}) == 2


def test_success_counts_with_an_endless_body(hooks, webhook):
    def stall(handler):
        handler.send_response(200)
        handler.send_header("content-length", "5")
        handler.end_headers()
        handler.wfile.write(b"x")
        hooks.released.wait(30)

    hooks.replies = [stall]
    assert webhook(timeout=0.1)(delivered({})) is None


def test_cookies_are_forgotten(hooks, webhook):
    hooks.replies = [status(204, Set_Cookie="session=1"), status(204)]
    post = webhook()
    post(delivered({}))
    post(delivered({}))
    assert "cookie" not in hooks.requests[1].headers


def test_secrets_are_not_logged(hooks, webhook, caplog):
    hooks.replies = [status(500, b"c4nary"), status(404, b"c4nary"), hang_up]
    post = webhook(secret=SECRET, headers={"authorization": "c4nary"})
    caplog.set_level(logging.DEBUG, "delayq")
    texts = [repr(post)]
    for _ in range(3):
        with pytest.raises((Retry, Reject)) as raised:
            post(delivered({"word": "c4nary"}))
        texts.append(str(raised.value))
    logged = [record for record in caplog.records if record.name.startswith("delayq")]
    assert [record.levelname for record in logged] == ["WARNING"] * 2  # the consumer logs what is rejected
    assert logged[0].getMessage() == "message m1, attempt 1: retry: webhook 127.0.0.1 replied 500"
    texts += [record.getMessage() for record in logged]
    for secret in ("c4nary", "s3cr3t", SECRET, "whsec_"):
        assert secret not in "".join(texts)


def test_webhook_can_be_used_by_several_threads(hooks, webhook):
    gate = threading.Barrier(8)

    def meet(handler):
        gate.wait(30)  # all eight requests are in flight at the same time
        status(204)(handler)

    hooks.replies = [meet]
    post = webhook()
    threads = [threading.Thread(target=post, args=(delivered({"n": n}, id=f"m{n}"),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {request.headers["webhook-id"] for request in hooks.requests} == {f"m{n}" for n in range(8)}


# Invalid options


@pytest.mark.table(
    ("url", "options", "error"),
    [
        ("", {}, "url must be"),
        ("ftp://example.com/", {}, "url must be"),
        ("http://", {}, "url must be"),
        ("example.com/hook", {}, "url must be"),
        ("http://example.com:port/", {}, "url must be"),
        (None, {}, "url must be"),
        ("http://e.x/", {"secret": "not base64!"}, "secret must be a base64 key"),
        ("http://e.x/", {"secret": "whsec_c2hvcnQ="}, "at least 24 bytes, not 5"),
        ("http://e.x/", {"timeout": 0}, "timeout must be"),
        ("http://e.x/", {"headers": {"a b": "c"}}, "'a b' is not a header"),
        ("http://e.x/", {"headers": {"Webhook-Id": "c"}}, "'Webhook-Id' is not a header"),
        ("http://e.x/", {"headers": {"a": "b\r\nc: d"}}, "the value of header a must be printable ASCII on one line"),
    ],
)
def test_invalid_options_are_refused_on_creation(url, options, error):
    with pytest.raises(ConfigurationError, match=error) as raised:
        Webhook(url, **options)
    assert "c2hvcnQ" not in str(raised.value)
    assert "not base64!" not in str(raised.value)


def test_error_without_httpx_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'delayq\[http\]'"):
        Webhook("http://example.com/")


# TLS


def test_untrusted_certificate_is_refused(tmp_path, monkeypatch):
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with receiver(context=context) as hooks:
        url = hooks.url.replace("http:", "https:")
        untrusting = Webhook(url)
        with pytest.raises(StopWorker, match=r"^webhook 127.0.0.1: its certificate is not trusted: "):
            untrusting(delivered({}))
        assert not hooks.requests
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        post = Webhook(url)
        post(delivered({}))
        assert len(hooks.requests) == 1
        untrusting.close()
        post.close()
