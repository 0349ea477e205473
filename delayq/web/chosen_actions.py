"""Actions on the messages that somebody has chosen on a page: each is done by itself, and its outcome is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from delayq.broker.keys import check_stored_id
from delayq.errors import ConfigurationError, DelayqError
from delayq.queue.sweeps.cancellation import CancelOutcome, RescheduleOutcome

if TYPE_CHECKING:
    from delayq.queue.delay_queue import DelayQueue

MAX_CHOSEN = 50
"""Messages that one form may choose: those of a page."""


class Phrase(NamedTuple):
    """What has become of one message, and of several."""

    one: str
    several: str


_RUNNING = Phrase("was running", "were running")
_DEAD = Phrase("was dead", "were dead")
_GONE = Phrase("was gone", "were gone")
_CANCELLED: dict[str, Phrase] = {
    CancelOutcome.CANCELLED: Phrase("cancelled", "cancelled"),
    CancelOutcome.STOPPING: Phrase("asked to stop", "asked to stop"),
    CancelOutcome.SUCCESSOR: Phrase("lost its successor only", "lost their successors only"),
    CancelOutcome.RUNNING: _RUNNING,
    CancelOutcome.DEAD: _DEAD,
    CancelOutcome.GONE: _GONE,
    CancelOutcome.WITHDRAWN: Phrase("withdrawn from the cold tier", "withdrawn from the cold tier"),
}


def outcome_text(outcome: str) -> str:
    """Return what has become of one message, by what `cancel`, `kill` or `reschedule` has returned."""
    return _CANCELLED[outcome].one if outcome in _CANCELLED else str(outcome)


def _rescheduled(done: str) -> dict[str, Phrase]:
    return {
        RescheduleOutcome.RESCHEDULED: Phrase(done, done),
        RescheduleOutcome.RUNNING: _RUNNING,
        RescheduleOutcome.DEAD: _DEAD,
        RescheduleOutcome.GONE: _GONE,
        RescheduleOutcome.NOTED: Phrase("noted for the cold tier", "noted for the cold tier"),
    }


_REDRIVEN = {
    "sent": Phrase("sent again", "sent again"),
    "exists": Phrase("stays, as a message has its id", "stay, as messages have their ids"),
    "gone": _GONE,
}
_PURGED = {"purged": Phrase("purged", "purged"), "gone": _GONE}
Act = Callable[[str], str]
"""Acts on one message; returns its outcome."""


class ChosenDone(NamedTuple):
    """What an action has done to the messages that were chosen."""

    note: str
    """How many had which outcome: "3 cancelled, 1 was running"."""
    outcomes: Mapping[str, str]
    """What became of each message, by id or entry."""


def act_on_messages(queue: DelayQueue[Any], what: str, ids: Sequence[str], delay: str | None) -> ChosenDone:
    """Cancel, stop, reschedule or make due the messages with these ids.

    Raises `ConfigurationError` if none was chosen, and before anything is done if an entry is wrong.
    """
    for id in ids:
        check_stored_id(id)
    if what == "reschedule":
        if delay is None:
            raise ConfigurationError("delay is missing: say when the messages are to be due")
        return _each(ids, lambda id: queue.reschedule(id, delay), _rescheduled("rescheduled"))
    acts: dict[str, tuple[Act, dict[str, Phrase]]] = {
        "run": (lambda id: queue.reschedule(id, 0), _rescheduled("made due")),
        "cancel": (queue.cancel, _CANCELLED),
        "stop": (lambda id: queue.cancel(id, running=True), _CANCELLED),
    }
    if what not in acts:
        raise ConfigurationError("messages can be cancelled, stopped, rescheduled or run")
    return _each(ids, *acts[what])


def act_on_dead(queue: DelayQueue[Any], what: str, entries: Sequence[str]) -> ChosenDone:
    """Redrive or purge these entries of the dead letter; raises `ConfigurationError` if none was chosen."""

    def redrive(entry: str) -> str:
        done = queue.dead.redrive(entry)
        return "sent" if done.redriven else "exists" if done.exists else "gone"

    def purge(entry: str) -> str:
        return "purged" if queue.dead.purge(entry) else "gone"

    acts: dict[str, tuple[Act, dict[str, Phrase]]] = {"redrive": (redrive, _REDRIVEN), "purge": (purge, _PURGED)}
    if what not in acts:
        raise ConfigurationError("dead messages can be redriven or purged")
    return _each(entries, *acts[what])


def _each(chosen: Sequence[str], act: Act, phrases: Mapping[str, Phrase]) -> ChosenDone:
    """Act on one after the other; what fails ends it, and the note says how far it came."""
    if not chosen:
        raise ConfigurationError("choose messages first: nothing was done")
    if len(chosen) > MAX_CHOSEN:
        raise ConfigurationError(f"choose at most {MAX_CHOSEN} messages, not {len(chosen)}")
    outcomes: dict[str, str] = {}
    failed = ""
    for one in dict.fromkeys(chosen):
        try:
            outcomes[one] = str(act(one))
        except DelayqError as error:
            if not outcomes:
                raise
            failed = f"; then {one} failed, and the rest was not tried: {error}"
            break
    counted = Counter(outcomes.values())
    told = ((number, phrases[outcome]) for outcome in phrases if (number := counted[outcome]))
    note = ", ".join(f"{number} {phrase.one if number == 1 else phrase.several}" for number, phrase in told)
    return ChosenDone(f"{note}{failed}.", {one: phrases[outcome].one for one, outcome in outcomes.items()})
