"""Delivery by HTTP: a signed POST for each message; the status decides its outcome.

Signatures follow the Standard Webhooks specification (https://www.standardwebhooks.com): the HMAC-SHA256 of
`ID.TIMESTAMP.BODY`. A secret is a base64 key, with or without the prefix `whsec_`. Several secrets, separated by
spaces, are used side by side during a rotation.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from delayq import __version__
from delayq.delivery.adapter import Adapter, ReceiverClosedError, TroubleHereError
from delayq.delivery.envelope import Template, envelope, fields
from delayq.delivery.trouble import advice_on_connection, is_failed_look_up, is_shortage, os_error
from delayq.errors import ConfigurationError, SignatureError, short_repr
from delayq.values.checks import check_bool
from delayq.values.outcomes import Reject, Retry, StopWorker
from delayq.values.times import Duration, to_millis
from delayq.worker.delivery.message import Message

if TYPE_CHECKING:
    import httpcore


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


class _Chat(NamedTuple):
    content_type: str
    escape: Callable[[str], str]
    body: Callable[[str], bytes]


def _json(max_length: int) -> Callable[[str], bytes]:
    return lambda text: msgspec.json.encode({"text": text[:max_length]})


def _ntfy(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:4096].decode("utf-8", "ignore").encode()


_CHATS = {
    # Three characters begin links and mentions in Slack's texts; a space of no width behind each @ mentions nobody.
    "slack": _Chat("application/json", partial(escape, quote=False), _json(40_000)),
    "mattermost": _Chat("application/json", lambda value: value.replace("@", "@\u200b"), _json(16_383)),
    "ntfy": _Chat("text/plain; charset=utf-8", str, _ntfy),
}
"""Each with the length that its service accepts: of a longer text for ntfy an attachment would be made."""


class ChatFormat:
    """Makes the body of each request for one service."""

    def __init__(self, name: str, text: str | None) -> None:
        """Parse the template of the text; raises `ConfigurationError` for an unknown service."""
        if name not in _CHATS:
            raise ConfigurationError(f"service must be one of {', '.join(_CHATS)}, not {short_repr(name)}")
        self._chat = _CHATS[name]
        self._text = Template("{payload}" if text is None else text, "text")
        self.content_type = self._chat.content_type

    def body(self, message: Message[Any]) -> bytes:
        """Return the body for a message; raises `Reject` if the payload lacks a field."""
        return self._chat.body(self._text.fill(fields(message), self._chat.escape))


MAX_BODY_BYTES = 1 << 16
"""Bytes of a response body to read, so that its connection can be reused; beyond that it is closed."""

_LATER = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
"""The statuses of a host that takes nothing for now."""
_TEMPORARY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY}
"""4xx statuses that are not about the message, so they are retried."""
_WRONG_URL = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE}
"""Statuses with which a chat refuses every text: its token, its channel or its topic is wrong."""
_PROXY_LOGIN = "check the login of the proxy"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")
_RESERVED = {"content-type", "content-length", "host", "transfer-encoding", ID, TIMESTAMP, SIGNATURE}


class Webhook(Adapter):
    """Posts each message as JSON: {id, attempt, due, payload, headers}, or `payload_base64` if it is not JSON.

    With a secret, requests are signed by the Standard Webhooks specification; `verify` checks them. `webhook-id` is the
    message's id, the same for all attempts. 2xx acknowledges the message. 429 and 503 close the host for their
    Retry-After, or for the queue's `nack_delay`: no message is charged, and none is posted there meanwhile. Other 5xx,
    408, 425, 3xx (redirects are not followed), timeouts and connection errors retry the message after `nack_delay`. Any
    other 4xx moves it to the dead letter. The response body is ignored.

    The URL may be a template such as "https://example.com/{user.id}", whose values are percent-encoded, or "{url}". If
    the payload decides on the host, a message whose host has an address that is not public moves to the dead letter.

    For a service, "slack", "mattermost" or "ntfy", `text` is posted as it expects it.

    What no message can overcome stops the consumer by `StopWorker`, and no message is charged: if your host is unknown
    or its certificate is not trusted, if a proxy refuses its login, or a service your URL (401, 403, 404, 410).
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | None = None,
        timeout: Duration = 15,
        headers: Mapping[str, str] | None = None,
        max_wait: Duration = 3600,
        allow_private: bool = False,
        service: Literal["slack", "mattermost", "ntfy"] | None = None,
        text: str | None = None,
    ) -> None:
        """Post to `url`; the first message opens the connection.

        `secret` defaults to the environment variable DELAYQ_WEBHOOK_SECRET. `timeout` limits the whole request, from
        connecting to the end of the reply. A Retry-After counts up to `max_wait`. With `allow_private`, a payload may
        also name hosts of this machine and its network. `text` is the template of what a service gets, by default the
        payload; its requests have no signatures.
        """
        _httpx()
        self._chat = None if service is None else ChatFormat(service, text)
        if self._chat is None and text is not None:
            raise ConfigurationError("text needs a service: slack, mattermost or ntfy")
        if self._chat is not None and secret:
            raise ConfigurationError(f"requests to {service} are not signed: leave out the secret")
        secret = os.environ.get("DELAYQ_WEBHOOK_SECRET") if secret is None else secret
        self._keys = read_keys(secret) if secret else ()
        from delayq.delivery.http_pool import Deadline, WebhookUrl, open_pool

        self._url = WebhookUrl(url)
        self._name = f"webhook {self._url.host}" if self._url.host else "the payload's webhook"
        self._timeout = to_millis(timeout, "timeout", min=1) / 1000
        self._max_wait = to_millis(max_wait, "max_wait") / 1000
        self._headers = _checked_headers(headers or {})
        self._deadline = Deadline()
        only_public = self._url.chooses_host and not check_bool(allow_private, "allow_private")
        self._pool = open_pool(self._url.sample, self._deadline, only_public=only_public)

    def __repr__(self) -> str:
        """Show the host; the rest of a URL may be secret."""
        return f"<Webhook {self._url.host or 'of the payload'}>"

    def hand_on(self, message: Message[Any]) -> None:
        """Post the message and act on the status."""
        target, url_headers = self._url.of(message)
        body, headers = self._content(message)
        receiver = target.host.decode() if self._url.chooses_host else ""
        with self._asking(message, receiver):
            status, response_headers = self._post(target, body, {**url_headers, **self._headers, **headers})
            if not 200 <= status < 300:  # noqa: PLR2004 - HTTP success
                raise self._outcome_of_status(status, response_headers)

    def _outcome_of_status(self, status: int, headers: Mapping[str, str]) -> Exception:
        reason = f"{self._name} replied {status}"
        if status in _LATER:
            return ReceiverClosedError(reason, delay=wait_of(headers, self._max_wait))
        if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            return StopWorker(f"{reason}: {_PROXY_LOGIN}")
        if self._chat is not None and status in _WRONG_URL and self._url.is_fixed:
            return StopWorker(f"{reason}: check the URL, and the login if there is one")
        if 400 <= status < 500 and status not in _TEMPORARY:  # noqa: PLR2004 - HTTP client errors
            return Reject(reason)
        return Retry(reason)

    def _content(self, message: Message[Any]) -> tuple[bytes, dict[str, str]]:
        """Return the body of a message's request, and the headers that describe it."""
        if self._chat is not None:
            return self._chat.body(message), {"content-type": self._chat.content_type}
        body, at = envelope(message), int(time.time())
        headers = {"content-type": "application/json", ID: message.id, TIMESTAMP: str(at)}
        if self._keys:
            headers[SIGNATURE] = sign(self._keys, message.id, at, body)
        return body, headers

    def _post(self, target: httpcore.URL, body: bytes, headers: dict[str, str]) -> tuple[int, Mapping[str, str]]:
        import httpcore

        from delayq.delivery.http_pool import PrivateAddressError

        all_headers = _httpx().Headers(headers)
        try:
            with (
                self._deadline.within(self._timeout),
                self._pool.stream("POST", target, headers=all_headers.raw, content=body) as reply,
            ):
                with suppress(*_errors()):  # the status is known, so a failure to read the body does not matter
                    _drain(reply)
                self._works_here()
                return reply.status, _httpx().Headers(reply.headers)
        except PrivateAddressError as error:
            advice = "allow it with allow_private, or --allow-private"
            raise Reject(f"{self._name} has an address that is not public: {advice}") from error
        except httpcore.TimeoutException as error:
            raise Retry(f"{self._name} did not reply within {self._timeout:g} s") from error
        except _errors() as error:
            raise self._outcome_of_error(error) from error

    def _outcome_of_error(self, error: Exception) -> Exception:
        """Return what becomes of a request that had no reply, by whose fault it is."""
        reason, cause = f"{self._name}: {str(error) or type(error).__name__}", os_error(error)
        if cause is not None and is_shortage(cause):
            return TroubleHereError(reason)
        if cause is not None and is_failed_look_up(cause):  # of one host, its own servers may be at fault
            return ReceiverClosedError(reason) if self._url.chooses_host else TroubleHereError(reason)
        if not self._url.chooses_host:
            if cause is not None and (advice := advice_on_connection(cause)) is not None:
                return StopWorker(f"{self._name}: {advice}")
            if str(error).startswith(f"{HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:d} "):
                return StopWorker(f"{reason}: {_PROXY_LOGIN}")
        return Retry(reason)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


def wait_of(headers: Mapping[str, str], max_wait: float) -> float | None:
    """Return the seconds of a response's Retry-After, at most `max_wait`; None if it is missing or invalid.

    A date is read relative to the response's own Date header, so a wrong clock on either side matters little.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        # More digits than any sensible number of seconds: not parsed.
        return max_wait if len(value) > len("999999999") else min(float(value), max_wait)
    until = _date(value)
    if until is None:
        return None
    since = _date(headers.get("date", "")) or datetime.now(UTC)
    return min(max(0.0, (until - since).total_seconds()), max_wait)


def _date(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _drain(reply: httpcore.Response) -> None:
    """Read a short body to its end: only then can the connection be reused. The content is discarded."""
    size = 0
    for part in reply.iter_stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            return


def _errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a request that failed."""
    import httpcore

    return (
        httpcore.TimeoutException,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.ProxyError,
        httpcore.UnsupportedProtocol,
    )


def _checked_headers(given: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of every request, with lower-case names."""
    headers = {"user-agent": f"delayq/{__version__}", "accept": "*/*"}
    for name, value in given.items():
        if not _NAME.fullmatch(name) or name.lower() in _RESERVED:
            raise ConfigurationError(f"{short_repr(name)} is not a header you can set for a webhook")
        if not _VALUE.fullmatch(value):
            raise ConfigurationError(f"the value of header {name} must be printable ASCII on one line")
        headers[name.lower()] = value
    return headers


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise ConfigurationError("webhooks need the extra: pip install 'delayq[http]'") from error
    return httpx
