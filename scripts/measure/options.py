"""The options of the benchmarks; what is wrong with them is said in one line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from measure import gate, pages

QUICK = 0.1
"""What counts of messages are multiplied with for a look."""


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistake with one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        print(f"{self.prog}: {message}", file=sys.stderr)
        sys.exit(2)


def parser(program: str, description: str | None, *, rounds: int) -> Parser:
    """Return a parser of what every benchmark takes, with so many rounds by default."""
    made = Parser(program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=_count, default=rounds, help=f"times that all is measured ({rounds})")
    made.add_argument("--only", metavar="NAME", default="", help="measure only what has this in its name")
    made.add_argument("--json", action="store_true", help="figures on stdout as JSON")
    return made


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:  # noqa: PLR2004 - more would take a week
        raise argparse.ArgumentTypeError(f"must be 1 to 1000, not {text!r}")
    return int(text)


def read_options(description: str | None, words: list[str] | None = None) -> argparse.Namespace:
    """Return the options of `scripts/bench.py`, checked; ends with exit code 2 where they are wrong."""
    made = parser("bench", description, rounds=5)
    made.add_argument("--quick", action="store_true", help="one round with a tenth of the messages, for a look")
    made.add_argument("--readme", action="store_true", help="put the tables into the README and the handbook")
    made.add_argument("--gate", metavar="FILE", type=Path, help="exit 1 where a ratio fell against this baseline")
    made.add_argument("--save-baseline", action="store_true", help=f"write the ratios to {gate.BASELINE.name}")
    options = made.parse_args(words)
    if options.quick:
        options.rounds = 1
    part = "--quick" if options.quick else "--only" if options.only else ""
    if options.save_baseline and part:
        made.error(f"--save-baseline takes a whole run, without {part}")
    if options.readme and part:
        print(f"bench: the pages stay as they are: their tables take a whole run, without {part}", file=sys.stderr)
        options.readme = False
    try:
        options.baseline = gate.read_baseline(options.gate) if options.gate else {}
        for page in (pages.README, pages.PERFORMANCE) if options.readme else ():
            pages.check(page)
    except (gate.BaselineError, pages.PageError) as error:
        made.error(str(error))
    return options
