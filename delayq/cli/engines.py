"""`--engine`: the queues of other engines, for the commands that have a meaning for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from delayq.cli.failure import NotFound
from delayq.codec import find_codec
from delayq.dead_letter import Redriven
from delayq.errors import ConfigurationError
from delayq.inspector import MOST_ROWS, MessageInfo, Page
from delayq.producer import NewMessage, SendStatus, Sent
from delayq.states import State
from delayq.values import Command

if TYPE_CHECKING:
    from delayq.cli.session import Session
    from delayq.inspector import Counts
    from delayq.streams import DeadMessage, StreamQueue
    from delayq.workqueue.calls import Run
    from delayq.workqueue.keys import Keys

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

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


def check_queue(engine: str, name: str) -> str:
    """Return a valid name of a queue of another engine; `ConfigurationError` for any other."""
    if engine == "streams":
        from delayq.streams.keys import check_stream

        return check_stream(name)
    from delayq.workqueue import KeyPrefix

    return KeyPrefix(name).prefix


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


def open_known_stream(session: Session, name: str) -> StreamQueue[Any]:
    """Return the queue on a stream that is there, its payloads left as bytes; `NotFound` for any other."""
    if not session.executor.call(Command(("EXISTS", name), bool)):
        raise NotFound("stream", name, [])
    return open_stream(session, name, codec="bytes")


def open_to_send(session: Session, engine: str, name: str, codec: str) -> Any:
    """Return what has `send_many` and a `name`, of any engine."""
    if engine == "streams":
        return open_stream(session, name, codec=codec)
    if engine == "workqueue":
        return WorkSender(session, name, codec)
    return session.queue(name, codec=codec)


def tally(session: Session, engine: str, name: str) -> dict[str, int]:
    """Count the messages of a queue of another engine, by the states that it knows."""
    if engine == "streams":
        found = open_known_stream(session, name).counts()
        return {"ready": found.ready, "active": found.active, "backoff": found.backoff, "dead": found.dead}
    from delayq.workqueue.calls import counts

    waiting, processing = session.executor.call(_command(counts(_work_keys(session, name))))
    return {"ready": waiting, "active": processing}


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
        page = self._dead.list(limit=limit, cursor=cursor)
        return Page([_row(message) for message in page.messages], page.cursor)

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
        if id is None:
            return [message.entry for message in found]
        return [message.entry for message in found if id in (message.entry, message.id)][-1:]

    def _all(self) -> Iterator[DeadMessage]:
        page = self._dead.list(limit=MOST_ROWS)
        yield from page.messages
        while page.cursor:
            page = self._dead.list(limit=MOST_ROWS, cursor=page.cursor)
            yield from page.messages


def open_dead(session: Session, engine: str, name: str) -> Any:
    """Return a queue that is there, with its `dead`."""
    return DeadOfStream(session, name) if engine == "streams" else session.known(name)


def _row(message: DeadMessage) -> MessageInfo:
    return MessageInfo(
        id=message.id,
        state=State.DEAD,
        payload=message.payload,
        size=len(message.payload),
        due=None,
        attempts=message.attempts,
        retries_left=0,
        deadline=None,
        token=None,
        holder=None,
        headers=message.headers,
        error=message.error,
        reason=message.reason,
        died=message.died,
        entry=message.entry,
    )


class WorkSender:
    """Sends to a work queue over the connections of the command line, whose errors are delayq's own."""

    def __init__(self, session: Session, name: str, codec: str) -> None:
        """Send to the queue of a prefix."""
        self.name = name
        self._keys = _work_keys(session, name)
        self._session = session
        self._encode = find_codec(codec, None).encode

    def send_many(self, messages: Sequence[NewMessage[Any]]) -> list[Sent]:
        """Add items in one round trip; returns what became of each."""
        from delayq.workqueue import Item
        from delayq.workqueue.calls import add

        items = [Item(self._encode(message.payload), id=message.id) for message in messages]
        adding = [_command(add(self._keys, item.id().encode(), item.data(), known=False)) for item in items]
        answers = self._session.executor.run(adding)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        # A random id is new: where it is not, an answer was lost, and the item is that of our first try.
        return [
            Sent(item.id(), SendStatus.NEW if added or message.id is None else SendStatus.EXISTS)
            for message, item, added in zip(messages, items, answers, strict=True)
        ]


def _work_keys(session: Session, name: str) -> Keys:
    from delayq.clients import Cluster
    from delayq.workqueue import KeyPrefix
    from delayq.workqueue.keys import Keys

    keys = Keys(KeyPrefix(name))
    if isinstance(session.executor.client, Cluster) and not keys.tagged:
        raise ConfigurationError("on a Cluster the prefix of a work queue must hold a hash tag, such as {jobs}")
    return keys


def _command(run: Run[T]) -> Command[T]:
    return Command(run.whole, run.parse)
