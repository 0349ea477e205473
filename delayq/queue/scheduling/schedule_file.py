"""Schedules from a TOML file, for `delayq schedules sync`: a table for each, with the options of `Schedule` as keys."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from delayq.errors import ConfigurationError
from delayq.queue.sending.message_options import NewMessage
from delayq.schedules.definition import Schedule
from delayq.values.checks import check_options
from delayq.values.toml_tables import read_tables

OPTIONS = {*(one.name.rstrip("_") for one in fields(Schedule)), "message_name"} - {"name"}
"""The keys of a table: `except` is `except_`, and `message_name` the name of its messages."""


def read_schedules(path: str | Path) -> list[Schedule]:
    """Return the schedules of a file, which has a table `[schedules.NAME]` for each.

    Raises `ConfigurationError`, which names the file and the schedule. What a schedule says is checked when it is
    stored, before any other is.
    """
    found = read_tables(path, "schedules")
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: schedules must be tables [schedules.NAME]")
    return [_schedule_of(name, table, path) for name, table in found.items()]


def _schedule_of(name: str, table: Any, path: str | Path) -> Schedule:
    if not isinstance(table, dict):
        raise ConfigurationError(f"{path}: schedule {name} must be a table [schedules.{name}]")
    try:
        check_options(table, OPTIONS)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: schedule {name}: {error}") from None
    options = {"except_" if key == "except" else key: value for key, value in table.items()}
    message_name = options.pop("message_name", None)
    if message_name is not None:
        options["payload"] = NewMessage(options.get("payload"), name=message_name)
    return Schedule(name, **options)
