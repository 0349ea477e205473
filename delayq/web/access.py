"""Who may use the dashboard: login by token, names from a proxy, hosts, origins, and tokens in forms."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv6Address, ip_network
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from itsdangerous import BadData, Signer, URLSafeTimedSerializer
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from delayq.errors import ConfigurationError
from delayq.values.times import monotonic
from delayq.web.viewers import Viewer, address_of, is_loopback

COOKIE = "delayq-web"
OF_PROXIES = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via")
"""Headers by which proxies can be told."""
SESSION_LASTS = 12 * 3600
"""Seconds after which a viewer has to log in again."""
ViewerOf = Callable[[Request], Viewer | str | None]
"""Returns who makes a request, or None to refuse it."""


class Access:
    """Decides who a request is from, and whether it may act."""

    def __init__(
        self, *, viewers: Sequence[Viewer], header: str | None, viewer_of: ViewerOf | None, hosts: Sequence[str]
    ) -> None:
        """Name viewers by their tokens, by a header of a proxy, or by a function; else all on this machine may look."""
        self._viewers = {viewer.name: viewer for viewer in viewers}
        tokens = [viewer.token for viewer in viewers if viewer.token is not None]
        self._header, self._viewer_of = header, viewer_of
        if sum((bool(tokens), header is not None, viewer_of is not None)) > 1:
            raise ConfigurationError("choose one of tokens, a proxy header and viewer_of")
        if viewers and not tokens and header is None and viewer_of is None:
            raise ConfigurationError("viewers need tokens, or a proxy header that names them")
        if len(self._viewers) < len(viewers) or len(set(tokens)) < len(tokens):
            raise ConfigurationError("each viewer needs a name and a token of its own")
        self.has_login = bool(tokens)
        self.is_open = not (tokens or header or viewer_of)
        """Whether everybody may look who is on this machine."""
        self._hosts = {host.lower() for host in hosts}
        if self.is_open and not all(map(is_loopback, self._hosts)):
            raise ConfigurationError("hosts other than localhost need a token, viewers, a proxy header or viewer_of")
        self._ended: dict[str, float] = {}  # sessions that were logged out, and until when they may have lasted
        key = _key_of(tokens) if tokens else secrets.token_bytes(32)
        signed: dict[str, Any] = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
        self._sessions = URLSafeTimedSerializer(key, salt="delayq web session", signer_kwargs=signed)
        self._forms = Signer(key, salt="delayq web form", **signed)

    # Hosts and origins

    def allows_host(self, host: str) -> bool:
        """Return whether a request may name this host: no other website can then reach the dashboard by its own name.

        Addresses cannot be rebound, so they are allowed where viewers are known.
        """
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:  # such as [
            return False
        if is_loopback(name) or "*" in self._hosts or name in self._hosts:
            return True
        return not self.is_open and address_of(name) is not None

    def allows_client(self, client: Any, headers: Mapping[str, str]) -> bool:
        """Return whether a request may come from there: without viewers, from this machine only and over no proxy."""
        is_local = client is None or is_loopback(client[0])
        return not self.is_open or (is_local and not any(name in headers for name in OF_PROXIES))

    # Viewers

    async def find_viewer(self, request: Request) -> Viewer | None:
        """Return who makes a request, None for nobody who may look; a function that names viewers may block."""
        return await run_in_threadpool(self._viewer, request) if self._viewer_of else self._viewer(request)

    def _viewer(self, request: Request) -> Viewer | None:
        if self.is_open:
            return Viewer("local")
        if self.has_login:
            return self._of_session(request.cookies.get(COOKIE, ""))
        found = self._named_by_proxy(request) if self._header else self._viewer_of and self._viewer_of(request)
        if not found or isinstance(found, Viewer):
            return found or None
        if self._viewers:
            return self._viewers.get(found)
        try:
            return Viewer(found)
        except ConfigurationError:
            return None

    def _named_by_proxy(self, request: Request) -> str | None:
        """Return whom the proxy names; None if there are several, one of which the client may have sent."""
        named = request.headers.getlist(self._header or "")
        return named[0] if len(named) == 1 else None

    def log_in(self, token: str) -> Viewer | None:
        """Return whose token this is."""
        given = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        found = None
        for viewer in self._viewers.values():
            own = hashlib.sha256((viewer.token or "").encode()).digest()
            if viewer.token is not None and hmac.compare_digest(given, own):
                found = viewer
        return found

    def session(self, viewer: Viewer | None = None) -> str:
        """Return the cookie of a new session: a random text, and of a login also who and until when, signed."""
        nonce = secrets.token_hex(16)
        if viewer is None:
            return nonce
        return str(self._sessions.dumps([nonce, viewer.name]))

    def log_out(self, cookie: str) -> None:
        """End a session before its time, in this process; what is no session is ignored."""
        now = time.time()
        if self._of_session(cookie) is not None:
            running = {nonce: end for nonce, end in self._ended.items() if end > now}
            nonce, _ = self._sessions.loads(cookie)
            self._ended = {**running, nonce: now + SESSION_LASTS}

    def _of_session(self, cookie: str) -> Viewer | None:
        try:
            nonce, name = self._sessions.loads(cookie, max_age=SESSION_LASTS)
        except BadData:  # of somebody else, changed, or over
            return None
        return None if nonce in self._ended else self._viewers.get(name)

    # Forms

    def form_token(self, session: str, viewer: Viewer | None) -> str:
        """Return what a form of this session must contain: another website cannot know it."""
        return self._forms.get_signature(f"{session}\n{viewer.name if viewer else ''}").decode()

    def allows_form(self, session: str, viewer: Viewer | None, token: object) -> bool:
        """Return whether a form is from a page of this session."""
        expected = self.form_token(session, viewer).encode()
        return bool(session) and isinstance(token, str) and hmac.compare_digest(token.encode(), expected)


FREE = 5
"""Wrong tokens in a row that cost no time: somebody has pasted the wrong one."""
MAX_WAIT = 60.0
"""Seconds until the next try, at most: who shares the address of somebody who guesses is not kept out for long."""
FORGET_AFTER = 900.0
"""Seconds after which the wrong tokens of an address count no more."""
MAX_ADDRESSES = 10_000
"""Addresses that are remembered, in a few MB; of more, those that have failed last."""


class _Failures(NamedTuple):
    number: int
    at: float


class FailedLogins:
    """How often each address has failed to log in; for one event loop."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Start with none."""
        self._clock = clock
        self._failures: dict[str, _Failures] = {}
        """Sorted by the time of the last one."""

    def wait(self, client: str) -> float:
        """Return for how many seconds an address may not try again; 0 if it may now."""
        found = self._failures.get(_block_of(client))
        if found is None or found.number < FREE:
            return 0.0
        pause = min(MAX_WAIT, 2.0 ** min(found.number - FREE, 10))
        return max(0.0, found.at + pause - self._clock())

    def add(self, client: str) -> None:
        """Note that an address has given a wrong token."""
        now, block = self._clock(), _block_of(client)
        before = self._failures.pop(block, None)
        is_recent = before is not None and before.at > now - FORGET_AFTER
        self._failures[block] = _Failures(before.number + 1 if before and is_recent else 1, now)
        if len(self._failures) > MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]

    def forget(self, client: str) -> None:
        """Note that somebody has logged in from an address."""
        self._failures.pop(_block_of(client), None)


def _block_of(client: str) -> str:
    """Return an address; of IPv6 the block of /64, all of which one machine may use."""
    address = address_of(client)
    if not isinstance(address, IPv6Address):
        return client
    return str(address.ipv4_mapped or ip_network((address.packed[:8] + bytes(8), 64)))


def _key_of(tokens: list[str]) -> bytes:
    """Return the key of signatures, slowly on purpose: who has a cookie could try tokens against its signature."""
    return hashlib.scrypt("\n".join(sorted(tokens)).encode(), salt=b"delayq web", n=1 << 14, r=8, p=1, dklen=32)
