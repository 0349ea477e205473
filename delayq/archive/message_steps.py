"""What an event of the log means for the life of its message, in SQL."""

from __future__ import annotations

from delayq.bulk.files.schemas import IMPORTED, KILLED

SPENT = "retries spent"
"""The reason that collect_garbage.lua sets for a death; any other but `KILLED` comes from a rejection."""
STEP = f"""CASE WHEN kind IN ('nacked', 'expired') AND retries_left IS NULL THEN 'spent'
    WHEN kind = 'dead' AND reason = '{KILLED}' THEN '{KILLED}'
    WHEN kind = 'dead' AND reason IS DISTINCT FROM '{SPENT}' THEN 'rejected' ELSE kind END"""
"""The event's kind; `spent` is the failure that used the last retry, `killed` a death by hand, `rejected` any other
without a spent retry."""

SETTLED = ("acked", "discarded")
DEATHS = ("dead", "rejected", KILLED, IMPORTED)
