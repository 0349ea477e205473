"""Changes some options of stored schedules, and keeps the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from delayq.errors import ConfigurationError
from delayq.options import Settings
from delayq.schedules.calls import SchedulePut, StoredSchedule
from delayq.schedules.definition import DECLARED_LABEL, Definition, Schedule, TimedOptions, define, unpack, write
from delayq.schedules.store import Change, row_of
from delayq.values.checks import check_options
from delayq.values.codec import encode_payload
from delayq.values.times import from_millis

_RULES = {"cron", "every", "rrule"}
"""The options that say when a schedule occurs: it has one of them."""


def redefine(
    options: Mapping[str, Any], settings: Settings, encode: Callable[[Any], bytes], attributes: bytes | None = None
) -> Change:
    """Return the change that gives stored schedules these options; raises `ConfigurationError` if there are none.

    Without `attributes`, their messages keep those they have. A time zone changes only schedules that have one: not
    those of elapsed time.
    """
    check_options(options, TimedOptions.__annotations__)
    if not options:
        raise ConfigurationError("set what? Give options such as tz='Europe/Berlin'")
    payload = encode_payload(options["payload"], encode, settings.max_payload) if "payload" in options else None

    def change(stored: StoredSchedule, now: int) -> SchedulePut | None:
        try:
            definition, kept = unpack(stored.spec)
            changed = _changed(stored.name, definition, options, settings)
            if attributes is not None:
                changed = replace(changed, attributes=attributes.decode())
            return row_of(stored.name, stored, write(changed, kept if payload is None else payload), now)
        except ConfigurationError as error:
            raise ConfigurationError(f"schedule {stored.name}: {error}") from None

    return change


def _changed(name: str, old: Definition, options: Mapping[str, Any], settings: Settings) -> Definition:
    given = {option: value for option, value in options.items() if option != "payload"}
    zoned = not old.every or old.wall
    if not zoned and not given.keys() & _RULES:
        given.pop("tz", None)
    fields = set(given)
    # The other options are there to be checked together with these.
    others: dict[str, Any] = {"cron": old.cron or None, "every": old.every / 1000 or None, "rrule": old.rrule or None}
    if fields & _RULES:
        others = dict.fromkeys(_RULES)
        fields |= {*_RULES, "tz", "wall"}
    if zoned and (old.wall or given.get("every") is None):
        others["tz"] = old.tz
    for option in ("start", "end"):
        time = getattr(old, option)
        others[option] = None if time is None else from_millis(time)
    new = define(Schedule(name, **(others | given)), settings, declared=False)
    changed = replace(old, **{field: getattr(new, field) for field in fields})
    if "labels" in fields:  # but not that of the owner
        owner = {label for label in old.labels if old.declared and label.startswith(DECLARED_LABEL)}
        changed = replace(changed, labels=tuple(sorted({*new.labels, *owner})))
    changed.timetable  # noqa: B018 - raises if it never occurs
    return changed
