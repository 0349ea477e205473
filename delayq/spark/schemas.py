"""The columns of every table that delayq reads or writes on Spark, as Spark's DDL.

Times are `TIMESTAMP`: instants with microseconds, whatever the time zone of the session.
"""

from __future__ import annotations

MESSAGES = "id STRING, due TIMESTAMP, payload STRING, retries INT, headers MAP<STRING,STRING>"
"""What is written to a queue; `id` and `payload` are required, and `payload` may be `BINARY` too.

Without `due` (or where it is null) a message is due at once, and without `retries` it has three. The payload is stored
as it is given: for a queue with the JSON codec, a JSON text as `to_json` makes it.
"""

EVENTS = (
    "offset BIGINT, index INT, at TIMESTAMP, kind STRING, id STRING, due TIMESTAMP, attempt INT, token BIGINT,"
    " retries_left INT, holder STRING, run STRING, reason STRING, error STRING"
)
"""The event log, and its archive: one row per message and event.

`offset` and `index` together are unique: the dense number of the log entry, and the place of the message in it. What an
event does not tell is null; `id` is null for `purged` alone. The lateness of a delivery is `at - due`.
"""

SNAPSHOT = (
    "id STRING, state STRING, due TIMESTAMP, deadline TIMESTAMP, retries_left INT, attempt INT, token BIGINT,"
    " holder STRING, reason STRING, error STRING, died TIMESTAMP, payload_size INT, payload BINARY,"
    " headers MAP<STRING,STRING>"
)
"""The queue as it is, one row per message; `payload` is null unless it was asked for."""

RUNS = (
    "run STRING, state STRING, started TIMESTAMP, ended TIMESTAMP, new BIGINT, exists BIGINT, replaced BIGINT,"
    " running BIGINT, settled BIGINT, refused BIGINT"
)
"""The run ledger, one row per bulk send: `state` is writing, committed or aborted, the counts are of messages."""

PLAN = (
    "id STRING, source STRING, rule STRING, occurrence INT, due TIMESTAMP, payload STRING, revision INT,"
    " action STRING, retries INT"
)
"""A planned reminder: the `id` of its message, `action` new, keep or cancel, and the `retries` of its rule."""
