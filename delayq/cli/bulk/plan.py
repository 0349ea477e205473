"""`delayq plan`: plans reminders for the rows of a file, without Spark."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from delayq.cli.support.exit_codes import CommandError
from delayq.cli.support.options import json_option
from delayq.cli.support.output import print_json, print_note
from delayq.cli.support.progress import spinner

MANY = 1_000_000
"""Reminders from which Spark is worth its start."""


@click.command()
@click.argument("things", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("out", metavar="PLAN", type=click.Path(path_type=Path))
@click.option("--rules", required=True, type=click.Path(exists=True, dir_okay=False), help="Set the TOML file.")
@click.option(
    "--previous", metavar="PLAN", type=click.Path(path_type=Path), help="Mark only what differs from it as new."
)
@json_option
def plan(*, things: Path, out: Path, rules: str, previous: Path | None, as_json: bool) -> None:
    """Plan reminders for the rows of FILE (columns id, time and zone), and write them to PLAN as Parquet.

    FILE is CSV, JSON Lines (.jsonl) or Parquet. The plan is the same as that of `delayq spark plan`, which is for
    tables that do not fit into memory. With --previous, reminders that are no longer wanted stay in PLAN as cancels
    until they are past.

    JSON: {"plan", "new", "keep", "cancel"}.
    """
    from delayq.bulk.reminder_rules import read_rules

    known = read_rules(rules)
    if previous is not None and previous.absolute() == out.absolute():
        raise click.UsageError(f"{out} is also the previous plan: write the new one to another path")
    bulk = open_bulk()
    with spinner("planning"):
        before = None if previous is None else bulk.read_table(previous)
        planned = bulk.plan(bulk.read_table(things), known, previous=before, since=datetime.now(UTC))
        bulk.write_table(planned, out)
    counts = {"new": 0, "keep": 0, "cancel": 0} | Counter(planned["action"].to_pylist())
    if as_json:
        print_json({"plan": str(out), **counts})
        return
    print_note(f"planned {out}: " + ", ".join(f"{number:,} {action}" for action, number in counts.items()))
    if planned.num_rows >= MANY:
        print_note("a plan of this size is made faster by `delayq spark plan`, on all processors")


def open_bulk() -> Any:
    """Return the package that plans and loads without Spark; fails if what it needs is not installed."""
    try:
        import delayq.bulk.files.table_files
        import delayq.bulk.load
        import delayq.bulk.plan
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is not installed: pip install 'delayq[bulk]'") from error
    return delayq.bulk
