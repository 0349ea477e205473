"""Moves the queues of Celery and rq to delayq: sends their messages, then removes them where they were.

Ids stay. A migration that is interrupted is run again: what was sent is answered `exists` or `settled`, and is removed
then. Nothing is lost, and nothing is sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Literal, Unpack

from delayq.broker.transport.executor import open_executor
from delayq.errors import ConfigurationError, PayloadError, short_repr
from delayq.migrate.celery_queue import CeleryQueue
from delayq.migrate.migration import UUID, LeasedError, Migration, MigrationTarget, WhyLeft
from delayq.migrate.rq_queue import RqQueue
from delayq.migrate.sources import PAGE, FoundEntry, Parameters, Source
from delayq.options import QueueOptions

Library = Literal["celery", "rq"]
LIBRARIES = ("celery", "rq")


def migrate_from(
    library: Library,
    name: str,
    to: str,
    *,
    from_url: str | None = None,
    from_prefix: str = "",
    parameters: Parameters | None = None,
    dry_run: bool = False,
    take_leased: bool = False,
    tell: Callable[[Migration], object] = lambda _: None,
    **options: Unpack[QueueOptions],
) -> Migration:
    """Move the tasks of the queue `name` of `"celery"` or `"rq"` to the queue `to`, opened with the `options`.

    Each becomes a message with the name of its function, and its arguments by name as the payload, for a `task` of this
    name. `parameters` names positional arguments: `{"tasks.add": ["one", "two"]}`. Ids and times stay. What is not
    JSON, or has no place here, stays there, and is listed with the reason.

    Stop the workers first: while Redis shows tasks that they have taken, nothing is moved, and `LeasedError` is raised.
    With `take_leased` what Celery's workers have taken is moved as well; there are the tasks with an `eta`. If it is
    interrupted, run it again. `dry_run` changes nothing. `from_url` is the Redis of the other library, by default that
    of `to`; `from_prefix` is Celery's `global_keyprefix`.
    """
    if library not in LIBRARIES:
        raise ConfigurationError(f"the library must be celery or rq, not {short_repr(library)}")
    if not isinstance(name, str) or not name or name.encode("utf-8", "ignore").decode() != name:
        raise ConfigurationError(f"the name of a queue must be a non-empty string, not {short_repr(name)}")
    if library == "rq" and from_prefix:
        raise ConfigurationError("the keys of rq have no prefix of their own: leave out from_prefix")
    chosen = QueueOptions(**{**options, "codec": "json"})
    theirs = QueueOptions(url=from_url) if from_url else chosen
    result = Migration(name, to, dry_run)
    with MigrationTarget(to, **chosen) as target, closing(open_executor(theirs, target.settings)) as executor:
        source: Source
        if library == "celery":
            source = CeleryQueue(executor, name, from_prefix, parameters or {})
        else:
            source = RqQueue(executor, name, parameters or {})
        result.found = source.count()
        taken = source.leased()
        if taken and not dry_run and (library == "rq" or not take_leased):
            raise LeasedError(_leased_text(library, name, taken))
        for place, length in [*result.found.items()]:
            _move(source, target, result, tell, place=place, length=length)
        if not dry_run:
            result.came = max(0, source.count().total() - result.left.total())
    return result


def _leased_text(library: str, name: str, taken: int) -> str:
    if library == "rq":
        return f"workers of rq are running {taken:,} jobs of {name}: stop them, and run it again"
    return (
        f"workers of Celery have taken {taken:,} tasks of {name}, to run them or to hold them until their eta: stop the"
        " workers, then run it again, and move what they have left, too (take_leased)"
    )


def _move(
    source: Source,
    target: MigrationTarget,
    result: Migration,
    tell: Callable[[Migration], object],
    *,
    place: str,
    length: int,
) -> None:
    """Move one place, as many entries as it had at the start."""
    offset = 0
    while length > 0 and (page := source.page(place, offset, min(PAGE, length))):
        length -= len(page)
        movable = [one for one in page if one.message is not None]
        for one in page:
            if one.why is not None:
                result.leave(place, one.id, one.why)
        if result.dry_run:
            result.moved[place] += len(movable)
            offset += len(page)
        else:
            ours = _sent(target, result, place, movable)
            if ours and source.remove(place, ours) < len(ours):
                raise LeasedError(
                    f"workers are running: they took messages of {result.name} during the move, which may be delivered"
                    f" twice; stop them, and run it again ({result.moved.total():,} were moved before)"
                )
            result.moved[place] += len(ours)
            offset += len(page) - len(ours)
        tell(result)


def _sent(
    target: MigrationTarget, result: Migration, place: str, entries: Sequence[FoundEntry]
) -> Sequence[FoundEntry]:
    """Send messages; return those that are in the target now, by this send or an earlier one."""
    messages: list[Any] = [one.message for one in entries]
    if not messages:
        return []
    try:
        statuses = target.send_many(messages)
    except (ConfigurationError, PayloadError):  # of one of them, before any was sent
        if len(entries) > 1:
            return [sent for one in entries for sent in _sent(target, result, place, [one])]
        result.leave(place, entries[0].id, WhyLeft.REFUSED)
        return []
    ours = []
    for one, message, sent in zip(entries, messages, statuses, strict=True):
        existing = None if sent.new else target.get(message.id)
        if sent.new or (existing.payload == message.payload if existing else UUID.fullmatch(message.id)):
            ours.append(one)
        else:
            result.leave(place, one.id, WhyLeft.FOREIGN_ID)
    return ours
