"""Delivery by email through a mail server, whose waits have one deadline together, however slowly it replies."""

from __future__ import annotations

import ipaddress
import os
import re
import smtplib
import socket
import ssl
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from delayq.delivery.adapter import Adapter, ReceiverClosedError, TroubleHereError, log, own_wait
from delayq.delivery.email_message import POLICY, EmailTemplate
from delayq.delivery.recipients import split, was_split
from delayq.delivery.trouble import advice_on_connection, is_failed_look_up, is_shortage, worst_of
from delayq.errors import ConfigurationError, short_repr
from delayq.values.checks import check_int
from delayq.values.outcomes import Reject, Retry, Snooze, StopWorker
from delayq.values.times import Duration, monotonic, to_millis
from delayq.worker.delivery.message import Message

if TYPE_CHECKING:
    Base = smtplib.SMTP
else:
    Base = object


class _Limited(Base):
    """What limits a connection; `smtplib` limits each wait for a byte only."""

    def __init__(self, host: str, port: int, *, until: float, **options: Any) -> None:
        """Connect until this time of the monotonic clock."""
        self.until = until
        try:
            super().__init__(host, port, timeout=self._left(), **options)
        except BaseException:
            self.close()  # `smtplib` leaves the socket open
            raise

    def _left(self) -> float:
        left = self.until - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def send(self, s: Any) -> None:
        """Send within what is left; `sendall` counts its timeout for the whole text."""
        if self.sock is not None:
            self.sock.settimeout(self._left())
        super().send(s)

    def getreply(self) -> tuple[int, bytes]:
        """Read a reply of one or more lines within what is left."""
        sock = self.sock
        left = self._left()
        if sock is None:
            return super().getreply()
        sock.settimeout(left)
        over = threading.Event()
        timer = threading.Timer(left, _shut, [sock, over])
        timer.daemon = True
        with suppress(RuntimeError):  # no room for one more thread: then each wait has this limit, not all together
            timer.start()
        try:
            reply = super().getreply()
        except OSError as error:
            if over.is_set():
                raise TimeoutError("timed out") from error
            raise
        finally:
            timer.cancel()
        if over.is_set():  # half of a reply
            raise TimeoutError("timed out")
        return reply


class LimitedSMTP(_Limited, smtplib.SMTP):
    """A connection that is plain at first."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return _connected(host, port, timeout)


class LimitedSMTPS(_Limited, smtplib.SMTP_SSL):
    """A connection that is encrypted from the first byte."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self.context.wrap_socket(_connected(host, port, timeout), server_hostname=host)


def _connected(host: str, port: int, timeout: float) -> socket.socket:
    """Connect to one of a host's addresses; raises the error that counts if there is none."""
    try:
        return socket.create_connection((host, port), timeout, all_errors=True)
    except ExceptionGroup as group:
        raise worst_of([error for error in group.exceptions if isinstance(error, OSError)]) from None


def _shut(sock: socket.socket, over: threading.Event) -> None:
    over.set()
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


PERMANENT = 500
"""From this code on, a reply is permanent."""

_NEEDS_LOGIN = frozenset({530, 534, 535, 538})
"""Authentication required, mechanism too weak, credentials invalid, encryption required (RFC 4954 and RFC 3207)."""
_TOO_LARGE = frozenset({523, 552})
_ABOUT_THE_EMAIL = re.compile(r"5\.(?:2\.3|3\.4|6\.\d+)\b")
"""Enhanced codes (RFC 3463) of a refused MAIL FROM that are about the size or the contents of this email."""
_ABOUT_THE_SYSTEM = re.compile(r"4\.3\.(?!4)\d+\b")
"""Enhanced codes of a mail system that takes no emails for now, all but 4.3.4: this one is too large."""
CLOSING = 421
"""The server closes the connection, and takes nothing for now."""


def as_text(reply: bytes | str) -> str:
    """Return the text of a reply."""
    return reply if isinstance(reply, str) else reply.decode("utf-8", "replace")


def advice_on_reply(code: int, text: str, *, to: type[Exception]) -> str | None:
    """Return what to change if a reply is about the worker's options, as all emails are refused; None if it is not.

    `to` is the exception of `smtplib`, which tells what the server replied to.
    """
    if code in _NEEDS_LOGIN:
        return "check user, password and encryption"
    if code < PERMANENT or to in (smtplib.SMTPDataError, smtplib.SMTPRecipientsRefused):
        return None
    if to is not smtplib.SMTPSenderRefused:
        return "check the mail server and its port"
    return None if code in _TOO_LARGE or _ABOUT_THE_EMAIL.match(text) else "check the sender"


def is_closed(code: int, text: str, *, to: type[Exception]) -> bool:
    """Return whether a temporary reply is about the server, as it takes no email for now; else it is about this email.

    So it is with what is said before a recipient is named, as the sender of all emails is the same.
    """
    if code >= PERMANENT:
        return False
    if code == CLOSING or _ABOUT_THE_SYSTEM.match(text):
        return True
    return to not in (smtplib.SMTPDataError, smtplib.SMTPRecipientsRefused)


def advice_on_error(error: OSError, tls: str) -> str | None:
    """Return what to change if a connection cannot succeed with these options; None if a later try may."""
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER" and tls != "ssl":
        return None
    if isinstance(error, smtplib.SMTPNotSupportedError):
        what = "no login" if "AUTH" in str(error) else "no encryption by STARTTLS"
        return f"it offers {what}: check its port and how to encrypt"
    if type(error) is smtplib.SMTPException:  # how `smtplib` says that no mechanism is known to both sides
        return f"{error}: check how to encrypt"
    return advice_on_connection(error)


PORTS = {"starttls": 587, "ssl": 465, "off": 25}

MAX_REPLY = 300
"""Characters of a server's reply that are logged and stored."""

_OK = 250
_ADDRESS = re.compile(r"\S+@\S+")


_Connection = LimitedSMTP | LimitedSMTPS


class _ConnectionEndedError(ReceiverClosedError):
    """The server ends this connection."""


class Smtp(Adapter):
    """Sends each message as an email; `to`, `subject` and `body` are templates such as "{email}".

    `{summary}` is a field of the payload, `{user.name}` a nested one. `{id}`, `{due}`, `{attempt}` and `{payload}` are
    those of the message, unless the payload has fields of these names. Each `to` gives one address. The Message-ID is
    made of the id and the due time, so a redelivery has the same one.

    If the server replies 4xx to an email, it is retried after `retry_after`. On 5xx, or if the payload gives no valid
    email, the message moves to the dead letter. If the server is unreachable, the message is retried after the queue's
    `nack_delay`. A 4xx that is about the server, as 421 is, closes it: nothing is sent for a time, and no message is
    charged. What no message can overcome stops the consumer by `StopWorker`, and no message is charged: an unknown
    host, no encryption, a refused login, a refused sender. If the server accepts an email for some of several addresses
    only, a new message is stored for those it deferred, and one for those it refused; nobody else gets it again.
    """

    def __init__(
        self,
        host: str,
        port: int | None = None,
        *,
        sender: str,
        to: str | Sequence[str],
        subject: str,
        body: str = "{payload}",
        tls: Literal["starttls", "ssl", "off"] = "starttls",
        user: str | None = None,
        password: str | None = None,
        timeout: Duration = 30,
        retry_after: Duration = 300,
    ) -> None:
        """Send through `host`; the first message opens the connection.

        The default port is 587, with `tls="ssl"` 465, and without TLS 25. User and password default to the environment
        variables DELAYQ_SMTP_USER and DELAYQ_SMTP_PASSWORD; with an empty user there is no login.
        """
        if tls not in PORTS:
            raise ConfigurationError(f"tls must be 'starttls', 'ssl' or 'off', not {short_repr(tls)}")
        if not isinstance(host, str) or not re.fullmatch(r"[^\s\x00-\x1f/@]+", host):
            # The value is not shown: it may be a URL with a password.
            raise ConfigurationError("host must be the name of a mail server alone, such as mail.example.com")
        self._host, self._tls = host, tls
        self._port = PORTS[tls] if port is None else check_int(port, "port", 1, 65_535)
        self._user = os.environ.get("DELAYQ_SMTP_USER", "") if user is None else user
        self._password = os.environ.get("DELAYQ_SMTP_PASSWORD", "") if password is None else password
        if self._user and not self._password:
            raise ConfigurationError("user needs a password: set DELAYQ_SMTP_PASSWORD")
        if self._user and tls == "off" and not _is_local(host):
            raise ConfigurationError(
                f"refusing to send a password to {host} without TLS: set tls to 'starttls' or 'ssl'"
            )
        self._timeout = to_millis(timeout, "timeout", min=1) / 1000
        self._retry_after = to_millis(retry_after, "retry_after") / 1000
        self._template = EmailTemplate(sender, to, subject, body)
        self._idle: deque[_Connection] = deque()
        self._in_use: set[_Connection] = set()

    def __repr__(self) -> str:
        """Show host and port, but not the password."""
        return f"<Smtp {self._host}:{self._port}>"

    def hand_on(self, message: Message[Any]) -> None:
        """Send the message over an idle connection, or over a new one."""
        email, to = self._template.build(message)
        if len(to) > 1 and was_split(message):
            return
        with self._asking(message):
            refused = self._deliver(message, email, to)
        if refused:
            self._leave_over(message, refused)

    def _deliver(self, message: Message[Any], email: EmailMessage, to: list[str]) -> Mapping[str, tuple[int, bytes]]:
        """Send the email; returns the replies for refused addresses, if others were accepted."""
        until = monotonic() + self._timeout
        if (connection := self._idle_connection(until)) is not None:
            with suppress(_ConnectionEndedError):  # as servers do after some emails: it takes more over a new one
                return self._send(connection, email, to)
        try:
            connection = self._new_connection(until)
        except ReceiverClosedError as error:
            if self._in_use:  # too many connections, but it takes emails over the others
                raise Snooze(own_wait(message, 1), str(error)) from error
            raise
        return self._send(connection, email, to)

    def close(self) -> None:
        """Close the idle connections with QUIT."""
        while self._idle:
            with suppress(smtplib.SMTPException, OSError):
                connection = self._idle.pop()
                connection.until = monotonic() + self._timeout
                connection.quit()

    def _send(self, connection: _Connection, email: EmailMessage, to: list[str]) -> Mapping[str, tuple[int, bytes]]:
        """Send the email over a connection, which is closed if that fails and else idle again."""
        self._in_use.add(connection)
        try:
            refused = self._send_over(connection, email, to)
        except BaseException:
            connection.close()
            raise
        finally:
            self._in_use.discard(connection)
        self._idle.append(connection)
        return refused

    def _send_over(
        self, connection: _Connection, email: EmailMessage, to: list[str]
    ) -> Mapping[str, tuple[int, bytes]]:
        sender = self._template.sender.addr_spec
        is_ascii = "".join([sender, *to]).isascii()
        try:
            connection.ehlo_or_helo_if_needed()
            if not is_ascii and not connection.has_extn("smtputf8"):
                raise Reject(f"{self._host} does not accept non-ASCII addresses")
            # Not `send_message`: by the policy it writes with, a line that begins with "From " gets a `>`.
            text = email.as_bytes(policy=POLICY.clone(utf8=not is_ascii))
            return connection.sendmail(sender, to, text, [] if is_ascii else ["SMTPUTF8", "BODY=8BITMIME"])
        except smtplib.SMTPRecipientsRefused as error:
            for code, reply in error.recipients.values():
                self._check_reply(code, reply, error)
            self._raise_refusal(error.recipients)
        except smtplib.SMTPResponseException as error:
            self._check_reply(error.smtp_code, error.smtp_error, error)
            self._raise_refusal({"": (error.smtp_code, error.smtp_error)})
        except OSError as error:  # includes the errors of smtplib
            raise self._broken(error) from error

    def _leave_over(self, message: Message[Any], replies: Mapping[str, tuple[int, bytes]]) -> None:
        """Store messages for the addresses that were refused while others were accepted."""
        left = {"later": [one for one, (code, _) in replies.items() if code < PERMANENT]}
        left["refused"] = [one for one in replies if one not in left["later"]]
        if not split(message, left, self._retry_after):
            self._raise_refusal(replies)
        reply = self._replied(*min(replies.values()))
        text = "message %s: %s, for %d recipients; %d are tried again alone, %d are refused for good"
        counts = len(replies), len(left["later"]), len(left["refused"])
        log.warning(text, message.id, reply, *counts, extra={"id": message.id})

    def _raise_refusal(self, replies: Mapping[str, tuple[int, bytes | str]]) -> NoReturn:
        """Raise `Retry` if any of the refusals is temporary, else `Reject`."""
        code, text = min(replies.values())
        reason = self._replied(code, text)
        if code < PERMANENT:
            raise Retry(reason, delay=self._retry_after)
        raise Reject(reason)

    def _check_reply(self, code: int, text: bytes | str, error: Exception) -> None:
        """Raise what becomes of a reply that is not about one email: the worker stops, or the server is closed."""
        reason = self._replied(code, text)
        if (advice := advice_on_reply(code, as_text(text), to=type(error))) is not None:
            raise StopWorker(f"{reason}: {advice}") from error
        if code == CLOSING:
            raise _ConnectionEndedError(reason) from error
        if is_closed(code, as_text(text), to=type(error)):
            raise ReceiverClosedError(reason, delay=self._retry_after) from error

    def _replied(self, code: int, text: bytes | str) -> str:
        """Return a server's reply: its first line without addresses, which may come from the payload."""
        line, *_ = [*as_text(text).splitlines(), ""]
        return f"{self._host} replied {code} {_ADDRESS.sub('…', line)[:MAX_REPLY]}".strip()

    def _broken(self, error: OSError) -> Retry | TroubleHereError:
        reason = f"{self._host}: {error.strerror or str(error) or type(error).__name__}"
        return TroubleHereError(reason) if is_shortage(error) or is_failed_look_up(error) else Retry(reason)

    def _idle_connection(self, until: float) -> _Connection | None:
        """Return the most recently used connection that works; None if there is none."""
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                connection.until = until
                with suppress(smtplib.SMTPException, OSError):
                    if connection.noop()[0] == _OK:
                        return connection
                connection.close()
        return None

    def _new_connection(self, until: float) -> _Connection:
        try:
            connection = self._connect(until)
        except smtplib.SMTPResponseException as error:
            # The failure is about the connection, not about the message.
            self._check_reply(error.smtp_code, error.smtp_error, error)
            raise ReceiverClosedError(self._replied(error.smtp_code, error.smtp_error)) from error
        except OSError as error:
            if (advice := advice_on_error(error, self._tls)) is not None and not is_shortage(error):
                raise StopWorker(f"{self._host}: {advice}") from error
            raise self._broken(error) from error
        self._works_here()
        return connection

    def _connect(self, until: float) -> _Connection:
        context = None if self._tls == "off" else ssl.create_default_context()
        connection: _Connection
        if self._tls == "ssl":
            connection = LimitedSMTPS(self._host, self._port, until=until, context=context)
        else:
            connection = LimitedSMTP(self._host, self._port, until=until)
        try:
            if self._tls == "starttls":
                connection.starttls(context=context)
            if self._user:
                connection.login(self._user, self._password)
        except BaseException:
            connection.close()
            raise
        return connection


def _is_local(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
