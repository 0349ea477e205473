"""A table with rows that cannot be planned, one for each reason, for plans with Spark and without."""

from __future__ import annotations

import pyarrow as pa

from delayq.bulk import Rule
from delayq.bulk.plan_columns import REASONS, REPEATED

RULE = Rule("r", offset="-1h")
_TIME, _ZONE = "2100-01-31 09:00", "Europe/Berlin"
_ROWS = [
    ("fine", _TIME, _ZONE, None),
    (None, _TIME, _ZONE, "id is null"),
    ("never", None, _ZONE, "time is null"),
    ("unzoned", _TIME, None, "zone is null"),
    ("untimed", "31.1.2100", _ZONE, "time"),
    ("nowhere", _TIME, "Europe/Nowhere", "zone"),
    ("twice", _TIME, _ZONE, REPEATED),
    ("twice", _TIME, "UTC", REPEATED),
    ("new", _TIME, _ZONE, None),
]
GOOD = [problem is None for *_, problem in _ROWS]
BAD = [
    {"id": id, "time": time, "zone": zone, "reason": REASONS[problem]} for id, time, zone, problem in _ROWS if problem
]
HAD = {"id": ["fine", "nowhere", "twice", "late"], "time": [_TIME] * 4, "zone": [_ZONE] * 4}
"""The same some time ago; `late` is gone."""


def things() -> pa.Table:
    """Return the table."""
    columns = zip(*(row[:3] for row in _ROWS), strict=True)
    return pa.table(dict(zip(("id", "time", "zone"), columns, strict=True)))
