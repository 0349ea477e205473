"""The command `delayq`: its table of commands, the options before them, and what becomes of an error."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any, NoReturn

import click

import delayq
from delayq.cli.defaults import config_option
from delayq.cli.failure import Exit, Failure, did_you_mean, failure_of, redact
from delayq.cli.options import TIMEOUT
from delayq.cli.session import Session
from delayq.cli.text import clean
from delayq.config import DEFAULT_URL

COMMANDS = {
    "Send and process": {
        "send": ("delayq.cli.send:send", "Send one message, or many from a file."),
        "worker": ("delayq.cli.worker:worker", "Process the messages of a queue."),
        "relay": ("delayq.cli.relay:relay", "Move due messages into a Redis stream."),
        "remind": ("delayq.cli.remind:remind", "Remind of the events of iCalendar files."),
    },
    "Look": {
        "queues": ("delayq.cli.queues:queues", "List the queues in use."),
        "stats": ("delayq.cli.queues:stats", "Count the messages of a queue."),
        "list": ("delayq.cli.messages:list_", "List the messages in a state."),
        "show": ("delayq.cli.messages:show_", "Show one message."),
        "events": ("delayq.cli.events:events", "Print or follow the event log of a queue."),
        "runs": ("delayq.cli.events:runs", "List the bulk sends of a queue."),
    },
    "Steer": {
        "cancel": ("delayq.cli.steer:cancel", "Withdraw messages."),
        "reschedule": ("delayq.cli.steer:reschedule", "Give a message a new due time."),
        "dead": ("delayq.cli.dead:dead", "List, redrive or purge the dead letter."),
        "schedules": ("delayq.cli.schedules:schedules", "List, add, pause or run schedules."),
        "purge": ("delayq.cli.steer:purge", "Delete every message of a queue."),
    },
    "Guard": {
        "acl": ("delayq.cli.acl:acl", "Print the rights in Redis that a role needs."),
        "preload": ("delayq.cli.acl:preload", "Load the scripts into Redis, for users that may not."),
        "doctor": ("delayq.cli.doctor:doctor", "Find what is wrong with queues and Redis, and mend it."),
    },
    "Bulk data": {
        "migrate": ("delayq.cli.migrate:migrate", "Take over a queue of the Go library."),
        "spark": ("delayq.cli.spark:spark", "Plan, load, archive, report and audit on Spark."),
    },
    "Prove": {
        "torture": ("delayq.cli.torture:torture", "Run a workload under faults and judge its history."),
    },
    "Learn": {
        "docs": ("delayq.cli.docs:docs", "Read the handbook."),
        "demo": ("delayq.cli.demo:demo", "See the queue at work on real reminders."),
    },
}
"""By section of the help: the command's name, where it is (loaded when it is called), and its line in the help."""

EPILOG = """\
Every option can be set in the environment (--prefix is DELAYQ_PREFIX, --grace of worker is DELAYQ_WORKER_GRACE) and
in pyproject.toml ([tool.delayq] prefix = …, [tool.delayq.worker] grace = …).

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 unsafe Redis, 69 Redis out of reach,
130 interrupted.

Completion, for bash (or zsh, fish): eval "$(_DELAYQ_COMPLETE=bash_source delayq)"
"""


class Root(click.Group):
    """The group of all commands: loads each when it is called, and ends every failure in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands, in the order of the help."""
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        """Load a command."""
        for section in COMMANDS.values():
            if name in section:
                module, _, attribute = section[name][0].partition(":")
                command: click.Command = getattr(import_module(module), attribute)
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant; say which one may have been meant."""
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"no command {name!r}{did_you_mean(name, known)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the commands by section, without loading them."""
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in section.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the epilog as it stands."""
        formatter.write_paragraph()
        for paragraph in EPILOG.strip().split("\n\n"):
            formatter.write_text(paragraph.replace("\n", " "))
            formatter.write_paragraph()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and make any error the failure that it means."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            broken_pipe = isinstance(error, OSError) and error.errno == errno.EPIPE
            if broken_pipe or ctx.params.get("traceback"):
                raise
            raise failure_of(error) from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002, ARG002 - click's signature
        **extra: Any,
    ) -> NoReturn:
        """Run a command line and exit as it ends: any failure is one line on stderr."""
        code: int = Exit.OK
        try:
            result = super().main(args, prog_name or "delayq", complete_var, standalone_mode=False, **extra)
            code = result if isinstance(result, int) else Exit.OK
            sys.stdout.flush()
        except click.UsageError as error:
            code = Exit.USAGE
            text = error.format_message()
            _tell(f"{text if text.endswith(('.', '?')) else text + '.'}{_help_of(error)}")
        except click.ClickException as error:
            code = error.code if isinstance(error, Failure) else error.exit_code
            _tell(error.format_message())
        except click.Abort as error:
            interrupted = isinstance(error.__cause__ or error.__context__, KeyboardInterrupt)
            code = Exit.INTERRUPTED if interrupted else Exit.FAILURE
            if not interrupted:
                _tell("nothing was done")
        except BrokenPipeError:
            # Whoever read our output has gone; the interpreter must not try to flush it again.
            sys.stdout = open("/dev/null", "w")  # noqa: SIM115, PTH123
            code = Exit.FAILURE
        sys.exit(code)


def _tell(text: str) -> None:
    click.echo(f"delayq: {redact(clean(text))}", err=True)


def _help_of(error: click.UsageError) -> str:
    if error.ctx is None:
        return ""
    root = error.ctx.find_root()
    if isinstance(error, click.NoSuchOption) and any(error.option_name in param.opts for param in root.command.params):
        return f" {error.option_name} goes before the command: delayq {error.option_name} … {error.ctx.info_name}"
    return f" See '{error.ctx.command_path} --help'."


@click.group(
    cls=Root,
    invoke_without_command=True,
    context_settings={"auto_envvar_prefix": "DELAYQ", "help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@config_option
@click.option(
    "--url",
    metavar="URL",
    help=f"Where Redis is: redis://, redis+sentinel:// or redis+cluster:// (each with rediss for TLS), or unix://."
    f"  [default: {DEFAULT_URL}]",
)
@click.option("--prefix", default="delayq", show_default=True, help="First part of every key.")
@click.option("--timeout", type=TIMEOUT, default="3s", show_default=True, help="How long Redis is waited for.")
@click.option("--traceback", is_flag=True, help="Show where an error comes from.")
@click.version_option(delayq.__version__, prog_name="delayq", message="%(prog)s %(version)s", allow_from_autoenv=False)
@click.pass_context
def main(ctx: click.Context, url: str | None, prefix: str, timeout: timedelta, traceback: bool) -> None:  # noqa: ARG001, FBT001
    """A reliable delay queue on Redis."""
    session = ctx.obj = Session(url, prefix, timeout)
    ctx.call_on_close(session.close)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
