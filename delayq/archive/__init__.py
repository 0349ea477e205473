"""The archive of an event log: Parquet files, each event once.

Importing this package loads no PyArrow; each name is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:
    from delayq.archive.archive import archive as archive
    from delayq.archive.archive import archive_start as archive_start
    from delayq.archive.archive import forget_archive as forget_archive
    from delayq.archive.archive import undone as undone
    from delayq.archive.archive_run import ArchiveResult as ArchiveResult
    from delayq.archive.compaction import compact_archive as compact_archive
    from delayq.archive.sql_engine import DuckDB as DuckDB
    from delayq.archive.stored_events import open_archive as open_archive

__all__, __getattr__, __dir__ = attach(__name__)
