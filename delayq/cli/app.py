"""The command `delayq`: the table of commands, global options and their defaults, and error handling."""

from __future__ import annotations

import atexit
import gc
import logging
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

import delayq
from delayq.broker.transport.server_url import DEFAULT_URL
from delayq.cli.support.exit_codes import CommandError, Exit, print_error, to_command_error
from delayq.cli.support.groups import DESTRUCTIVE, MAX_LISTED, SuggestingGroup
from delayq.cli.support.options import TIMEOUT, ZONE
from delayq.cli.support.session import Session
from delayq.cli.support.standard_streams import forget, outlasting, prepare_streams
from delayq.errors import did_you_mean
from delayq.values.other_names import COMMANDS as OTHER_COMMANDS
from delayq.values.other_names import flag_hint

COMMANDS = {
    "Send and process": {
        "send": ("delayq.cli.messages.send:send", "Send one message, or many from a file."),
        "worker": ("delayq.cli.worker.worker:worker", "Process the messages of queues."),
        "relay": ("delayq.cli.worker.relay:relay", "Move due messages into a Redis stream."),
        "outbox": ("delayq.cli.worker.outbox:outbox", "Send what SQL transactions have committed."),
        "remind": ("delayq.cli.scheduling.remind:remind", "Send reminders of the events in iCalendar files."),
    },
    "Inspect": {
        "queues": ("delayq.cli.queues.queues:queues", "List the queues in use."),
        "stats": ("delayq.cli.queues.stats:stats", "Count the messages of a queue."),
        "top": ("delayq.cli.queues.top:top", "Watch queues and what runs in them, and act with keys."),
        "workers": ("delayq.cli.queues.actions:ACTIONS", "List who consumes a queue, and what they hold."),
        "history": ("delayq.cli.queues.history:history", "Show what was delivered in each hour or day, and how late."),
        "metrics": ("delayq.cli.worker.metrics:metrics", "Serve the metrics of queues to Prometheus."),
        "notify": ("delayq.cli.serving.notify:notify", "Tell people what goes wrong in a queue."),
        "web": ("delayq.cli.serving.web:web", "Serve a dashboard for browsers."),
        "health": ("delayq.cli.serving.health:health", "Tell in one line whether a queue is well."),
        "forecast": ("delayq.cli.queues.forecast:forecast", "Count what fires when, as bars."),
        "list": ("delayq.cli.messages.list:list_", "List the messages in a state."),
        "search": ("delayq.cli.messages.search:search", "Find messages that contain a text."),
        "show": ("delayq.cli.messages.list:show_", "Show one message."),
        "why": ("delayq.cli.messages.why:ACTIONS", "Tell why a message, or a queue, waits."),
        "result": ("delayq.cli.messages.list:result", "Print the result of a message, or wait for it."),
        "events": ("delayq.cli.admin.events:events", "Print or follow the event log of a queue."),
        "runs": ("delayq.cli.queues.actions:runs", "List the bulk sends of a queue."),
    },
    "Manage": {
        "cancel": ("delayq.cli.messages.actions:ACTIONS", "Cancel messages."),
        "kill": ("delayq.cli.messages.actions:ACTIONS", "Move messages to the dead letter."),
        "reschedule": ("delayq.cli.messages.actions:ACTIONS", "Change the due time of messages."),
        "edit": ("delayq.cli.messages.edit:edit", "Change a message that waits."),
        "run-now": ("delayq.cli.messages.actions:ACTIONS", "Make messages due now."),
        "dead": ("delayq.cli.messages.dead:dead", "List, redrive or purge the dead letter."),
        "schedules": ("delayq.cli.scheduling.schedules:schedules", "List, add, pause or run schedules."),
        "pause": ("delayq.cli.queues.actions:ACTIONS", "Hold back all messages of a queue or a name."),
        "resume": ("delayq.cli.queues.actions:ACTIONS", "End the pause of a queue or a name."),
        "limits": ("delayq.cli.queues.actions:limits", "Limit what starts in a time, or runs at a time."),
        "forget": ("delayq.cli.messages.forget:ACTIONS", "Erase what is kept of messages that have ended."),
        "purge": ("delayq.cli.queues.actions:ACTIONS", "Delete every message of a queue."),
        "remove": ("delayq.cli.queues.actions:ACTIONS", "Remove an empty queue."),
    },
    "Administer": {
        "acl": ("delayq.cli.admin.acl:acl", "Print the Redis permissions that a role needs."),
        "preload": ("delayq.cli.admin.acl:preload", "Load the scripts into Redis, for users who may not."),
        "doctor": ("delayq.cli.admin.doctor:doctor", "Check queues and Redis, and repair problems."),
        "partitions": ("delayq.cli.queues.partitions:partitions", "Show or change the partitions of a queue."),
        "rekey": ("delayq.cli.admin.doctor:rekey", "Encrypt what waits with another key."),
        "check": ("delayq.cli.admin.doctor:check", "Check that a program could process what waits."),
    },
    "Bulk data": {
        "plan": ("delayq.cli.bulk.local:plan", "Plan reminders for the rows of a file."),
        "load": ("delayq.cli.bulk.local:load", "Load a file of messages, or a plan, into a queue."),
        "export": ("delayq.cli.bulk.local:export", "Write the messages of a queue to a file."),
        "import": ("delayq.cli.bulk.local:import_", "Send the messages of an exported file."),
        "migrate": ("delayq.cli.admin.migrate:migrate", "Move a queue of Go's delayqueue, Celery or rq to delayq."),
        "cold": ("delayq.cli.bulk.cold:cold", "Keep what is due far ahead in files."),
        "archive": ("delayq.cli.bulk.archiving:archive", "Archive the event log of a queue as Parquet."),
        "report": ("delayq.cli.bulk.reporting:report", "Report on an archive: tables, a page, a summary."),
        "audit": ("delayq.cli.bulk.audit:audit", "Compare a plan with ledger, archive and queue."),
        "spark": ("delayq.cli.bulk.spark:spark", "Plan, load, report and audit on Spark."),
    },
    "Verify": {"torture": ("delayq.cli.admin.torture:torture", "Run a workload under faults and check its history.")},
    "Help": {
        "docs": ("delayq.cli.admin.docs:docs", "Read the handbook."),
        "tour": ("delayq.cli.admin.tour:tour", "Try the queue in ten steps."),
        "demo": ("delayq.cli.admin.demo:demo", "Watch the queue deliver real reminders."),
    },
}
"""Commands by section of the help: the name, where to load it from when it is called, and its line in the help.

Where that is a table of actions, the name is that of a row.
"""
SERVICES = {"worker", "relay", "metrics", "notify", "web"}
"""Commands that run until they are stopped: that nobody reads their output is a failure."""
READERS = {*COMMANDS["Inspect"], *COMMANDS["Help"], "acl", "export"} - SERVICES
"""Commands that end when nobody reads their output any more; all others do their work to its end."""

EPILOG = """\
Set any option in the environment (DELAYQ_PREFIX for --prefix, DELAYQ_WORKER_GRACE for --grace of worker) or in
pyproject.toml ([tool.delayq] prefix = …, [tool.delayq.worker] grace = …).

Exit codes: 0 success, 1 failure, 2 wrong usage, 3 not found, 4 problem found or unsafe Redis, 69 Redis unreachable,
130 interrupted.

Times: 2027-01-31T09:00 is in the zone of --tz, by default yours, unless it has an offset: 2027-01-31T09:00+01:00. WHEN
is such a time, now, or a time from now: +2h, -1d.

Shell completion for bash (or zsh, fish): eval "$(_DELAYQ_COMPLETE=bash_source delayq)"
"""


class Root(SuggestingGroup):
    """The group of all commands: loads a command when it is called, and prints every error as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands, in the order of the help."""
        return [name for section in COMMANDS.values() for name in section]

    def suggestion(self, ctx: click.Context, name: str) -> str:
        """Return what a command of another library is called here, else the closest."""
        if name in OTHER_COMMANDS:
            return f": here it is {OTHER_COMMANDS[name]}"
        near = did_you_mean(name, [*self.list_commands(ctx), *OTHER_COMMANDS])
        meant = next((ours for theirs, ours in OTHER_COMMANDS.items() if repr(theirs) in near), None)
        if meant is None:
            return super().suggestion(ctx, name)
        return "" if meant in DESTRUCTIVE else f": here it is {meant}"

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        """Load a command."""
        homes = {name: home for section in COMMANDS.values() for name, (home, _) in section.items()}
        if name not in homes:
            return None
        module, _, attribute = homes[name].partition(":")
        found: Any = getattr(import_module(module), attribute)
        return found[name].command() if isinstance(found, Mapping) else found  # type: ignore[no-any-return]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands by section, without loading them."""
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in section.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the paragraphs of the epilog."""
        formatter.write_paragraph()
        for paragraph in EPILOG.strip().split("\n\n"):
            formatter.write_text(paragraph.replace("\n", " "))
            formatter.write_paragraph()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn any error into a `CommandError`."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            if ctx.invoked_subcommand not in READERS:
                raise
            forget(sys.stdout)
            return Exit.OK
        except Exception as error:
            if ctx.params.get("traceback"):
                raise
            raise to_command_error(error) from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002, ARG002 - click's signature
        **extra: Any,
    ) -> NoReturn:
        """Run a command line and exit with its code; an error is one line on stderr."""
        code: int = Exit.OK
        prepare_streams()
        try:
            result = super().main(args, prog_name or "delayq", complete_var, standalone_mode=False, **extra)
            code = result if isinstance(result, int) else Exit.OK
            sys.stdout.flush()
        except click.UsageError as error:
            code = Exit.USAGE
            print_error(_usage_text(error))
        except click.ClickException as error:
            code = error.code if isinstance(error, CommandError) else error.exit_code
            print_error(error.format_message())
        except click.Abort as error:
            interrupted = isinstance(error.__cause__ or error.__context__, KeyboardInterrupt)
            code = Exit.INTERRUPTED if interrupted else Exit.FAILURE
            if not interrupted:
                print_error("cancelled: nothing was changed")
        except OSError as error:  # of the last flush
            code = Exit.OK if isinstance(error, BrokenPipeError) else Exit.FAILURE
            forget(sys.stdout)
            if code:
                print_error(to_command_error(error).format_message())
        sys.exit(code)


def _usage_text(error: click.UsageError) -> str:
    """Return one line: what is wrong, and where the right usage is described."""
    text = error.format_message().replace(" range.", ".")  # of click's types: "not a valid integer range."
    name = error.option_name if isinstance(error, click.NoSuchOption) else ""
    if isinstance(error, click.NoSuchOption):
        text = f"No such option {name!r}{flag_hint(name) or _closest(name, error)}"
    if error.ctx is not None and text.startswith("Got unexpected extra argument"):
        named = [
            param.make_metavar(error.ctx) for param in error.ctx.command.params if isinstance(param, click.Argument)
        ]
        takes = f"The arguments are {' '.join(named)}; quote one that has spaces" if named else "It takes none"
        text = f"{text.rstrip('.')}. {takes}"
    text += "" if text.endswith((".", "?")) else "."
    if error.ctx is None:
        return text
    group = _group_with(name, error.ctx)
    if group is not None:
        command = error.ctx.command_path.removeprefix(f"{group.command_path} ")
        return f"{text} {name} goes before the command: {group.command_path} {name} … {command}"
    return f"{text} See '{error.ctx.command_path} --help'."


def _group_with(option: str, ctx: click.Context) -> click.Context | None:
    """Return the group above a command that has an option of this name, if any."""
    group = ctx.parent
    while group is not None and not any(option in param.opts for param in group.command.params):
        group = group.parent
    return group


def _closest(name: str, error: click.NoSuchOption) -> str:
    """Return the option that may be meant; if none is close, the options of a command that has few."""
    near = [one for one in error.possibilities or () if one != "--help"]
    if near or error.ctx is None or _group_with(name, error.ctx):
        return did_you_mean(name, near)
    own = [param for param in error.ctx.command.params if isinstance(param, click.Option) and not param.hidden]
    names = [max(param.opts, key=len) for param in own]
    return f": the options are {', '.join(names)}" if 0 < len(names) <= MAX_LISTED else ""


# Defaults of options from `[tool.delayq]` in pyproject.toml, with a table for each command

FILE = Path("pyproject.toml")


def _load(ctx: click.Context, _: click.Parameter, config: Path | None) -> None:
    path = config or FILE
    try:
        there = path.is_file()
    except OSError as error:  # its name is too long, say
        raise click.UsageError(f"the file --config names cannot be read: {error.strerror}", ctx) from error
    if not there:
        if config is not None:
            raise click.UsageError(f"there is no file {str(path)!r}", ctx)
        return
    ctx.default_map = read_defaults(path, ctx)


def read_defaults(path: Path, ctx: click.Context) -> dict[str, Any]:
    """Read the defaults from a file, in click's format; raise a usage error for an unknown key."""
    import tomllib

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}", ctx) from error
    tool = tables.get("tool")
    table = tool.get("delayq", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise click.UsageError(f"{path}: tool.delayq must be a table", ctx)
    return _checked(table, ctx.command, ctx, f"{path}: unknown key tool.delayq")


def _checked(table: dict[str, Any], command: click.Command, ctx: click.Context, where: str) -> dict[str, Any]:
    options = {
        max(param.opts, key=len).lstrip("-").replace("-", "_"): param
        for param in command.params
        if isinstance(param, click.Option) and param.expose_value and not param.hidden
    }
    commands = command.list_commands(ctx) if isinstance(command, click.Group) else []
    checked: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if isinstance(command, click.Group) and key in commands and isinstance(value, dict):
            found = command.get_command(ctx, key)
            if found is not None:
                checked[key] = _checked(value, found, ctx, f"{where}.{key}")
        elif name in options and not isinstance(value, dict):
            checked[str(options[name].name)] = _convert(value, options[name], ctx, f"{where}.{key}")
        else:
            raise click.UsageError(f"{where}.{key}{did_you_mean(name, [*sorted(options), *commands])}", ctx)
    return checked


def _convert(value: Any, option: click.Option, ctx: click.Context, where: str) -> Any:
    """Return a value like the command line passes it: numbers and times as text, to be parsed by their type."""
    if isinstance(value, list):
        if not option.multiple:
            raise click.UsageError(f"{where.replace('unknown key ', '')} takes one value, not a list", ctx)
        return [_convert(one, option, ctx, where) for one in value]
    return value if isinstance(value, bool | str) else str(value)


config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    is_eager=True,  # it sets the defaults of the other options
    expose_value=False,
    callback=_load,
    help="Read defaults from [tool.delayq] in this file.  [default: ./pyproject.toml]",
)


# The command

# Else the interpreter searches all modules for garbage as it ends: 30 ms after any command. Not if it runs other code.
atexit.register(gc.freeze)


@click.group(
    cls=Root,
    invoke_without_command=True,
    context_settings={
        "auto_envvar_prefix": "DELAYQ",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@config_option
@click.option(
    "--url",
    metavar="URL",
    help=f"Connect to redis://, redis+sentinel:// or redis+cluster:// (rediss for TLS), or unix://."
    f"  [default: {DEFAULT_URL}]",
)
@click.option("--prefix", default="delayq", metavar="TEXT", help="Start every Redis key with TEXT.")
@click.option(
    "--timeout", type=TIMEOUT, help="Wait this long for Redis.  [default: 3s; for Sentinels and clusters 30s]"
)
@click.option("--tz", type=ZONE, metavar="ZONE", help="Show and read times in this zone.  [default: the local one]")
@click.option("--traceback", is_flag=True, help="Print the traceback of an error.")
@click.version_option(delayq.__version__, prog_name="delayq", message="%(prog)s %(version)s", allow_from_autoenv=False)
@click.pass_context
def main(ctx: click.Context, /, url: str | None, prefix: str, timeout: timedelta | None, **_: Any) -> None:
    """A reliable delay queue on Redis."""
    # Without this, Python prints warnings of the log. Commands that log set it up; others print one line for an error.
    logging.getLogger("delayq").addHandler(logging.NullHandler())
    if ctx.invoked_subcommand not in READERS | SERVICES:
        sys.stdout = outlasting(sys.stdout)
    session = ctx.obj = Session(url, prefix, timeout)
    ctx.call_on_close(session.close)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
