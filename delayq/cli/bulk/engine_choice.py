"""`--engine` of plans and loads: whether this process works on a table with pyarrow, or Spark does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import click

from delayq.broker.engine import Feature
from delayq.bulk.files.local_files import TEXT_FORMATS, is_file, is_folder
from delayq.cli.support.engines import ENGINES
from delayq.cli.support.exit_codes import CommandError
from delayq.cli.support.options import F
from delayq.cli.support.output import print_note

AUTO, SPARK, PYTHON = "auto", "spark", "python"
MANY_BYTES = 1 << 30
"""Bytes of a table, not compressed, up to which it is held in memory."""


class Engine(NamedTuple):
    """The engine that was taken, and why if the name of the command suggests another."""

    name: str
    why: str = ""
    may_change: bool = False
    """Whether what is found in the table may still need Spark."""

    def tell(self, doing: str) -> None:
        """Print a note of an engine that is not the obvious one: `planning on Spark: …`."""
        if self.why:
            print_note(f"{doing} {'on' if self.name == SPARK else 'without'} Spark: {self.why}")


class _EngineParam(click.ParamType[str]):
    """`auto`, `spark` or `python`; the name of an engine of queues is refused for what that engine lacks."""

    name = "engine"
    _choice = click.Choice([AUTO, SPARK, PYTHON])

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        return self._choice.get_metavar(param, ctx)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in ENGINES:
            ENGINES[value].capabilities.require(Feature.SPARK)
            return AUTO
        return self._choice.convert(value, param, ctx)


def processing_option(function: F) -> F:
    """Add `--engine` to a command that works on a table: Spark, or Python alone."""
    return click.option(
        "--engine",
        type=_EngineParam(),
        default=AUTO,
        is_eager=True,
        help="Use Spark, or Python alone in memory; auto takes Spark for large tables and for what only it can do.",
    )(function)


def choose_engine(
    asked: str,
    usual: str,
    sources: Iterable[str],
    *,
    targets: Iterable[str] = (),
    options: Mapping[str, object],
    only_spark: str = "",
    many: int,
) -> Engine:
    """Return the engine for a command whose `usual` one its name tells; imports no PySpark.

    `options` are the values of options and variables that only Spark has, by name; `only_spark` is another reason that
    Python alone cannot do it. From `many` rows in `sources`, or `MANY_BYTES`, Spark is taken if it can start. Raises
    `UsageError` if Python is asked for, with an option of Spark.
    """
    given = next((name for name, value in options.items() if value), "")
    if asked == PYTHON and given.startswith("--"):
        raise click.UsageError(f"{given} needs Spark: leave out --engine python")
    if asked != AUTO:
        return Engine(asked)
    paths, written = [*sources], [*targets]
    reason = f"{given} is given" if given else only_spark or next(filter(None, map(_needs_spark, paths + written)), "")
    if reason:
        return _engine(SPARK, usual, reason)
    found = [Path(path) for path in paths]
    if not (all(map(_is_readable, found)) and all(map(_is_writable, map(Path, written)))):
        return Engine(usual)  # Spark overwrites folders and makes those that are missing, Python says what is wrong
    if not _is_large([path for path in found if is_file(path) or is_folder(path)], many):
        return _engine(PYTHON, usual, "the table is small (--engine spark insists on it)", may_change=True)
    if usual == SPARK or spark_starts():
        return _engine(SPARK, usual, "the table is large (--engine python does it in memory)")
    return Engine(PYTHON, "the table is large, but Spark or Java is missing: pip install 'delayq[spark,jre]'")


def _engine(name: str, usual: str, why: str, *, may_change: bool = False) -> Engine:
    return Engine(name, "" if name == usual else why, may_change)


def _needs_spark(path: str) -> str:
    """Return why only Spark can read or write a table of this name; empty if there is no such reason."""
    if path.startswith("table:"):
        return f"{path} is a table of the catalog"
    if "://" in path:
        return f"{path} is a URL"
    file = Path(path)
    if any(sign in path for sign in "*?[{") and not (is_file(file) or is_folder(file)):
        return f"{path} is a pattern"
    if file.suffix.lower() == ".orc":
        return f"{path} is ORC"
    if is_folder(file) and file.suffix.lower() in TEXT_FORMATS:
        return f"{path} is a folder of texts"
    return ""


def _is_readable(path: Path) -> bool:
    """Return whether Python alone reads a table of this name, or says best why it cannot: it is not there."""
    if is_folder(path):
        return not is_folder(path / "_delta_log")
    return path.suffix.lower() in (*TEXT_FORMATS, ".parquet", "")


def _is_writable(path: Path) -> bool:
    """Return whether Python alone writes a table of this name: a file in a folder that is there."""
    return path.suffix.lower() in (".parquet", "") and is_folder(path.absolute().parent) and not is_folder(path)


def _is_large(paths: list[Path], many: int) -> bool:
    """Return whether tables have so many rows in all, or bytes; reads no more than is needed to know."""
    try:
        from delayq.bulk.files.table_sizes import sizes_of
    except ModuleNotFoundError:
        return False  # Python alone says what to install
    rows = size = 0
    for path in paths:
        for more_rows, more_bytes in sizes_of(path):
            rows, size = rows + more_rows, size + more_bytes
            if rows >= many or size >= MANY_BYTES:
                return True
    return False


def spark_starts() -> bool:
    """Return whether PySpark and a Java for it are installed, without importing PySpark."""
    if find_spec("pyspark") is None:
        return False
    from delayq.errors import ConfigurationError
    from delayq.spark.session import use_java

    try:
        use_java({**os.environ})
    except ConfigurationError:
        return False
    return True


def open_bulk() -> Any:
    """Return the package that plans and loads without Spark; fails if what it needs is not installed."""
    try:
        import delayq.bulk.files.table_files
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is not installed: pip install 'delayq[bulk]'") from error
    return delayq.bulk
