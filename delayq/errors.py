"""Every error that delayq raises, by what the caller can do about it.

* `ConfigurationError`: an argument or option is wrong; fix the program.
* `InvalidValueError`, a `ConfigurationError`: a value is wrong, such as an id or a delay; fix it, or answer 400 if it
  came in a request.
* `PartitionsError`, a `ConfigurationError`: the queue has another number of partitions; open it with that.
* `PayloadError` and its subclasses: this payload cannot be a message; fix the payload.
* `QueueFullError`: the queue or its Redis is full; send again later.
* `QueueInUseError`: a queue is not removed while it has messages, schedules or consumers; the error says which.
* `NoReplyError`: Redis did not reply; catch it for both of the next two.
* `UnavailableError`: Redis did not reply and nothing was changed; retry.
* `OutcomeUnknown`: Redis did not reply in time and the call may have been executed; retry with the same id.
* `NotReplicatedError`: a send is stored, but on fewer replicas than required; retry with the same id.
* `ServerError`: Redis refused a command; fix its configuration or the access rights.
* `CannotConnectError`, a `ServerError`: Redis refuses the login or an option, or TLS fails; fix the URL or the server.
* `SignatureError`: a webhook request is forged or too old; reply 401 and ignore it.
* `CalendarChangedError`: other processes are importing the same calendar; retry.
* `EventsLostError`: entries of the event log are gone; continue without them, or keep more of them.
* `MessagesLostError`: a batch of Spark cannot be read again; continue without what is missing.
* `UnknownScheduleError`: no schedule of the queue has this name; add it, or fix the name.
* `UnknownOccurrenceError`: a schedule has no occurrence at this time; the error names the nearest.
* `MessageFailedError`: the message whose result was asked for has failed; the error says why.
* `NoResultError`: there is no result of this message; the error says why.
* `ResultTimeoutError`: the message has not ended in time; ask again.
* `NoCallbackError`: the queue has no callback to consume with; register one.
* `StoppedByCallbackError`: a callback stopped its consumer by `StopWorker`; fix what the error names, then start again.
* `ConsumerFailedError`: a thread or task of a consumer has died of an error that is no callback's; the log has it.
* `TooManyThreadsError`: the system gives this process no more threads; raise its limit of processes or of memory.
* `OutboxError`: a transaction takes no rows of the outbox or inbox; the error says what to do.
* `ColdTierError`: the folder of a cold tier cannot be used, or lacks files; the error says what to do.
* `UnsafeServerError`: a start-up check failed under `strict=True`; fix the server's configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

_UNITS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1}


class DelayqError(Exception):
    """The base class of every error that delayq raises."""


class ConfigurationError(DelayqError, ValueError):
    """An argument or an option is out of range, malformed or unknown; nothing was stored or changed."""


class InvalidValueError(ConfigurationError):
    """A value is malformed or out of range, such as an id, a delay, a time or a cron expression; nothing was changed.

    Options that do not exist, or do not go together, are a plain `ConfigurationError`.
    """


class PartitionsError(ConfigurationError):
    """A queue has other partitions than this client says, or none: the error says how to open or to move it."""


class PlanChangedError(ConfigurationError):
    """Most reminders of a plan would be sent again, because their payloads get or lose columns; nothing was planned."""


class PayloadError(DelayqError, ValueError):
    """A payload cannot be encoded or decoded."""


class PayloadTooLargeError(PayloadError):
    """An encoded payload is larger than `max_payload`; it was refused before anything was sent."""


class UndecodableError(PayloadError):
    """Stored bytes do not decode as the queue's payload type; the message moves to the dead letter."""


class QueueFullError(DelayqError):
    """Redis is out of memory or the queue has reached `max_length`; the refused messages were not stored."""

    ids: tuple[str, ...] = ()
    """The ids that may not be stored. Sent again with the same ids, no message is stored twice."""


class QueueInUseError(DelayqError):
    """A queue was not removed: it has messages, dead messages, schedules or live consumers. Nothing was changed."""


class NoReplyError(DelayqError):
    """Redis did not reply before the deadline: the base class of `UnavailableError` and `OutcomeUnknown`."""


class UnavailableError(NoReplyError, ConnectionError):
    """Redis could not be reached before the deadline; the call was not executed."""


class OutcomeUnknown(NoReplyError, TimeoutError):  # noqa: N818 - a state of knowledge, not a fault
    """Redis stopped replying after the call was sent: it may or may not have been executed."""

    ids: tuple[str, ...] = ()
    """The ids of a send with an unknown outcome. Sent again with the same ids, no message is stored twice."""


class NotReplicatedError(DelayqError):
    """The call was executed, but too few replicas for `durability="replicated"` have it: a failover may undo it."""

    ids: tuple[str, ...] = ()
    """The ids of the send. Sent again with the same ids, no message is stored twice."""


class ServerError(DelayqError):
    """Redis refused a command: a key of another type, missing access rights, a broken script."""


class CannotConnectError(ServerError):
    """No connection to Redis is possible until something is changed: the login, TLS, an option that the server lacks.

    A call raises it at once. A running consumer goes on trying, because somebody may change it.
    """


class EventsLostError(DelayqError):
    """Entries of the event log were deleted before they were read."""


class MessagesLostError(DelayqError):
    """What a batch of Spark has claimed is gone from Redis before the batch was committed."""


class CalendarChangedError(DelayqError):
    """Other processes kept changing a calendar's reminders during its import."""


class SignatureError(DelayqError, ValueError):
    """A webhook request was not signed with the secret, or is too old."""


class UnsafeServerError(DelayqError):
    """A start-up check found that the server may lose messages, and the queue has `strict=True`."""


class OutboxError(DelayqError):
    """No row of the outbox or inbox was written: the transaction has ended, or there is no table, or no such row."""


class ColdTierError(DelayqError):
    """The folder of a cold tier cannot be used, is of another queue or a newer delayq, or lacks files."""


class UnknownScheduleError(DelayqError, LookupError):
    """No schedule of the queue has this name."""


class UnknownOccurrenceError(DelayqError, LookupError):
    """A schedule has no occurrence at this time."""


class MessageFailedError(DelayqError):
    """A message has failed: it is in the dead letter, or was discarded, cancelled or purged."""

    def __init__(self, text: str, *, id: str = "", reason: str = "", error: str = "", attempts: int = 0) -> None:
        """Say what has become of the message."""
        super().__init__(text)
        self.id = id
        """The id of the message."""
        self.reason = reason
        """Why: the reason of the dead letter, that of a `Discard`, or `cancelled or purged`."""
        self.error = error
        """The last error of its callback; '' for none."""
        self.attempts = attempts
        """How often it was delivered; 0 if that is not known."""

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the fields when the error goes to another process."""
        return _failed, (str(self), self.id, self.reason, self.error, self.attempts)


def _failed(text: str, id: str, reason: str, error: str, attempts: int) -> MessageFailedError:
    return MessageFailedError(text, id=id, reason=reason, error=error, attempts=attempts)


class NoResultError(DelayqError, LookupError):
    """There is no result of this message: it is unknown, has no retention, or its result was not kept."""


class ResultTimeoutError(DelayqError, TimeoutError):
    """The message has not ended within the timeout; it may still."""


class NoCallbackError(DelayqError):
    """Consuming was started on a queue without a callback."""


class StoppedByCallbackError(DelayqError):
    """A callback raised `StopWorker`: its message is back in the queue, and the consumer has ended."""


class ConsumerFailedError(DelayqError):
    """A thread or task of a consumer has died of an error that is not the callback's; the consumer has ended."""


class TooManyThreadsError(DelayqError):
    """The system gives this process no more threads for now. A running consumer goes on with those it has."""


def short_repr(value: object) -> str:
    """Return a value for an error text: one short line, whatever its `repr` does; a duration as users write it."""
    try:
        return exact_duration(value) if isinstance(value, timedelta) else f"{value!r:.60}"
    except Exception:  # noqa: BLE001 - an int of 5,000 digits has no repr, and a user's class may raise anything
        return f"a {type(value).__name__}"


def exact_duration(value: timedelta) -> str:
    """Return a duration as users write it, without rounding: `1h30m`, `0s`."""
    micros, parts = abs(value) // timedelta(microseconds=1), ""
    for unit, size in _UNITS.items():
        count, micros = divmod(micros, size)
        parts += f"{count}{unit}" if count else ""
    return "-" * (value < timedelta(0)) + (parts or "0s")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of an error text that suggests the closest known name, whatever its case; '' if none is close."""
    import difflib  # loaded only once something is wrong

    spelled = {one.lower(): one for one in known}
    close = difflib.get_close_matches(str(name)[:100].lower(), spelled, n=1)
    return f", did you mean {spelled[close[0]]!r}?" if close else ""
