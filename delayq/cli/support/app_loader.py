"""Finds the queues that a worker serves: MODULE or MODULE:QUEUE, also in the current folder, like `python -m`."""

from __future__ import annotations

import atexit
import gc
import importlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from delayq.errors import ConfigurationError, NoCallbackError, UnavailableError, did_you_mean
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.base import parts_of
from delayq.queue.consuming.starting import refusing_to_run
from delayq.queue.delay_queue import DelayQueue
from delayq.streams import AsyncStreamQueue, StreamQueue
from delayq.workqueue import AsyncWorkQueue, WorkQueue

AnyQueue = DelayQueue[Any] | AsyncDelayQueue[Any] | StreamQueue[Any] | AsyncStreamQueue[Any]

_KINDS = (DelayQueue, AsyncDelayQueue, StreamQueue, AsyncStreamQueue)
_PULLED = "the workqueue engine has no callback consumer: call lease and complete in a loop"


class _Found(NamedTuple):
    """A queue, and how the command line names it: MODULE:QUEUE."""

    target: str
    queue: AnyQueue
    from_module: bool
    """Whether only its module was named."""


def find_queues(targets: Sequence[str]) -> list[AnyQueue]:
    """Import the modules and return their queues; raises a usage error if a target is wrong or no callback is there.

    A module stands for every queue in it. A queue object with several names in its module is returned once.
    """
    found = [one for target in targets for one in _find(target)]
    ready = {parts_of(one.queue).source for one in found if not _why_not(one.queue)}
    served: dict[object, _Found] = {}
    for one in found:
        key, error = parts_of(one.queue).source, _why_not(one.queue)
        if error and one.from_module and key in ready:
            continue  # it only sends: another object of the same queue has the callback
        if error:
            raise click.UsageError(f"{one.target}: {error}{_others(one, found)}")
        if key in served:
            first = served[key].target
            same = "is given twice" if first == one.target else f"and {first} are the same queue, {one.queue.name}"
            raise click.UsageError(f"{one.target} {same}: give it once, as in delayq worker {first}")
        served[key] = one
    return [one.queue for one in served.values()]


def find_queue(target: str) -> AnyQueue:
    """Import a module and return the queue that is named, or its only one; it needs no callback."""
    found = {parts_of(one.queue).source: one for one in _find(target)}
    if len(found) > 1:
        names = ", ".join(one.target for one in found.values())
        raise click.UsageError(f"{target} has several queues: name one of {names}")
    return next(iter(found.values())).queue


def _find(target: str) -> Iterator[_Found]:
    """Yield the queues of a target, each object once."""
    name, colon, attribute = target.partition(":")
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise click.UsageError(f"{name} is a file: name the module, as in {dotted}{colon}{attribute}")
    parts = [*name.split("."), *(attribute.split(".") if colon else [])]
    if not all(part.isidentifier() for part in parts):
        raise click.UsageError(f"{target!r:.80} is not MODULE or MODULE:QUEUE, as in app or app:queue")
    module = _import(name)
    if colon:
        yield _Found(target, _attribute(module, target), from_module=False)
        return
    seen: set[int] = set()
    for other, value in vars(module).items():
        if isinstance(value, _KINDS) and id(value) not in seen:
            seen.add(id(value))
            yield _Found(f"{name}:{other}", value, from_module=True)
    if not seen:
        pulled = any(isinstance(value, WorkQueue | AsyncWorkQueue) for value in vars(module).values())
        raise click.UsageError(f"{name} has no queue{f'; {_PULLED}' if pulled else ', as in queue = DelayQueue(…)'}")


def _attribute(module: Any, target: str) -> AnyQueue:
    name, _, attribute = target.partition(":")
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            queues = [other for other, value in vars(found).items() if isinstance(value, _KINDS)]
            has = f"; it has {', '.join(queues)}" if queues else ""
            raise click.UsageError(f"{name} has no {attribute!r}{did_you_mean(part, queues) or has}")
        found = getattr(found, part)
    if isinstance(found, WorkQueue | AsyncWorkQueue):
        raise click.UsageError(_PULLED)
    if not isinstance(found, _KINDS):
        raise click.UsageError(f"{target} is not a DelayQueue, but of type {type(found).__name__}")
    return found


def _why_not(queue: AnyQueue) -> str:
    """Return why this queue cannot be consumed, "" if it can."""
    try:
        queue.handlers.find()
    except (NoCallbackError, ConfigurationError) as error:
        return str(error)
    return ""


def _others(one: _Found, found: Sequence[_Found]) -> str:
    """Return how to serve the other queues of a module."""
    ready = [other.target for other in found if not _why_not(other.queue)]
    return f"; or name the queues to serve: delayq worker {' '.join(ready)}" if one.from_module and ready else ""


def _import(name: str) -> Any:
    atexit.unregister(gc.freeze)  # files that the program leaves open are flushed when they are collected
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        with refusing_to_run('it runs as it is imported: put that under `if __name__ == "__main__":`'):
            return importlib.import_module(name)
    except UnavailableError:  # the module sends when it is imported, and Redis is down
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and (name + ".").startswith(error.name + "."):
            near = [path.stem for path in Path.cwd().glob("*.py")]
            raise click.UsageError(f"no module {error.name!r} in {here}{did_you_mean(error.name, near)}") from error
        if click.get_current_context().find_root().params.get("traceback"):
            raise
        where = _where(error)
        text = f"{name} cannot be imported: {type(error).__name__}: {error} ({where}; delayq --traceback shows more)"
        raise click.UsageError(text) from error


def _where(error: BaseException) -> str:
    """Return the last line of the user's code that an error passed through, not of delayq's."""
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(__file__).parents[2])
    own = [frame for frame in frames if not frame.filename.startswith((package, "<frozen"))]
    at = (own or frames)[-1]
    return f"{at.filename}, line {at.lineno}"
