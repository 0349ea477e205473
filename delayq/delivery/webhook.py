"""Delivery by HTTP: a signed POST for each message, judged by its status."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

from delayq import __version__
from delayq.clock import Duration, milliseconds, monotonic
from delayq.deliver.adapter import Adapter
from delayq.deliver.envelope import envelope
from delayq.deliver.signature import ID, SIGNATURE, TIMESTAMP, read_keys, sign
from delayq.errors import ConfigurationError, shown
from delayq.message import Message
from delayq.outcomes import Reject, Retry

if TYPE_CHECKING:
    import httpx

LONGEST_BODY = 1 << 16
"""Bytes of an answer's body that are read, for the sake of its connection; beyond that it is closed instead."""
KEPT = 100
"""Idle connections that are kept for the next message."""

_LATER = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
"""The statuses whose Retry-After counts."""
_PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY}
"""What says 4xx and is not about the message."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")
_OURS = {"content-type", "content-length", "host", "transfer-encoding", ID, TIMESTAMP, SIGNATURE}


class Webhook(Adapter):
    """Posts each message as JSON: {id, attempt, due, payload, headers}; the payload is `payload_base64` if no JSON.

    With a secret a request is signed as Standard Webhooks are, which `verify` checks; `webhook-id` is the message's id,
    the same over all attempts. 2xx acknowledges. 429 and 503 are delivered again after their Retry-After, other 5xx,
    408, 425, 3xx (no redirect is followed), time-outs and connections that fail after the queue's `nack_delay`. Any
    other 4xx moves the message to the dead letter. What the receiver says beside that is not read.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | None = None,
        timeout: Duration = 15,
        headers: Mapping[str, str] | None = None,
        longest_wait: Duration = 3600,
    ) -> None:
        """Post to `url`; nothing is connected before the first message.

        Without a `secret` that of the environment's DELAYQ_WEBHOOK_SECRET is taken, if there is one. `timeout` is for
        connecting and for each wait for the receiver; a Retry-After counts up to `longest_wait`.
        """
        http = _httpx()
        secret = os.environ.get("DELAYQ_WEBHOOK_SECRET") if secret is None else secret
        self._keys = read_keys(secret) if secret else ()
        self._url = _checked_url(url)
        self._name = f"webhook {self._url.host}"
        self._timeout = milliseconds(timeout, "timeout", least=1) / 1000
        self._longest_wait = milliseconds(longest_wait, "longest_wait") / 1000
        self._client: httpx.Client = http.Client(
            headers=_all_headers(headers or {}),
            # One receiver's cookies are no business of the next message.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            timeout=http.Timeout(self._timeout, pool=None),
            limits=http.Limits(max_connections=None, max_keepalive_connections=KEPT),
            follow_redirects=False,
        )

    def __repr__(self) -> str:
        """Show the host; the rest of a URL may be secret."""
        return f"<Webhook {self._url.host}>"

    def hand_on(self, message: Message[Any]) -> None:
        """Post the message, and judge the status."""
        body, at = envelope(message), int(time.time())
        headers = {"content-type": "application/json", ID: message.id, TIMESTAMP: str(at)}
        if self._keys:
            headers[SIGNATURE] = sign(self._keys, message.id, at, body)
        status, told = self._post(body, headers)
        if 200 <= status < 300:  # noqa: PLR2004 - what HTTP calls success
            return
        what = f"{self._name} answered {status}"
        if status in _LATER:
            raise Retry(what, delay=wait_of(told, self._longest_wait))
        if 400 <= status < 500 and status not in _PASSING:  # noqa: PLR2004 - what HTTP calls the client's fault
            raise Reject(what)
        raise Retry(what)

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int, Mapping[str, str]]:
        http = _httpx()
        try:
            with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
                with suppress(http.HTTPError):  # the status is known, whatever becomes of the body
                    _drain(answer, monotonic() + self._timeout)
                return answer.status_code, answer.headers
        except http.TimeoutException as error:
            raise Retry(f"{self._name} did not answer within {self._timeout:g} s") from error
        except http.HTTPError as error:
            raise Retry(f"{self._name}: {error or type(error).__name__}") from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def wait_of(told: Mapping[str, str], longest: float) -> float | None:
    """Return the seconds that an answer asks to wait, at most `longest`; None if it does not say, or not clearly.

    A date is taken relative to the answer's own, so that it counts little whose clock is wrong.
    """
    wanted = told.get("retry-after", "").strip()
    if wanted.isascii() and wanted.isdigit():
        # What has more digits than any number of seconds is not worth reading.
        return longest if len(wanted) > len("999999999") else min(float(wanted), longest)
    until = _date(wanted)
    if until is None:
        return None
    since = _date(told.get("date", "")) or datetime.now(UTC)
    return min(max(0.0, (until - since).total_seconds()), longest)


def _date(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _drain(answer: httpx.Response, until: float) -> None:
    """Read a short body to its end: only then can the connection be used again. Nothing is unpacked or kept."""
    size = 0
    for part in answer.iter_raw():
        size += len(part)
        if size > LONGEST_BODY or monotonic() > until:
            return


def _checked_url(url: str) -> httpx.URL:
    http = _httpx()
    try:
        read: httpx.URL = http.URL(url)
    except (http.InvalidURL, TypeError, ValueError):
        read = http.URL("")
    if read.scheme not in ("http", "https") or not read.host:
        raise ConfigurationError("url must be http:// or https:// with a host")  # and is not shown: it may be secret
    return read


def _all_headers(given: Mapping[str, str]) -> httpx.Headers:
    for name, value in given.items():
        if not _NAME.fullmatch(name) or name.lower() in _OURS:
            raise ConfigurationError(f"{shown(name)} is no header that a webhook can be given")
        if not _VALUE.fullmatch(value):
            raise ConfigurationError(f"header {name} must be printable ASCII on one line")
    headers: httpx.Headers = _httpx().Headers({"user-agent": f"delayq/{__version__}"})
    headers.update(given)
    return headers


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise ConfigurationError("webhooks need the extra: pip install 'delayq[http]'") from error
    return httpx
