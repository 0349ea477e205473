"""The URL of a webhook: the operator's own, or a template that each message fills.

Import it only where httpx is known to be installed.
"""

from __future__ import annotations

import base64
import re
from typing import Any
from urllib.parse import quote

import httpcore
import httpx

from delayq.delivery.envelope import fields
from delayq.delivery.http.http_pool import core_url
from delayq.delivery.template import Template
from delayq.errors import ConfigurationError
from delayq.values.outcomes import Reject
from delayq.worker.delivery.message import Message

_DOTS = re.compile(r"/\.{1,2}(?=[/?#]|$)")


class WebhookUrl:
    """Makes the URL of each message.

    Values are percent-encoded, so they cannot leave their place; only a template that begins with a field takes it as
    it is.
    """

    def __init__(self, url: str) -> None:
        """Check a URL, or parse a template; raises `ConfigurationError` for anything else."""
        self._template = Template(url, "url")
        self._raw = isinstance(url, str) and url.startswith("{") and not url.startswith("{{")
        self._fixed = None if self._template.has_fields else checked_url(self._template.fill({}))
        start, _, rest = self._template.prefix.partition("://")
        self.chooses_host = self._fixed is None and not ("/" in rest or "?" in rest)
        """Whether the payload decides where a request goes."""
        self.is_fixed = self._fixed is not None
        """Whether all messages go to the same URL."""
        own = self._fixed if self._fixed is not None or self.chooses_host else checked_url(f"{start}://{rest}")
        self.host = None if own is None else own.host
        self.sample = own or httpx.URL("https://example.com/")
        """A URL of the operator's host, if there is one."""

    def of(self, message: Message[Any]) -> tuple[httpcore.URL, dict[str, str]]:
        """Return the URL of a message, and its headers; raises `Reject` if the payload makes none."""
        url = self._fixed
        if url is None:
            filled = self._template.fill(fields(message), str if self._raw else lambda value: quote(value, safe=""))
            if not self._raw and _DOTS.search(filled):
                raise Reject("the payload puts '.' or '..' in place of a part of the URL's path")
            try:
                url = checked_url(filled)
            except ConfigurationError:
                raise Reject("the payload makes no http:// or https:// URL with a host") from None  # may be private
        return core_url(url), _headers(url)


def checked_url(url: str) -> httpx.URL:
    """Return a URL; raises `ConfigurationError` if it is not one of HTTP."""
    try:
        read = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, ValueError):
        read = httpx.URL("")
    if read.scheme not in ("http", "https") or not read.host:
        raise ConfigurationError("url must be http:// or https:// with a host")  # not shown: it may be secret
    if read.userinfo and "@" in f"{read.raw_path.decode()}{read.fragment}":
        # A password with a / ends there, and the rest of it would be a path. Without a login, an @ is one of the path.
        raise ConfigurationError("url has a login and a second @: percent-encode reserved characters of both")
    return read


def _headers(url: httpx.URL) -> dict[str, str]:
    headers = {"host": url.netloc.decode()}
    if url.userinfo:
        login = base64.b64encode(f"{url.username}:{url.password}".encode()).decode()
        headers["authorization"] = f"Basic {login}"
    return headers
