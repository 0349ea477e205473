"""The report on an event log: its tables, its page and its summary.

For Spark and DuckDB alike. Importing this package loads neither; each name is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:
    from delayq.report.report import report as report
    from delayq.report.report_tables import Reports as Reports

__all__, __getattr__, __dir__ = attach(__name__)
