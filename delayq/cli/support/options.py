"""Arguments and options that several commands share, and their types."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from delayq.broker.engine import Feature
from delayq.broker.keys import check_pattern
from delayq.cli.support.engines import ENGINES, GROUP, EngineCommands
from delayq.cli.support.zones import read_time, read_zone
from delayq.errors import ConfigurationError, DelayqError
from delayq.values.rates import parse_rate
from delayq.values.states import MESSAGE_STATES
from delayq.values.text import clean
from delayq.values.times import to_millis

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])
"""A function that options are added to."""

# Types

WHEN_EXAMPLES = "2027-01-31T09:00, now, +2h or -1d"
MAX_DIGITS = 15
"""Digits of a number of seconds that is read exactly."""


class Checked(ParamType):
    """A type whose values the library checks; its error message becomes a usage error."""

    def __init__(self, name: str, read: Callable[[Any, str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value, or raise a usage error."""
        try:
            return self._read(value, max(param.opts, key=len) if param else self.name)
        except ConfigurationError as error:
            raise click.UsageError(str(error), ctx) from error


class _QueueName(Checked):
    """The name of a queue, which the shell completes from the existing queues."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        from click.shell_completion import CompletionItem

        from delayq.cli.support.session import Session

        found = ctx.find_root().params
        try:
            session = Session(found.get("url"), found.get("prefix") or "delayq", timedelta(seconds=1))
            names = session.queue_names()
            session.close()
        except DelayqError:
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _engine() -> type[EngineCommands]:
    engine = click.get_current_context().params.get("engine")  # plans and loads have another option of this name
    return ENGINES.get(str(engine), ENGINES["delay"]).commands


def _duration(value: Any, name: str, min: int = 0) -> timedelta:
    if isinstance(value, str) and value.replace(".", "", 1).isdecimal():
        value = int(value) if value.isdecimal() and len(value) < MAX_DIGITS else float(value)  # errors show it
    return timedelta(milliseconds=to_millis(value, name, min=min))


def _when(value: Any, name: str) -> datetime:
    """Return a time: ISO 8601, in the zone of the command unless it has an offset, `now`, or a duration from now."""
    if value == "now":
        return datetime.now(UTC)
    if isinstance(value, str) and value[:1] in ("+", "-"):
        ahead = _duration(value[1:], name)
        return datetime.now(UTC) + (ahead if value[0] == "+" else -ahead)
    return read_time(value, name, WHEN_EXAMPLES)


def _server_when(value: Any, name: str) -> str:
    """Return a time as `_when` does, as text: `now` and durations from now are of the server's clock."""
    if isinstance(value, str) and value[:1] in ("+", "-"):
        _duration(value[1:], name)
        return value
    return "now" if value == "now" else read_time(value, name, WHEN_EXAMPLES).isoformat()


# The engine given by `--engine` decides what a name or an id may be.
QUEUE = _QueueName("queue", lambda value, _: _engine().check_queue(value))
PATTERN = Checked("pattern", check_pattern)
ID = Checked("id", lambda value, _: _engine().check_id(value))
STORED_ID = Checked("id", lambda value, _: _engine().check_stored_id(value))
DURATION = Checked("duration", _duration)
TIMEOUT = Checked("duration", lambda value, name: _duration(value, name, min=100))
WHEN = Checked("time", _when)
SERVER_WHEN = Checked("time", _server_when)
LOCAL_TIME = Checked("time", read_time)
ZONE = Checked("zone", read_zone)
RATE = Checked("rate", lambda value, name: parse_rate(value, name) and value)


class _Until(click.ParamType[Any]):
    """A duration from now, or a time, in the zone of the command unless it has an offset."""

    name = "until"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta | datetime:
        """Return a duration or a time: what has a dash is a time."""
        if isinstance(value, str) and not value[:1].isdigit():
            name = max(param.opts, key=len) if param else self.name
            raise click.UsageError(f"{name} must look like 2h or 2027-01-31T09:00, not {value!r:.60}", ctx)
        is_time = isinstance(value, datetime) or (isinstance(value, str) and "-" in value)
        return (LOCAL_TIME if is_time else DURATION).convert(value, param, ctx)  # type: ignore[no-any-return]


UNTIL = _Until()


# The queue and its engine


def engine_option(feature: Feature | None = None) -> Callable[[F], F]:
    """Add `--engine` to a command, for the engines that have a feature; any other is refused.

    If only the delay queue has it, the option is hidden and the command does not get its value.
    """
    offering = [name for name, one in ENGINES.items() if feature is None or one.capabilities.has(feature)]

    def check(_: click.Context, __: click.Parameter, engine: str) -> str:
        if feature is not None:
            ENGINES[engine].capabilities.require(feature)
        return engine

    notes = ", ".join(f"{name}: {ENGINES[name].queue}" for name in offering)
    return click.option(
        "--engine",
        type=click.Choice(list(ENGINES)),
        default="delay",
        is_eager=True,  # the check of QUEUE depends on it
        expose_value=len(offering) > 1,
        hidden=len(offering) == 1,
        callback=check,
        help=f"Select the kind of queue, and so what QUEUE is ({notes}).",
    )


def queue_with(feature: Feature | None = None) -> Callable[[F], F]:
    """Add the argument QUEUE and `--engine`: a queue of an engine that has a feature."""
    return lambda function: click.argument("queue", type=QUEUE)(engine_option(feature)(function))


def _for_groups(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Refuse the option on the command line for engines without groups; the environment may set it for all commands."""
    on_command_line = ctx.get_parameter_source(str(param.name)) is click.core.ParameterSource.COMMANDLINE
    if on_command_line and not ENGINES[ctx.params["engine"]].capabilities.has(Feature.GROUPS):
        raise click.UsageError(f"{param.opts[-1]} needs --engine streams", ctx)
    return value


group_option = click.option(
    "--group", metavar="NAME", callback=_for_groups, help=f"Use this consumer group (streams).  [default: {GROUP}]"
)
lease_option = click.option(
    "--lease", type=DURATION, callback=_for_groups, help="Compute deadlines from this lease (streams).  [default: 30s]"
)

# Other options


def add_options(options: Sequence[Callable[[F], F]], function: F) -> F:
    """Add options to a command, in their order."""
    for option in reversed(options):
        function = option(function)
    return function


class _JsonOption(click.Option):
    """`--json`: the parameter is called `as_json`, the environment variable DELAYQ_<COMMAND>_JSON."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return os.environ.get(f"{ctx.auto_envvar_prefix}_JSON") or None


json_option = click.option("--json", "as_json", cls=_JsonOption, is_flag=True, help="Print JSON.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would happen; change nothing.")
reveal_option = click.option("--reveal", is_flag=True, help="Show what the queue redacts.")
_codecs = click.Choice(["json", "text", "bytes"])
max_payload_option = click.option(
    "--max-payload", type=click.IntRange(1), default=1 << 20, metavar="BYTES", help="Refuse longer payloads."
)
codec_option = click.option("--codec", type=_codecs, default="json", help="Encode payloads like the queue does.")


def retries_option(default: str = "3") -> Callable[[F], F]:
    """Add `--retries`."""
    help = f"Redeliver a failed message at most N times.  [default: {default}]"  # noqa: A001 - click's name for it
    return click.option("--retries", type=click.IntRange(0), metavar="N", help=help)


def states_option(verb: str) -> Callable[[F], F]:
    """Add `--state`, which may be repeated; the command gets all states that messages have if it is left out."""
    states = [str(state) for state in MESSAGE_STATES]
    return click.option(
        "--state",
        "states",
        type=click.Choice(states),
        multiple=True,
        default=states,
        show_default=False,
        metavar="STATE",
        help=f"{verb} the messages in this state; repeatable: {', '.join(states)}.  [default: all]",
    )


def _read_headers(_: click.Context, __: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    headers = {}
    for text in pairs:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{name!r:.60} without a {'value' if name else 'name'} is not NAME=VALUE")
        headers[name] = value
    return headers


header_option = click.option(
    "--header", multiple=True, metavar="NAME=VALUE", callback=_read_headers, help="Add a header; repeatable."
)


def due_options(function: F) -> F:
    """Add `--delay` and `--at`."""
    delay = click.option("--delay", type=DURATION, help="Deliver after this time: 90s, 10m, 1h30m, 7d.")
    at = click.option("--at", type=WHEN, metavar="WHEN", help="Deliver at this time: 2027-01-31T09:00, +2h.")
    return delay(at(function))


class Paging(NamedTuple):
    """Which pages of a list are wanted."""

    limit: int
    cursor: str | None
    all: bool


def options_as(kind: Any, parameter: str, options: Sequence[Callable[[Any], Any]]) -> Callable[[F], F]:
    """Add options that the command gets as one parameter: a NamedTuple whose fields are named after them."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*arguments: Any, **values: Any) -> Any:
            values[parameter] = kind(**{name: values.pop(name) for name in kind._fields})
            return function(*arguments, **values)

        for option in reversed(options):
            call = option(call)
        return cast("F", call)

    return decorate


_LIMIT = click.IntRange(1, 1000)
_limit_option = click.option("--limit", type=_LIMIT, metavar="N", default=50, help="Read at most N a page.")
_cursor_option = click.option("--cursor", metavar="CURSOR", help="Start where an earlier page ended.")
page_options = options_as(
    Paging, "paging", [_limit_option, _cursor_option, click.option("--all", is_flag=True, help="Read all pages.")]
)


def confirm(question: str, *, yes: bool, dry_run: bool = True) -> None:
    """Ask before deleting something; without a terminal to ask on, `--yes` is required.

    `dry_run` says whether the command has this option.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        hint = ", or --dry-run to count first" if dry_run else ""
        raise click.UsageError(f"cannot ask for confirmation without a terminal: give --yes{hint}")
    click.confirm(clean(question), abort=True, err=True)
