"""The result of an audit: its verdict, reminders by status, each run, and the findings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delayq.report.audit_section import audit_html
from delayq.values.text import iso

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delayq.archive.archive_files import Undone

NOT_LOADED = "not loaded"
STATUSES = ("scheduled", "overdue", "delivered", "dead", "cancelled", "missing")
"""The statuses of a planned reminder; in a queue with a cold tier also `cold`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A discrepancy; `id` is a message, a run, or empty for the log as a whole."""

    what: str
    id: str
    detail: str


@dataclass(frozen=True, slots=True)
class RunAudit:
    """What became of the messages that one run stored."""

    run: str
    state: str
    stored: int
    """Messages it stored, by the ledger."""
    logged: int
    """The same by the log."""
    statuses: dict[str, int]
    """Planned reminders that it stored, by status."""
    findings: int
    """Findings on its messages, and on itself."""

    @property
    def adds_up(self) -> bool:
        """Whether there are no findings on it."""
        return not self.findings


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit."""

    reminders: DataFrame
    """One row per planned or seen message: id, status, run, planned and sent due, deliveries, finding, detail."""
    statuses: dict[str, int]
    """Planned reminders by status, one of `STATUSES`."""
    findings: dict[str, int]
    """Findings by kind."""
    examples: list[Finding]
    """The first findings, up to the requested number."""
    runs: list[RunAudit]
    """The runs, the latest first."""
    not_loaded: int
    """Planned reminders that no load was to send, because they were past or are still to come: not a finding."""
    late: int = 0
    """Planned reminders whose first delivery was later than `max_late`: a finding only if that was given."""
    undone: tuple[Undone, ...] = ()
    """What crashes of Redis have undone after it was archived."""
    archive_start: datetime | None = None
    """What was due before this time was not audited, because `archive --retain` has deleted the events."""

    @property
    def adds_up(self) -> bool:
        """Whether every reminder is accounted for and there are no findings."""
        return not self.findings and not self.statuses["missing"]

    def counts(self) -> dict[str, int]:
        """Return the planned reminders by status, and those not loaded if there are any."""
        return self.statuses | ({NOT_LOADED: self.not_loaded} if self.not_loaded else {})

    def table(self) -> pa.Table:
        """Return the examples as an Arrow table with the columns what, id and detail."""
        names = ("what", "id", "detail")
        return pa.table({name: pa.array([getattr(one, name) for one in self.examples], pa.string()) for name in names})

    def facts(self) -> dict[str, Any]:
        """Return all but the reminders, ready for JSON."""
        return {
            "adds_up": self.adds_up,
            "statuses": self.statuses,
            "not_loaded": self.not_loaded,
            "late": self.late,
            "undone": [list(one) for one in self.undone],
            "archive_start": iso(self.archive_start),
            "findings": self.findings,
            "examples": [asdict(one) for one in self.examples],
            "runs": [asdict(one) | {"adds_up": one.adds_up} for one in self.runs],
        }

    def _repr_html_(self) -> str:
        """Return the verdict, each run and the first findings, which notebooks show."""
        return audit_html(self.facts())
