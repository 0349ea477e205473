"""`delayq cancel`: withdraws messages, by id or by a filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click

from delayq.broker.engine import Feature
from delayq.cli.messages.select import Matching, matching_options
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import STORED_ID, json_option, queue_with
from delayq.cli.support.output import print_result
from delayq.cli.support.session import Session
from delayq.queue.sweeps.cancellation import CancelOutcome, KillOutcome, RescheduleOutcome

AnyOutcome = CancelOutcome | KillOutcome | RescheduleOutcome


@click.command()
@queue_with(Feature.CANCEL)
@click.argument("ids", metavar="[ID...]", type=STORED_ID, nargs=-1)
@matching_options
@click.option("--running", is_flag=True, help="Ask those that are running to stop.")
@json_option
@click.pass_obj
def cancel(
    session: Session, queue: str, ids: tuple[str, ...], *, matching: Matching, running: bool, as_json: bool
) -> Exit:
    """Cancel messages of QUEUE: ID..., or all that wait and match a filter. They are never delivered again.

    WHEN is a time (2027-01-31T09:00), now, or a time from now: +2h, -1d.

    With --running, a callback that runs is asked to stop: a coroutine function is cancelled, and others see
    message.cancel_requested. The message is cancelled when it ends, unless it succeeds after all.

    Of ids, exit code 1 if a message is running or dead, else 3 if one is gone.

    JSON: {"queue", "results": [{"id", "outcome"}, …]}; the outcome is cancelled, running, stopping (with --running),
    dead, successor (only what waited to follow it is cancelled) or gone. With a filter: {"queue", "matched",
    "outcomes": {outcome: how many}, "dry_run"}; matched is null with --yes.
    """
    by_filter = matching.is_for(ids)
    opened = session.existing_queue(queue)
    if by_filter:
        return matching.apply(opened, "cancel", lambda selected: selected.cancel(running=running), as_json=as_json)
    return print_outcomes(queue, {id: opened.cancel(id, running=running) for id in ids}, as_json=as_json)


def print_outcomes(queue: str, outcomes: Mapping[str, AnyOutcome], *, as_json: bool) -> Exit:
    """Print what became of each id; return the exit code."""
    results = [{"id": id, "outcome": outcome} for id, outcome in outcomes.items()]
    lines = [f"{id}  {outcome}" for id, outcome in outcomes.items()]
    print_result({"queue": queue, "results": results}, *lines, as_json=as_json)
    return exit_code_of(outcomes.values())


def exit_code_of(outcomes: Iterable[AnyOutcome]) -> Exit:
    """Return the exit code of `cancel`, `kill` or `reschedule`."""
    names = {str(outcome) for outcome in outcomes}
    if names & {"running", "successor", "dead"}:
        return Exit.FAILURE
    return Exit.NOT_FOUND if "gone" in names else Exit.OK
