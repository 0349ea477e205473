"""Builds an email from a message: addresses, subject and body from templates, safe against header injection."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.errors import NonASCIILocalPartDefect
from email.headerregistry import Address, HeaderRegistry
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

from delayq.delivery.envelope import Template, fields, time_text
from delayq.delivery.recipients import part_of
from delayq.errors import ConfigurationError, short_repr
from delayq.values.outcomes import Reject
from delayq.values.times import from_millis
from delayq.worker.delivery.message import Message

POLICY = SMTP.clone(cte_type="7bit")
"""How emails are written: bodies in ASCII, which every server passes on, and no `>` before lines with "From "."""
MAX_SUBJECT = 200
"""Characters of a subject; longer ones are cut."""

MAX_ADDRESS = 512
"""Characters of an address with its display name; SMTP allows 254 for the address itself."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN = re.compile(r"[A-Za-z0-9-]{1,64}")
_headers = HeaderRegistry()


class EmailTemplate:
    """Builds emails from messages."""

    def __init__(self, sender: str, to: str | Sequence[str], subject: str, body: str) -> None:
        """Parse the templates; `sender` is a fixed address, not a template."""
        address = _address(sender)
        if address is None:
            raise ConfigurationError(f"sender must be one email address, not {short_repr(sender)}")
        self.sender = address
        recipients = [to] if isinstance(to, str) else list(to)
        if not recipients:
            raise ConfigurationError("to must have at least one address")
        self._to = [Template(one, "to") for one in recipients]
        self._subject = Template(subject, "subject")
        self._body = Template(body, "body")

    def build(self, message: Message[Any]) -> tuple[EmailMessage, list[str]]:
        """Return the email and to whom it is to be sent; raises `Reject` if the message makes no valid email.

        For the recipients that an earlier message has left over it is the same email, with the same recipients in `To`.
        """
        part = part_of(message)
        if part is None:
            id, due, values = message.id, message.due, fields(message)
        else:
            id, due = part.id, from_millis(part.due)
            values = fields(message, id=id, due=time_text(due), attempt=part.attempts + message.attempt)
        to = [self._recipient(template.fill(values)) for template in self._to]
        email = EmailMessage(policy=POLICY)
        email["From"] = self.sender
        email["To"] = to
        email["Subject"] = _line(self._subject.fill(values), "subject")[:MAX_SUBJECT]
        _line(str(email["Subject"]), "subject")  # encoded words are decoded by now, so check again
        email["Date"] = datetime.now(UTC)
        email["Message-ID"] = f"<{_name(id, due)}@{self.sender.domain}>"
        email["Auto-Submitted"] = "auto-generated"  # RFC 3834: prevents out-of-office replies
        email.set_content(self._body.fill(values))
        addresses = list(dict.fromkeys(one.addr_spec for one in to))
        if part is not None:
            left = {with_ascii_domain(one) for one in part.to}
            addresses = [one for one in addresses if one in left]
            if not addresses:
                raise Reject("none of the recipients that were left over is one of this worker's")
        return email, addresses

    def _recipient(self, text: str) -> Address:
        found = _address(_line(text, "address"))
        if found is None:
            raise Reject("the payload gives no valid email address")  # not shown: it may be private
        return found


def _line(text: str, what: str) -> str:
    if _CONTROLS.search(text):
        raise Reject(f"the payload puts a line break or control character in the {what}")
    return text


def _address(text: str) -> Address | None:
    """Return the address in a text, with its display name if any; None unless it is exactly one valid address."""
    if not isinstance(text, str) or len(text) > MAX_ADDRESS or _CONTROLS.search(text):
        return None
    try:
        header: Any = _headers("To", text)
    except Exception:  # noqa: BLE001 - the parser raises many errors for malformed addresses
        return None
    # Non-ASCII local parts are left to the server.
    defects = [defect for defect in header.defects if not isinstance(defect, NonASCIILocalPartDefect)]
    if defects or len(header.addresses) != 1 or header.groups[0].display_name is not None:
        return None
    (found,) = header.addresses
    if not (found.username and found.domain) or _CONTROLS.search(str(found)):
        return None
    return Address(found.display_name, found.username, with_ascii_domain(found.domain))


def with_ascii_domain(address: str) -> str:
    """Return an address, or a domain, with the domain as every mail server takes it: its A-label (RFC 5890).

    What has none stays as it is, for servers that take non-ASCII addresses.
    """
    user, at, domain = address.rpartition("@")
    if domain.isascii():
        return address
    try:
        return f"{user}{at}{_a_label(domain)}"
    except UnicodeError:
        return address


def _a_label(domain: str) -> str:
    try:
        import idna  # comes with httpx
    except ImportError:
        # The codec knows the older rules alone, by which a name with one of these letters is another name.
        if any(letter in domain for letter in "ßς\u200c\u200d"):
            raise UnicodeError("not by the older rules") from None
        return domain.encode("idna").decode()
    return idna.encode(domain, uts46=True).decode()


def _name(id: str, due: datetime) -> str:
    """Return a name that all attempts of a message share and no other message has, even one with the same id.

    An id with characters that are special in a Message-ID is hashed.
    """
    plain = id if _PLAIN.fullmatch(id) else f"digest.{hashlib.sha256(id.encode()).hexdigest()}"
    return f"{plain}.{round(due.timestamp() * 1000)}"
