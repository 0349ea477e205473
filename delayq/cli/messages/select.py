"""Options that select many waiting messages, and what `cancel`, `kill`, `reschedule` and `run-now` do with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import click

from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import WHEN, F, confirm, dry_run_option, options_as, yes_option
from delayq.cli.support.output import print_json, print_line
from delayq.cli.support.zones import zoned_iso
from delayq.queue.sweeps.selection import WAITING, Selection
from delayq.values.states import State
from delayq.values.text import pluralize


class Matching(NamedTuple):
    """Which messages are wanted, by filter; see `DelayQueue.select`."""

    state: str | None
    name: str | None
    id_prefix: str | None
    due_from: datetime | None
    due_to: datetime | None
    yes: bool
    dry_run: bool

    def is_for(self, ids: tuple[str, ...]) -> bool:
        """Tell whether a filter is given, in place of ids; raise a usage error unless there is one of both."""
        named = any(one is not None for one in self[:5])
        if named == bool(ids):
            text = "select messages: give ids, or --name, --id-prefix, --state, --from or --to"
            raise click.UsageError(text)
        if ids and self.dry_run:
            raise click.UsageError("--dry-run works with a filter, not with ids")
        if self.due_from and self.due_to and self.due_from > self.due_to:
            raise click.UsageError(f"--from {zoned_iso(self.due_from)} is after --to {zoned_iso(self.due_to)}")
        return named

    def apply(self, queue: Any, verb: str, act: Callable[[Selection], Mapping[Any, int]], *, as_json: bool) -> Exit:
        """Ask, do it, and print how many ended with each outcome."""
        selection = queue.select(*self[:1], **dict(zip(self._fields[1:5], self[1:5], strict=True)))
        matched = selection.count() if self.dry_run or not self.yes else None
        if not self.dry_run:
            confirm(f"{verb.capitalize()} {pluralize(matched or 0, 'message')} of {queue.name}?", yes=self.yes)
        done = {} if self.dry_run else {str(outcome): count for outcome, count in act(selection).items()}
        if as_json:
            print_json({"queue": queue.name, "matched": matched, "outcomes": done, "dry_run": self.dry_run})
        elif self.dry_run:
            print_line(f"would {verb} {pluralize(matched or 0, 'message')}")
        else:
            print_line(", ".join(f"{count:,} {outcome}" for outcome, count in done.items()) or "nothing to do")
        return Exit.OK


_OPTIONS = [
    click.option(
        "--state",
        type=click.Choice([str(state) for state in (*WAITING, State.ACTIVE)]),
        metavar="STATE",
        help=f"Select the messages in this state: {', '.join(WAITING)}; active.  [default: all but active]",
    ),
    click.option("--name", metavar="NAME", help="Select the messages with this name."),
    click.option("--id-prefix", metavar="TEXT", help="Select the messages whose ids begin with TEXT."),
    click.option("--from", "due_from", type=WHEN, metavar="WHEN", help="Select messages due from then on."),
    click.option("--to", "due_to", type=WHEN, metavar="WHEN", help="Select messages due before then."),
    yes_option,
    dry_run_option,
]


def matching_options(function: F) -> F:
    """Add the options of a filter; the command gets them as `matching`."""
    return options_as(Matching, "matching", _OPTIONS)(function)
