"""The tables of a report or an audit in its engine: DuckDB in this process, or Spark."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from delayq.cli.bulk.spark_session import open_spark, where
from delayq.cli.support.session import Session
from delayq.values.times import from_millis

if TYPE_CHECKING:
    from delayq.archive.archive_files import Undone


def read_period(start: str | None, until: str | None, now: int) -> tuple[datetime | None, datetime | None]:
    """Return the times that --from and --until name, seen from a time (ms); None for what is not given."""
    from delayq.bulk.load_run import resolve

    ends = (("--from", start), ("--until", until))
    first, last = (None if when is None else from_millis(resolve(when, name, now)) for name, when in ends)
    return first, last


class Events(NamedTuple):
    """The events of an archive, and what is known of them."""

    table: Any
    start: datetime | None
    """The time before which they were deleted on purpose."""
    undone: list[Undone]
    """What crashes of Redis have undone after it was archived."""


class Tables(Protocol):
    """The tables that a command works on."""

    engine: Any

    def messages(self, queue: str) -> Any:
        """Return the messages of a queue, with payloads, to be read once."""

    def plan(self, name: str) -> tuple[Any, str]:
        """Return a plan, and a digest of the names of its files."""

    def events(self, path: str, *, start: datetime | None = None, until: datetime | None = None) -> Events:
        """Return the events of an archive."""

    def cold(self, queue: str, folder: str) -> Any:
        """Return the messages of a queue's cold tier."""

    def write(self, table: Any, path: str) -> None:
        """Write a result as Parquet, in place of what is there."""


class LocalTables:
    """The tables in DuckDB."""

    def __init__(self, session: Session) -> None:
        from delayq.archive.sql_engine import DuckDB

        self.engine = DuckDB()
        self._where = where(session)

    def messages(self, queue: str) -> str:
        """Return the messages of a queue, with payloads, to be read once."""
        from delayq.bulk.reading.snapshot import read_messages

        return self.engine.table(read_messages(queue, include_payload=True, **self._where))

    def plan(self, name: str) -> tuple[str, str]:
        """Return a plan from a file or a folder, and a digest of the names of its files."""
        from delayq.bulk.files.arrow_tables import table_of
        from delayq.bulk.files.table_files import files_of
        from delayq.bulk.load_run import digest_of

        return self.engine.table(table_of(name, "the plan")), digest_of(files_of(name))

    def events(self, path: str, *, start: datetime | None = None, until: datetime | None = None) -> Events:
        """Return the events of an archive."""
        from delayq.archive.stored_events import open_archive

        stored = open_archive(path, start=start, until=until)
        return Events(stored.table(self.engine), stored.begin, stored.undone)

    def cold(self, queue: str, folder: str) -> str:
        """Return the messages of a queue's cold tier."""
        from delayq.bulk.cold.cold_messages import cold_messages

        return self.engine.table(cold_messages(queue, folder, **self._where))

    def write(self, table: Any, path: str) -> None:
        """Write a result as Parquet, in place of what is there."""
        from delayq.bulk.files.table_files import write_table

        write_table(table, path)


class SparkTables:
    """The tables on Spark."""

    def __init__(self, session: Session) -> None:
        self._spark = open_spark()
        from delayq.spark.spark_sql import SparkSql

        self.engine = SparkSql(self._spark)
        self._where = where(session)

    def messages(self, queue: str) -> Any:
        """Return the messages of a queue, with payloads."""
        from delayq.spark.datasource.source import read_messages

        return read_messages(self._spark, queue, include_payload=True, **self._where)

    def plan(self, name: str) -> tuple[Any, str]:
        """Return a plan from a path or the catalog, and a digest of the names of its files."""
        from delayq.spark.pipelines.input_tables import read_table
        from delayq.spark.pipelines.spark_audit import source_of

        table = read_table(self._spark, name)
        return table, source_of(table)

    def events(self, path: str, *, start: datetime | None = None, until: datetime | None = None) -> Events:
        """Return the events of an archive."""
        from delayq.spark.pipelines.archive_reader import archive_start, read_archive, undone

        table = read_archive(self._spark, path, start=start, until=until)
        return Events(table, archive_start(self._spark, path), undone(self._spark, path))

    def cold(self, queue: str, folder: str) -> Any:
        """Return the messages of a queue's cold tier, which are read by this process."""
        from delayq.bulk.cold.cold_messages import cold_messages

        return self._spark.createDataFrame(cold_messages(queue, folder, **self._where))

    def write(self, table: Any, path: str) -> None:
        """Write a result as Parquet, in place of what is there."""
        table.write.mode("overwrite").parquet(path)
