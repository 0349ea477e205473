"""The options by which `delayq worker` delivers messages without code, and the queue and the callback they make."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from delayq.cli.engines import GROUP
from delayq.cli.options import DURATION, QUEUE

if TYPE_CHECKING:
    from delayq.cli.session import Session
    from delayq.deliver import Adapter
    from delayq.queue import DelayQueue
    from delayq.streams import StreamQueue

    _Text = click.ParamType[Any]
else:
    _Text = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])

WAYS = ("log", "webhook", "smtp", "command")
FIRST_WAIT = "10s"
GROWTH = 4
"""What each wait after a failed delivery is times the one before: with three retries a minute's outage is outlasted."""


class _Lines(_Text):
    """A text that may be given several times; in the environment, a line each."""

    name = "text"
    envvar_list_splitter = "\n"


FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

_OPTIONS = [
    click.option("--queue", type=QUEUE, metavar="QUEUE", help="With --deliver: the queue to process."),
    click.option("--deliver", type=click.Choice(WAYS), help="Deliver messages in this way, without code of yours."),
    click.option("--deliver-timeout", type=DURATION, help="How long a delivery waits for the other side."),
    click.option("--retry-delay", type=DURATION, help=f"First wait after a failure.  [default: {FIRST_WAIT}]"),
    click.option("--webhook-url", metavar="URL", help="Where messages are posted to."),
    click.option("--webhook-header", type=_Lines(), multiple=True, metavar="NAME=VALUE", help="Sent with each."),
    click.option("--webhook-secret-file", type=FILE, help="Holds the secret; else DELAYQ_WEBHOOK_SECRET does."),
    click.option("--smtp-host", metavar="HOST", help="The mail server."),
    click.option("--smtp-port", type=click.IntRange(1, 65_535), metavar="PORT", help="Its port."),
    click.option("--smtp-tls", type=click.Choice(["starttls", "ssl", "off"]), help="[default: starttls]"),
    click.option("--smtp-user", metavar="USER", help="Logs in, if given."),
    click.option("--smtp-password-file", type=FILE, help="Holds the password; else DELAYQ_SMTP_PASSWORD does."),
    click.option("--smtp-from", metavar="ADDRESS", help="The sender of the mails."),
    click.option("--smtp-to", type=_Lines(), multiple=True, metavar="TEMPLATE", help="As '{email}'."),
    click.option("--smtp-subject", metavar="TEMPLATE", help="As '{summary}'."),
    click.option("--smtp-body-file", type=FILE, help="The template of the text; else it is the payload."),
]
NEEDED: dict[str, tuple[str, ...]] = {
    "log": (),
    "webhook": ("webhook_url",),
    "smtp": ("smtp_host", "smtp_from", "smtp_to", "smtp_subject"),
    "command": (),
}


def deliver_options(function: F) -> F:
    """Add the options of a delivery without code."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def names(ctx: click.Context) -> Iterator[str]:
    """Yield the names of these options as the command's parameters have them."""
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name.startswith(("deliver", "webhook_", "smtp_")) or name in ("queue", "engine", "group", "retry_delay"):
            yield name


def hand_down(ctx: click.Context) -> None:
    """Put the options into the environment, from which child processes take them: a command line is for all to see."""
    for name in names(ctx):
        value = ctx.params[name]
        if isinstance(value, timedelta):
            value = f"{value.total_seconds()}"
        elif isinstance(value, tuple):
            value = "\n".join(value)
        if value is not None:
            os.environ[f"DELAYQ_WORKER_{name.upper()}"] = str(value)


def check(ctx: click.Context, words: Sequence[str]) -> None:
    """Refuse, as a usage error, what does not go together or is missing."""
    way: str | None = ctx.params["deliver"]
    given = [name for name in names(ctx) if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    if way is not None:
        wrong = _wrong(way, ctx.params, given, words)
    elif given:
        wrong = f"{_flag(given[0])} goes with --deliver"
    else:
        wrong = "" if len(words) == 1 else "name one MODULE:QUEUE, or --queue and --deliver"
    if wrong:
        raise click.UsageError(wrong, ctx)


def _wrong(way: str, options: dict[str, Any], given: Sequence[str], words: Sequence[str]) -> str:
    """Return what is wrong with a delivery, "" if nothing is."""
    if options["queue"] is None:
        return "--deliver needs --queue"
    for name in given:
        if name.startswith(("webhook_", "smtp_")) and not name.startswith(f"{way}_"):
            return f"{_flag(name)} does not go with --deliver {way}"
    for name in NEEDED[way]:
        if not options[name]:
            return f"--deliver {way} needs {_flag(name)}"
    if way == "command":
        return "" if words else "--deliver command needs a program: -- PROGRAM [ARGUMENT]…"
    return f"{words[0]!r:.80} does not go with --deliver {way}" if words else ""


def adapter(options: dict[str, Any], words: Sequence[str]) -> Adapter:
    """Return the callback that the options ask for; `ConfigurationError` for those that it does not take."""
    from delayq.deliver import Command, Log, Smtp, Webhook

    timing = {} if options["deliver_timeout"] is None else {"timeout": options["deliver_timeout"]}
    match options["deliver"]:
        case "webhook":
            _silence("httpx", "httpcore")
            secret, headers = _secret(options["webhook_secret_file"]), _headers(options["webhook_header"])
            return Webhook(options["webhook_url"], secret=secret, headers=headers, **timing)
        case "smtp":
            body = options["smtp_body_file"]
            return Smtp(
                options["smtp_host"],
                options["smtp_port"],
                sender=options["smtp_from"],
                to=options["smtp_to"],
                subject=options["smtp_subject"],
                tls=options["smtp_tls"] or "starttls",
                user=options["smtp_user"],
                password=_secret(options["smtp_password_file"]),
                **({"body": _text(body)} if body else {}),
                **timing,
            )
        case "command":
            return Command(words, **timing)
        case _:
            return Log()


def open_queue(session: Session, options: dict[str, Any]) -> DelayQueue[Any] | StreamQueue[Any]:
    """Return the queue: its payloads as they are stored, what has failed delivered again later and later."""
    from delayq.backoff import Backoff
    from delayq.config import QueueOptions
    from delayq.queue import DelayQueue
    from delayq.streams import StreamQueue

    first = options["retry_delay"] or FIRST_WAIT
    timeout = options["deliver_timeout"] or timedelta()
    chosen = QueueOptions(
        codec="bytes",
        nack_delay=Backoff.exponential(first, factor=GROWTH, jitter=0.1),
        # A delivery may take its time: what another process could begin with at once must not wait behind it.
        prefetch=0,
        max_consume_duration=max(timedelta(minutes=10), 3 * timeout),
    )
    if options["engine"] == "streams":
        return StreamQueue(options["queue"], group=options["group"] or GROUP, **chosen)
    chosen["prefix"] = session.prefix
    return DelayQueue(options["queue"], **chosen)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{str(file)!r} cannot be read as text") from error


def _secret(file: Path | None) -> str | None:
    """Return the secret that a file holds; without a file, None."""
    secret = _text(file).strip() if file else None
    if file and not secret:
        raise click.UsageError(f"there is no secret in {str(file)!r}")
    return secret


def _headers(lines: Sequence[str]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals:
            raise click.UsageError("--webhook-header must look like NAME=VALUE")  # and is not shown: it may be secret
        headers[name] = value.strip()
    return headers


def _silence(*loggers: str) -> None:
    """Keep URLs and headers out of the log: there are secrets in them."""
    import logging

    for name in loggers:
        logging.getLogger(name).setLevel(logging.WARNING)
