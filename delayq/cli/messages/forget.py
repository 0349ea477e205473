"""`delayq forget`: erases what is kept of messages that have ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.support.actions import Note, QueueAction
from delayq.cli.support.cold_notes import note_cold
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import STORED_ID, confirm, dry_run_option, yes_option
from delayq.queue.sweeps.forgetting import Forgotten
from delayq.values.text import pluralize

if TYPE_CHECKING:
    from delayq.queue.delay_queue import DelayQueue


@dataclass(frozen=True, slots=True)
class ForgottenReport(Forgotten):
    """What was erased, as the command reports it."""

    @property
    def exit_code(self) -> Exit:
        """The exit code of the command: a message that is alive stays."""
        return Exit.FAILURE if self.alive else Exit.OK


def _forget(
    queue: DelayQueue[Any], ids: tuple[str, ...], id_prefix: str | None, name: str | None, *, yes: bool, dry_run: bool
) -> ForgottenReport:
    if not dry_run:
        what = pluralize(len(ids), "message") if ids else f"all {id_prefix}…" if id_prefix else f"all named {name}"
        confirm(f"Erase what {queue.name} keeps of {what} permanently?", yes=yes)
    found = queue.forget(*ids, id_prefix=id_prefix, name=name, dry_run=dry_run)
    note_cold(queue.executor, queue.context.calls, "not looked at")
    return ForgottenReport(**{field: getattr(found, field) for field in Forgotten.__slots__})


def _check(ids: tuple[str, ...], id_prefix: str | None, name: str | None, **_: Any) -> None:
    if (bool(ids), id_prefix is not None, name is not None).count(True) != 1:
        raise click.UsageError("select messages: give ids, or --id-prefix, or --name; one of them")


def _shown(found: ForgottenReport, _: Any) -> Iterator[str]:
    parts = (
        pluralize(found.results, "result"),
        pluralize(found.deaths, "dead message"),
        pluralize(found.reserved, "reserved id"),
        pluralize(found.remains, "leftover"),
        f"{pluralize(found.events, 'event')} in {found.log_entries:,} of the log",
    )
    yield f"{'would forget' if found.dry_run else 'forgot'} {', '.join(parts)}"
    if found.other_events:
        verb = "would go" if found.dry_run else "went"
        yield Note(f"{pluralize(found.other_events, 'event')} of other messages {verb} with them")
    if found.alive:
        named = ", ".join(found.alive_ids[:10]) + ("…" if found.alive > len(found.alive_ids[:10]) else "")
        yield Note(f"{pluralize(found.alive, 'message')} alive, not forgotten: {named}; delayq cancel ends them")


ACTIONS = {
    "forget": QueueAction(
        "forget",
        Feature.FORGET,
        cleandoc(
            """Erase what QUEUE keeps of messages that have ended: ID..., or all with a prefix or a name.

            These are results, entries of the dead letter with payloads and errors, reserved ids, and events. An entry
            of the event log is deleted whole, with its events of other messages: --dry-run counts them. By a name, kept
            results and dead messages are found. Run it again if it was cut off.

            Exit code 1 if a message is alive: it stays; cancel it first.

            JSON: {json}
            """
        ),
        _forget,
        _shown,
        json=("queue *", Forgotten),
        options=[
            click.argument("ids", metavar="[ID...]", type=STORED_ID, nargs=-1),
            click.option("--id-prefix", metavar="TEXT", help="Erase all whose ids begin with TEXT."),
            click.option("--name", metavar="NAME", help="Erase the kept results and dead messages with this name."),
            yes_option,
            dry_run_option,
        ],
        check=_check,
    )
}
