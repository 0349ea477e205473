"""Shared parts of the commands of `delayq spark`: their group, the Spark session, and the queue's location."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delayq.cli.exit_codes import CommandError
from delayq.cli.progress import spinner
from delayq.cli.session import Session
from delayq.cli.suggestions import SuggestingGroup
from delayq.errors import DelayqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkGroup(SuggestingGroup):
    """The group `delayq spark`; it reduces Spark's long errors to the one sentence that matters."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of Spark becomes a failure of one line."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, DelayqError):
            raise
        except Exception as error:
            if ctx.find_root().params.get("traceback") or not type(error).__module__.startswith(("pyspark", "py4j")):
                raise
            from delayq.spark.spark_errors import reason_of

            raise CommandError(reason_of(error)) from error


def open_spark() -> SparkSession:
    """Return the Spark session of the current command."""
    from delayq.spark import session

    group = click.get_current_context().parent
    with spinner("starting Spark"):
        return session("delayq", master=group.params["master"] if group else None)


def where(session: Session) -> dict[str, Any]:
    """Return the queue's location, as parameters of the pipelines."""
    return {"url": session.url, "prefix": session.prefix}
