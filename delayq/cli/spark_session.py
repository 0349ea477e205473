"""What the commands of `delayq spark` share: their group, the session they work in, and where the queue is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delayq.cli.failure import Failure
from delayq.cli.progress import progress
from delayq.cli.session import Session
from delayq.errors import DelayqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkGroup(click.Group):
    """The group of the pipelines: what Spark says is long, and the sentence that matters is found in it."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of Spark becomes a failure of one line."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, DelayqError):
            raise
        except Exception as error:
            if ctx.find_root().params.get("traceback") or not type(error).__module__.startswith(("pyspark", "py4j")):
                raise
            from delayq.spark.failures import reason_of

            raise Failure(reason_of(error)) from error


def open_spark(ctx: click.Context) -> SparkSession:
    """Return the Spark session that a command works in."""
    from delayq.spark import session

    with progress("starting Spark"):
        return session("delayq", master=ctx.parent.params["master"] if ctx.parent else None)


def where(session: Session) -> dict[str, Any]:
    """Return where the queue is, as the pipelines take it."""
    return {"url": session.url, "prefix": session.prefix}
