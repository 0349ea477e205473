"""Actions on messages, by id or by a filter: cancel, kill, reschedule, run now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from delayq.broker.engine import Feature
from delayq.cli.support.actions import Note, QueueAction, json_shape
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import (
    STORED_ID,
    WHEN,
    confirm,
    dry_run_option,
    due_options,
    options_as,
    yes_option,
)
from delayq.cli.support.zones import due_text, zoned_iso
from delayq.queue.sweeps.selection import WAITING, Selection
from delayq.values.states import State
from delayq.values.text import pluralize

if TYPE_CHECKING:
    from delayq.queue.delay_queue import DelayQueue


class Matching(NamedTuple):
    """Which messages are wanted, by filter; see `DelayQueue.select`."""

    state: str | None
    name: str | None
    id_prefix: str | None
    due_from: datetime | None
    due_to: datetime | None
    yes: bool
    dry_run: bool

    @property
    def given(self) -> bool:
        """Whether there is a filter."""
        return any(one is not None for one in self[:5])

    def check(self, ids: tuple[str | None, ...]) -> None:
        """Raise a usage error unless there are either ids or a filter."""
        if self.given == bool(ids):
            text = "select messages: give ids, or --name, --id-prefix, --state, --from or --to; not both"
            raise click.UsageError(text)
        if ids and self.dry_run:
            raise click.UsageError("--dry-run works with a filter, not with ids")
        if self.due_from and self.due_to and self.due_from > self.due_to:
            raise click.UsageError(f"--from {zoned_iso(self.due_from)} is after --to {zoned_iso(self.due_to)}")

    def apply(self, queue: Any, verb: str, act: Callable[[Selection], Mapping[Any, int]]) -> Matched:
        """Ask, and do it with all that match."""
        selection = queue.select(*self[:1], **dict(zip(self._fields[1:5], self[1:5], strict=True)))
        matched = selection.count() if self.dry_run or not self.yes else None
        if self.dry_run:
            return Matched(matched, {}, dry_run=True)
        confirm(f"{verb.capitalize()} {pluralize(matched or 0, 'message')} of {queue.name}?", yes=self.yes)
        return Matched(matched, {str(outcome): count for outcome, count in act(selection).items()}, dry_run=False)


_matching_options = options_as(
    Matching,
    "matching",
    [
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
    ],
)


@dataclass(frozen=True)
class Matched:
    """What became of messages that match a filter; `matched` is None if they were not counted."""

    matched: int | None
    outcomes: Mapping[str, int] = field(metadata={"json": "{outcome: how many}"})
    dry_run: bool

    def shown(self, verb: str) -> str:
        """Return how many ended with each outcome."""
        if self.dry_run:
            return f"would {verb} {pluralize(self.matched or 0, 'message')}"
        return ", ".join(f"{count:,} {outcome}" for outcome, count in self.outcomes.items()) or "nothing to do"


@dataclass(frozen=True)
class MessageOutcome:
    """What became of a message that was named."""

    id: str
    outcome: str

    @property
    def exit_code(self) -> Exit:
        """The exit code of a command on this message."""
        failed = self.outcome in {"running", "successor", "dead", "changed"}
        return Exit.FAILURE if failed else Exit.NOT_FOUND if self.outcome == "gone" else Exit.OK


@dataclass(frozen=True)
class Outcomes:
    """What became of messages that were named."""

    results: list[MessageOutcome]

    @property
    def exit_code(self) -> Exit:
        """The exit code of a command on these messages."""
        codes = {one.exit_code for one in self.results}
        return Exit.FAILURE if Exit.FAILURE in codes else max(codes)


_ABOUT = f"""

WHEN is a time (2027-01-31T09:00), now, or a time from now: +2h, -1d.

Of ids, exit code 1 if a message is running or dead, else 3 if one is gone.

JSON: {{json}}; the outcome is OUTCOMES or gone. With a filter: {{"queue", {json_shape(Matched)[1:-1]}}}; matched is
null with --yes.
"""
"""The end of the help of all these actions, in which OUTCOMES stands for them."""


def _on_messages(
    name: str, feature: Feature, about: str, outcomes: str, *, one: Any, many: Any, options: Any = ()
) -> QueueAction:
    """Return an action on ids, or on all that match a filter: `one` gets the queue and an id, `many` a selection."""
    verb = name.partition("-")[0]

    def call(queue: DelayQueue[Any], ids: tuple[str, ...], matching: Matching, **how: Any) -> Outcomes | Matched:
        if matching.given:
            return matching.apply(queue, verb, lambda selection: many(selection, **how))
        return Outcomes(
            [MessageOutcome(id, str(outcome)) for id, outcome in {id: one(queue, id, **how) for id in ids}.items()]
        )

    def shown(found: Outcomes | Matched, _: Any) -> Any:
        return found.shown(verb) if isinstance(found, Matched) else [f"{it.id}  {it.outcome}" for it in found.results]

    return QueueAction(
        name,
        feature,
        cleandoc(about) + _ABOUT.replace("OUTCOMES", outcomes),
        call,
        shown,
        json=("queue *", Outcomes),
        options=[click.argument("ids", metavar="[ID...]", type=STORED_ID, nargs=-1), _matching_options, *options],
        check=lambda ids, matching, **_: matching.check(ids),
    )


def _reschedule(
    queue: DelayQueue[Any], id: str | None, matching: Matching, delay: timedelta | None, at: datetime | None
) -> MessageOutcome | Matched:
    if id is None:
        return matching.apply(queue, "reschedule", lambda selection: selection.reschedule(delay, at=at))
    return MessageOutcome(id, str(queue.reschedule(id, delay, at=at)))


def _rescheduled(found: MessageOutcome | Matched, of: Any) -> Iterator[str]:
    if isinstance(found, Matched):
        yield found.shown("reschedule")
        return
    yield f"{found.id}  {found.outcome}"
    if found.outcome == "rescheduled":
        yield Note(f"due {due_text(of.delay, of.at)}")


def _check_reschedule(id: str | None, matching: Matching, delay: timedelta | None, at: datetime | None) -> None:
    if (delay is None) == (at is None):
        raise click.UsageError("give either --delay or --at")
    matching.check(() if id is None else (id,))


_rows = [
    _on_messages(
        "cancel",
        Feature.CANCEL,
        """Cancel messages of QUEUE: ID..., or all that wait and match a filter. They are never delivered again.

        With --running, a callback that runs is asked to stop: a coroutine function is cancelled, and others see
        message.cancel_requested. The message is cancelled when it ends, unless it succeeds after all.
        """,
        "cancelled, running, stopping (with --running), dead, successor (only what waited to follow it is cancelled)",
        one=lambda queue, id, running: queue.cancel(id, running=running),
        many=lambda selection, running: selection.cancel(running=running),
        options=[click.option("--running", is_flag=True, help="Ask those that are running to stop.")],
    ),
    _on_messages(
        "kill",
        Feature.KILL,
        """Move messages of QUEUE to the dead letter: ID..., or all that wait and match a filter.

        They are not delivered unless `dead redrive` sends them again. A message that is running stays.
        """,
        "killed, running, dead",
        one=lambda queue, id: queue.kill(id),
        many=lambda selection: selection.kill(),
    ),
    _on_messages(
        "run-now",
        Feature.CANCEL,
        "Make messages of QUEUE due now: ID..., or all that wait and match a filter.",
        "rescheduled, running, dead",
        one=lambda queue, id: queue.reschedule(id, 0),
        many=lambda selection: selection.run_now(),
    ),
    QueueAction(
        "reschedule",
        Feature.CANCEL,
        "Give a message of QUEUE a new due time, or all that wait and match a filter; attempts and retries stay the "
        "same." + _ABOUT.replace("OUTCOMES", "rescheduled, running, dead"),
        _reschedule,
        _rescheduled,
        json=("queue *", MessageOutcome),
        options=[
            click.argument("id", metavar="[ID]", type=STORED_ID, required=False),
            due_options,
            _matching_options,
        ],
        check=_check_reschedule,
    ),
]
ACTIONS = {action.name: action for action in _rows}
