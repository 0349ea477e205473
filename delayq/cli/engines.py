"""`--engine`: the queues of other engines, for the commands that have a meaning for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from delayq.cli.failure import NotFound
from delayq.cli.options import queue_argument
from delayq.cli.output import say
from delayq.dead_letter import Redriven
from delayq.inspector import MOST_ROWS, MessageInfo, Page
from delayq.states import State
from delayq.values import Command

if TYPE_CHECKING:
    from delayq.cli.session import Session
    from delayq.cli.work import WorkQueueOfSession
    from delayq.inspector import Counts
    from delayq.streams import StreamQueue

F = TypeVar("F", bound=Callable[..., Any])

ENGINES = ("delay", "streams", "workqueue")
_ANSWERS = {
    "streams": "for streams QUEUE is the key of the stream",
    "workqueue": "for workqueue the prefix of the work queue",
}
_LACKS = {
    "streams": {"delay": "delays", "at": "delays", "replace": "replacing"},
    "workqueue": {
        "delay": "delays",
        "at": "delays",
        "retries": "retries",
        "header": "headers",
        "replace": "replacing",
    },
}
"""What an engine lacks, by the option of `send` that asks for it."""
STATES = {
    "delay": ("pending", "ready", "active", "backoff", "retry", "garbage", "dead"),
    "streams": ("ready", "active", "backoff", "dead"),
    "workqueue": ("queued", "processing"),
}
"""The states whose messages an engine can list; the first is listed if none is asked for."""
GROUP = "workers"
"""The consumer group of a stream queue that does not say otherwise."""


class Tally(NamedTuple):
    """How many messages are in each state of another engine, what else is known, and what is to be said of it."""

    counts: Mapping[str, int]
    facts: Mapping[str, Any] = MappingProxyType({})
    note: str = ""


def engine_option(*answering: str, lacking: str = "") -> Callable[[F], F]:
    """Add `--engine` to a command that these engines have an answer for; any other has no `lacking`.

    Where only the delay queue has one, the option is there to say so, and the command is not told of it.
    """

    def check(ctx: click.Context, _: click.Parameter, engine: str) -> str:
        if engine not in answering:
            raise click.UsageError(f"the {engine} engine has no {lacking}", ctx)
        return engine

    notes = ", ".join(_ANSWERS[engine] for engine in answering if engine in _ANSWERS)
    return click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="delay",
        show_default=True,
        is_eager=True,  # what a queue may be called depends on it
        expose_value=len(answering) > 1,
        hidden=len(answering) == 1,
        callback=check,
        help=f"What kind of queue it is; {notes}." if notes else None,
    )


def delay_queue(lacking: str) -> Callable[[F], F]:
    """Add the argument QUEUE, which is a delay queue's: no other engine has this."""
    return lambda function: queue_argument(engine_option("delay", lacking=lacking)(function))


def state_of(engine: str, state: str | None) -> str:
    """Return the state that is to be listed; a usage error for one that the engine has not."""
    if state is None:
        return STATES[engine][0]
    if state not in STATES[engine]:
        raise click.UsageError(f"the {engine} engine has no state {state!r}, but {', '.join(STATES[engine])}")
    return state


def refuse_what_is_lacking(engine: str, options: dict[str, Any]) -> None:
    """Refuse options of `send` that ask for what an engine lacks."""
    for option, lacking in _LACKS.get(engine, {}).items():
        if options[option] is not None and options[option] is not False and options[option] != {}:
            raise click.UsageError(f"the {engine} engine has no {lacking}")


def open_stream(session: Session, name: str, **options: Any) -> StreamQueue[Any]:
    """Return the queue on a stream."""
    from delayq.streams import StreamQueue

    merged: Any = {**session.options, "redis": session.executor.client, **options}
    merged.pop("prefix")  # the key of a stream is the user's
    return StreamQueue(name, **merged)


def open_known_stream(session: Session, name: str, **options: Any) -> StreamQueue[Any]:
    """Return the queue on a stream that is there, its payloads left as bytes; `NotFound` for any other."""
    if not session.there(Command(("EXISTS", name), bool)):
        raise NotFound("stream", name, [])
    return open_stream(session, name, codec="bytes", **options)


def open_to_send(session: Session, engine: str, name: str, codec: str) -> Any:
    """Return what has `send_many` and a `name`, of any engine."""
    if engine == "streams":
        return open_stream(session, name, codec=codec)
    return _work_queue(session, name, codec) if engine == "workqueue" else session.queue(name, codec=codec)


def open_to_look(session: Session, engine: str, name: str, group: str | None, lease: timedelta | None) -> Any:
    """Return what has `list` and `get`, of any engine; says so where a stream has not the group."""
    if engine == "workqueue":
        session.there(Command(("PING",), bool))  # for the time: of what is not there a work queue has no trace
        return _work_queue(session, name)
    if engine == "delay":
        return session.known(name)
    options = {} if lease is None else {"lease": lease}
    found = open_known_stream(session, name, group=group or GROUP, **options)
    if note := _missing_group(found, found.groups()):
        say(note)
    return found


def tally(session: Session, engine: str, name: str, group: str | None) -> Tally:
    """Count the messages of a queue of another engine, by the states that it knows."""
    if engine == "workqueue":
        return Tally(dict(zip(STATES[engine], _work_queue(session, name).counts(), strict=True)))
    queue = open_known_stream(session, name, group=group or GROUP)
    groups, found = queue.groups(), queue.counts()
    facts = {"group": queue.group, "group_exists": queue.group in groups}
    return Tally({state: getattr(found, state) for state in STATES[engine]}, facts, _missing_group(queue, groups))


def _missing_group(queue: StreamQueue[Any], groups: Sequence[str]) -> str:
    if queue.group in groups:
        return ""
    others = f" (it has {', '.join(groups[:10])})" if groups else ""
    return f"{queue.name} has no group {queue.group!r} yet{others}: it begins with the first message of the stream"


def _work_queue(session: Session, name: str, codec: str = "bytes") -> WorkQueueOfSession:
    from delayq.cli.work import WorkQueueOfSession

    return WorkQueueOfSession(session, name, codec)


class DeadOfStream:
    """The dead letter of a stream, as `delayq dead` knows that of a delay queue."""

    def __init__(self, session: Session, name: str) -> None:
        """Open the dead letter of a stream that is there."""
        self.name = name
        self._queue = open_known_stream(session, name)
        self._dead = self._queue.dead

    @property
    def dead(self) -> DeadOfStream:
        """The dead letter, which is all that there is of this queue."""
        return self

    def counts(self) -> Counts:
        """Count the messages."""
        return self._queue.counts()

    def list(self, *, limit: int, cursor: str | None = None) -> Page:
        """Read a page, oldest first."""
        return self._queue.list(State.DEAD, limit=limit, cursor=cursor)

    def redrive(self, *, retries: int | None = None, everything: bool = False, **which: str | None) -> Redriven:
        """Send an entry, the last death of an id, what matches, or everything again."""
        if everything:
            return self._dead.redrive(everything=True, retries=retries)
        done = [self._dead.redrive(entry, retries=retries) for entry in self._entries(**which)]
        return Redriven(sum(one.redriven for one in done), sum(one.exists for one in done))

    def purge(self, *, everything: bool = False, **which: str | None) -> int:
        """Delete an entry, the last death of an id, what matches, or everything."""
        if everything:
            return self._dead.purge(everything=True)
        return sum(self._dead.purge(entry) for entry in self._entries(**which))

    def _entries(self, id: str | None = None, reason: str | None = None, error: str | None = None) -> Sequence[str]:
        found = [
            message for message in self._all() if (reason or "") in message.reason and (error or "") in message.error
        ]
        if id is not None:
            found = [message for message in found if id in (message.entry, message.id)][-1:]
        return [str(message.entry) for message in found]

    def _all(self) -> Iterator[MessageInfo]:
        page = self.list(limit=MOST_ROWS)
        yield from page.messages
        while page.cursor:
            page = self.list(limit=MOST_ROWS, cursor=page.cursor)
            yield from page.messages


def open_dead(session: Session, engine: str, name: str) -> Any:
    """Return a queue that is there, with its `dead`."""
    return DeadOfStream(session, name) if engine == "streams" else session.known(name)
