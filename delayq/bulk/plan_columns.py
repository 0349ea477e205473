"""What the table to be planned must be like: its columns, their types, and the values in its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from delayq.bulk.reminder_rules import Rule, zone_names
from delayq.errors import ConfigurationError, PlanChangedError, did_you_mean, short_repr

Told = Callable[[str], None] | None
"""What is called with a text to tell the user."""

NEEDED = {
    "id": ("a STRING or a whole number", ("string", "byte", "short", "integer", "long")),
    "time": ("a TIMESTAMP, a TIMESTAMP_NTZ, a DATE or a STRING", ("timestamp", "timestamp_ntz", "date", "string")),
    "zone": ("a STRING, the IANA name of a time zone", ("string",)),
}
"""The required columns: the types they must have, and the same as Spark's type names."""
IN_EVERY_PAYLOAD = ("source", "rule", "occurrence", "due")

WALL_CLOCK = r"^(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?)?$"
"""Texts with an offset are refused: they are instants, and reading them as wall-clock times would drop the offset."""
_TIME_ADVICE = (
    "; a text must look like '2027-01-31 09:00' (a wall-clock time in the zone), and an instant must be a TIMESTAMP"
)
PROBLEMS = {
    "id is null": ("id is null", "", ""),
    "time is null": ("time is null", "{id}", ""),
    "zone is null": ("zone is null", "{id}", ""),
    "time": ("time is invalid", "{time} of {id}", _TIME_ADVICE),
    "range": ("time, or a due time, may be outside of the years 1 to 9999", "{time} of {id}", ""),
    "zone": ("zone is unknown", "{zone} of {id}", "{hint}"),
}
"""What may be wrong with a row, in the order of the checks: what, an example, and what to do."""
REPEATED = "id occurs in more than one row: ids must be unique"
MAX_CHANGED = 0.5
"""The share of a plan's reminders whose payload may get or lose columns without a word of the user."""


_TIME_OF_DAY = ("time32", "time64", "time(", "time ")
"""How the types of times of day begin, in Arrow and in Spark."""


def payload_columns(names: Iterable[str], rule: Rule) -> list[str]:
    """Return the columns that go into the payloads of a rule, sorted by name."""
    if rule.payload is not None:
        return sorted(set(rule.payload))
    return sorted(name for name in names if name not in NEEDED)


def check_case(names: Sequence[str]) -> None:
    """Raise `ConfigurationError` for columns whose names differ in case alone: Spark takes them for one."""
    lowered = [name.lower() for name in names]
    for name in names:
        if lowered.count(name.lower()) > 1:
            raise ConfigurationError(f"column {name!r} exists more than once: drop or rename the others")


def check_columns(columns: Sequence[tuple[str, str, str]], rules: tuple[Rule, ...]) -> None:
    """Raise `ConfigurationError` for missing columns, wrong types, and columns that cannot go into a payload.

    A column is its name, the name of its type in Spark, and the same as users write it.
    """
    names, kinds = [name for name, _, _ in columns], {name: (kind, shown) for name, kind, shown in columns}
    check_case(names)
    for name, (wanted, allowed) in NEEDED.items():
        if name not in names:
            raise ConfigurationError(
                f"column {name!r} is missing: id, time and zone are required; the table has {', '.join(sorted(names))}"
            )
        kind, shown = kinds[name]
        if kind not in allowed:
            raise ConfigurationError(f"column {name!r} must be {wanted}, not {shown}")
    for rule in rules:
        for name in payload_columns(names, rule):
            if name not in names:
                hint = did_you_mean(name, tuple(names)) or f"; the table has {', '.join(sorted(names))}"
                raise ConfigurationError(f"rule {rule.name!r}: payload: there is no column {name!r}{hint}")
            _check_payload_column(name, kinds[name][0], rule)


def _check_payload_column(name: str, kind: str, rule: Rule) -> None:
    leave = f"or leave it out of the payload of rule {rule.name!r}"
    if kind == "time" or kind.startswith(_TIME_OF_DAY):
        raise ConfigurationError(f"column {name!r} is a TIME, which a payload cannot have: write it as a text, {leave}")
    if name.lower() in IN_EVERY_PAYLOAD:
        raise ConfigurationError(f"column {name!r} has the name of a standard payload field: rename it, {leave}")


def invalid_rows(problem: str, wrong: int, rows: int, example: Mapping[str, str | None]) -> ConfigurationError:
    """Return the error for rows with one of PROBLEMS: how many of all, and the values of one of them."""
    what, shown, advice = PROBLEMS[problem]
    such = f", for example {'of ' * (shown == '{id}')}{shown}" if shown else ""
    return ConfigurationError(_told(f"{{n}}{such}{advice}", example, f"{what} in {wrong} of {rows} rows"))


def reason_of_row(problem: str, example: Mapping[str, str | None]) -> str:
    """Return why one row is refused, from one of PROBLEMS and its values."""
    what, shown, advice = PROBLEMS[problem]
    value = f": {shown.removesuffix(' of {id}')}" if " of " in shown else ""
    return _told(f"{{n}}{value}{advice}", example, what)


def _told(text: str, example: Mapping[str, str | None], n: str) -> str:
    texts = {name: short_repr(value) for name, value in example.items()}
    return text.format(n=n, **texts, hint=zone_hint(example["zone"]) if "{hint}" in text else "")


def repeated_ids(repeated: int, example: str) -> ConfigurationError:
    """Return the error for ids that occur in several rows."""
    return ConfigurationError(
        f"{repeated} ids occur in more than one row, for example {short_repr(example)}: ids must be unique"
    )


@lru_cache(maxsize=1 << 10)
def zone_hint(zone: str | None) -> str:
    """Return the end of the error for an unknown zone."""
    return f"{did_you_mean(zone or '', tuple(sorted(zone_names())))}; use an IANA name such as 'Europe/Berlin'"


def changed_columns(
    previous: Mapping[str, tuple[int, str]], columns: Mapping[str, Sequence[str]]
) -> tuple[int, int, str]:
    """Return how many reminders of the previous plan get or lose columns of their payload, of how many, and which.

    `previous` has of each rule how many of its reminders are wanted and not past, and the payload of one of them;
    `columns` the columns that payloads have now. All payloads of a rule have the same columns.
    """
    changed, total = 0, sum(count for count, _ in previous.values())
    found: dict[str, None] = {}
    for rule, (count, payload) in sorted(previous.items()):
        if rule in columns:
            try:
                fields = set(msgspec.json.decode(payload, type=dict[str, Any]))
            except msgspec.DecodeError:
                continue
            if not fields.issuperset(IN_EVERY_PAYLOAD):
                continue  # of another program
            before = fields - set(IN_EVERY_PAYLOAD)
            new, gone = set(columns[rule]) - before, before - set(columns[rule])
            found |= dict.fromkeys(f"has the new column {name}" for name in sorted(new))
            found |= dict.fromkeys(f"lacks the column {name}" for name in sorted(gone))
            changed += count if new or gone else 0
    return changed, total, "payload " + " and ".join(found)


def check_changes(
    previous: Mapping[str, tuple[int, str]], columns: Mapping[str, Sequence[str]], *, accept: bool, tell: Told
) -> None:
    """Tell of reminders that would be sent again since their payload has other columns; refuse too large a share."""
    changed, total, why = changed_columns(previous, columns)
    if not changed:
        return
    many = f"all {changed:,}" if changed == total else f"{changed:,} of {total:,}"
    text = f"{many} changed: {why}"
    if not accept and changed > MAX_CHANGED * total:
        raise PlanChangedError(
            f"{text}; each would be cancelled and sent again under another id: accept_changes=True"
            " (--accept-changes) does so, and a list of columns as the payload of the rule avoids it"
        )
    if tell is not None:
        tell(text)
