"""What a mail server's replies and failed connections are about: one email, this moment, or the worker's options."""

from __future__ import annotations

import re
import smtplib
import socket
import ssl

PERMANENT = 500
"""From this code on, a reply is permanent."""

_NEEDS_LOGIN = frozenset({530, 534, 535, 538})
"""Authentication required, mechanism too weak, credentials invalid, encryption required (RFC 4954 and RFC 3207)."""
_TOO_LARGE = frozenset({523, 552})
_ABOUT_THE_EMAIL = re.compile(r"5\.(?:2\.3|3\.4|6\.\d+)\b")
"""Enhanced codes (RFC 3463) of a refused MAIL FROM that are about the size or the contents of this email."""
_UNKNOWN_HOST = {getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)}


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


def advice_on_error(error: OSError, tls: str) -> str | None:
    """Return what to change if a connection cannot succeed with these options; None if a later try may."""
    if isinstance(error, socket.gaierror) and error.errno in _UNKNOWN_HOST:
        return "no such host: check the name of the mail server"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER" and tls == "ssl":
        return "it does not speak TLS from the first byte: check the port, or use STARTTLS"
    if isinstance(error, smtplib.SMTPNotSupportedError):
        what = "no login" if "AUTH" in str(error) else "no encryption by STARTTLS"
        return f"it offers {what}: check its port and how to encrypt"
    if type(error) is smtplib.SMTPException:  # how `smtplib` says that no mechanism is known to both sides
        return f"{error}: check how to encrypt"
    return None
