"""Queries over an archive: one text of SQL for two engines, Spark, and DuckDB in this process.

The text is that of Spark, in which a table stands in braces: `SELECT kind FROM {events}`. What DuckDB understands
otherwise (functions, nulls in order, integer division) SQLGlot translates; the queries use nothing beyond that.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from delayq.bulk.files.arrow_tables import in_utc
from delayq.errors import ConfigurationError

T = TypeVar("T")

_FUNCTIONS = (
    "timestamp_micros(x) AS make_timestamptz(CAST(x AS BIGINT))",
    "xxhash64(x) AS hash(x)",
    "pmod(x, y) AS ((x % y) + y) % y",
)
"""Functions of Spark that DuckDB lacks, with its own."""
_KINDS = {"VARCHAR": "string", "INTEGER": "int", "TIMESTAMP WITH TIME ZONE": "timestamp", "BLOB": "binary"}


class SqlEngine(Protocol[T]):
    """An engine for queries; a table is what its `query` returns: computed when it is read."""

    def query(self, text: str, **tables: T) -> T:
        """Return the table of a query over others, by their names in the text."""

    def kept(self, table: T, *, is_small: bool = False) -> AbstractContextManager[T]:
        """Return a context in which a table is computed once, and read several times."""

    def arrow(self, table: T) -> pa.Table:
        """Compute a table; its times are in UTC."""

    def result(self, table: T) -> Any:
        """Return a table for the caller: on Spark a DataFrame, else one of Arrow."""

    def count(self, table: T) -> int:
        """Compute a table, and return how many rows it has."""

    def types(self, table: T) -> dict[str, str]:
        """Return the columns of a table, and their types in the words of Spark."""


def rows_of(engine: SqlEngine[T], table: T) -> list[dict[str, Any]]:
    """Compute a table, and return its rows."""
    return engine.arrow(table).to_pylist()


def micros_of(at: datetime) -> int:
    """Return the microseconds of a time since 1970, for `timestamp_micros`."""
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def time_text(column: str) -> str:
    """Return SQL for a time as a text, to the millisecond: the engines' own texts differ."""
    return f"substring(date_format({column}, 'yyyy-MM-dd HH:mm:ss.SSSSSS'), 1, 23)"


class DuckDB:
    """DuckDB in this process; a table is the name of a view of its own."""

    def __init__(self) -> None:
        """Begin without tables; raises `ConfigurationError` without the packages."""
        try:
            import duckdb
            import sqlglot
        except ImportError as error:
            raise ConfigurationError(f"this needs {error.name}: pip install 'delayq[archive]', or use Spark") from error
        self._translate = sqlglot.transpile
        spilled = f"{tempfile.gettempdir()}/delayq-{os.getpid()}"
        # Nothing is downloaded: what the queries use is in the package.
        settings: dict[str, Any] = {"autoinstall_known_extensions": "false", "temp_directory": spilled}
        self._connection = duckdb.connect(config=settings)
        self._connection.execute("SET TimeZone = 'UTC'")
        for function in _FUNCTIONS:
            self._connection.execute(f"CREATE MACRO {function}")
        self._numbers = count()

    def table(self, source: Any) -> str:
        """Return a table in memory, or an Arrow dataset, for queries."""
        name = self._name()
        self._connection.register(name, source)
        return name

    def query(self, text: str, **tables: str) -> str:
        """Return the table of a query over others, by their names in the text."""
        name = self._name()
        (translated,) = self._translate(text.format_map(tables), read="spark", write="duckdb")
        # Spark's functions count nulls as values.
        translated = re.sub(r"\bARG_(MAX|MIN)\(", r"ARG_\1_NULL(", translated)
        self._connection.execute(f"CREATE TEMP VIEW {name} AS {translated}")
        return name

    @contextmanager
    def kept(self, table: str, *, is_small: bool = False) -> Iterator[str]:  # noqa: ARG002 - for Spark
        """Compute a table once; it is gone at the end."""
        name = self._name()
        self._connection.execute(f"CREATE TEMP TABLE {name} AS FROM {table}")
        try:
            yield name
        finally:
            self._connection.execute(f"DROP TABLE {name}")

    def arrow(self, table: str) -> pa.Table:
        """Compute a table."""
        return in_utc(self._connection.table(table).to_arrow_table())

    def result(self, table: str) -> pa.Table:
        """Compute a table, which is otherwise gone with this object."""
        return self.arrow(table)

    def count(self, table: str) -> int:
        """Compute a table, and return how many rows it has."""
        return len(self._connection.table(table))

    def types(self, table: str) -> dict[str, str]:
        """Return the columns of a table, and their types in the words of Spark."""
        found = self._connection.execute(f"DESCRIBE {table}").fetchall()
        return {name: _KINDS.get(kind, kind.lower()) for name, kind, *_ in found}

    def _name(self) -> str:
        return f"table_{next(self._numbers)}"
