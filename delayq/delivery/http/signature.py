"""Signatures of webhooks by the Standard Webhooks specification (https://www.standardwebhooks.com).

The signature is the HMAC-SHA256 of `ID.TIMESTAMP.BODY`. A secret is a base64 key, with or without the prefix `whsec_`.
Several secrets, separated by spaces, are used side by side during a rotation.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence

from delayq.errors import ConfigurationError, SignatureError
from delayq.values.times import Duration, to_millis

MIN_KEY_BYTES = 24
"""Minimal bytes of a key, by the specification."""
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"


def read_keys(secret: str) -> tuple[bytes, ...]:
    """Return the keys of a secret; a malformed one raises `ConfigurationError` without showing it."""
    if not isinstance(secret, str) or not secret.split():
        raise ConfigurationError("secret must be a str such as whsec_… with a base64 key")
    return tuple(_read_key(one) for one in secret.split())


def _read_key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError("secret must be a base64 key: create one with `openssl rand -base64 32`") from None
    if len(key) < MIN_KEY_BYTES:
        raise ConfigurationError(f"secret must be a key of at least {MIN_KEY_BYTES} bytes, not {len(key)}")
    return key


def sign(keys: Sequence[bytes], id: str, at: int, body: bytes) -> str:
    """Return the signatures of a body sent at time `at`, in seconds since 1970: one for each key."""
    return " ".join(f"v1,{_digest(key, id, str(at), body)}" for key in keys)


def verify(headers: Mapping[str, str], body: bytes, secret: str, *, tolerance: Duration = 300) -> None:
    """Check that a received request was signed with the secret; raises `SignatureError` if it was not.

    `body` is the raw body. A request whose timestamp is more than `tolerance` away from now is refused, which prevents
    later replays. Within that time, recognise duplicates by the id.
    """
    given = {name.lower(): value for name, value in headers.items() if name.lower() in (ID, TIMESTAMP, SIGNATURE)}
    for name in (ID, TIMESTAMP, SIGNATURE):
        if not given.get(name):
            raise SignatureError(f"header {name} is missing")
    at = given[TIMESTAMP]
    if not (at.isascii() and at.isdigit() and len(at) <= len("99999999999")):
        raise SignatureError(f"header {TIMESTAMP} is not a number of seconds")
    if abs(time.time() - int(at)) * 1000 > to_millis(tolerance, "tolerance"):
        raise SignatureError(f"header {TIMESTAMP} is too far from the current time")
    expected = [_digest(key, given[ID], at, body).encode() for key in read_keys(secret)]
    found = [one.removeprefix("v1,").encode() for one in given[SIGNATURE].split() if one.startswith("v1,")]
    # All are compared, each in constant time, to prevent timing attacks.
    if not any([hmac.compare_digest(one, other) for one in expected for other in found]):  # noqa: C419
        raise SignatureError("no signature matches this secret")


def _digest(key: bytes, id: str, at: str, body: bytes) -> str:
    signed = b".".join((id.encode(), at.encode(), body))
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
