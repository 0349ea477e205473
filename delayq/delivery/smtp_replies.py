"""What a mail server's replies and failed connections are about: one email, this moment, or the worker's options."""

from __future__ import annotations

import re
import smtplib
import ssl

from delayq.delivery.trouble import advice_on_connection

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
