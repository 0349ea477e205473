"""Shared parts of the commands of `delayq spark`: their group, the Spark session, and the queue's location."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.support.exit_codes import CommandError
from delayq.cli.support.groups import SuggestingGroup
from delayq.cli.support.output import print_note
from delayq.cli.support.progress import spinner
from delayq.cli.support.session import Session
from delayq.errors import DelayqError
from delayq.spark.session import LOCAL, SUBMITTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkGroup(SuggestingGroup):
    """The group `delayq spark`; it reduces Spark's long errors to the one sentence that matters."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of Spark becomes a failure of one line."""
        with short_errors():
            return super().invoke(ctx)


@contextmanager
def short_errors() -> Iterator[None]:
    """Reduce Spark's long errors in the block to a failure of one line, unless the user wants the traceback."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort, DelayqError):
        raise
    except Exception as error:
        if click.get_current_context().find_root().params.get("traceback"):
            raise
        from delayq.spark.spark_errors import is_jvm_gone, reason_of

        if type(error).__module__.startswith(("pyspark", "py4j")) or is_jvm_gone(error):
            raise CommandError(reason_of(error)) from error
        raise


def spark_options() -> dict[str, Any]:
    """Return the options before the command that say which Spark to use, and variables that do, with their values."""
    context = click.get_current_context()
    given = context.parent.params if context.parent else {}
    options = {f"--{name}": given.get(name) for name in ("master", "conf", "packages")}
    return options | {name: os.environ.get(name) for name in SUBMITTED}


_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Lets Java compile less, and collect garbage in one thread: a command takes a third less processor time."""
_OTHERS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_HOME", "SPARK_CONF_DIR")
"""Variables that bring options of Java, among which may be another garbage collector: Java refuses two."""


def open_spark() -> SparkSession:
    """Return the Spark session of the current command."""
    from delayq.spark import session
    from delayq.spark.spark_errors import silence_py4j

    context = click.get_current_context()
    options = context.parent.params if context.parent else {}
    conf = {**options.get("conf", {})}
    if options.get("packages"):
        conf["spark.jars.packages"] = options["packages"]
    master = options.get("master")
    configured = any(name in os.environ for name in (*SUBMITTED, *_OTHERS)) or any("JavaOptions" in one for one in conf)
    if not configured and (master or LOCAL).startswith("local"):
        conf["spark.driver.extraJavaOptions"] = _JAVA_OPTIONS
    with spinner("starting Spark"):
        spark = session("delayq", master=master, **conf)
    if not context.find_root().params.get("traceback"):
        silence_py4j()
    if threading.current_thread() is threading.main_thread():
        # PySpark's handler calls Java in the middle of another call to it, which breaks both.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return spark


def read_input(spark: SparkSession, source: str, schema: str | None) -> DataFrame:
    """Return the table that a command works on; print a note if it has times of which the zone is not known."""
    from delayq.spark.pipelines.input_tables import find_naive_time, read_table

    table = read_table(spark, source, schema)
    if found := find_naive_time(spark, source, schema):
        column, text = found
        zone = spark.conf.get("spark.sql.session.timeZone")
        print_note(
            f"{source}: {column} has times without a zone, such as {text!r:.40}, which are read as {zone};"
            " for another zone, write the offset after each time: +01:00"
        )
    return table


def where(session: Session) -> dict[str, Any]:
    """Return the queue's location, as parameters of the pipelines."""
    return {"url": session.url, "prefix": session.prefix}
