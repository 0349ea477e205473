"""Checks of a receiver: signature and time of a request."""

import base64
import time

import pytest
from freezegun import freeze_time

from delayq import ConfigurationError, DelayqError, SignatureError
from delayq.delivery import verify
from delayq.delivery.webhook import read_keys, sign

# The example of the specification's own libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
HEADERS = {"webhook-id": ID, "webhook-timestamp": str(AT), "webhook-signature": SIGNATURE}
OTHER = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="


def test_example_of_the_specification():
    assert sign(read_keys(SECRET), ID, AT, BODY) == SIGNATURE


@pytest.mark.parametrize("secret", [SECRET, SECRET.removeprefix("whsec_"), f"whsec_{'A' * 32} {SECRET}"])
@pytest.mark.parametrize("signature", [SIGNATURE, f"{OTHER} v2,x {SIGNATURE} {OTHER}"])
@pytest.mark.parametrize("away", [0, 299, -299])
def test_signed_request_is_accepted(secret, signature, away):
    headers = {name.title(): value for name, value in HEADERS.items()} | {"Webhook-Signature": signature, "Host": "x"}
    with freeze_time(tz_offset=0) as clock:
        clock.move_to(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(AT + away)))
        verify(headers, BODY, secret)


@pytest.mark.table(
    ("changed", "error"),
    [
        ({"webhook-id": ""}, "header webhook-id is missing"),
        ({"webhook-timestamp": ""}, "header webhook-timestamp is missing"),
        ({"webhook-signature": ""}, "header webhook-signature is missing"),
        ({"webhook-id": "another"}, "no signature matches this secret"),
        ({"webhook-timestamp": str(AT + 1)}, "no signature matches this secret"),
        ({"webhook-timestamp": "now"}, "not a number of seconds"),
        ({"webhook-timestamp": f"{AT}.5"}, "not a number of seconds"),
        ({"webhook-timestamp": "9" * 5000}, "not a number of seconds"),
        ({"webhook-timestamp": "99999999999"}, "too far from the current time"),
        ({"webhook-signature": OTHER}, "no signature matches this secret"),
        ({"webhook-signature": SIGNATURE.replace("v1,", "v2,")}, "no signature matches this secret"),
        ({"webhook-signature": SIGNATURE.removeprefix("v1,")}, "no signature matches this secret"),
        ({"webhook-signature": "v1,ünicode"}, "no signature matches this secret"),
    ],
)
def test_changed_request_is_refused(changed, error):
    with freeze_time("2021-02-25T15:02:10"), pytest.raises(SignatureError, match=error) as raised:
        verify(HEADERS | changed, BODY, SECRET)
    assert isinstance(raised.value, DelayqError)


def test_another_body_or_secret_is_refused():
    with freeze_time("2021-02-25T15:02:10"):
        verify(HEADERS, BODY, SECRET)
        for body, secret in ((BODY + b" ", SECRET), (BODY, base64.b64encode(b"x" * 24).decode())):
            with pytest.raises(SignatureError, match="no signature"):
                verify(HEADERS, body, secret)


@pytest.mark.parametrize("when", ["2021-02-25T15:07:11", "2021-02-25T14:57:09"])
def test_request_too_old_or_from_the_future_is_refused(when):
    with freeze_time(when):
        with pytest.raises(SignatureError, match="too far from the current time"):
            verify(HEADERS, BODY, SECRET)
        verify(HEADERS, BODY, SECRET, tolerance="10m")


@pytest.mark.parametrize("secret", ["", "  ", None, b"bytes", "whsec_", "whsec_***"])
def test_invalid_secret_is_refused(secret):
    with freeze_time("2021-02-25T15:02:10"), pytest.raises(ConfigurationError, match="secret must"):
        verify(HEADERS, BODY, secret)
