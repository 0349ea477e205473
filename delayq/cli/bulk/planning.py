"""Plans as `delayq plan` and `delayq spark plan` make them: their options, and the work by each engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from delayq.bulk.reminder_rules import Rule, read_rules
from delayq.cli.bulk.engine_choice import PYTHON, SPARK, Engine, choose_engine, open_bulk, processing_option
from delayq.cli.bulk.spark_session import open_spark, read_input, short_errors
from delayq.cli.support.options import F, add_options, json_option
from delayq.cli.support.output import print_json, print_note
from delayq.cli.support.progress import spinner

MANY = 1_000_000
"""Reminders from which Spark plans faster, its start included, on two cores."""

_OPTIONS = (
    click.option("--rules", required=True, type=click.Path(exists=True, dir_okay=False), help="Set the TOML file."),
    click.option(
        "--previous", metavar="PLAN", help="Compare with this plan: mark only new or changed reminders as new."
    ),
    click.option(
        "--on-error",
        type=click.Choice(["fail", "collect"]),
        default="fail",
        help="Handle invalid rows: fail, or leave them out and count them as refused.",
    ),
    click.option("--rejects", metavar="TABLE", help="With --on-error collect, write their ids and reasons as Parquet."),
    click.option(
        "--accept-changes", is_flag=True, help="Send most reminders again, as their payloads get or lose columns."
    ),
    processing_option,
    json_option,
)


def plan_options(function: F) -> F:
    """Add the options of a plan by any engine."""
    return add_options(_OPTIONS, function)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCommand:
    """A plan to be made: the arguments and options of the command."""

    things: str
    out: str
    rules: str
    previous: str | None
    on_error: str
    rejects: str | None
    accept_changes: bool
    engine: str
    as_json: bool
    schema: str | None = None

    def make(self, usual: str, only_spark: dict[str, Any]) -> None:
        """Choose the engine, write the plan, and print how many reminders it has of each action.

        `usual` is the engine that the name of the command tells; `only_spark` has the options that only Spark has.
        """
        rules = read_rules(self.rules)
        self._check_paths()
        engine = choose_engine(
            self.engine,
            usual,
            self._tables(self.things, self.previous),
            targets=self._tables(self.out, self.rejects),
            options=only_spark,
            only_spark=next((f"rule {one.name!r} has a where" for one in rules if one.where is not None), ""),
            many=MANY // max(1, sum(one.repeats for one in rules)),
        )
        table = None
        if engine.name == PYTHON:
            table = open_bulk().read_table(self.things)
            from delayq.bulk.plan import nested_column

            nested = nested_column(table, rules) if engine.may_change else None
            if nested is not None:
                table, engine = None, Engine(SPARK, "" if usual == SPARK else f"column {nested!r} is nested")
        engine.tell("planning")
        if table is None:
            with short_errors(), spinner("planning"):
                made = self._on_spark(rules)
        else:
            with spinner("planning"):
                made = self._by_python(table, rules)
        counts = {"new": 0, "keep": 0, "cancel": 0} | made
        if self.as_json:
            print_json({"plan": self.out, **counts})
            return
        told = (f"{number:,} {what}" for what, number in counts.items() if number or what != "refused")
        print_note(f"planned {self.out}: " + ", ".join(told))

    @staticmethod
    def _tables(*names: str | None) -> list[str]:
        return [name for name in names if name is not None]

    def _check_paths(self) -> None:
        """Raise a usage error if the plan would be written over another table, or there are no rejects to write."""
        out = Path(self.out).absolute()
        if self.previous is not None and Path(self.previous).absolute() == out:
            raise click.UsageError(f"{self.out} is also the previous plan: write the new one to another path")
        if self.rejects is None:
            return
        if self.on_error != "collect":
            raise click.UsageError("--rejects needs --on-error collect")
        if Path(self.rejects).absolute() in [Path(one).absolute() for one in self._tables(self.out, self.previous)]:
            raise click.UsageError(f"{self.rejects} is also a plan: write the rejects to another path")

    def _how(self) -> dict[str, Any]:
        return {
            "since": datetime.now(UTC),
            "on_error": self.on_error,
            "accept_changes": self.accept_changes,
            "tell": print_note,
        }

    def _by_python(self, table: Any, rules: tuple[Rule, ...]) -> dict[str, int]:
        """Write the plan without Spark; return how many reminders it has of each action, and the refused rows."""
        from delayq.bulk import plan, read_table, refused_rows, write_table

        before = None if self.previous is None else read_table(self.previous)
        planned = plan(table, rules, previous=before, **self._how())
        refused = refused_rows(table, rules) if self.on_error == "collect" else None
        if refused is not None and self.rejects is not None:
            write_table(refused, self.rejects)
        write_table(planned, self.out)
        actions: list[Any] = planned["action"].to_pylist()
        return {**Counter(actions), "refused": 0 if refused is None else refused.num_rows}

    def _on_spark(self, rules: tuple[Rule, ...]) -> dict[str, int]:
        """Do the same on Spark."""
        spark = open_spark()
        from delayq.spark import plan, refused_rows
        from delayq.spark.pipelines.input_tables import read_table

        before = None if self.previous is None else read_table(spark, self.previous)
        table = read_input(spark, self.things, self.schema)
        planned = plan(table, rules, previous=before, **self._how())
        refused = 0
        if self.on_error == "collect":
            wrong = refused_rows(table, rules)
            if self.rejects is not None:
                wrong.write.mode("overwrite").parquet(self.rejects)
                wrong = spark.read.parquet(self.rejects)
            refused = wrong.count()
        planned.write.mode("overwrite").parquet(self.out)
        counted = spark.read.parquet(self.out).groupBy("action").count().collect()
        return {**{row["action"]: row["count"] for row in counted}, "refused": refused}
