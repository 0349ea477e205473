"""What several commands take: the types of their arguments, and the options that they share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from delayq.cli.text import clean
from delayq.clock import milliseconds, timestamp
from delayq.errors import ConfigurationError
from delayq.keys import check_id, check_name

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])


class _Checked(_ParamType):
    """A type whose values delayq itself checks; its words are the user's answer."""

    def __init__(self, name: str, read: Callable[[Any, str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._read(value, max(param.opts, key=len) if param else self.name)
        except ConfigurationError as error:
            raise click.UsageError(str(error), ctx) from error


class _QueueName(_Checked):
    """The name of a queue, of the engine that `--engine` says; the shell completes it from those in use."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        engine = ctx.params.get("engine", "delay") if ctx else "delay"
        if engine == "delay":
            return super().convert(value, param, ctx)
        return _Checked(self.name, lambda given, _: _queue_elsewhere(engine, given)).convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        from click.shell_completion import CompletionItem

        from delayq.cli.session import Session
        from delayq.errors import DelayqError

        found = ctx.find_root().params
        try:
            session = Session(found.get("url"), found.get("prefix") or "delayq", timedelta(seconds=1))
            names = session.names()
            session.close()
        except DelayqError:
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _queue_elsewhere(engine: str, name: str) -> str:
    """Return a valid name of a queue of another engine; `ConfigurationError` for any other."""
    if engine == "streams":
        from delayq.streams.keys import check_stream

        return check_stream(name)
    from delayq.workqueue import KeyPrefix

    return KeyPrefix(name).prefix


class _MessageId(_Checked):
    """The id of a message, or of an item of a work queue, which may be any text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if ctx and ctx.params.get("engine") == "workqueue":
            return value
        return super().convert(value, param, ctx)


def _duration(value: Any, name: str, least: int = 0) -> timedelta:
    if isinstance(value, str) and value.replace(".", "", 1).isdecimal():
        value = float(value)
    return timedelta(milliseconds=milliseconds(value, name, least=least))


def _time(value: Any, name: str) -> datetime:
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{name} must look like 2027-01-31T09:00+01:00, not {value!r:.60}") from error
    if at.utcoffset() is None:
        raise ConfigurationError(f"{name} needs a time zone, as in {at.isoformat()}Z or {at.isoformat()}+01:00")
    timestamp(at, name)
    return at


QUEUE = _QueueName("queue", lambda value, _: check_name(value))
ID = _MessageId("id", lambda value, _: check_id(value))
DURATION = _Checked("duration", _duration)
TIMEOUT = _Checked("duration", lambda value, name: _duration(value, name, least=100))
TIME = _Checked("time", _time)


class _JsonOption(click.Option):
    """`--json`, whose value is called `as_json`: in the environment it has its own name all the same."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return os.environ.get(f"{ctx.auto_envvar_prefix}_JSON") or None


queue_argument = click.argument("queue", type=QUEUE)
codec_option = click.option(
    "--codec",
    type=click.Choice(["json", "text", "bytes"]),
    default="json",
    show_default=True,
    help="How the queue stores payloads.",
)
json_option = click.option("--json", "as_json", cls=_JsonOption, is_flag=True, help="Print JSON, for machines.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Count, and change nothing.")


def _of_streams(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Refuse on the command line what other engines have not; elsewhere it may be set for all commands alike."""
    given = ctx.get_parameter_source(str(param.name)) is click.core.ParameterSource.COMMANDLINE
    if given and ctx.params["engine"] != "streams":
        raise click.UsageError(f"{param.opts[-1]} goes with --engine streams", ctx)
    return value


group_option = click.option(
    "--group", metavar="NAME", callback=_of_streams, help="Of a stream: its consumer group.  [default: workers]"
)
lease_option = click.option(
    "--lease",
    type=DURATION,
    callback=_of_streams,
    help="Of a stream: the lease of its consumers, by which deadlines are reckoned.  [default: 30s]",
)


def due_options(function: F) -> F:
    """Add `--delay` and `--at`."""
    function = click.option(
        "--at", type=TIME, metavar="TIME", help="Due at a time with its zone: 2027-01-31T09:00+01:00."
    )(function)
    return click.option("--delay", type=DURATION, metavar="DURATION", help="Due after 90s, 10m, 1h30m, 7d.")(function)


def page_options(function: F) -> F:
    """Add `--limit`, `--cursor` and `--all`."""
    function = click.option("--all", is_flag=True, help="Go on to the last page.")(function)
    function = click.option("--cursor", metavar="CURSOR", help="Begin where an earlier page ended.")(function)
    return click.option(
        "--limit",
        type=click.IntRange(1, 1000),
        metavar="N",
        default=50,
        show_default=True,
        help="Entries a page looks at.",
    )(function)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed; without a terminal to ask on, `--yes` is needed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on: give --yes, or --dry-run to count first")
    click.confirm(clean(question), abort=True, err=True)
