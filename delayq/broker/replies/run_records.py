"""Records of the run ledger, and how they are read."""

from __future__ import annotations

from typing import NamedTuple

from delayq.broker.replies.replies import pairs, statuses


class RunRecord(NamedTuple):
    """A record of the run ledger; times in ms, `ended` 0 and `epoch` -1 for none. Only a load has a source."""

    state: str
    started: int
    ended: int
    epoch: int
    new: int
    exists: int
    replaced: int
    running: int
    settled: int
    refused: int
    start: int | None = None
    until: int | None = None
    source: str | None = None


def read_run(reply: bytes) -> RunRecord:
    """Parse a record of the run ledger."""
    state, *fields = statuses(reply).split()
    start, until, source = fields[9:] or ("-", "-", None)
    horizon = (None if text == "-" else int(text) for text in (start, until))
    return RunRecord._make((state, *map(int, fields[:9]), *horizon, source))


def read_runs(reply: list[bytes] | dict[bytes, bytes]) -> dict[str, RunRecord]:
    """Parse the run ledger."""
    return {run.decode(): read_run(record) for run, record in pairs(reply).items()}
