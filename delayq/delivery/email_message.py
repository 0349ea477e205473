"""The letter that a message becomes: addresses, subject and text from templates, with nothing smuggled in."""

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

from delayq.deliver.envelope import fields
from delayq.deliver.template import Template
from delayq.errors import ConfigurationError, shown
from delayq.message import Message
from delayq.outcomes import Reject

LONGEST_SUBJECT = 200
"""Characters of a subject; what is longer is cut."""

LONGEST_ADDRESS = 512
"""Characters of an address with its name; SMTP takes 254 of the address itself."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN = re.compile(r"[A-Za-z0-9-]{1,64}")
_headers = HeaderRegistry()


class Letters:
    """Makes letters of messages."""

    def __init__(self, sender: str, to: str | Sequence[str], subject: str, body: str) -> None:
        """Read the templates; `sender` is an address as it is."""
        address = _address(sender)
        if address is None:
            raise ConfigurationError(f"sender must be one address, not {shown(sender)}")
        self.sender = address
        given = [to] if isinstance(to, str) else list(to)
        if not given:
            raise ConfigurationError("to must name an address")
        self._to = [Template(one, "to") for one in given]
        self._subject = Template(subject, "subject")
        self._body = Template(body, "body")

    def write(self, message: Message[Any]) -> tuple[EmailMessage, list[str]]:
        """Return the letter and whom it goes to; raises `Reject` for a message that makes no proper one."""
        values = fields(message)
        to = [self._recipient(template.fill(values)) for template in self._to]
        letter = EmailMessage(policy=SMTP)
        letter["From"] = self.sender
        letter["To"] = to
        letter["Subject"] = _line(self._subject.fill(values), "subject")[:LONGEST_SUBJECT]
        _line(str(letter["Subject"]), "subject")  # an encoded word is decoded by now, and would be written as it is
        letter["Date"] = datetime.now(UTC)
        letter["Message-ID"] = f"<{_name(message)}@{self.sender.domain}>"
        letter["Auto-Submitted"] = "auto-generated"  # RFC 3834: no absence note in return
        letter.set_content(self._body.fill(values))
        return letter, [one.addr_spec for one in to]

    def _recipient(self, text: str) -> Address:
        found = _address(_line(text, "address"))
        if found is None:
            raise Reject("the payload makes no address")  # and is not shown: logs and reasons are no place for it
        return found


def _line(text: str, what: str) -> str:
    if _CONTROLS.search(text):
        raise Reject(f"the payload puts a line break or control character into the {what}")
    return text


def _address(text: str) -> Address | None:
    """Return the one address that a text is, with its name if it has one; None if it is anything else."""
    if not isinstance(text, str) or len(text) > LONGEST_ADDRESS or _CONTROLS.search(text):
        return None
    try:
        header: Any = _headers("To", text)
    except Exception:  # noqa: BLE001 - the parser fails over malformed addresses in every way there is
        return None
    # Names beyond ASCII are between the server and us.
    defects = [defect for defect in header.defects if not isinstance(defect, NonASCIILocalPartDefect)]
    if defects or len(header.addresses) != 1 or header.groups[0].display_name is not None:
        return None
    (found,) = header.addresses
    return found if found.username and found.domain and not _CONTROLS.search(str(found)) else None


def _name(message: Message[Any]) -> str:
    """Return what is the same over all attempts of a message and differs from that of any other, its id used again too.

    An id may hold what has a meaning in a Message-ID; such a one is digested.
    """
    id = message.id
    plain = id if _PLAIN.fullmatch(id) else f"digest.{hashlib.sha256(id.encode()).hexdigest()}"
    return f"{plain}.{round(message.due.timestamp() * 1000)}"
