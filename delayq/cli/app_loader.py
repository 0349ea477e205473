"""Finds the queue that a worker serves: MODULE:QUEUE, also in the current folder, like `python -m`."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from delayq.errors import UnavailableError, did_you_mean
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_queue import DelayQueue
from delayq.streams import AsyncStreamQueue, StreamQueue
from delayq.workqueue import AsyncWorkQueue, WorkQueue

AnyQueue = DelayQueue[Any] | AsyncDelayQueue[Any] | StreamQueue[Any] | AsyncStreamQueue[Any]

_KINDS = (DelayQueue, AsyncDelayQueue, StreamQueue, AsyncStreamQueue)


def find_queue(target: str) -> AnyQueue:
    """Import the module and return its queue; raises a usage error if the target is wrong."""
    name, colon, attribute = target.partition(":")
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise click.UsageError(f"{name} is a file: name the module, as in {dotted}:{attribute or 'queue'}")
    if not colon or not all(part.isidentifier() for part in (*name.split("."), *attribute.split("."))):
        raise click.UsageError(f"{target!r:.80} is not MODULE:QUEUE, as in app:queue")
    found: Any = _import(name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            queues = [other for other, value in vars(found).items() if isinstance(value, _KINDS)]
            has = f"; it has {', '.join(queues)}" if queues else ""
            raise click.UsageError(f"{name} has no {attribute!r}{did_you_mean(part, queues) or has}")
        found = getattr(found, part)
    if isinstance(found, WorkQueue | AsyncWorkQueue):
        raise click.UsageError("the workqueue engine has no callback consumer: call lease and complete in a loop")
    if not isinstance(found, _KINDS):
        raise click.UsageError(f"{target} is not a DelayQueue, but of type {type(found).__name__}")
    return found


def _import(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
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
    package = str(Path(__file__).parents[1])
    own = [frame for frame in frames if not frame.filename.startswith((package, "<frozen"))]
    at = (own or frames)[-1]
    return f"{at.filename}, line {at.lineno}"
