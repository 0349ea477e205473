"""A schedule as it is defined, as it is stored, and the messages of its occurrences.

It is stored as a line of JSON, with the payload behind it as the codec has encoded it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec

from delayq.clock import Duration, milliseconds, moment, timestamp
from delayq.config import Settings, check_options, check_retries, whole
from delayq.errors import ConfigurationError, shown
from delayq.producer import encode_headers, encode_payload
from delayq.schedules.standing import Standing
from delayq.schedules.timetable import MOST_FIRED, Cron, Interval, Taken, Timetable, check_zone
from delayq.values import Firing

HEADER = "schedule"
"""The header that says which schedule has sent a message."""
LEAST_EVERY = 1000
"""Milliseconds between two occurrences of an interval, at least."""
BYTES = 16 << 20
"""Bytes of payloads that are fired of one schedule at a time."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")

Misfire = Literal["skip", "once"] | int


class ScheduleOptions(TypedDict, total=False):
    """What a schedule can be told, beside its name and when it occurs."""

    payload: Any
    """The payload of its messages; None."""
    retries: int | None
    """Redeliveries of each message; as the queue's `default_retries`."""
    headers: Mapping[str, str] | None
    """Headers of its messages, beside `schedule`, which holds its name."""
    start: datetime | None
    """No occurrence before; an interval counts from here."""
    end: datetime | None
    """No occurrence after."""
    count: int | None
    """Messages after which the schedule has ended."""
    misfire: Misfire
    """What becomes of missed occurrences: `"skip"`, `"once"` for the latest, or a number for so many; `"once"`."""
    late_after: Duration
    """By how much an occurrence is missed rather than late; 60 s."""


class TimedOptions(ScheduleOptions, total=False):
    """What a schedule can be told, beside its name: either `cron` or `every`, and `tz` with `cron`."""

    cron: str | None
    """A cron expression of five fields, of six with seconds first, or `@daily` and the like."""
    every: Duration | None
    """The time from one occurrence to the next, at least a second."""
    tz: str | None
    """The IANA name of the time zone of `cron`; `UTC`."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule to be added: its name and the options of `ScheduleOptions`; either `cron`, with its `tz`, or `every`.

    Its `repr` leaves payload and headers out, which may be private.
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
    late_after: Duration = 60


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a schedule beside its payload; times and durations in milliseconds."""

    retries: int
    cron: str = ""
    tz: str = "UTC"
    every: int = 0
    headers: dict[str, str] = {}
    start: int | None = None
    end: int | None = None
    count: int | None = None
    misfire: str | int = "once"
    late_after: int = 60_000
    declared: bool = False
    """Whether it was declared in code, and is to go when it is declared no more."""

    @property
    def timetable(self) -> Timetable:
        """When it occurs; `ConfigurationError` if that cannot be."""
        rule = Cron(self.cron, self.tz) if self.cron else Interval(self.every, self.start or 0)
        makes_up = {"skip": 0, "once": 1}.get(self.misfire, 1) if isinstance(self.misfire, str) else self.misfire
        return Timetable(rule, self.start, self.end, self.count, makes_up, self.late_after)


class Opened(NamedTuple):
    """A stored schedule, read."""

    definition: Definition
    payload: bytes
    head: bytes
    """The definition as it is stored."""

    @property
    def timetable(self) -> Timetable:
        """When it occurs; `ConfigurationError` if that cannot be worked out here."""
        return _timetable(self.head)


_PLAIN = Definition(retries=-1)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Definition).decode


def make_schedule(name: str, options: Mapping[str, Any]) -> Schedule:
    """Return a schedule with these options; `ConfigurationError` for an unknown one."""
    check_options(options, TimedOptions.__annotations__)
    return Schedule(name, **options)


def check_schedule(name: str) -> str:
    """Return a valid name of a schedule; raise `ConfigurationError` for any other."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(f"schedule name must be 1 to 100 of A-Z a-z 0-9 . _ -, not {shown(name)}")
    return name


def pack(schedule: Schedule, settings: Settings, encode: Any, *, declared: bool) -> bytes:
    """Return a schedule as it is stored; `ConfigurationError` or `PayloadError` for what cannot be one."""
    name = check_schedule(schedule.name)
    try:
        definition = _define(schedule, settings, declared=declared)
        definition.timetable.after(0)
    except ConfigurationError as error:
        raise ConfigurationError(f"schedule {name}: {error}") from None
    payload = encode_payload(schedule.payload, encode, settings.max_payload)
    # Without what is as by default, by value: the same is stored in the same bytes, whoever packs it.
    told = {name: value for name, value in msgspec.structs.asdict(definition).items() if value != getattr(_PLAIN, name)}
    return _encode(told) + b"\n" + payload


def _define(schedule: Schedule, settings: Settings, *, declared: bool) -> Definition:
    if (schedule.cron is None) is (schedule.every is None):
        raise ConfigurationError("give cron or every, and not both")
    if schedule.every is not None and schedule.tz is not None:
        raise ConfigurationError("tz goes with cron; every is elapsed time, the same in all zones")
    headers = {} if schedule.headers is None else schedule.headers
    encode_headers(headers)
    encode_headers({**headers, HEADER: schedule.name})
    if HEADER in headers:
        raise ConfigurationError(f"the header {HEADER!r} holds the schedule's name and cannot be given")
    start = None if schedule.start is None else timestamp(schedule.start, "start")
    end = None if schedule.end is None else timestamp(schedule.end, "end")
    if start is not None and end is not None and end < start:
        raise ConfigurationError("end lies before start")
    tz = "UTC" if schedule.tz is None else schedule.tz
    check_zone(tz)
    if schedule.cron is not None:
        Cron(schedule.cron, tz)
    return Definition(
        retries=settings.default_retries if schedule.retries is None else check_retries(schedule.retries),
        cron="" if schedule.cron is None else schedule.cron,
        tz=tz,
        every=0 if schedule.every is None else milliseconds(schedule.every, "every", least=LEAST_EVERY),
        headers=dict(sorted(headers.items())),
        start=start,
        end=end,
        count=None if schedule.count is None else whole(schedule.count, "count", 1, 1 << 53),
        misfire=_misfire(schedule.misfire),
        late_after=milliseconds(schedule.late_after, "late_after"),
        declared=declared,
    )


def _misfire(misfire: Misfire) -> Misfire:
    if isinstance(misfire, str) and misfire in ("skip", "once"):
        return misfire
    if type(misfire) is int and 1 <= misfire <= MOST_FIRED:
        return misfire
    raise ConfigurationError(f"misfire must be 'skip', 'once' or a number up to {MOST_FIRED}, not {shown(misfire)}")


def unpack(spec: bytes) -> Opened:
    """Return a stored schedule; `ConfigurationError` for what is none."""
    head, _, payload = spec.partition(b"\n")
    return Opened(_read(head), payload, head)


@lru_cache(maxsize=4096)
def _timetable(head: bytes) -> Timetable:
    return _read(head).timetable


@lru_cache(maxsize=4096)
def _read(head: bytes) -> Definition:
    try:
        definition = _decode(head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"its definition cannot be read: {type(error).__name__}") from None
    if not definition.cron and definition.every < 1:
        raise ConfigurationError("its definition cannot be read: it never occurs")
    return definition


def placed(standing: Standing | None, timetable: Timetable, now: int) -> int | None:
    """Return when a schedule that is put occurs next: neither twice what has been fired, nor what lies before it.

    What is due already and not fired yet stays due, as far as the new timetable has it.
    """
    if standing is None:
        return timetable.after(now)
    since = now if standing.next is None else min(now, standing.next - 1)
    return timetable.after(max(since, standing.last), standing.fired)


def occurrence_id(name: str, time: int) -> str:
    """Return the id of the message of an occurrence."""
    spec = "milliseconds" if time % 1000 else "seconds"
    return f"{name}@{moment(time).replace(tzinfo=None).isoformat(timespec=spec)}Z"


def message_headers(name: str, definition: Definition) -> bytes:
    """Return the headers of a schedule's messages as they are stored."""
    return encode_headers({**definition.headers, HEADER: name})


def firing(standing: Standing, now: int, *, ahead: int) -> tuple[Firing, Taken]:
    """Return what is to be fired of a schedule that is due; `ConfigurationError` for one that cannot be."""
    opened = unpack(standing.spec)
    definition, payload = opened.definition, opened.payload
    most = max(1, min(MOST_FIRED, BYTES // max(1, len(payload))))
    at = now if standing.next is None else standing.next
    taken = opened.timetable.take(at, now, standing.fired, ahead=ahead, most=most)
    occurrences = " ".join(f"{occurrence_id(standing.name, time)} {time}" for time in taken.times)
    row = Firing(
        standing.name,
        standing.revision,
        "" if taken.next is None else taken.next,
        taken.times[-1] if taken.times else 0,
        definition.retries,
        payload,
        message_headers(standing.name, definition),
        occurrences,
    )
    return row, taken
