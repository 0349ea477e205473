"""Measures delayq against what Redis itself can do, on a throwaway server.

    make bench                              all measurements, medians of 5 rounds; writes the tables of the pages
    make bench ARGS="--quick --only send"   a look at some, with a tenth of the messages
    make bench-gate                         whether a ratio has fallen since the baseline was saved

The raw limit of a rate is measured in the same round: the same scripts with the same arguments, packed beforehand and
sent over a bare socket read by hiredis, with nothing around it. These machines are noisy, so judge by the ratio. Exits
with 1 where a goal was missed, or with a gate where a ratio fell, or a measurement failed, and then neither pages nor
baseline are written. The measurements are in `scripts/measure`.
"""

from __future__ import annotations

import argparse
import json
import sys

from measure import (
    backlog,
    commands,
    consuming,
    depth,
    event_log,
    gate,
    lateness,
    memory,
    migrating,
    pages,
    reminding,
    report,
    scheduling,
    sending,
    starting,
    steering,
    streaming,
    workqueue,
)
from measure.figure import Measurement, Results, measure
from measure.options import QUICK, read_options
from measure.stand import Stand, throwaway_server
from rich.console import Console

ROOMS = (
    sending,
    consuming,
    commands,
    steering,
    event_log,
    lateness,
    scheduling,
    backlog,
    starting,
    memory,
    workqueue,
    streaming,
    migrating,
    reminding,
    depth,
)
WIDTH = 140
"""Columns of the table where it goes to a file."""


def measurements() -> list[Measurement]:
    """Return everything that can be measured; what is measured once comes last."""
    return sorted((one for room in ROOMS for one in room.measurements()), key=lambda one: one.once)


def chosen(options: argparse.Namespace) -> list[Measurement]:
    """Return what is to be measured; with a gate, what has a ratio in the baseline."""
    found = [one for one in measurements() if options.only in one.name]
    if options.gate:
        found = [one for one in found if {figure.name for figure in one.figures} & set(options.baseline)]
    return found


def publish(options: argparse.Namespace, results: Results, setting: report.Setting) -> None:
    """Print what was measured, and write the pages and the baseline, if asked and nothing failed."""
    if options.json:
        print(json.dumps(report.as_json(results, setting), indent=2))
    else:
        note = "\na look with a tenth of the messages: not to be judged by" if options.quick else ""
        console = Console(width=None if sys.stdout.isatty() else WIDTH)
        console.print(report.figure_table(results.figures, f"{setting}{note}"))
    if not results.failed and options.readme:
        pages.rewrite(pages.README, report.short_table(results, setting))
        pages.rewrite(pages.PERFORMANCE, report.whole_table(results, setting))
    if not results.failed and options.save_baseline:
        gate.write_baseline(gate.BASELINE, results.figures, setting._asdict())


def wrongs(options: argparse.Namespace, results: Results) -> list[str]:
    """Return a line for all that ends a run with exit code 1."""
    found = [f"failed: {name}: {reason}" for name, reason in results.failed.items()]
    if options.gate:
        known = {figure.name for one in measurements() for figure in one.figures}
        return found + [f"fell: {line}" for line in gate.compare(options.baseline, results.figures, known)]
    return found + [f"missed: {report.missed(figure)}" for figure in results.figures if not figure.met]


def say(text: str) -> None:
    """Talk on standard error."""
    print(text, file=sys.stderr, flush=True)


def main(words: list[str] | None = None) -> int:
    """Measure, print, and return 1 if a goal was missed or a ratio fell."""
    options = read_options(__doc__, words)
    todo = chosen(options)
    if not todo:
        names = ", ".join(one.name for one in measurements())
        say(f"bench: nothing to measure has {options.only!r} in its name: {names}")
        return 2
    with throwaway_server() as path:
        stand = Stand(path, QUICK if options.quick else 1.0)
        setting = report.Setting.here(stand.client.info("server")["redis_version"], options.rounds)
        results = measure(todo, stand, options.rounds, say)
        stand.close()
    publish(options, results, setting)
    for name, reason in results.left_out.items():
        say(f"left out of {name}: {reason}")
    wrong = wrongs(options, results)
    for line in wrong:
        say(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
