"""What the table to be planned must be like: its columns, their types, and the values in its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from delayq.bulk.reminder_rules import Rule
from delayq.errors import ConfigurationError, did_you_mean, short_repr

NEEDED = {
    "id": ("a STRING or a whole number", ("string", "byte", "short", "integer", "long")),
    "time": ("a TIMESTAMP, a TIMESTAMP_NTZ, a DATE or a STRING", ("timestamp", "timestamp_ntz", "date", "string")),
    "zone": ("a STRING, the IANA name of a time zone", ("string",)),
}
"""The required columns: the types they must have, and the same as Spark's type names."""
IN_EVERY_PAYLOAD = ("source", "rule", "occurrence", "due")

WALL_CLOCK = r"^(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?)?$"
"""Texts with an offset are refused: they are instants, and reading them as wall-clock times would drop the offset."""
NOT_IANA = (
    *("ACT", "AET", "AGT", "ART", "AST", "BET", "BST", "CAT", "CNT", "CST", "CTT", "EAT", "ECT"),
    *("IET", "IST", "JST", "MIT", "NET", "NST", "PLT", "PNT", "PRT", "PST", "SST", "VST"),
)
"""Abbreviations that Java accepts as a zone, but rarely the intended one: BST is Bangladesh to it."""
MESSAGES = {
    "id is null": "id is null in {n}",
    "time is null": "time is null in {n}, for example of {id}",
    "time": "time is invalid in {n}, for example {time} of {id}; a text must look like '2027-01-31 09:00' (a wall-clock"
    " time in the zone), and an instant must be a TIMESTAMP",
    "zone is null": "zone is null in {n}, for example of {id}",
    "zone": "zone is unknown in {n}, for example {zone} of {id}{hint}",
}


def payload_columns(names: Iterable[str], rule: Rule) -> list[str]:
    """Return the columns that go into the payloads of a rule, sorted by name."""
    if rule.payload is not None:
        return sorted(set(rule.payload))
    return sorted(name for name in names if name not in NEEDED)


def check_columns(columns: Sequence[tuple[str, str, str]], rules: tuple[Rule, ...]) -> None:
    """Raise `ConfigurationError` for missing columns, wrong types, and columns that cannot go into a payload.

    A column is its name, the name of its type in Spark, and the same as users write it.
    """
    names, kinds = [name for name, _, _ in columns], {name: (kind, shown) for name, kind, shown in columns}
    lowered = [name.lower() for name in names]
    for name in names:
        if lowered.count(name.lower()) > 1:
            raise ConfigurationError(f"column {name!r} exists more than once: drop or rename the others")
    for name, (wanted, allowed) in NEEDED.items():
        if name not in names:
            raise ConfigurationError(
                f"column {name!r} is missing: id, time and zone are required; the table has {', '.join(names)}"
            )
        kind, shown = kinds[name]
        if kind not in allowed:
            raise ConfigurationError(f"column {name!r} must be {wanted}, not {shown}")
    for rule in rules:
        for name in payload_columns(names, rule):
            if name not in names:
                hint = did_you_mean(name, tuple(names)) or f"; the table has {', '.join(names)}"
                raise ConfigurationError(f"rule {rule.name!r}: payload: there is no column {name!r}{hint}")
            if name.lower() in IN_EVERY_PAYLOAD:
                raise ConfigurationError(
                    f"column {name!r} has the name of a standard payload field: rename it, or leave it out"
                    f" of the payload of rule {rule.name!r}"
                )


def invalid_rows(
    problem: str, wrong: int, rows: int, example: Mapping[str, str | None], hint: str
) -> ConfigurationError:
    """Return the error for rows with a problem, one of MESSAGES: how many of all, and the values of one of them."""
    texts = {name: short_repr(value) for name, value in example.items()}
    return ConfigurationError(MESSAGES[problem].format(n=f"{wrong} of {rows} rows", **texts, hint=hint))


def repeated_ids(repeated: int, example: str) -> ConfigurationError:
    """Return the error for ids that occur in several rows."""
    return ConfigurationError(
        f"{repeated} ids occur in more than one row, for example {short_repr(example)}: ids must be unique"
    )


def zone_hint(zone: str | None) -> str:
    """Return the end of the error for an unknown zone."""
    from zoneinfo import available_timezones

    return f"{did_you_mean(zone or '', tuple(available_timezones()))}; use an IANA name such as 'Europe/Berlin'"
