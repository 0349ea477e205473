"""Definitions of schedules: how users write them, how they are stored, and the messages of their occurrences.

A schedule is stored as one line of JSON, followed by the encoded payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_args

import msgspec
from msgspec import structs

from delayq.broker.message.attributes import Attributes
from delayq.broker.message.jitter import check_jitter
from delayq.errors import ConfigurationError, InvalidValueError, short_repr
from delayq.options import Settings
from delayq.schedules.hours import Hours, check_hours, hours_of, read_hours
from delayq.schedules.recurring.changed_rule import ChangedRule
from delayq.schedules.recurring.exceptions import Exceptions, ExceptRule, read_exceptions
from delayq.schedules.recurring.local_times import check_zone
from delayq.schedules.recurring.timetable import MAX_FIRED, Timetable
from delayq.schedules.rules import DAY, make_rule
from delayq.values.checks import check_int, check_options, check_retries
from delayq.values.codec import encode_headers, encode_payload
from delayq.values.times import LATEST, Duration, timestamp, to_millis

HEADER = "schedule"
"""The header with the name of the schedule that has sent a message."""
DECLARED_HEADER = "schedule-declared"
"""The header of messages whose schedule was declared in code: they are for its function, not for a callback."""
DECLARED_LABEL = "declared:"
"""What the label of declared schedules begins with; the owner follows."""
MIN_EVERY = 1000
"""The minimum of milliseconds between two occurrences of an interval."""
CLOCK_STEP = 3_600_000
"""Milliseconds by which the server's clock may be set back without more than that no occurrence fires twice."""
"""The maximum of milliseconds by which a message is due after its occurrence."""
MAX_LABELS = 10
"""The maximum of labels of a schedule."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_LABEL = re.compile(r"[A-Za-z0-9._:@/+-]{1,100}")

Misfire = Literal["skip", "once"] | int
Overlap = Literal["allow", "skip", "after"]


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule, apart from its name and when it occurs."""

    payload: Any
    """The payload of its messages; None."""
    retries: int | None
    """Redeliveries of each message; the queue's `default_retries`."""
    headers: Mapping[str, str] | None
    """Headers of its messages, in addition to `schedule`, which is its name."""
    start: datetime | None
    """No occurrence before this time; an interval counts from here."""
    end: datetime | None
    """No occurrence after this time."""
    count: int | None
    """Messages after which the schedule ends."""
    misfire: Misfire
    """What to do with missed occurrences: `"skip"`, `"once"` to send the latest, or how many to send; `"once"`."""
    late_after: Duration | None
    """How late an occurrence may be before it counts as missed; 60 s, or until the next one is due if that is less."""
    except_: Exceptions
    """Days on which it does not occur, in its time zone: dates, `holidays:DE` or `holidays:DE-BY` (public holidays, by
    the package `holidays`), and `.ics` files, of which the whole days of the next ten years are taken now; none."""
    jitter: Duration
    """Each message is due up to this long after its occurrence, up to a day: drawn from its id, so always the same; 0.
    Spreads what many schedules send at the same time. Occurrences that were moved have none."""
    overlap: Overlap
    """What to do while the message of the occurrence before has not ended: `allow` both, `skip` this one, or fire it
    `after` the end; `allow`."""
    hours: str | None
    """When its messages may be delivered, in its time zone, such as `08:00-21:00` or `MON-FRI 09:00-17:00`: what occurs
    outside of these hours is due when they open; at any time by default."""
    labels: Iterable[str]
    """Up to 10 texts such as `user:42`, by which to list, pause and change many schedules; none."""


class TimedOptions(ScheduleOptions, total=False):
    """The options of a schedule, apart from its name: one of `cron`, `every` and `rrule`, and the others."""

    cron: str | None
    """A cron expression of five fields, of six with seconds first, or `@daily` and the like."""
    every: Duration | None
    """The time from one occurrence to the next, at least a second."""
    rrule: str | None
    """A recurrence rule of iCalendar such as `FREQ=MONTHLY;BYDAY=-1FR`, at the time of day of `start`."""
    tz: str | None
    """The IANA name of the time zone of `cron` and `rrule`; `UTC`. With it, `every` must be whole days, which are days
    of the wall clock: it occurs at the same local time, whether a day has 23, 24 or 25 hours."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule to add: a name, one of `cron`, `every` and `rrule`, and the options of `ScheduleOptions`.

    Its `repr` omits payload and headers, which may be private.
    """

    name: str
    cron: str | None = None
    every: Duration | None = None
    tz: str | None = None
    payload: Any = field(default=None, repr=False)
    retries: int | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    start: datetime | None = None
    end: datetime | None = None
    count: int | None = None
    misfire: Misfire = "once"
    late_after: Duration | None = None
    except_: Exceptions = ()
    jitter: Duration = 0
    overlap: Overlap = "allow"
    labels: Iterable[str] = ()
    hours: str | None = None
    rrule: str | None = None


Millis = Annotated[int, msgspec.Meta(ge=-LATEST, le=LATEST)]


class Definition(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What is stored of a schedule, apart from its payload; times and durations in milliseconds."""

    retries: int
    cron: str = ""
    tz: str = "UTC"
    every: Millis = 0
    wall: bool = False
    """Whether `every` is days of the wall clock of `tz`, and not elapsed time."""
    rrule: str = ""
    headers: dict[str, str] = {}
    start: Millis | None = None
    end: Millis | None = None
    count: int | None = None
    misfire: str | int = "once"
    late_after: Millis | None = None
    except_: tuple[str, ...] = ()
    """Dates and codes of holidays, sorted."""
    jitter: Millis = 0
    attributes: str = ""
    """Those of its messages, as they are stored: see `broker.attributes`."""
    overlap: str = "allow"
    hours: str = ""
    """Those of its messages, in its time zone; '' for those that its attributes have, or at any time."""
    labels: tuple[str, ...] = ()
    """Sorted. The scripts read them from the stored text."""
    declared: bool = False
    """Whether it was declared in code. One of the labels is then that of its owner, see `declared_label`."""
    changes: dict[Millis, Millis | None] = {}
    """The new times of single occurrences that were moved, by their own times; None for skipped ones.

    0 for one that was moved to an earlier time and has fired.
    """

    @cached_property
    def rule(self) -> ChangedRule:
        """Its occurrences, whatever its count; raises `ConfigurationError` like `timetable`."""
        rule = make_rule(
            cron=self.cron, every=self.every, wall=self.wall, rrule=self.rrule, tz=self.tz, start=self.start
        )
        if self.except_:
            rule = ExceptRule(rule, check_zone(self.tz), self.except_)
        return ChangedRule(rule, self.start, self.end, self.changes)

    @cached_property
    def message_hours(self) -> Hours | None:
        """The hours of its messages; None for at any time. Raises `ConfigurationError` if this system lacks them."""
        attributes = Attributes.of(self.attributes.encode())
        if self.hours:
            return read_hours(self.hours, self.tz)
        return hours_of(attributes) if attributes.hours else None

    @cached_property
    def timetable(self) -> Timetable:
        """When it occurs; raises `ConfigurationError` if it never does, or if this system cannot work it out."""
        makes_up = {"skip": 0, "once": 1}.get(self.misfire, 1) if isinstance(self.misfire, str) else self.misfire
        if self.changes:  # it knows of start and end: a moved occurrence may be due before or after
            return Timetable(self.rule, None, None, self.count, makes_up, self.late_after)
        return Timetable(self.rule.plain, self.start, self.end, self.count, makes_up, self.late_after)


class ParsedSchedule(NamedTuple):
    """A stored schedule, parsed."""

    definition: Definition
    payload: bytes


_PLAIN = Definition(retries=-1)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Definition).decode


def make_schedule(name: str, options: Mapping[str, Any]) -> Schedule:
    """Return a schedule with these options; raises `ConfigurationError` for an unknown option."""
    check_options(options, TimedOptions.__annotations__)
    return Schedule(name, **options)


def check_schedule(name: str) -> str:
    """Return the name of a schedule; raise `ConfigurationError` if it is not valid."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidValueError(f"schedule name must be 1 to 100 of A-Z a-z 0-9 . _ -, not {short_repr(name)}")
    return name


def pack(
    schedule: Schedule, settings: Settings, encode: Any, *, declared: bool, attributes: bytes | None = None
) -> bytes:
    """Return an encoded schedule; raises `ConfigurationError` or `PayloadError` if something is wrong with it."""
    name = check_schedule(schedule.name)
    try:
        definition = define(schedule, settings, declared=declared)
        if attributes:
            definition = _with_attributes(definition, attributes)
        definition.timetable  # noqa: B018 - raises if it never occurs
    except ConfigurationError as error:
        raise type(error)(f"schedule {name}: {error}") from None
    return write(definition, encode_payload(schedule.payload, encode, settings.max_payload))


def _with_attributes(definition: Definition, attributes: bytes) -> Definition:
    if definition.hours and Attributes.of(attributes).hours:
        raise ConfigurationError("give hours to the schedule or to its message")
    return structs.replace(definition, attributes=attributes.decode())


def write(definition: Definition, payload: bytes) -> bytes:
    """Return what is stored of a schedule."""
    # Defaults are left out, so that equal schedules have equal bytes, whichever process encodes them.
    values = {name: value for name, value in structs.asdict(definition).items() if value != getattr(_PLAIN, name)}
    return _encode(values) + b"\n" + payload


def define(schedule: Schedule, settings: Settings, *, declared: bool) -> Definition:
    """Return the definition of a schedule; raises `ConfigurationError` if one of its options is not valid."""
    if [schedule.cron, schedule.every, schedule.rrule].count(None) != 2:  # noqa: PLR2004
        raise ConfigurationError("give cron, every or rrule: one of them")
    if "" in (schedule.cron, schedule.rrule):
        raise ConfigurationError(f"{'rrule' if schedule.cron is None else 'cron'} is empty")
    every = 0 if schedule.every is None else to_millis(schedule.every, "every", min=MIN_EVERY)
    wall = bool(every) and schedule.tz is not None
    if wall and every % (1000 * DAY):
        raise ConfigurationError(
            "with tz, every must be whole days such as '2d', which are days of its wall clock; without, it is elapsed"
            f" time: not {short_repr(schedule.every)}"
        )
    headers = {} if schedule.headers is None else schedule.headers
    if headers != {}:
        encode_headers(headers)
        encode_headers({**headers, HEADER: schedule.name})
    for header in (HEADER, DECLARED_HEADER):
        if header in headers:
            raise ConfigurationError(f"remove the header {header!r}: delayq sets it")
    start = None if schedule.start is None else timestamp(schedule.start, "start")
    end = None if schedule.end is None else timestamp(schedule.end, "end")
    if start is not None and end is not None and end < start:
        raise ConfigurationError("end is before start")
    tz = "UTC" if schedule.tz is None else schedule.tz
    hours = None if schedule.hours is None else check_hours(schedule.hours, tz)
    return Definition(
        retries=settings.default_retries if schedule.retries is None else check_retries(schedule.retries),
        cron="" if schedule.cron is None else schedule.cron,
        rrule="" if schedule.rrule is None else schedule.rrule,
        tz=tz,
        every=every,
        wall=wall,
        headers=dict(sorted(headers.items())),
        start=start,
        end=end,
        count=None if schedule.count is None else check_int(schedule.count, "count", 1, 1 << 53),
        misfire=_misfire(schedule.misfire),
        late_after=None if schedule.late_after is None else to_millis(schedule.late_after, "late_after"),
        except_=read_exceptions(schedule.except_) if schedule.except_ != () else (),
        jitter=check_jitter(schedule.jitter),
        overlap=_overlap(schedule.overlap),
        hours="" if hours is None else hours.text,
        labels=tuple(sorted({*_labels(schedule.labels), *([declared_label(settings.owner)] if declared else [])})),
        declared=declared,
    )


def declared_label(owner: str) -> str:
    """Return the label of the schedules that a service declares; all without an owner have the same."""
    return DECLARED_LABEL + owner


def check_label(label: str) -> str:
    """Return a label; raise `ConfigurationError` if it is not valid."""
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise InvalidValueError(f"label must be 1 to 100 of A-Z a-z 0-9 . _ : @ / + -, not {short_repr(label)}")
    return label


def _labels(labels: Iterable[str]) -> tuple[str, ...]:
    if labels == ():
        return ()
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise InvalidValueError(f"labels must be a list of texts, not {short_repr(labels)}")
    found = tuple(sorted(set(map(check_label, labels))))
    if len(found) > MAX_LABELS:
        raise InvalidValueError(f"a schedule may have {MAX_LABELS} labels, not {len(found)}")
    return found


def _misfire(misfire: Misfire) -> Misfire:
    if isinstance(misfire, str) and misfire in ("skip", "once"):
        return misfire
    if type(misfire) is int and 1 <= misfire <= MAX_FIRED:
        return misfire
    raise InvalidValueError(f"misfire must be 'skip', 'once' or a number up to {MAX_FIRED}, not {short_repr(misfire)}")


def _overlap(overlap: Overlap) -> Overlap:
    if isinstance(overlap, str) and overlap in get_args(Overlap):
        return overlap
    raise InvalidValueError(f"overlap must be 'allow', 'skip' or 'after', not {short_repr(overlap)}")


def unpack(spec: bytes) -> ParsedSchedule:
    """Return a parsed schedule; raises `ConfigurationError` if it cannot be read."""
    head, _, payload = spec.partition(b"\n")
    return ParsedSchedule(_read(head), payload)


@lru_cache(maxsize=4096)
def _read(head: bytes) -> Definition:
    try:
        definition = _decode(head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"its definition cannot be read: {type(error).__name__}") from None
    if not (definition.cron or definition.rrule) and definition.every < 1:
        raise ConfigurationError("its definition cannot be read: it never occurs")
    return definition
