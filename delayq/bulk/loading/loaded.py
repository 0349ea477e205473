"""The result of a load, with Spark or without: as facts, as a sentence, and as a table for notebooks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from html import escape
from typing import Any

from delayq.queue.sweeps.bulk_runs import RunInfo


@dataclass(frozen=True, slots=True)
class Loaded(RunInfo):
    """The result of a load: its record in the run ledger, and the counts of rows not sent."""

    past: int = 0
    """Rows due before `start`."""
    later: int = 0
    """Rows due at `until` or after it."""
    cancelled: int = 0
    """Messages that the plan no longer contains and that this load cancelled."""
    too_late: int = 0
    """Messages that the plan no longer contains but that are in flight or dead, so could not be cancelled."""

    def facts(self) -> dict[str, Any]:
        """Return all fields by name, ready for JSON."""
        return {name: at.isoformat() if isinstance(at, datetime) else at for name, at in asdict(self).items()}

    def told(self) -> str:
        """Return the result as a sentence."""
        parts = [f"{number:,} {what}" for what, number in self._counts().items() if number or what == "new"]
        return f"run {self.run}: {', '.join(parts)}"

    def _counts(self) -> dict[str, int]:
        return {
            "new": self.new,
            "already there": self.exists + self.running,
            "replaced": self.replaced,
            "already settled": self.settled,
            "refused": self.refused,
            "past": self.past,
            "later": self.later,
            "cancelled": self.cancelled,
            "too late to cancel": self.too_late,
        }

    def _repr_html_(self) -> str:
        """Return the result as a table, which notebooks show."""
        facts = {"run": self.run, "state": self.state}
        facts |= {what: f"{number:,}" for what, number in self._counts().items() if number or what == "new"}
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
        return f"<table>{rows}</table>"
