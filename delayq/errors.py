"""What can go wrong, by what the caller can do about it.

* `ConfigurationError`: an argument or option is wrong; correct the program.
* `PayloadError` and its kinds: this payload cannot be a message; correct the payload.
* `QueueFullError`: the queue or its Redis is full; send again later.
* `UnavailableError`: Redis did not answer and nothing was changed; do it again.
* `OutcomeUnknown`: Redis did not answer in time and the call may have been carried out; do it again with the same id.
* `NotReplicatedError`: a send is stored, but on fewer replicas than were asked for; do it again with the same id.
* `ServerError`: Redis refused a command; correct its set-up or the access rights.
* `SignatureError`: a webhook is not by whom it says, or too old; answer 401 and do nothing.
* `CalendarChangedError`: a calendar is being imported by others at the same time; do it again.
* `EventsLostError`: entries of the event log are gone; go on without them, or keep more of them.
* `UnknownScheduleError`: no schedule of the queue has this name; add it, or correct the name.
* `UnsafeServerError`: a start-up check failed under `strict=True`.
"""

from __future__ import annotations


class DelayqError(Exception):
    """The root of every error that delayq raises."""


class ConfigurationError(DelayqError, ValueError):
    """An argument or an option is out of range, malformed or unknown; nothing was stored or changed."""


class PayloadError(DelayqError, ValueError):
    """A payload cannot be encoded or decoded."""


class PayloadTooLargeError(PayloadError):
    """An encoded payload is larger than `max_payload`; it was refused before a byte was sent."""


class UndecodableError(PayloadError):
    """Stored bytes do not decode as the queue's payload type; such a message goes to the dead letter."""


class QueueFullError(DelayqError):
    """Redis is out of memory or the queue has reached `max_length`; what was refused was not stored."""

    ids: tuple[str, ...] = ()
    """The ids of a send that may not be stored: sent again under them, none is stored twice."""


class UnavailableError(DelayqError, ConnectionError):
    """Redis could not be reached before the deadline of the call, and the call was not sent."""


class OutcomeUnknown(DelayqError, TimeoutError):  # noqa: N818 - a state of knowledge, not a fault
    """Redis stopped answering after the call was sent: it may or may not have been carried out."""

    ids: tuple[str, ...] = ()
    """The ids of the messages a send is in doubt about: sent again under them, none is stored twice."""


class NotReplicatedError(DelayqError):
    """It was carried out, but fewer replicas have it than `durability="replicated"` asks: a failover may undo it."""

    ids: tuple[str, ...] = ()
    """The ids of the messages it is about: sent again under them, none is stored twice."""


class ServerError(DelayqError):
    """Redis refused a command: a key of another type, missing access rights, a broken script."""


class EventsLostError(DelayqError):
    """Entries of the event log were deleted before they were read."""


class CalendarChangedError(DelayqError):
    """A calendar's reminders were changed by others again and again while they were to be brought up to date."""


class SignatureError(DelayqError, ValueError):
    """A request to a webhook's receiver was not signed with the secret, or too long ago."""


class UnsafeServerError(DelayqError):
    """A start-up check found what could lose messages, and the queue was made with `strict=True`."""


class UnknownScheduleError(DelayqError, LookupError):
    """No schedule of the queue has this name."""


class NoCallbackError(DelayqError):
    """Consuming was started on a queue that has no callback."""


def shown(value: object) -> str:
    """Return a value as the text of an error shows it: one short line, whatever its `repr` does."""
    try:
        return f"{value!r:.60}"
    except Exception:  # noqa: BLE001 - an int of 5,000 digits has no repr, and a user's class may raise anything
        return f"a {type(value).__name__}"
