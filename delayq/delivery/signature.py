"""Signatures of webhooks as the Standard Webhooks specification has them (https://www.standardwebhooks.com).

Signed is `ID.TIMESTAMP.BODY` by HMAC-SHA256. A secret is the base64 of its key, after `whsec_` or without; several with
spaces between them are used side by side while one takes the place of another.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence

from delayq.clock import Duration, milliseconds
from delayq.errors import ConfigurationError, SignatureError

LEAST_KEY = 24
"""Bytes of a key, at least: what the specification asks for."""
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"


def read_keys(secret: str) -> tuple[bytes, ...]:
    """Return the keys that a secret stands for; `ConfigurationError`, without a word of it, for a malformed one."""
    if not isinstance(secret, str) or not secret.split():
        raise ConfigurationError("secret must be text such as whsec_… with the base64 of a key")
    return tuple(_read_key(one) for one in secret.split())


def _read_key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError("secret must be the base64 of a key, as `openssl rand -base64 32` makes it") from None
    if len(key) < LEAST_KEY:
        raise ConfigurationError(f"secret must hold a key of at least {LEAST_KEY} bytes, not {len(key)}")
    return key


def sign(keys: Sequence[bytes], id: str, at: int, body: bytes) -> str:
    """Return the signatures of a body sent `at` a time, in seconds since 1970: one for each key."""
    return " ".join(f"v1,{_digest(key, id, str(at), body)}" for key in keys)


def verify(headers: Mapping[str, str], body: bytes, secret: str, *, tolerance: Duration = 300) -> None:
    """Check that a request to a receiver was signed with the secret; `SignatureError` says why it does not count.

    `body` are the bytes as they came. A request whose time is more than `tolerance` away from now is refused, so that
    it cannot be sent again later by whoever saw it; within that time, tell doubles by the id.
    """
    given = {name.lower(): value for name, value in headers.items() if name.lower() in (ID, TIMESTAMP, SIGNATURE)}
    for name in (ID, TIMESTAMP, SIGNATURE):
        if not given.get(name):
            raise SignatureError(f"there is no {name}")
    at = given[TIMESTAMP]
    if not (at.isascii() and at.isdigit() and len(at) <= len("99999999999")):
        raise SignatureError(f"{TIMESTAMP} is not a number of seconds")
    if abs(time.time() - int(at)) * 1000 > milliseconds(tolerance, "tolerance"):
        raise SignatureError(f"{TIMESTAMP} is too far from now")
    wanted = [_digest(key, given[ID], at, body).encode() for key in read_keys(secret)]
    found = [one.removeprefix("v1,").encode() for one in given[SIGNATURE].split() if one.startswith("v1,")]
    # All are compared, in constant time each, so that the time tells nothing.
    if not any([hmac.compare_digest(one, other) for one in wanted for other in found]):  # noqa: C419
        raise SignatureError("no signature is by this secret")


def _digest(key: bytes, id: str, at: str, body: bytes) -> str:
    signed = b".".join((id.encode(), at.encode(), body))
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
