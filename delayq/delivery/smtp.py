"""Delivery by mail, through one's own mail server."""

from __future__ import annotations

import ipaddress
import os
import re
import smtplib
import ssl
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.message import EmailMessage
from typing import Any, Literal, NoReturn

from delayq.clock import Duration, milliseconds
from delayq.config import whole
from delayq.deliver.adapter import Adapter
from delayq.deliver.letter import Letters
from delayq.errors import ConfigurationError, shown
from delayq.message import Message
from delayq.outcomes import Reject, Retry

PORTS = {"starttls": 587, "ssl": 465, "off": 25}

_OK = 250


class Smtp(Adapter):
    """Mails each message; `to`, `subject` and `body` are templates such as "{email}", filled from the payload.

    `{summary}` is a field of the payload, `{user.name}` a field of a field; `{id}`, `{due}`, `{attempt}` and
    `{payload}` are those of the message, unless the payload has fields of these names. Each `to` makes one address. The
    Message-ID is made of id and due time, so that a redelivery can be told from another mail.

    A server that answers 4xx to a mail is tried again after `retry_after`; on 5xx, or if the payload makes no proper
    mail, the message is moved to the dead letter. A server that cannot be reached, will not encrypt or refuses the
    password is tried again after the queue's `nack_delay`. A mail that some of several addresses were refused is
    not sent to the others again if the refusal is for good.
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
        """Mail through `host`; nothing is connected before the first message.

        The port is by default 587, with `tls="ssl"` 465 and without TLS 25. User and password are by default those of
        the environment, DELAYQ_SMTP_USER and DELAYQ_SMTP_PASSWORD; an empty user logs in nowhere.
        """
        if tls not in PORTS:
            raise ConfigurationError(f"tls must be 'starttls', 'ssl' or 'off', not {shown(tls)}")
        if not isinstance(host, str) or not re.fullmatch(r"[^\s\x00-\x1f/@]+", host):
            raise ConfigurationError(f"host must be the name of a mail server, not {shown(host)}")
        self._host, self._tls = host, tls
        self._port = PORTS[tls] if port is None else whole(port, "port", 1, 65_535)
        self._user = os.environ.get("DELAYQ_SMTP_USER", "") if user is None else user
        self._password = os.environ.get("DELAYQ_SMTP_PASSWORD", "") if password is None else password
        if self._user and not self._password:
            raise ConfigurationError("a user needs a password: set DELAYQ_SMTP_PASSWORD")
        if self._user and tls == "off" and not _is_here(host):
            raise ConfigurationError(f"a password goes to {host} over TLS only: tls must be 'starttls' or 'ssl'")
        self._timeout = milliseconds(timeout, "timeout", least=1) / 1000
        self._retry_after = milliseconds(retry_after, "retry_after") / 1000
        self._letters = Letters(sender, to, subject, body)
        self._idle: deque[smtplib.SMTP] = deque()

    def __repr__(self) -> str:
        """Show where mail goes; the password is not shown."""
        return f"<Smtp {self._host}:{self._port}>"

    def hand_on(self, message: Message[Any]) -> None:
        """Mail the message over a connection of its own, or over one that an earlier message has left."""
        letter, to = self._letters.write(message)
        connection = self._connection()
        try:
            refused = self._mail(connection, letter, to)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        if refused:
            self._judge(refused)

    def close(self) -> None:
        """Say goodbye on the connections that are kept."""
        while self._idle:
            with suppress(smtplib.SMTPException, OSError):
                self._idle.pop().quit()

    def _mail(self, connection: smtplib.SMTP, letter: EmailMessage, to: list[str]) -> Mapping[str, tuple[int, bytes]]:
        """Mail the letter; returns the answers for those of several addresses that were refused."""
        try:
            return connection.send_message(letter, self._letters.sender.addr_spec, to)
        except smtplib.SMTPRecipientsRefused as error:
            self._judge(error.recipients)
        except smtplib.SMTPResponseException as error:
            self._judge({"": (error.smtp_code, _bytes(error.smtp_error))})
        except smtplib.SMTPNotSupportedError as error:
            raise Reject(f"{self._host} takes no addresses beyond ASCII") from error
        except OSError as error:  # which what smtplib raises is as well
            raise Retry(f"{self._host}: {_told(error)}") from error

    def _judge(self, answers: Mapping[str, tuple[int, bytes]]) -> NoReturn:
        """Raise what the refusals mean: one that may pass lets all be tried again."""
        code, text = min(answers.values())
        reason = f"{self._host} answered {code} {_without_addresses(text)}".strip()
        if code < 500:  # noqa: PLR2004 - from there on it is for good
            raise Retry(reason, delay=self._retry_after)
        raise Reject(reason)

    def _connection(self) -> smtplib.SMTP:
        """Return a connection that works: the one used last, or a new one."""
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                with suppress(smtplib.SMTPException, OSError):
                    if connection.noop()[0] == _OK:
                        return connection
                connection.close()
        try:
            return self._connect()
        except smtplib.SMTPResponseException as error:
            # A server that greets, encrypts or logs in like this says nothing about the message.
            reason = f"{self._host} answered {error.smtp_code} {_without_addresses(error.smtp_error)}"
            raise Retry(reason.strip()) from error
        except OSError as error:
            raise Retry(f"{self._host}: {_told(error)}") from error

    def _connect(self) -> smtplib.SMTP:
        context = None if self._tls == "off" else ssl.create_default_context()
        connection: smtplib.SMTP
        if self._tls == "ssl":
            connection = smtplib.SMTP_SSL(self._host, self._port, timeout=self._timeout, context=context)
        else:
            connection = smtplib.SMTP(self._host, self._port, timeout=self._timeout)
        try:
            if self._tls == "starttls":
                connection.starttls(context=context)
            if self._user:
                connection.login(self._user, self._password)
        except BaseException:
            connection.close()
            raise
        return connection


def _is_here(host: str) -> bool:
    """Say whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _told(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _without_addresses(text: bytes | str) -> str:
    """Return the first line of what a server says, without the addresses in it: they may be the payload's."""
    lines = _bytes(text).decode("utf-8", "replace").splitlines()
    return re.sub(r"\S+@\S+", "…", lines[0]) if lines else ""
