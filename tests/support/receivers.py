"""What messages are delivered to: a receiver of webhooks and a mail server, real ones on this machine."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope

from delayq.testing.redis_server import free_port

Answer = Callable[[BaseHTTPRequestHandler], None]


class Request(NamedTuple):
    """A request as it came; the client's port tells connections apart."""

    path: str
    headers: dict[str, str]
    body: bytes
    port: int


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up: they are made to."""


@dataclass
class Receiver:
    """A receiver of webhooks: gives its answers in turn, and the last one for ever."""

    replies: list[Answer] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks?key=s3cr3t"

    def slow(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer once the test says so."""
        self.released.wait(30)
        status(204)(handler)

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.requests.append(Request(handler.path, headers, body, handler.client_address[1]))
        reply = self.replies.pop(0) if len(self.replies) > 1 else (self.replies or [status(204)])[0]
        reply(handler)


def status(code: int, body: bytes = b"", **headers: str) -> Answer:
    """Answer with a status."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return reply


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Answer nothing, and close the connection."""
    handler.close_connection = True


@contextmanager
def receiver(*replies: Answer, context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Start a receiver of webhooks."""
    hooks = Receiver([*replies])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            hooks.take(self)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with _Server(("127.0.0.1", 0), Handler) as server:
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        hooks.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield hooks
        finally:
            hooks.released.set()
            server.shutdown()
            thread.join()


@dataclass
class Mailbox:
    """What a mail server has taken, and how it answers a command or a recipient, in turn: "" for yes."""

    port: int
    replies: dict[str, list[str]] = field(default_factory=dict)
    letters: list[Envelope] = field(default_factory=list)
    sessions: list[int] = field(default_factory=list)
    """The client's port of each letter, which tells connections apart."""

    def _answer(self, command: str) -> str:
        waiting = self.replies.get(command, [])
        return waiting.pop(0) if waiting else ""

    async def handle_MAIL(self, _: SMTP, __: Any, envelope: Envelope, address: str, options: list[str]) -> str:  # noqa: N802
        if reply := self._answer("MAIL"):
            return reply
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(self, _: SMTP, __: Any, envelope: Envelope, address: str, ___: list[str]) -> str:  # noqa: N802
        if reply := self._answer(address) or self._answer("RCPT"):
            return reply
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _: SMTP, session: Any, envelope: Envelope) -> str:  # noqa: N802
        if reply := self._answer("DATA"):
            return reply
        self.letters.append(envelope)
        self.sessions.append(session.peer[1])
        return "250 OK"


@contextmanager
def mail_server(
    context: ssl.SSLContext | None = None,
    *,
    at_once: bool = False,
    login: tuple[str, str] | None = None,
    login_reply: str | None = None,
    utf8: bool = True,
) -> Iterator[Mailbox]:
    """Start a mail server on this machine.

    With a context it demands STARTTLS, or `at_once` speaks TLS from the first byte; with a login it demands a password,
    and replies `login_reply` to any.
    """
    box = Mailbox(free_port())

    def check(_: Any, __: Any, ___: Any, ____: Any, given: Any) -> AuthResult:
        if login_reply is not None:
            return AuthResult(success=False, handled=False, message=login_reply)
        return AuthResult(success=(given.login.decode(), given.password.decode()) == login, handled=False)

    options: dict[str, Any] = {"tls_context": context, "require_starttls": True} if context and not at_once else {}
    if login:
        options |= {"authenticator": check, "auth_required": True, "auth_require_tls": context is not None}
    outer = context if at_once else None
    controller = Controller(
        box, hostname="127.0.0.1", port=box.port, enable_SMTPUTF8=utf8, ssl_context=outer, **options
    )
    controller.start()
    try:
        yield box
    finally:
        controller.stop()
