"""The options of the benchmarks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from measure import gate, pages

QUICK = 0.1
"""Factor for message counts in a quick run, and in one that only counts."""
ROUNDS, COUNTED_ROUNDS = 5, 2
"""Rounds of a run, and of one that only counts, by default."""


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        print(f"{self.prog}: {message}", file=sys.stderr)
        sys.exit(2)


def parser(program: str, description: str | None, *, rounds: int) -> Parser:
    """Return a parser with the options of every benchmark."""
    made = Parser(program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=_count, default=rounds, help=f"number of rounds ({rounds})")
    made.add_argument("--only", metavar="NAME", default="", help="measure only what has NAME in its name")
    made.add_argument("--json", action="store_true", help="print the figures as JSON")
    return made


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:  # noqa: PLR2004 - more would take a week
        raise argparse.ArgumentTypeError(f"must be 1 to 1000, not {text!r}")
    return int(text)


def read_options(description: str | None, words: list[str] | None = None) -> argparse.Namespace:
    """Return the options of `scripts/bench.py`, checked; exit with code 2 if they are wrong."""
    made = parser("bench", description, rounds=ROUNDS)
    made.set_defaults(rounds=None)
    made.add_argument("--quick", action="store_true", help="run one round with a tenth of the messages")
    made.add_argument("--readme", action="store_true", help="write the tables into the README and the handbook")
    made.add_argument("--counted", action="store_true", help="only count commands and round trips: within a minute")
    made.add_argument("--gate", metavar="FILE", type=Path, help="exit 1 if a ratio or a count is worse than there")
    made.add_argument("--save-baseline", action="store_true", help=f"write the ratios to {gate.BASELINE.name}")
    options = made.parse_args(words)
    if options.quick:
        options.rounds = 1
    options.rounds = options.rounds or (COUNTED_ROUNDS if options.counted else ROUNDS)
    part = "--quick" if options.quick else "--only" if options.only else ""
    if options.save_baseline and part:
        made.error(f"--save-baseline needs a whole run, without {part}")
    part = part or ("--counted" if options.counted else "")
    if options.readme and part:
        print(f"bench: the pages are not changed: their tables need a whole run, without {part}", file=sys.stderr)
        options.readme = False
    try:
        options.baseline = gate.read_baseline(options.gate, counted=options.counted) if options.gate else {}
        for page in (pages.README, pages.PERFORMANCE) if options.readme else ():
            pages.check(page)
    except (gate.BaselineError, pages.PageError) as error:
        made.error(str(error))
    return options
