"""Commands over several queues: QUEUE may be a pattern such as 'tenant-*', or several names if nothing follows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.broker.keys import check_pattern
from delayq.cli.support.engines import ENGINES
from delayq.cli.support.exit_codes import Exit, print_error, to_command_error
from delayq.cli.support.options import QUEUE, F, ParamType, engine_option
from delayq.cli.support.output import json_of_queue, print_line, print_note
from delayq.errors import ConfigurationError, DelayqError

if TYPE_CHECKING:
    from delayq.cli.support.session import Session

_IS_PATTERN = re.compile(r"[*?\[]")


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern: only of an engine that knows its queues, for others may have such names."""
    engine = click.get_current_context().params.get("engine", "delay")
    return bool(_IS_PATTERN.search(name)) and ENGINES[engine].capabilities.has(Feature.REGISTRY)


class _QueueOrPattern(ParamType):
    """The name of a queue, or a pattern of names."""

    name = "queue"
    shell_complete = QUEUE.shell_complete

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name or the pattern; raise a usage error for what is neither."""
        if not is_pattern(value):
            return QUEUE.convert(value, param, ctx)
        try:
            return check_pattern(value, "QUEUE")
        except ConfigurationError as error:
            raise click.UsageError(str(error), ctx) from error


def queues_with(feature: Feature, *, names: bool = False, titled: bool = True) -> Callable[[F], F]:
    """Add the argument QUEUE and `--engine`: a queue of an engine that has a feature, or a pattern of its queues.

    The command runs for each, by name. With `names`, several names and patterns may be given. Of several queues each
    has a line with its name before what is shown of it, but if not `titled`, and "queue" in its JSON. What fails in
    one queue is told on stderr and does not stop the others; the exit code is the highest.
    """

    def decorate(function: Any) -> Any:
        @wraps(function)
        def for_each(*args: Any, queue: str | tuple[str, ...], **options: Any) -> Any:
            given = (queue,) if isinstance(queue, str) else queue
            if len(given) == 1 and not is_pattern(given[0]):
                return function(*args, queue=given[0], **options)
            session: Session = click.get_current_context().obj
            if options.get("watch"):
                raise click.UsageError("--watch takes one QUEUE")
            is_json = options.get("as_json") or getattr(options.get("form"), "as_json", False)
            codes = [
                _run(function, args, {"queue": name, **options}, titled=titled and not is_json)
                for name in _meant(session, given)
            ]
            return max(codes, default=Exit.NOT_FOUND)

        argument = click.argument("queue", type=_QueueOrPattern(), nargs=-1 if names else 1, required=True)
        return argument(engine_option(feature)(for_each))

    return decorate


def _meant(session: Session, given: Iterable[str]) -> Iterator[str]:
    """Return the names of queues that names and patterns mean, each once; tells of a pattern that means none."""
    seen: set[str] = set()
    for one in given:
        found = session.queue_names(one) if is_pattern(one) else [one]
        if not found:
            print_note(f"no queue matches {one!r}")
        yield from (name for name in found if name not in seen)
        seen.update(found)


def _run(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], *, titled: bool) -> int:
    """Run the command for one queue, and return its exit code; what it raises is told with the name of the queue."""
    name = options["queue"]
    if titled:
        print_line(f"{name}:")
    try:
        with json_of_queue(name):
            return function(*args, **options) or Exit.OK
    except (click.ClickException, DelayqError) as error:
        if isinstance(error, click.UsageError):
            raise
        told = to_command_error(error) if isinstance(error, DelayqError) else error
        text = told.format_message()
        print_error(text if name in text else f"{name}: {text}")
        return getattr(told, "code", Exit.FAILURE)
