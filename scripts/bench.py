"""Measures delayq against what Redis itself can do, on a throwaway server.

    make bench                              all measurements, medians of 5 rounds; writes the tables of the pages
    make bench ARGS="--quick --only send"   some of them, with a tenth of the messages
    make bench-gate                         check whether a rate fell below the baseline, or a cost rose above it
    make bench-counted                      check commands and round trips a message alone, in less than a minute

The raw limit of a rate is measured in the same round: the same scripts with the same arguments, packed beforehand and
sent over a bare socket read by hiredis. Machines are noisy, so compare ratios. Exits with 1 if a goal was missed, if a
ratio got worse (with --gate), or if a measurement failed; then neither pages nor baseline are written. The
measurements are in `scripts/measure`.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

from measure import (
    attributing,
    awaiting,
    backlog,
    backlog_limits,
    beating,
    bursting,
    calling,
    cancelling,
    collecting,
    commands,
    consuming,
    depth,
    encrypting,
    enqueuing,
    event_log,
    flowing,
    forecasting,
    gate,
    large,
    lateness,
    limiting,
    many_queues,
    many_schedules,
    memory,
    migrating,
    operating,
    ordering,
    ordinary,
    overtaking,
    pages,
    partitioning,
    relaying,
    reminding,
    report,
    scheduling,
    sending,
    sharing,
    starting,
    streaming,
    tracing,
    workqueue,
)
from measure.bench_server import BenchServer, throwaway_server
from measure.figure import Figure, Measurement, Results, measure
from measure.options import QUICK, read_options
from rich.console import Console

MODULES = (
    ordinary,
    flowing,
    sending,
    consuming,
    commands,
    cancelling,
    collecting,
    event_log,
    calling,
    attributing,
    encrypting,
    enqueuing,
    tracing,
    awaiting,
    lateness,
    bursting,
    limiting,
    ordering,
    overtaking,
    scheduling,
    beating,
    backlog,
    backlog_limits,
    large,
    starting,
    sharing,
    many_queues,
    many_schedules,
    partitioning,
    memory,
    workqueue,
    streaming,
    migrating,
    relaying,
    reminding,
    operating,
    forecasting,
    depth,
)
WIDTH = 140
"""Width of the table without a terminal."""


def measurements() -> list[Measurement]:
    """Return all measurements; those that run once come last."""
    return sorted((one for module in MODULES for one in module.measurements()), key=lambda one: one.once)


def chosen(options: argparse.Namespace) -> list[Measurement]:
    """Return the measurements to run; with a gate, those with a ratio in the baseline."""
    found = [one for one in measurements() if options.only in one.name]
    if options.counted:
        return [one for one in found if any(figure.may_rise is not None for figure in one.figures)]
    if options.gate:
        found = [one for one in found if {figure.name for figure in one.figures} & set(options.baseline)]
    return found


def publish(options: argparse.Namespace, results: Results, setting: report.Setting) -> None:
    """Print the results, and write the pages and the baseline if requested and nothing failed."""
    if options.json:
        print(json.dumps(report.as_json(results, setting), indent=2))
    else:
        note = "\na quick run with a tenth of the messages: not exact" if options.quick else ""
        console = Console(width=None if sys.stdout.isatty() else WIDTH)
        console.print(report.figure_table(results.figures, f"{setting}{note}"))
    if not results.failed and options.readme:
        pages.rewrite(pages.README, report.short_table(results, setting))
        pages.rewrite(pages.PERFORMANCE, report.whole_table(results, setting))
    if not results.failed and options.save_baseline and options.counted:
        gate.write_counts(gate.BASELINE, counts(results))
    elif not results.failed and options.save_baseline:
        gate.write_baseline(gate.BASELINE, results.figures, setting._asdict())


def counts(results: Results) -> list[Figure]:
    """Return the figures of a run that are counts."""
    return [figure for figure in results.figures if figure.may_rise is not None]


def problems(options: argparse.Namespace, results: Results) -> list[str]:
    """Return a line for each problem that makes the exit code 1."""
    found = [f"failed: {name}: {reason}" for name, reason in results.failed.items()]
    if options.gate:
        every = [figure for one in measurements() for figure in one.figures]
        known = {figure.name for figure in every if figure.may_rise is not None or not options.counted}
        if options.counted:
            return found + [f"more: {line}" for line in gate.compare_counts(options.baseline, counts(results), known)]
        return found + [f"worse: {line}" for line in gate.compare(options.baseline, results.figures, known)]
    return found + [f"missed: {report.missed(figure)}" for figure in results.figures if not figure.met]


def log(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)


def main(words: list[str] | None = None) -> int:
    """Measure, print, and return 1 if there are problems."""
    options = read_options(__doc__, words)
    todo = chosen(options)
    if not todo:
        names = ", ".join(one.name for one in measurements())
        log(f"bench: no measurement has {options.only!r} in its name: {names}")
        return 2
    with throwaway_server() as path:
        server = BenchServer(path, QUICK if options.quick or options.counted else 1.0)
        server.counted = options.counted
        setting = report.Setting.here(server.client.info("server")["redis_version"], options.rounds)
        results = measure(todo, server, options.rounds, log)
        server.close()
    publish(options, results, setting)
    for name, reason in results.left_out.items():
        log(f"left out of {name}: {reason}")
    found = problems(options, results)
    for line in found:
        log(line)
    return 1 if found else 0


if __name__ == "__main__":
    logging.getLogger("delayq").setLevel(logging.ERROR)  # not, for every queue, that the server has no append-only file
    sys.exit(main())
