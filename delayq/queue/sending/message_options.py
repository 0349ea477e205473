"""The options of a message: how they are given, checked and stored.

A new one is a field of `SharedOptions` and of `NewMessage`, and a line in `check_attributes` and in `STORED`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from typing import Any, Generic, Literal, TypedDict, TypeVar

from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.keys import check_id
from delayq.broker.message.attributes import Attributes, check_message_name, check_timeout
from delayq.broker.message.collected import check_collect
from delayq.broker.message.expiry import Missed, check_expiry
from delayq.broker.message.ids import Unique
from delayq.broker.message.same_id import Debounce, check_debounce, check_reserved
from delayq.broker.requests import Replace
from delayq.broker.results import check_retention
from delayq.errors import ConfigurationError
from delayq.values.checks import check_int, check_options
from delayq.values.times import Duration

MAX_PRIORITY = 100
"""The largest priority; the smallest is its negative."""


def check_priority(priority: Any) -> int:
    """Return a valid priority; raise `ConfigurationError` for anything else."""
    return check_int(priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)


T = TypeVar("T")


class SharedOptions(TypedDict, total=False):
    """The options that a send may have, and a task for all its sends; None is as if it were left out."""

    missed: Missed
    """What becomes of a message that expires: `dead`, by default, or `drop` to discard it."""
    priority: int | None
    """What comes first of what is due, from -100 to 100, larger first, with a head start of `priority_step` each; 0."""
    unique: Unique | None
    """Let name and payload make the id: a second send of the same is answered `exists`."""
    unique_for: Duration | None
    """How long from the send its id is reserved: a second send of the id is answered `settled`, also after the end."""
    unique_after: Duration | None
    """How long from its end its id is reserved; not at all by default."""
    retention: Duration | None
    """How long its result is kept once it is done, see `result`; by default as the queue says."""
    timeout: Duration | None
    """How long its callback may run, then the attempt has failed; by default as `max_consume_duration` says."""
    key: str | None
    """What it belongs to, such as `account:7`: a limit of `account:*` says how many of a key run, or in order."""
    jitter: Duration | None
    """How much later it is due at most, drawn from its id, so that what is due at one time is spread; 0 by default."""
    hours: str | None
    """When it may be delivered, such as `08:00-21:00` or `MON-FRI 09:00-17:00 except holidays:DE`: what is due outside
    of these hours, or is to be retried then, waits until they open; at any time by default."""
    tz: str | None
    """The IANA name of the time zone of `hours`; `UTC`."""
    replace: bool | Literal["after"]
    """Whether a waiting message with its id gets the new payload and due time, and keeps all else that is not given.
    With `after`, what is sent while it is processed waits too, and follows it when it ends. False by default."""
    debounce: Duration | None
    """How long after the last send of its id it is due, in place of `delay`: each replaces all of the one before."""
    at_most: Duration | None
    """How long after the first of these sends it is due at the latest; no limit by default."""
    collect: int | None
    """How many payloads of these sends become one message, whose payload is the list of them: it is due at once when it
    has so many, from 1 to 1,000, or `max_payload` bytes. With `debounce`; the last payload alone by default."""
    group: str | None
    """The id of the message that collects it, in place of `id`. With a `delay` it waits by itself, under an id of its
    own, and joins the group when it is due. With `collect`."""


class SendOptions(SharedOptions, total=False):
    """The options of a send."""

    id: str | None
    """The id of the message: while a message with it is in the queue, another send is answered `exists`."""
    headers: Mapping[str, str] | None
    """Texts that go with the payload."""
    name: str | None
    """What is to be done: it chooses the function that processes the message, see `on`."""
    expires: Duration | datetime | None
    """When it goes to the dead letter, if it has not started: so long after its due time, or at a time; never."""


@dataclass(frozen=True, slots=True)
class NewMessage(Generic[T]):
    """A message for `send_many` with its own time and options; the call decides those that are left out.

    Its `repr` omits payload and headers, which may be private.
    """

    payload: T = field(repr=False)
    delay: Duration | None = None
    at: datetime | None = None
    retries: int | None = None
    id: str | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    name: str | None = None
    expires: Duration | datetime | None = None
    missed: Missed = "dead"
    priority: int | None = None
    unique: Unique | None = None
    unique_for: Duration | None = None
    unique_after: Duration | None = None
    retention: Duration | None = None
    timeout: Duration | None = None
    jitter: Duration | None = None
    key: str | None = None
    hours: str | None = None
    tz: str | None = None


NO_OPTIONS: Mapping[str, Any] = {}
OPTIONS = SendOptions.__annotations__.keys()
"""The names of the options of a send."""
_RARE = {one.name: one.default for one in fields(NewMessage) if one.name in OPTIONS - {"id", "headers"}}
"""Those of a `NewMessage` that most have not, and what stands for none: they are looked at all at once."""
_rare_in = attrgetter(*_RARE)
_NOT_GIVEN = tuple(_RARE.values())
STORED = {
    "name": Feature.NAMES,
    "key": Feature.LIMITS,
    "expires": Feature.EXPIRY,
    "hours": Feature.HOURS,
    "priority": Feature.PRIORITIES,
    "retention": Feature.RESULTS,
    "timeout": Feature.TIMEOUTS,
    "collect": Feature.COLLECT,
    "unique_for": Feature.RESERVED,
    "unique_after": Feature.RESERVED,
}
"""The options that are stored as attributes, and what each needs of an engine; see `BESIDE`."""
BESIDE = {"missed": "expires", "tz": "hours"}
"""The options that are stored beside another one, to which they belong."""
KEPT = ("retries", "headers", *(option for option in STORED if option != "collect"))
"""The options that stay when a message is replaced."""


def options_of(messages: Iterable[NewMessage[Any]]) -> list[Mapping[str, Any]]:
    """Return the options that each message has, as those of a send, besides its id and its headers."""
    given = map(_rare_in, messages)
    return [NO_OPTIONS if rare == _NOT_GIVEN else dict(zip(_RARE, rare, strict=True)) for rare in given]


def replacing(options: Mapping[str, Any], due: Duration | datetime) -> Replace:
    """Return what a send with these options replaces; raise `ConfigurationError` if they contradict each other.

    Raises it also for an option that no send has.
    """
    check_options(options, OPTIONS)
    replace: Replace = options.get("replace", False)
    how = check_debounce(options.get("debounce"), options.get("at_most"), options.get("collect"))
    if options.get("group") is not None:
        return _joining(options, how, due)
    if how is None:
        return replace
    if how.collect and options.get("unique") is not None:
        raise ConfigurationError("collect needs the id of the group: give id, not unique")
    if replace is not False:
        raise ConfigurationError("give replace or debounce, but not both: debounce replaces what waits")
    if due:
        timed = "at" if isinstance(due, datetime) else "delay"
        raise ConfigurationError(f"give {timed} or debounce, but not both: debounce says when the message is due")
    return how


def _joining(options: Mapping[str, Any], how: Debounce | None, due: Duration | datetime) -> Replace:
    """Return what a send to a group replaces: with a due time nothing, since it joins the group later."""
    if how is None or not how.collect:
        raise ConfigurationError("group goes with debounce and collect: say how long it waits, and how many it takes")
    other = next((one for one in ("replace", "unique_for", "unique_after") if options.get(one)), None)
    if other is not None:
        raise ConfigurationError(f"give group or {other}, but not both: what is in a group is no message of its own")
    if due:
        return False
    other = next((one for one in ("id", "unique") if options.get(one) is not None), None)
    if other is not None:
        raise ConfigurationError(f"give group or {other}, but not both: without a delay, it is in the group at once")
    return how


def check_attributes(
    options: Mapping[str, Any], due: str | int, id: str | None, *, replace: Replace = False, retention: int = 0
) -> Attributes:
    """Return the attributes of a message with these options and this due time; raise `ConfigurationError`.

    The `id` is None for a message without one of its own. The `retention` is that of the queue (ms).
    """
    get = options.get
    name, key, priority = get("name"), get("key"), get("priority")
    expires, missed = check_expiry(get("expires"), get("missed", "dead"), due)
    unique_for, unique_after = check_reserved(get("unique_for"), get("unique_after"), id, replace=replace)
    attributes = Attributes(
        name="" if name is None else check_message_name(name),
        key="" if key is None else check_id(key, "key"),
        expires=expires,
        missed=missed,
        priority=0 if priority is None else check_priority(priority),
        unique_for=unique_for,
        unique_after=unique_after,
        retention=check_retention(get("retention"), retention),
        timeout=check_timeout(get("timeout")),
        collect=check_collect(get("collect")),
    )
    hours, tz = get("hours"), get("tz")
    if hours is tz is None:
        return attributes
    from delayq.schedules.hours import check_hours, with_hours  # few messages have hours

    found = check_hours(hours, tz)
    return attributes if found is None else with_hours(attributes, found)


def attributes_of(
    context: EngineContext,
    due: str | int,
    options: Mapping[str, Any],
    id: str | None = None,
    *,
    replace: Replace = False,
) -> bytes:
    """Return the same as they are stored; raise `ConfigurationError` also for what the engine lacks."""
    attributes = check_attributes(options, due, id, replace=replace, retention=context.settings.retention)
    for name, feature in STORED.items():
        if getattr(attributes, name):
            context.calls.capabilities.require(feature)
    return attributes.encode()


def keeping(attributes: bytes, given: Mapping[str, object]) -> bytes:
    """Return the attributes of a send that keeps, of the message it replaces, all whose option is not given: None."""
    kept = [option for option in KEPT if given.get(option) is None]
    kept += [option for option, other in BESIDE.items() if other in kept]
    return b" ".join(filter(None, [attributes, b"keep=" + ",".join(kept).encode()]))
